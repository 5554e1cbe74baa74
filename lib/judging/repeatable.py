"""Checks that the step is repeatable: each rank must end holding the updated form of what it started with.

`ops` are one rank's operations without storing and deleting.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise

from lib.folding import Own
from lib.trace import Op
from lib.values.base import Sharded, with_fields
from lib.values.kinds import OptState, Parked, Weight

from .memory import Profile
from .rank_state import RankState


def loaded_twice(ops: Sequence[Op]) -> list[int]:
    """Layers of which a rank loaded some element more than once."""
    loads: dict[int, list[tuple[int, int]]] = {}
    for op in ops:
        if op.name == "load_weights" and op.layer is not None:
            loads.setdefault(op.layer, []).append(op.args[:2])  # (shard, total): from shard/total to (shard + 1)/total
    return [layer for layer, parts in loads.items() if len(parts) > 1 and _overlap(parts)]


def _overlap(parts: list[tuple[int, int]]) -> bool:
    spans = sorted((Fraction(i, n), Fraction(i + 1, n)) for i, n in parts)
    return any(after[0] < before[1] for before, after in pairwise(spans))


def thrown_away(ops: Sequence[Op], state: RankState, prof: Profile) -> list[int]:
    """Layers whose updated optimizer state is neither stored at the end nor went into anything else."""
    states: dict[int, None] = {}
    for op in ops:
        for number in op.used if states else ():
            states.pop(number, None)
        if op.name == "update":
            states[op.made[1]] = None
    return sorted({state.values[number].layer for number in states if number not in prof.lifetimes.left})


def lost_states(ranks: Sequence[RankState], profiles: Sequence[Profile], steps: int) -> list[int]:
    """Layers that were updated, but whose optimizer state all ranks together do not hold whole after all `steps`."""
    held: dict[int, list[Sharded]] = {}
    for state, prof in zip(ranks, profiles):
        for value in map(state.values.__getitem__, prof.lifetimes.left):
            value = value.value if type(value) is Parked else value
            if type(value) is OptState and value.step == steps:
                held.setdefault(value.layer, []).append(value)
    updated = {op.layer or 0 for state in ranks for i in state.events if (op := state.ops[i]).name == "update"}
    return [layer for layer in sorted(updated) if not _contain(_of_all_replicas(held.get(layer, [])), ((0, 1),))]


def not_held_again(ops: Sequence[Op], state: RankState, prof: Profile, steps: int) -> list[int]:
    """Layers of which a rank used more as it was loaded than it holds at the end, after all `steps`."""
    values = state.values
    loaded: set[int] = set()
    needed: dict[int, None] = {}
    for op in ops:
        if op.name == "load_weights":
            loaded.add(op.made[0])
        elif op.name in ("shard", "combine", "offload", "fetch") and loaded.issuperset(op.used):
            loaded.update(op.made)  # cut to size or moved before any use: what counts is the part
        elif op.name != "await":  # which holds what its call used
            for number in op.used:
                if number in loaded:
                    needed[number] = None
    held: dict[int, list[Sharded]] = {}
    for value in [*map(values.__getitem__, prof.lifetimes.left), *state.final]:
        value = value.value if type(value) is Parked else value
        if type(value) is Weight and value.step == steps:
            held.setdefault(value.layer, []).append(value)
    began: dict[int, list[Sharded]] = {}
    for weight in map(values.__getitem__, needed):
        assert type(weight) is Weight
        began.setdefault(weight.layer, []).append(weight)
    return sorted(
        layer for layer, weights in began.items() if not _contain(held.get(layer, ()), _pairs(_shards(weights)))
    )


def _of_all_replicas(held: Sequence[Sharded]) -> list[Sharded]:
    """The values of all replicas of a folded run: shards of their own as blocks, unless these have gaps."""
    together: dict[tuple[int, Own], list[Sharded]] = {}
    for value in held:
        if value.own is not None:
            together.setdefault((value.total, value.own), []).append(value)
    blocks = [value for value in held if value.own is None]
    for (total, own), values in together.items():
        joined = own.joined(frozenset().union(*[value.shards for value in values]), total)
        if joined is not None:
            blocks.append(with_fields(values[0], shards=joined[0], total=joined[1], own=None))
    return blocks


def _shards(values: Iterable[Sharded]) -> dict[int, set[int]]:
    """The shards of all values by their count, each once: no more than the trace has loaded and cut, however often
    joined."""
    by_total: dict[int, set[int]] = {}
    for value in values:
        by_total.setdefault(value.total, set()).update(value.shards)
    return by_total


def _pairs(by_total: dict[int, set[int]]) -> set[tuple[int, int]]:
    """Shards by their count as (shard, total)."""
    return {(shard, total) for total, shards in by_total.items() for shard in shards}


def _contain(held: Iterable[Sharded], wanted: Iterable[tuple[int, int]]) -> bool:
    """True if all values in `held` together cover every (shard, total) that is wanted."""
    by_total = _shards(held)
    if any(len(shards) == total for total, shards in by_total.items()):
        return True
    have = _pairs(by_total)
    missing = [pair for pair in wanted if pair not in have]
    return not missing or _cover(have, missing)


def _cover(have: Iterable[tuple[int, int]], wanted: Iterable[tuple[int, int]]) -> bool:
    """The same for shards of different counts, as intervals of the whole."""
    spans = sorted((Fraction(i, n), Fraction(i + 1, n)) for i, n in have)
    starts: list[Fraction] = []
    ends: list[Fraction] = []
    for start, end in spans:
        if ends and start <= ends[-1]:
            ends[-1] = max(ends[-1], end)
        else:
            starts.append(start)
            ends.append(end)
    for i, n in wanted:
        at = bisect_right(starts, Fraction(i, n)) - 1
        if at < 0 or ends[at] < Fraction(i + 1, n):
            return False
    return True
