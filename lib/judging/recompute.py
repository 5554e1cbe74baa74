"""Runs a trace again, by the rules alone: every value, every clock, every meeting. Believes nothing it can derive."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NoReturn

from lib import rules
from lib.costs import elements_sent
from lib.deadlock import Standstill, explain
from lib.errors import DeadlockError, PuzzleError, RuleError, TraceError
from lib.trace import FORMS, NO_BATCHES, TIMED, Op, Trace, place_text
from lib.values.algebra import set_text
from lib.values.base import Value, copy_of
from lib.values.kinds import HOLDS, Weight


@dataclass(slots=True, eq=False)
class Part:
    """One rank's part of the trace, as far as it has been run again."""

    rank: int
    ops: tuple[Op, ...]
    at: int = 0
    clock: int = 0
    values: dict[int, Value] = field(default_factory=dict)
    stored: dict[tuple[str, object], int] = field(default_factory=dict)
    final: list[Weight] = field(default_factory=list)
    inbox: dict[int, tuple[list[Value], int, int]] = field(default_factory=dict)
    """By sender: the values, the tick at which they have been sent, and the index of the sender's operation."""
    given: set[int] = field(default_factory=set)
    """Numbers of the values that were made by hand or by a model of another Dist."""
    read: dict[int, int] = field(default_factory=dict)
    """By index of a pass_to: the tick at which its message is received."""
    held_up: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By index of an event that had to wait: the rank, and the index there, of what it waited for."""
    events: list[int] = field(default_factory=list)
    """Indices of the timed operations."""
    messages: int = 0
    elements: int = 0
    """Elements sent, in messages and collectives (ring-optimal)."""


class Retrace:
    """The run of a trace. `made_up` lists the values that no operation made; `strict` refuses them."""

    def __init__(self, trace: Trace, strict: bool = False) -> None:
        self.trace = trace
        self.size = trace.size
        self.costs = trace.costs
        self.strict = strict
        self.parts = [Part(rank, ops) for rank, ops in enumerate(trace.ranks)]
        self.made_up: list[str] = []
        self._ready = deque(self.parts)
        self._joined: dict[int, Part] = {}

    def run(self) -> None:
        """Runs every rank to its end.

        Raises:
            PuzzleError: the first thing that is against the rules, with its place.
        """
        if len(self.parts) != self.size.ranks:
            raise TraceError(f"the trace is of {self.size.ranks} ranks and holds {len(self.parts)}")
        while self._ready:
            self._run_on(self._ready.popleft())
        stuck = [part for part in self.parts if part.at < len(part.ops)]
        if stuck:
            self._stand_still(stuck)
        for part in self.parts:
            for source, (_, _, i) in sorted(part.inbox.items()):
                op = self.parts[source].ops[i]
                raise RuleError(
                    f"this message was never received; let rank {part.rank} receive it, or do not send it",
                    place_text(source, op.start, op.call()),
                    op.line,
                )
        rules.complete(self.size, [weight for part in self.parts for weight in part.final])

    def _run_on(self, part: Part) -> None:
        """Runs one rank until it ends or has to wait for another."""
        ops = part.ops
        op = None
        try:
            while part.at < len(ops):
                op = ops[part.at]
                if op.name == "store" or op.name == "delete":
                    self._keep(part, op)
                elif not self._do(part, op):
                    return
        except PuzzleError as why:
            assert op is not None
            raise why.at(place_text(part.rank, part.clock, op.call()), op.line) from None
        except (TypeError, ValueError, AttributeError) as why:
            place = place_text(part.rank, part.clock, f"operation {part.at}")
            raise TraceError(f"this record makes no sense ({why}): {op}", place) from None

    def _do(self, part: Part, op: Op) -> bool:
        """Performs one operation; False if it has to wait for another rank."""
        name = op.name
        form = FORMS.get(name)
        if form is None:
            raise TraceError(f"there is no operation {name!r}")
        if (
            (op.layer is None) is form.layer
            or (form.uses is not None and len(op.used) != form.uses)
            or len(op.args) != len(form.args)
        ):
            raise TraceError(f"a record of {name} holds {form.describe()}; this one is {op}")
        values = part.values
        try:
            used = [values[number] for number in op.used]
        except KeyError as missing:
            raise TraceError(f"it uses value {missing}, which this rank has not made") from None
        if part.given and self.strict:
            self._refuse_given(part, op)
        if name in rules.LOCAL_RULES:
            made = rules.LOCAL_RULES[name](self.size, op, used)
            batches, items = NO_BATCHES, 1
            if name in rules.BATCHED:
                batches = made[0].batches  # type: ignore[attr-defined]  # what BATCHED means
                items = len(batches)
            self._confirm(part, op, made, part.clock, self.costs.duration(name, items), batches)
            if name == "fake_grad" and batches:
                if self.strict:
                    raise RuleError(
                        f"nobody computed the gradient of batches {set_text(batches)}; go forward and backward with "
                        "them (a puzzle allows fake_grad only without batches, as a zero)"
                    )
                self.made_up.append(f"a gradient from fake_grad, of batches {set_text(batches)} that nobody computed")
            elif name == "set_final_weight":
                part.final.append(used[0])  # type: ignore[arg-type]  # the rule has checked that it is a weight
        elif name in rules.COLLECTIVES:
            return self._join(part, op, used[0])
        elif name == "pass_to":
            return self._post(part, op, used)
        elif name == "receive":
            return self._receive(part, op)
        else:
            (value,) = op.args
            self.made_up.append(f"the {value}, made by hand or by a model of another Dist")
            part.given.add(len(values))
            self._confirm(part, op, (copy_of(value),), part.clock, 0)
        return True

    def _keep(self, part: Part, op: Op) -> None:
        """Stores or deletes: most of a trace, so this looks at each column once."""
        name, start, end, layer, batches, used, made, args, _ = op
        if start != part.clock or end != start or layer is not None or batches or made or len(args) != 2:
            raise TraceError(f"to {name} takes no time, and makes nothing; this record is {op}")
        if name == "store":
            (number,) = used
            value = part.values.get(number)
            if value is None:
                raise TraceError(f"it stores value {number}, which this rank has not made")
            if HOLDS.get(args[0]) is not type(value):
                raise RuleError(f"{args[0]} does not hold {value.kind}")
            if part.given and self.strict:
                self._refuse_given(part, op)
            part.stored[args] = number
        elif used or part.stored.pop(args, None) is None:
            raise RuleError("nothing is stored there")
        part.at += 1

    def _refuse_given(self, part: Part, op: Op) -> None:
        for number in part.given.intersection(op.used):
            raise RuleError(
                f"the {part.values[number]} was made by hand or by a model of another Dist; "
                "in a puzzle, get it from this model's own operations"
            )

    def _confirm(
        self,
        part: Part,
        op: Op,
        made: tuple[Value, ...] | list[Value],
        start: int,
        ticks: int,
        batches: frozenset[int] = NO_BATCHES,
    ) -> None:
        """Checks the derived columns of a record, and takes its step."""
        if op.start != start or op.end != start + ticks:
            raise TraceError(f"it takes place from tick {start} to {start + ticks}, not {op.start} to {op.end}")
        if op.batches is not batches and op.batches != batches:
            raise TraceError(f"it is of batches {sorted(batches)}, not {sorted(op.batches)}")
        if made or op.made:
            first = len(part.values)
            if op.made != tuple(range(first, first + len(made))):
                raise TraceError(f"it makes {len(made)} values from number {first} on, not {list(op.made)}")
            for number, value in zip(op.made, made):
                part.values[number] = value
        if op.name in TIMED:
            part.events.append(part.at)
            part.clock = op.end
        part.at += 1

    def _join(self, part: Part, op: Op, value: Value) -> bool:
        rules.contribute(self.size, op.name, op.layer, value)  # type: ignore[arg-type]  # FORMS says it has one
        self._joined[part.rank] = part
        if len(self._joined) < self.size.ranks:
            return False
        parts, self._joined = self.parts, {}
        ops = [p.ops[p.at] for p in parts]
        rules.agree([(o.name, o.layer) for o in ops], lambda rank: self._told(rank))  # type: ignore[misc]
        values = [p.values[o.used[0]] for p, o in zip(parts, ops)]
        results = rules.COLLECTIVE_RULES[op.name](values)
        last = max(parts, key=lambda p: p.clock)
        start, last_at = last.clock, last.at
        ticks = self.costs.duration(op.name)
        for p, o, brought, result in zip(parts, ops, values, results):
            if p.clock < start:
                p.held_up[p.at] = (last.rank, last_at)
            elements = elements_sent(op.name, brought.memory(self.costs), self.size.ranks)
            p.elements += elements
            try:
                self._confirm(p, o, (result,), start, ticks)
            except PuzzleError as why:
                raise why.at(place_text(p.rank, p.clock, o.call()), o.line) from None
            if p is not part:
                self._ready.append(p)
        return True

    def _post(self, part: Part, op: Op, used: list[Value]) -> bool:
        (to,) = op.args
        rules.partner(self.size, part.rank, to)
        receiver = self.parts[to]
        if part.rank in receiver.inbox:
            return False
        receiver.inbox[part.rank] = (used, op.end, part.at)
        elements = elements_sent("pass_to", sum(value.memory(self.costs) for value in used), self.size.ranks)
        part.messages += 1
        part.elements += elements
        self._confirm(part, op, (), part.clock, self.costs.duration("pass_to", max(1, len(used))))
        self._call(receiver, "receive", part.rank)
        return True

    def _receive(self, part: Part, op: Op) -> bool:
        (source,) = op.args
        if source not in part.inbox:
            return False
        values, sent, sent_at = part.inbox.pop(source)
        if sent > part.clock:
            part.held_up[part.at] = (source, sent_at)
        start = max(part.clock, sent)
        self.parts[source].read[sent_at] = start
        self._confirm(part, op, values, start, self.costs.duration("receive", max(1, len(values))))
        self._call(self.parts[source], "pass_to", part.rank)
        return True

    def _call(self, part: Part, name: str, partner: int) -> None:
        """Lets a rank go on that waits for `partner` in this operation."""
        if part.at < len(part.ops):
            op = part.ops[part.at]
            if op.name == name and op.args == (partner,):
                self._ready.append(part)

    def _told(self, rank: int) -> str:
        op = self.parts[rank].ops[self.parts[rank].at]
        return f"rank {rank} calls {op.call()} on line {op.line}"

    def _stand_still(self, stuck: list[Part]) -> NoReturn:
        first = stuck[0].ops[stuck[0].at]
        place = place_text(stuck[0].rank, stuck[0].clock, first.call())
        joined = [self._joined.get(part.rank) for part in self.parts]
        try:
            calls = [(p.ops[p.at].name, p.ops[p.at].layer) if p else None for p in joined]
            rules.agree(calls, self._told)  # type: ignore[arg-type]  # collectives name a layer
        except PuzzleError as why:
            raise why.at(place, first.line) from None
        waits = []
        for part in stuck:
            op = part.ops[part.at]
            absent = tuple(rank for rank, p in enumerate(joined) if p is None)
            kind, of = {"pass_to": ("post", op.args), "receive": ("receive", op.args)}.get(
                op.name, ("collective", absent)
            )
            waits.append(Standstill(part.rank, op.call(), op.line, kind, of))
        done = {part.rank: "has returned" for part in self.parts if part not in stuck}
        raise DeadlockError(explain(waits, done), place, first.line)
