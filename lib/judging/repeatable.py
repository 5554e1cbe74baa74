"""Checks that the step can be repeated: each rank must end with the updated form of what it started with."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TypeVar

from lib.game.tiers import COPYING
from lib.trace.ops import UPDATES
from lib.values.algebra import named, union
from lib.values.base import Sharded, Value
from lib.values.kinds import OptState, Parked, Weight

from .memory import Profile
from .rank_state import RankState

S = TypeVar("S", Weight, OptState)


def loaded_twice(state: RankState) -> list[int]:
    """Layers of which a rank has loaded an element more than once."""
    loads: dict[int | None, list[tuple[int, int]]] = {}
    for op in state.all({"load_weights"}):
        loads.setdefault(op.layer, []).append(op.args[:2])  # (shard, total): from shard/total to (shard + 1)/total
    return [layer or 0 for layer, parts in loads.items() if len(parts) > 1 and _overlap(parts)]


def loaded_again(state: RankState) -> str:
    """Where a rank loads a layer again: 'line 12 loads layers 0-5 again'; empty if nowhere."""
    again, seen = loaded_twice(state), set()
    for op in state.all({"load_weights"}):
        if op.layer in again and op.layer in seen:
            return f"line {op.line} loads {named('layer', again)} again"
        seen.add(op.layer)
    return ""


def _overlap(parts: list[tuple[int, int]]) -> bool:
    spans = sorted((Fraction(i, n), Fraction(i + 1, n)) for i, n in parts)
    return any(after[0] < before[1] for before, after in pairwise(spans))


def discarded_states(state: RankState, prof: Profile) -> list[int]:
    """Layers whose updated optimizer state is neither stored at the end nor used."""
    thrown = {op.outputs[1] for op in state.all(UPDATES)} - prof.lifetimes.stored_at_end
    if thrown:
        thrown.difference_update(*[op.inputs for op in state.done if op.name != "store"])
    return sorted({state.values[number].layer for number in thrown})


def lost_states(ranks: Sequence[RankState], profiles: Sequence[Profile], steps: int) -> list[int]:
    """Layers that were updated, but whose optimizer state is incomplete on all ranks together after all `steps`."""
    left = [state.values[number] for state, prof in zip(ranks, profiles) for number in prof.lifetimes.stored_at_end]
    states = _by_layer(OptState, left, steps)
    updated = {op.layer or 0 for state in ranks for op in state.all(UPDATES)}
    return [layer for layer in sorted(updated) if not _contain(states.get(layer, []), {1: {0}})]


def missing_at_end(state: RankState, prof: Profile, steps: int) -> list[int]:
    """Layers whose loaded weight a rank has used, but whose updated weight it does not hold after the last of
    `steps`."""
    left = [state.values[number] for number in prof.lifetimes.stored_at_end]
    kept = _by_layer(Weight, [*left, *state.final, *state.copies], steps)
    loaded = [state.values[op.outputs[0]] for op in state.all({"load_weights"})]
    if not _fewer(kept, _by_layer(Weight, loaded)):
        return []  # whoever holds all that was loaded holds all that was used
    return _fewer(kept, _by_layer(Weight, _used_as_loaded(state)))


def _used_as_loaded(state: RankState) -> list[Value]:
    """Values that were computed with or sent as loaded, perhaps cut or moved first."""
    loaded: set[int] = set()
    needed: dict[int, None] = {}
    for op in state.done:
        if op.name == "load_weights":
            loaded.add(op.outputs[0])
        elif op.name in ("shard", "combine", *COPYING) and loaded.issuperset(op.inputs):
            loaded.update(op.outputs)  # cut to size or moved before any use: what counts is the part
        elif op.name not in ("store", "await"):  # await holds what its call used
            needed.update(dict.fromkeys(loaded.intersection(op.inputs)))
    return [state.values[number] for number in needed]


def _fewer(kept: Mapping[int, Sequence[Sharded]], began: Mapping[int, Sequence[Sharded]]) -> list[int]:
    """Layers of which the rank holds less than it began with."""
    return sorted(layer for layer, weights in began.items() if not _contain(kept.get(layer, ()), _shards(weights)))


def _by_layer(kind: type[S], values: Iterable[Value], step: int = 0) -> dict[int, list[S]]:
    """The values of one kind and step, including parked ones, by layer."""
    by_layer: dict[int, list[S]] = {}
    for value in values:
        if type(value) is Parked:
            value = value.value
        if type(value) is kind and value.step == step:
            by_layer.setdefault(value.layer, []).append(value)
    return by_layer


def _shards(values: Iterable[Sharded]) -> dict[int, set[int]]:
    """The shards of all values by their total, each listed once. There are no more than the trace has loaded and
    cut."""
    by_total: dict[int, set[int]] = {}
    for value in values:
        by_total.setdefault(value.total, set()).update(value.shards)
    return by_total


def _pairs(by_total: Mapping[int, set[int]]) -> set[tuple[int, int]]:
    """Shards by their count as (shard, total)."""
    return {(shard, total) for total, shards in by_total.items() for shard in shards}


def _contain(values: Iterable[Sharded], wanted: Mapping[int, set[int]]) -> bool:
    """True if the values together cover all wanted shards."""
    have = _shards(values)
    if all(shards <= have.get(total, set()) for total, shards in wanted.items()):
        return True
    return any(len(shards) == total for total, shards in have.items()) or _cover(_pairs(have), _pairs(wanted))


def _cover(have: Iterable[tuple[int, int]], wanted: Iterable[tuple[int, int]]) -> bool:
    """`_contain` for shards with different totals, as intervals of the unsharded value."""
    spans = union((Fraction(i, n), Fraction(i + 1, n)) for i, n in have)
    starts = [start for start, _ in spans]
    for i, n in wanted:
        at = bisect_right(starts, Fraction(i, n)) - 1
        if at < 0 or spans[at][1] < Fraction(i + 1, n):
            return False
    return True
