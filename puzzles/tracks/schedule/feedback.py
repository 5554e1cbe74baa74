"""What a verdict says of a correct schedule: advice where it misses a target, and a comparison where it passes.

Advice comes from the run itself, such as why ranks wait or what nobody reads again, and says no more than two things:
what explains most waiting, of what has room in memory. It never shows the reference's order, because finding it is the
puzzle. A pass is compared with lower bounds, with the best schedules known of its kind and of any kind, and with the
calls of the reference, where that is installed. Records that need an idea of a later puzzle are named as such, and cost
no star.

Rejected: comparing the order of calls with the reference's, because a schedule has many good orders. Rejected: a search
for a better schedule on every verdict, which takes seconds; `puzzles solve` does that.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import accumulate, pairwise
from typing import NamedTuple

from lib import COLLECTIVES, COMPUTING, TIMED, Goal, Op, Record, Report, Trace, computing, referee, trace_from_json
from lib.errors import Sentences
from lib.ledger.algebra import counted, named
from lib.ledger.family import PIPELINES
from lib.ledger.goal import figures_text
from lib.ledger.memory import UNREAD, peak_rows
from lib.ledger.values import Activation
from lib.pipelines import Recognition, recognize, recomputed
from lib.pipelines.bounds import (
    Bound,
    memory_bound,
    pipeline_memory_bound,
    pipeline_time_bound,
    time_bound,
    traffic_bound,
)
from puzzles.catalog.path import place_of, taught_in
from puzzles.catalog.schedule import PUZZLES, SchedulePuzzle
from puzzles.catalog.schedule_papers import with_papers
from puzzles.tracks.outcomes import SEE_NOTE, amount, listed, number_text

# --- A target is missed ---


SAYS = Sentences(
    {
        "full host": "Park fewer values, and delete a parked one when it has come back.",
        "unread at the peak": "{where}, and {elements:,} elements of it are never read again: {what}. Delete them before that.",
        "needed at the peak": "{where}, and all of it is still needed. {most}. {way}",
        "weight halves left": "{left} weight halves are left to compute. Do some of them earlier: each frees an activation.",
        "several microbatches": "These are activations of {batches} microbatches: go backward with one before you go forward with the next.",
        "all tokens": "Keep only this rank's share of the tokens, and gather it again for backward.",
        "compute again": "Delete some of these activations, and compute them again in backward.",
        "unread weight gradients": "{line} computes {many} that nobody reads: use `backward_input` there.",
        "late send": "{line} sends after the {before} on {line_before}, and other ranks wait: send first.",
        "late call": "{line} calls `{name}` after the {before} on {line_before}, which does not need it, and {joined} waits: call it first.",
        "small calls": "{line} calls `{name}` for {values}, but the calls before it have not ended, and {joined} waits: make fewer calls, each with more values.",
        "large call": "{line} calls `{name}` when the last of its {values} values is there, and {joined} waits: call it sooner, with fewer values.",
        "nothing in between": "{line} calls `{name}`, and nothing is computed before {joined} awaits it: do the {other} on {line_other} in between, which does not need it.",
        "late work": "Ranks wait on {line} before the {work} on {line_work}, which needs nothing from it: do it first.",
        "weight halves last": "The run waits for {times} `backward_weight`{where}, which only the update needs: keep them for when a rank waits.",
    }
)

MAX_CAUSES = 2
"""Sentences on what costs most."""


def advice(trace: Trace, report: Report, puzzle: SchedulePuzzle) -> str:
    """Which pipeline the run is like, and one or two sentences on how to meet the missed target."""
    pipeline = recognize(trace)
    built = f"This is {pipeline.text}. " if pipeline is not None and pipeline.stages else ""
    return built + _on_target(trace, report, puzzle)


def _on_target(trace: Trace, report: Report, puzzle: SchedulePuzzle) -> str:
    if causes := traffic_sentences(report):
        return causes
    if not report.meets_memory:
        return _on_memory(trace, report, puzzle)
    if not report.meets_time:
        return _on_time(trace, report, puzzle)
    if not report.is_steady:
        return _on_loading(report, puzzle)
    if not report.meets_drift:
        return "Average the weights more often."
    return SAYS("full host")


def _on_loading(report: Report, puzzle: SchedulePuzzle) -> str:
    """How to load less, or to keep what the next step needs."""
    if report.unrepeatable and puzzle.reload_advice:
        return puzzle.reload_advice
    if "allgather" in puzzle.calls and not puzzle.reload_advice:
        return "Load the part of a weight that the rank keeps, and get the rest from the others with `allgather`."
    if report.unrepeatable:
        return "Keep the updated weight to the end, or get it from the rank that updates it."
    return "Load each weight once, on the rank that keeps it, and keep the updated weight to the end."


def traffic_sentences(report: Report) -> str:
    """Why a schedule sends too much, or takes too long because of what it sends: at most two sentences."""
    if report.causes:
        return " ".join(cause.text for cause in report.causes[:MAX_CAUSES])
    if report.meets_traffic:
        return ""
    first = report.traffic_by_call[0]
    where = f"Line {first.line}" if first.line else "One call"
    return (
        f"{where} sends most: `{first.operation}`, {first.number} times, {first.elements:,} elements "
        f"({first.elements / report.traffic:.0%})."
    )


def _on_memory(trace: Trace, report: Report, puzzle: SchedulePuzzle) -> str:
    """What nobody reads again at the peak; if all of it is still needed, what takes most."""
    peak, rows = report.peak, peak_rows(report.contents)
    where = f"The memory of rank {peak.rank} peaks at t={peak.time:g}"
    unread = [row for row in rows if row.unread]
    if unread:
        elements = sum(row.elements for row in unread)
        what = "; ".join(f"{row.what}{row.when.removeprefix(UNREAD)}" for row in unread[:MAX_CAUSES])
        return SAYS("unread at the peak", where=where, elements=elements, what=what)
    first = rows[0]
    most = f"The largest part is {first.what} ({first.elements:,} elements, {first.when})"
    return SAYS("needed at the peak", where=where, most=most, way=_way_to_keep_less(trace, report, puzzle))


def _way_to_keep_less(trace: Trace, report: Report, puzzle: SchedulePuzzle) -> str:
    """What reduces a peak of which everything is still needed, by what most of it is."""
    goal = puzzle.goal
    items = [item for item in report.contents.items if isinstance(item.value, Activation)]
    batches = {value.batches for item in items if isinstance(value := item.value, Activation)}
    forwards = (op for op in trace.ranks[report.peak.rank] if op.name == "forward")
    again = trace.costs.steps(max((op.end - op.start for op in forwards), default=0))
    if 2 * sum(item.elements for item in items) < report.peak.memory:
        lost = losses(trace, report, goal) if not report.meets_time else []
        return lost[0].text if lost else "Do the work in another order, or keep less."
    before = (op for op in trace.ranks[report.peak.rank] if op.end <= report.contents.tick)
    left = batches.intersection(op.batches for op in before if op.name == "backward_input")
    if left:
        if len(left) == 1:
            return "One weight half is left to compute. Do it earlier: it frees an activation."
        return SAYS("weight halves left", left=len(left))
    if len(batches) > 1:
        return SAYS("several microbatches", batches=len(batches))
    if trace.setting.layer == "block" and "scatterreduce" in puzzle.calls:
        return SAYS("all tokens")
    if goal.size.ranks == 1 and goal.meets_time(report.timesteps + again):
        return SAYS("compute again")
    return "Do the work in another order, or keep less."


def _on_time(trace: Trace, report: Report, puzzle: SchedulePuzzle) -> str:
    """Work that could be left out or could come later; else how much the ranks wait."""
    waits = [loss.text for loss in losses(trace, report, puzzle.goal)]
    found = [*_repeated(trace), *_unread_gradients(trace, puzzle), *waits]
    if found:
        return " ".join(found[:MAX_CAUSES])
    if report.bubble < 0.001:
        return "No rank ever waits, so a shorter run needs less work on the busiest rank."
    share = f"Ranks wait for {report.bubble:.0%} of the time"
    return f"{share}: look for gaps in the picture. What could a rank do meanwhile?"


def _repeated(trace: Trace) -> Iterator[str]:
    """Forwards that are computed again, on the rank that repeats most."""
    if trace.setting.steps > 1:
        return
    repeated = [[ops[i] for i in sorted(recomputed(ops))] for ops in trace.ranks]
    ops = max(repeated, key=len, default=[])
    if not ops:
        return
    layers = named("layer", sorted({op.layer for op in ops if op.layer is not None}))
    times = f"{len(ops)} forwards" if len(ops) > 1 else "a forward"
    yield f"{line_of(ops[0])} computes {times} of {layers} again: keep an activation where there is room for it."


def _unread_gradients(trace: Trace, puzzle: SchedulePuzzle) -> Iterator[str]:
    """Weight gradients of full backwards that nobody reads, where backward has halves."""
    for ops in trace.ranks if "backward_input" in puzzle.calls else ():
        read = {number for op in ops if op.name not in ("store", "delete") for number in op.inputs}
        unread = [op for op in ops if op.name == "backward" and op.outputs[0] not in read]
        if unread:
            many = f"{len(unread)} weight gradients" if len(unread) > 1 else "a weight gradient"
            yield SAYS("unread weight gradients", line=line_of(unread[0]), many=many)
            return


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
            if ops[place].name != "pass_to":
                continue
            made = _made(ops)
            last = max((made.get(number, -1) for number in ops[place].inputs), default=-1)
            if (before := _compute_between(ops, last, place)) is not None:
                line, line_before = line_of(ops[place]), line_of(before).lower()
                sentence = SAYS("late send", line=line, before=before.name, line_before=line_before)
                yield Loss(sentence, self.waits[index])

    def late_calls(self) -> Iterator[Loss]:
        """Calls that overlap with computation, are awaited for some time, and could have been made earlier."""
        clock, issued = 0, dict[int, int]()
        for i, op in enumerate(self.ops):
            if op.name == "await":
                place = op.args[0]
                call = self.ops[place]
                if call.end > clock:
                    yield from self._late_call(i, place, call.end - clock, issued.get(place, clock))
                clock = max(clock, op.end)
            elif op.name in COLLECTIVES:
                issued[i] = clock
            elif self.advances(op):
                clock = op.end

    def _late_call(self, awaited: int, place: int, ticks: int, issued: int) -> Iterator[Loss]:
        """What makes a call late that is made at tick `issued` and waited for: it could come earlier, or its lane is
        busy, or other work could be done meanwhile."""
        call, name = self.ops[place], self.ops[place].name
        if call.name not in COLLECTIVES or not call.inputs:  # without inputs it waits for others' values
            return
        made = sorted(self.made.get(number, -1) for number in call.inputs)
        first = _compute_between(self.ops, made[0], place)
        last = self._early_enough(made[-1], place, ticks)
        what = {"line": line_of(call), "name": name, "joined": line_of(self.ops[awaited]).lower()}
        costs = self.trace.costs
        costs_a_call = any(prices.get(name) for prices in (costs.calls, costs.alpha, costs.alpha_between))
        if last is not None:
            yield Loss(SAYS("late call", **what, before=last.name, line_before=line_of(last).lower()), ticks)
        elif costs_a_call and 2 * (call.start - issued) > ticks:
            yield Loss(SAYS("small calls", **what, values=counted(len(made), "value")), ticks)
        elif first is not None:
            yield Loss(SAYS("large call", **what, values=len(made)), ticks)
        elif _compute_between(self.ops, place, awaited) is None and (i := self._independent_of(place)) is not None:
            other, line_other = self.ops[i].name, line_of(self.ops[i]).lower()
            yield Loss(SAYS("nothing in between", **what, other=other, line_other=line_other), ticks)

    def _early_enough(self, start: int, place: int, ticks: int) -> Op | None:
        """The last computation between two operations such that a call before it would have ended `ticks` earlier; if
        none is long enough, the first one."""
        between: list[Op] = [op for op in self.ops[start + 1 : place] if op.name in WORK]
        for op in between[::-1]:
            ticks -= op.end - op.start
            if ticks <= 0:
                return op
        return between[0] if between else None

    def _independent_of(self, index: int) -> int | None:
        """The first computation after an operation that needs nothing from it, nor from a timed one after it."""
        ready = set(range(index))
        for i in range(index + 1, len(self.ops)):
            op = self.ops[i]
            if all(self.made.get(number, i) in ready for number in op.inputs):
                if op.name in COMPUTING and op.name != "update":
                    return i
                if op.name not in TIMED:
                    ready.add(i)
        return None

    def early_work(self, goal: Goal) -> Iterator[Loss]:
        """Computations after a wait that need nothing from it, and have room in memory before it."""
        memory, events = self.report.ranks[self.rank].memory, _events(self.ops)
        for index, ticks in self.waits.items():
            if self.ops[index].name != "receive" or not ticks:
                continue
            if (i := self._independent_of(index)) is None:
                continue
            op, at = self.ops[i], events[i]
            needs = max(0, max(memory[at : at + 2]) - memory[at - 1])
            if goal.meets_memory(max(memory[events[index] : at + 1]) + needs):
                line, line_work = line_of(self.ops[index]).lower(), line_of(op).lower()
                yield Loss(SAYS("late work", line=line, work=op.name, line_work=line_work), ticks)


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
        yield Loss(SAYS("weight halves last", times=times, where=where), ticks)


def _made(ops: tuple[Op, ...]) -> dict[int, int]:
    """By number of a value: the index of the operation that made it."""
    return {number: i for i, op in enumerate(ops) for number in op.outputs}


def _events(ops: tuple[Op, ...]) -> list[int]:
    """For each operation its number among those that take time, by which memory is recorded."""
    return list(accumulate((op.name in TIMED for op in ops), initial=0))[:-1]


def _compute_between(ops: tuple[Op, ...], start: int, end: int) -> Op | None:
    return next((op for op in ops[start + 1 : end] if op.name in WORK), None)


def line_of(op: Op) -> str:
    """'Line 12', or 'A call' where it is not known."""
    return f"Line {op.line}" if op.line else "A call"


# --- It passed ---


Figures = tuple[float, int, int | None]

BEYOND = "With"
"""How the sentence on a record begins that needs a later idea."""


def standing(puzzle: SchedulePuzzle, figures: Mapping[str, float], stars: int, family: str = "") -> str:
    """Sentences on the third star, on the family where it is not the puzzle's own, and on the open front.

    A `family` that is not known is empty, and taken for the puzzle's own.
    """
    return " ".join(_sentences(puzzle, figures, stars, family))


def third_star(puzzle: SchedulePuzzle, figures: Mapping[str, float], stars: int, family: str = "") -> str:
    """The sentences of `standing` that say what the third star takes, or that it is earned; empty if a note says it."""
    said = list(_sentences(puzzle, figures, stars, family))
    if SEE_NOTE in said:
        return ""
    if _is_own(puzzle, family):
        said = [said[0], *(sentence for sentence in said[1:] if sentence.startswith(BEYOND))]
    return " ".join(said)


def _sentences(puzzle: SchedulePuzzle, figures: Mapping[str, float], stars: int, family: str) -> Iterator[str]:
    point = figures_of(figures)
    return _own(puzzle, point, stars) if _is_own(puzzle, family) else _other(puzzle, point, stars, family)


def _is_own(puzzle: SchedulePuzzle, family: str) -> bool:
    return family in ("", puzzle.goal.family)


def _own(puzzle: SchedulePuzzle, point: Figures, stars: int) -> Iterator[str]:
    goal = puzzle.goal
    has_others = any(not record.is_of(goal.family) for record in goal.open_front)
    ahead = _soonest(puzzle, point)
    of_this_kind = f" of this kind ({goal.family})" if has_others else ""
    own, any_kind = _best(goal.rivals(goal.family), point), _best(goal.open_front, point)
    if stars >= 3:
        yield f"Three stars: no better schedule{of_this_kind} is known{' with the ideas so far' if ahead else ''}."
    else:
        yield _to_beat(goal, own, f"Best known{of_this_kind}{' with the ideas so far' if ahead else ''}")
    if ahead:
        slugs = taught_in(goal.untold(ahead))
        ideas = "later ideas" if len(slugs) > 1 else "a later idea"
        yield f"{BEYOND} {ideas} ({listed([f'`{slug}`' for slug in slugs])}): {goal.words(ahead)}."
    if not has_others:
        return
    if any_kind is None:
        yield "No schedule of any kind known at this size is better."
    elif any_kind != own:
        yield f"Of any kind at this size: {goal.words(any_kind)} ({any_kind.family})."


def _soonest(puzzle: SchedulePuzzle, point: Figures) -> Record | None:
    """Of the better records that need a later idea, the one whose ideas come first on the path."""

    def place(record: Record) -> int:
        return max(map(place_of, taught_in(puzzle.goal.untold(record))))

    better = [record for record in puzzle.goal.beyond if record.dominates(*point)]
    return min(better, key=lambda record: (place(record), record.figures[:2]), default=None)


def _other(puzzle: SchedulePuzzle, point: Figures, stars: int, family: str) -> Iterator[str]:
    goal = puzzle.goal
    yield f"This is {family}, and the puzzle is about {goal.family}. It is compared with all schedules of this size."
    if stars >= 3:
        yield "Three stars: none of them is better."
    else:
        better = _best(goal.rivals(family), point)
        yield _to_beat(goal, better, f"Best known ({better.family})" if better else "")


def _to_beat(goal: Goal, better: Record | None, which: str) -> str:
    """What the third star takes; if no record is better, a note is what costs it."""
    if better is None:
        return SEE_NOTE
    return f"{which}: {goal.words(better)}. Match it for the third star."


def _best(records: Sequence[Record], point: Figures) -> Record | None:
    """The fastest of the records that are better."""
    better = [record for record in records if record.dominates(*point)]
    return min(better, key=lambda record: record.figures[:2], default=None)


def figures_of(figures: Mapping[str, float]) -> Figures:
    """The figures in which schedules are compared: timesteps, elements at the peak and elements sent."""
    traffic = figures.get("traffic")
    return figures["timesteps"], int(figures["peak_memory"]), None if traffic is None else int(traffic)


NO_BOUND = Bound(0, "")


def above_possible(
    trace: Trace,
    found: Recognition,
    figures: Mapping[str, float],
    records: Sequence[Record] = (),
    time_limit: float = 0,
) -> Iterator[str]:
    """Sentences that compare a schedule's figures with the bounds of its size, and a pipeline's with the bound of its
    stages, unless one of the `records` is a faster pipeline: then that has other stages. What has to be sent is said of
    schedules that take less than `time_limit`."""
    size, setting = trace.size, trace.setting
    least, floor = time_bound(size, setting), memory_bound(size, setting)
    own = pipeline_time_bound(size, setting, found.stages) if found.stages else NO_BOUND
    beaten = any(record.timesteps < own.least for record in records if record.family in ("", *PIPELINES))
    bounds = [(own, "a pipeline with these stages")] if own.least > least.least and not beaten else []
    bounds += [(least, "any schedule")] if least.least else []
    if bounds:
        timesteps = figures["timesteps"]
        yield f"Time: {'; '.join(_above(timesteps, bound, setting.costs.time_unit, where) for bound, where in bounds)}."
    if beaten:
        yield "The fastest pipeline known at this size has other stages; with these stages, no schedule is as fast."
    peak, until = figures["peak_memory"], max(time_limit, figures["timesteps"])
    kept = pipeline_memory_bound(size, setting, found.stages, until) if found.stages else NO_BOUND
    lower = any(record.peak_memory < kept.least for record in records if record.family in ("", *PIPELINES))
    of_stages = f"a pipeline with these stages that takes at most {setting.costs.took(until)} and sends no input twice"
    bounds = [(kept, of_stages)] if floor.least < kept.least <= peak and not lower else []
    bounds += [(floor, "any schedule")] if floor.least else []
    if bounds:
        yield f"Memory: {'; '.join(_above(peak, bound, 'elements', where) for bound, where in bounds)}."
    sent = traffic_bound(size, setting, time_limit)
    if sent.least and "traffic" in figures and time_limit:
        fast = f"any schedule below {setting.costs.took(time_limit)}"
        yield f"Traffic: {_above(figures['traffic'], sent, 'elements sent by a rank', fast)}."


def _above(figure: float, bound: Bound, unit: str, where: str) -> str:
    """'any schedule needs at least 30.4 steps (...), and this one takes 2.9 more'."""
    more = round(figure - bound.least, 3)
    this = f"{number_text(more)} more" if more else "no more"
    least = amount(bound.least, unit)
    return f"{where} needs at least {least} ({bound.reason}), and this one takes {this}"


def comparison(puzzle: SchedulePuzzle, figures: Mapping[str, float], kept: str) -> Iterator[str]:
    """Sentences on how far the schedule is from what is possible, and on what the reference does differently, where it
    is installed."""
    if not kept:
        return
    trace = trace_from_json(kept)
    found = recognize(trace)
    if found is not None:
        yield from above_possible(trace, found, figures, puzzle.goal.records, puzzle.goal.time_limit)
    known = reference_run(puzzle.slug)
    if known is None:
        return
    reference, report = known
    theirs, mine = _counts(reference), _counts(trace)
    differing = [
        f"{name} {counted(theirs[name], 'time')} (you: {mine[name]})"
        for name in sorted(mine | theirs)
        if mine[name] != theirs[name]
    ]
    sent = report.traffic if "traffic" in figures else None
    same = (report.timesteps, report.peak.memory, sent) == figures_of(figures)
    if differing:
        yield f"The reference calls {', '.join(differing)}, counted over all ranks."
    elif same:
        yield "The reference makes the same calls."
    if not same:
        taken = figures_text(report.timesteps, report.peak.memory, sent, report.costs.time_words)
        yield f"The reference takes {taken}."


def recognized(puzzle: SchedulePuzzle, kept: str) -> str:
    """What the schedule is called, with its papers; empty if it has no name, or if that is only its family, which
    `standing` names where it is not the puzzle's own."""
    found = recognize(trace_from_json(kept)) if kept else None
    if found is None or (found.family != puzzle.goal.family and found.text == found.family):
        return ""
    return with_papers(found)


@cache
def reference_run(slug: str) -> tuple[Trace, Report] | None:
    """The reference solution's run at the shown size, and the referee's report; None where it is not installed."""
    from lib.ledger.runner import played  # here, since it loads asyncio

    try:
        solution = getattr(import_module(f"solutions.{slug}"), slug)
    except ImportError:
        return None
    goal = PUZZLES[slug].goal
    trace = played(solution, goal.size, goal.setting).trace
    return trace, referee(trace)


def _counts(trace: Trace) -> Counter[str]:
    return Counter(op.name for ops in trace.ranks for op in ops if op.name in TIMED and op.name != "receive")
