"""Finds in a trace why ranks wait: work that comes before a send or a call, and work that could fill a wait."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from lib import COLLECTIVES, COMPUTING, TIMED, Goal, Op, Report, Trace, computing

WORK = COMPUTING | {"update"}


class Loss(NamedTuple):
    """A sentence, and the time in ticks that it explains, of one rank."""

    text: str
    ticks: int


def losses(trace: Trace, report: Report, goal: Goal) -> list[Loss]:
    """What explains most waiting, first. Of work that could come earlier, what has no room in memory is left out."""
    found: Counter[str] = Counter()
    for rank in range(len(trace.ranks)):
        walked = _Rank(rank, trace, report)
        for loss in (*walked.late_calls(), *walked.late_sends(), *walked.early_work(goal)):
            found[loss.text] += loss.ticks
    several = [*(Loss(text, ticks) for text, ticks in found.items()), *_postponable(trace, report)]
    return sorted(several, key=lambda loss: -loss.ticks)


class _Rank:
    """One rank's operations: when each was called, and where each value was made."""

    def __init__(self, rank: int, trace: Trace, report: Report) -> None:
        self.rank, self.trace, self.report = rank, trace, report
        self.ops = trace.ranks[rank]
        self.made = _made(self.ops)
        self.waits = {i: self._wait(i) for i in report.waits[rank]}

    def _wait(self, index: int) -> int:
        """Ticks between what this rank did before an operation and its start."""
        before = max((op.end for op in self.ops[:index] if self.advances(op)), default=0)
        return max(0, self.ops[index].start - before)

    def advances(self, op: Op) -> bool:
        """True for what this rank does itself, before anything else."""
        return op.name in TIMED and computing(op, self.trace.costs)

    def late_sends(self) -> Iterator[Loss]:
        """Sends that this rank waits for, and before which another rank does something else."""
        for index, (sender, place) in self.report.waits[self.rank].items():
            ops = self.trace.ranks[sender]
            if ops[place].name == "pass_to" and (before := _work_before(ops, place, _made(ops))) is not None:
                yield Loss(
                    f"{line_of(ops[place])} sends after the {before.name} on {line_of(before).lower()}, and other "
                    "ranks wait: send first.",
                    self.waits[index],
                )

    def late_calls(self) -> Iterator[Loss]:
        """Calls that overlap with computation, are awaited for some time, and could have been made earlier."""
        clock = 0
        for i, op in enumerate(self.ops):
            if op.name == "await":
                place = op.args[0]
                call = self.ops[place]
                if call.end > clock:
                    yield from self._late_call(i, place, call.end - clock)
                clock = max(clock, op.end)
            elif self.advances(op):
                clock = op.end

    def _late_call(self, awaited: int, place: int, ticks: int) -> Iterator[Loss]:
        call, name = self.ops[place], self.ops[place].name
        if call.name not in COLLECTIVES:
            return
        made = sorted(self.made.get(number, -1) for number in call.inputs)
        last, first = (_compute_between(self.ops, since, place) for since in (made[-1], made[0]))
        where, joined = line_of(call), line_of(self.ops[awaited]).lower()
        if last is not None:
            text = f"{where} calls `{name}` after the {last.name} on {line_of(last).lower()}, which does not need it"
            yield Loss(f"{text}, and {joined} waits: call it first.", ticks)
        elif first is not None:
            text = f"{where} calls `{name}` when the last of its {len(made)} values is there, and {joined} waits"
            yield Loss(f"{text}: call it sooner, with fewer values.", ticks)
        elif _compute_between(self.ops, place, awaited) is None:
            text = f"{where} calls `{name}`, and nothing is computed before {joined} awaits it"
            yield Loss(f"{text}: do work in between that does not need it.", ticks)

    def early_work(self, goal: Goal) -> Iterator[Loss]:
        """Computations after a wait that need nothing from it, and have room in memory before it."""
        memory, events = self.report.ranks[self.rank].memory, _events(self.ops)
        for index, ticks in self.waits.items():
            if self.ops[index].name != "receive" or not ticks:
                continue
            ready = set(range(index))
            for i in range(index + 1, len(self.ops)):
                op = self.ops[i]
                if not all(self.made.get(number, i) in ready for number in op.inputs):
                    continue
                if op.name not in COMPUTING or op.name == "update":
                    if op.name not in TIMED:
                        ready.add(i)
                    continue
                at = events[i]
                needs = max(0, max(memory[at : at + 2]) - memory[at - 1])
                if goal.meets_memory(max(memory[events[index] : at + 1]) + needs):
                    text = f"Ranks wait on {line_of(self.ops[index]).lower()} before the {op.name} on"
                    yield Loss(f"{text} {line_of(op).lower()}, which needs nothing from it: do it first.", ticks)
                break


def _postponable(trace: Trace, report: Report) -> Iterator[Loss]:
    """Weight halves that the end of the run waits for."""
    found: Counter[int] = Counter()
    ticks = 0
    path = report.critical_path
    for (rank, index), (following, _) in pairwise(path):
        op = trace.ranks[rank][index]
        if op.name == "backward_weight" and following == rank:
            found[op.line] += 1
            ticks += op.end - op.start
    for line, times in found.most_common(1):
        where = f" on line {line}" if line else ""
        text = f"The run waits for {times} `backward_weight`{where}, which only the update needs"
        yield Loss(f"{text}: keep them for when a rank waits.", ticks)


def _made(ops: tuple[Op, ...]) -> dict[int, int]:
    """By number of a value: the index of the operation that made it."""
    return {number: i for i, op in enumerate(ops) for number in op.outputs}


def _events(ops: tuple[Op, ...]) -> list[int]:
    """For each operation its number among those that take time, by which memory is recorded."""
    numbers, number = [], 0
    for op in ops:
        numbers.append(number)
        number += op.name in TIMED
    return numbers


def _work_before(ops: tuple[Op, ...], index: int, made: dict[int, int]) -> Op | None:
    """The first computation between the operation that made what is sent and the send; None if there is none."""
    return _compute_between(ops, max((made.get(number, -1) for number in ops[index].inputs), default=-1), index)


def _compute_between(ops: tuple[Op, ...], start: int, end: int) -> Op | None:
    return next((op for op in ops[start + 1 : end] if op.name in WORK), None)


def line_of(op: Op) -> str:
    """'Line 12', or 'A call' where it is not known."""
    return f"Line {op.line}" if op.line else "A call"
