"""Dependencies: for each event, the events whose results it uses."""

from collections.abc import Sequence

from .scene import Scene

Needs = Sequence[Sequence[int]]
"""By number of an event, the numbers of the events that it needs."""


def needs(scene: Scene) -> Needs:
    """The events whose results each event uses, directly or through operations that take no time.

    A receive needs its send. Here, a member of a collective has only its own needs; it needs the others' contributions
    through the group.
    """
    found: list[tuple[int, ...]] = [()] * sum(len(lane.marks) for lane in scene.lanes)
    for lane, ops in zip(scene.lanes, scene.trace.ranks, strict=True):
        events = {mark.place: mark for mark in lane.marks}
        makers: dict[int, tuple[int, ...]] = {}
        for i, op in enumerate(ops):
            if op.name in ("store", "delete"):
                continue
            used = tuple(dict.fromkeys(maker for number in op.inputs for maker in makers.get(number, ())))
            if i in events:
                found[events[i].number] = used
                used = (events[i].number,)
            makers.update((number, used) for number in op.outputs)
    for link in scene.links:
        if link.receive is not None:
            found[link.receive.number] = (*found[link.receive.number], link.send.number)
    return found
