"""The player's calls of collectives that have a root: one rank gives a value to all, or one gets the sum."""

from collections.abc import Awaitable
from typing import Any, TypeVar

from .rank import RankOperations

T = TypeVar("T")


class RootedCalls(RankOperations):
    """The broadcasts and reduces of a rank."""

    def broadcast(self, v: T | None, layer: Any, source: int = 0, group: Any = None) -> Awaitable[T]:
        """Returns the value of rank `source` on every rank; the other ranks give None as `v`. Starts when the last rank
        joins. `layer` and `group` as in `allreduce`."""
        return self._collective("broadcast", v, layer, group, root=source)  # type: ignore[no-any-return]  # as allreduce

    def reduce(self, v: T, layer: Any, to: int = 0, group: Any = None) -> Awaitable[T | None]:
        """Returns the sum of every rank's `v` on rank `to`, and None on the others. It sums what `allreduce` sums, and
        starts when the last rank joins. `layer` and `group` as in `allreduce`."""
        return self._collective("reduce", v, layer, group, root=to)  # type: ignore[no-any-return]  # as allreduce
