"""Says in words why a rank sends more than necessary, from the trace alone."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lib.trace.ops import Op
from lib.values.algebra import counted
from lib.values.base import Value
from lib.values.kinds import OptState, Weight, WeightGrad

from .peak_text import layers_text, noun
from .rank_state import RankState
from .recompute import Recomputation
from .traffic import elements_of

BOOKKEEPING = frozenset(("store", "delete", "await"))
"""Operations that do not read a value's numbers."""


class Cause(NamedTuple):
    """A sentence, and the elements that its calls send. With `takes_time` it also explains lost time."""

    text: str
    elements: int
    takes_time: bool = False


def traffic_causes(recomputation: Recomputation, rank: RankState) -> tuple[Cause, ...]:
    """The causes on a rank, such as the one that sends the most, most elements first."""
    readers: dict[int, list[Op]] = defaultdict(list)
    for op in rank.done:
        if op.name not in BOOKKEEPING:
            for number in op.inputs:
                readers[number].append(op)
    lines: dict[tuple[str, int], list[Op]] = defaultdict(list)
    for op in rank.all({"allreduce", "allgather", "pass_to"}):
        lines[op.name, op.line].append(op)
    causes: list[Cause] = []
    explained = {"allreduce": _reduced, "allgather": _gathered, "pass_to": _passed}
    for (name, line), ops in lines.items():
        causes += explained[name](_Line(line, ops, recomputation, rank, readers))
    return tuple(sorted(causes, key=lambda cause: -cause.elements))


class _Line(NamedTuple):
    """The calls of one operation on one line of a rank, and the operations that read each value."""

    number: int
    ops: Sequence[Op]
    recomputation: Recomputation
    rank: RankState
    readers: dict[int, list[Op]]

    @property
    def name(self) -> str:
        return f"Line {self.number}" if self.number else "A call"

    def sent(self, ops: Sequence[Op]) -> int:
        return sum(elements_of(self.recomputation, self.rank, op) for op in ops)

    def values(self, ops: Sequence[Op]) -> list[Value]:
        return [self.rank.values[number] for op in ops for number in op.inputs]


def _reduced(line: _Line) -> Iterator[Cause]:
    final = {id(weight) for weight in line.rank.final}

    def reads(op: Op) -> list[Op]:
        return [reader for number in op.outputs for reader in line.readers[number]]

    cut = [op for op in line.ops if reads(op) and all(_keeps_a_shard(line.rank, reader) for reader in reads(op))]
    if cut:
        sent = line.sent(cut)
        yield Cause(
            f"{line.name} all-reduces {_count(line.values(cut))} and keeps a shard of each: `scatterreduce` "
            f"sends half ({sent // 2:,} elements, not {sent:,}).",
            sent,
        )
    unread = [
        op for op in line.ops if not reads(op) and not any(id(line.rank.values[out]) in final for out in op.outputs)
    ]
    if unread:
        values, sent = line.values(unread), line.sent(unread)
        what = f"the {noun(values[0])}{'s' if len(values) > 1 else ''} {layers_text(values)}"
        text = f"{line.name} all-reduces {_shortened(what)}, which nobody reads: leave it out ({sent:,} elements)."
        yield Cause(text, sent, takes_time=True)


def _keeps_a_shard(rank: RankState, reader: Op) -> bool:
    """True if an operation reads at most a shard of a gradient: a cut, or the update of a sharded weight."""
    if reader.name != "update":
        return reader.name == "shard"
    grad, weight = rank.used(reader)[:2]
    return isinstance(grad, WeightGrad) and isinstance(weight, Weight) and grad.total < weight.total


def _gathered(line: _Line) -> Iterator[Cause]:
    weights = [op for op in line.ops if isinstance(line.rank.values[op.inputs[0]], Weight)]
    if not weights:
        return
    places = _still_held(line.rank, weights)
    if places:
        where = next(iter(places.values()))
        text = f"{line.name} gathers a weight that is still in `{where}`."
        yield Cause(text, line.sent([op for op in weights if op.outputs in places]))
    uses: Counter[tuple[object, ...]] = Counter()
    for op in weights:
        value = line.rank.values[op.inputs[0]]
        reader = next((op.name for number in op.outputs for op in line.readers[number]), "")
        uses[value.layer, value.step, reader] += 1  # type: ignore[attr-defined]  # weights have a step
    if not places and (times := min(uses.values())) > 1:
        yield Cause(
            f"{line.name} gathers each weight {times} times; take more microbatches together, or keep the weight.",
            line.sent(weights),
        )


def _still_held(rank: RankState, gathers: Sequence[Op]) -> dict[tuple[int, ...], str]:
    """By the outputs of a gather: the index at which the rank already has the same full weight."""
    wanted = {op.outputs: op for op in gathers}
    kept: dict[tuple[object, object], Weight] = {}
    places: dict[tuple[int, ...], str] = {}
    for op in rank.done:
        if op.name in ("store", "delete"):
            kept.pop(op.args, None)
            value = rank.values[op.inputs[0]] if op.name == "store" else None
            if isinstance(value, Weight) and len(value.shards) == value.total:
                kept[op.args] = value
        elif op.outputs in wanted:
            gathered = rank.values[op.inputs[0]]
            for (where, key), weight in kept.items():
                if (weight.layer, weight.step, weight.copy) == (gathered.layer, gathered.step, gathered.copy):  # type: ignore[attr-defined]
                    places.setdefault(op.outputs, f"{where}[{key!r}]")
    return places


def _passed(line: _Line) -> Iterator[Cause]:
    sent = [op for op in line.ops if any(isinstance(v, (Weight, WeightGrad, OptState)) for v in line.values([op]))]
    if sent and not _is_a_copy(line):
        yield Cause(
            f"{line.name} sends {_count(line.values(sent))} in messages ({line.sent(sent):,} elements). Here "
            "weights stay where they are; send activations.",
            line.sent(sent),
        )


def _is_a_copy(line: _Line) -> bool:
    """True if several ranks have the stages of this one, as in two directions, so that their gradients must meet."""
    of_ranks = [{op.layer for op in rank.all({"forward"})} for rank in line.recomputation.ranks]
    layers = {op.layer for op in line.rank.all({"forward"})}
    return of_ranks.count(layers) > 1 and len(layers) < len(set().union(*of_ranks))


def _count(values: Sequence[Value]) -> str:
    """'4 weight gradients'."""
    return counted(len(values), _shortened(noun(values[0])))


def _shortened(text: str) -> str:
    """Shortened words for a verdict, in which a weight gradient is just a gradient."""
    return text.replace("weight gradient", "gradient").replace("activation gradient", "gradient")
