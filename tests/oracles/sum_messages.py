"""Brute force for partial sums: the fewest messages that bring one sum to everyone who wants it, found by search."""

from collections import Counter
from functools import cache

from lib.layout import TensorLayout

Case = tuple[tuple[tuple[bool, ...], ...], tuple[bool, ...]]
"""For each summand, which of the devices that hold it want the sum; the same for devices that hold none."""


def cases(source: TensorLayout, target: TensorLayout) -> Counter[Case]:
    """Every element's case, with how many elements have it; in no other way than element by element."""
    found: Counter[Case] = Counter()
    seen = [(source.box(d), target.box(d), _summand(source, d)) for d in range(source.devices)]
    for element in _elements(source.shape):
        holders: dict[tuple[int, ...], list[bool]] = {}
        idle = []
        for mine, yours, summand in seen:
            wants = _inside(element, yours)
            (holders.setdefault(summand, []) if _inside(element, mine) else idle).append(wants)
        found[tuple(sorted(tuple(sorted(each)) for each in holders.values())), tuple(sorted(idle))] += 1
    return found


@cache
def fewest_messages(case: Case) -> int:
    """Breadth-first over what every device knows: all sums of disjoint summands that it can form."""
    holders, idle = case
    whole = (1 << len(holders)) - 1
    devices = [(frozenset({1 << i}), wants) for i, copies in enumerate(holders) for wants in copies]
    devices += [(frozenset(), wants) for wants in idle]
    wanted = [wants for _, wants in devices]
    front = {tuple(knows for knows, _ in devices)}
    seen = set(front)
    messages = 0
    while not any(all(whole in knows for knows, wants in zip(state, wanted) if wants) for state in front):
        front = {after for state in front for after in _after_one(state)} - seen
        seen |= front
        messages += 1
    return messages


def _after_one(state):
    for sender, known in enumerate(state):
        for receiver, before in enumerate(state):
            for told in known - before if sender != receiver else ():
                after = before | {told} | {told | old for old in before if not told & old}
                yield (*state[:receiver], after, *state[receiver + 1 :])


def _summand(layout: TensorLayout, device: int) -> tuple[int, ...]:
    return tuple(layout.matrix.coordinates(device)[axis] for axis in layout.partial)


def _elements(shape):
    if not shape:
        return [()]
    return [(i, *rest) for i in range(shape[0]) for rest in _elements(shape[1:])]


def _inside(element, box):
    return all(side.start <= i < side.stop for i, side in zip(element, box))
