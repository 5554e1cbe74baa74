"""The interface of a carrier, which moves bytes and arrays between processes: `MpiCarrier` or `TorchCarrier`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

from lib.engine.call import CollectiveCall
from lib.engine.collectives import Array
from lib.engine.libraries.numpy_library import ArrayLibrary

TAGS_OF_A_RUN = 6
"""A run's tags: its first one, and those after it."""


class Carrier(Protocol):
    """One process's connection to the others, for one run. `control` and `data` have the methods of an mpi4py
    communicator that are used here; this run's messages have the tags from `first` on."""

    control: Any
    data: Any
    first: int
    library: ArrayLibrary
    """The library of the arrays that it moves."""
    max_small: int
    """Bytes of the largest array that is sent within a header or a row; -1 if none is."""
    polls_per_check: int
    """Polls between two checks of the control messages."""
    in_background: Callable[[], object] | None
    """Called when a collective has begun; returns when its result is wanted. Only torch supports it."""
    lost: Collection[int]
    """Devices whose processes have ended."""

    def idle(self) -> None:
        """Called between two polls: lets others run, or waits until something may have arrived."""
        ...

    def collective(self, call: CollectiveCall, arr: Array, index: int) -> Array:
        """The result of the member at `index`, for a collective on which all members have agreed."""
        ...

    def group(self, members: tuple[int, ...]) -> Any:
        """The communicator of some devices; all of them make a new one together."""
        ...

    def send_body(self, arr: Array, to: int, tag: int, header: Any) -> Any:
        """Starts to send a large array, whose header has been sent; returns a request."""
        ...

    def receive_body(self, shape: tuple[int, ...], dtype: str, source: int, tag: int) -> tuple[Array, Any]:
        """Starts to receive a large array; returns it with a request."""
        ...

    def abort(self) -> None:
        """Ends all processes."""
        ...
