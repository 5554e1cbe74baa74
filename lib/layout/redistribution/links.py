"""Links between the devices of a mesh, with their speed: how long a step takes instead of how many bytes it moves.

The usual model of a message: latency plus bytes times the inverse of bandwidth (Hockney 1994), here in whole units of
time. Two devices are connected by the first axis in which they differ, the outermost and usually slowest one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lib.layout.errors import LayoutError
from lib.layout.layouts.checks import require_int
from lib.layout.layouts.device_matrix import DeviceMatrix, Ints, coordinates
from lib.layout.layouts.tensor_layout import TensorLayout

from .collective_path import Neighbour, neighbours, shortest_path
from .redistribution import redistribute
from .steps import Step

WANTED = "a link has a latency per message and a time per byte, two whole numbers of 0 or more, such as (1000, 1)"


@dataclass(frozen=True)
class Links:
    """For each axis of a mesh: the latency of a message, and the time of each byte, in the same whole units."""

    mesh: DeviceMatrix
    speeds: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, mesh: DeviceMatrix, **axes: tuple[int, int]) -> Links:
        """Links(mesh) by the names of its axes: Links.of(mesh(data=2, model=4), data=(1000, 8), model=(100, 1)).

        Raises:
            LayoutError: an axis is missing or does not exist, or a speed is not two whole numbers.
        """
        for name in axes:
            mesh.axis(name)
        missing = [name for name in mesh.names if name not in axes]
        if missing:
            raise LayoutError(f"the mesh {mesh} needs a speed for each axis; '{missing[0]}' has none")
        return cls(mesh, tuple(_speed(axes[name]) for name in mesh.names))

    def time(self, steps: Iterable[Step], itemsize: int) -> int:
        """How long steps take one after the other: each until its slowest device has sent everything.

        A device sends its messages one after the other, one to each device that it has anything for; in an all-reduce
        two, as in the reduce-scatter and the all-gather that it consists of.
        """
        return sum(_time_of(self, step.name, step.source, step.target, itemsize) for step in steps)

    def quickest(self, given: TensorLayout, wanted: TensorLayout, itemsize: int) -> tuple[Step, ...]:
        """The steps of least time: those with the fewest bytes, or named collectives one after the other.

        A sum over a fast and a slow axis is scattered over the fast one first, so that less crosses the slow one.
        """
        return _quickest(self, given, wanted, itemsize)


def require_links(links: object, mesh: DeviceMatrix | None) -> Links:
    """The links of a graph's mesh."""
    if not isinstance(links, Links):
        raise LayoutError(f"links are given as Links.of(mesh, data=(1000, 8), model=(100, 1)); got {links!r:.60}")
    if links.mesh != mesh:
        where = "has no mesh" if mesh is None else f"is planned for a mesh {mesh}"
        raise LayoutError(f"the links are for a mesh {links.mesh}; the graph {where}")
    return links


@lru_cache(maxsize=1 << 18)
def _time_of(links: Links, name: str, source: TensorLayout, target: TensorLayout, itemsize: int) -> int:
    latency, byte = _tables(links)
    traffic = Step(name, source, target).traffic()
    messages = (traffic > 0) * (2 if name == "all-reduce" else 1)
    return int((messages * latency + traffic * itemsize * byte).sum(axis=1).max())


@lru_cache(maxsize=1 << 16)
def _quickest(links: Links, given: TensorLayout, wanted: TensorLayout, itemsize: int) -> tuple[Step, ...]:
    direct = redistribute(given, wanted, itemsize).named_steps
    limit = links.time(direct, itemsize)
    if given.matrix != wanted.matrix or given.matrix != links.mesh or limit == 0:
        return direct

    def near(here: TensorLayout) -> Iterator[Neighbour]:
        for name, there, _ in neighbours(here, wanted):
            if set(wanted.partial) <= set(there.partial):
                yield name or "exchange", there, _time_of(links, name or "exchange", here, there, itemsize)

    backwards = shortest_path(given, wanted, near, lambda layouts: [0] * len(layouts), limit - 1).steps
    return direct if backwards is None else tuple(Step(*step) for step in reversed(backwards))


@lru_cache(maxsize=64)
def _tables(links: Links) -> tuple[Ints, Ints]:
    places = coordinates(links.mesh)
    differ = places[:, None, :] != places[None, :, :]
    first = differ.argmax(axis=2)
    apart = differ.any(axis=2)
    latency, byte = (np.array(column, dtype=np.int64) for column in zip(*links.speeds))
    return latency[first] * apart, byte[first] * apart


def _speed(given: object) -> tuple[int, int]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise LayoutError(f"{WANTED}; got {given!r:.60}")
    latency, byte = (require_int(number, WANTED) for number in given)
    if min(latency, byte) < 0:
        raise LayoutError(f"{WANTED}; got {given}")
    return latency, byte
