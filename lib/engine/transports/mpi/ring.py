"""A ring of headers from one process to another on its host, in shared memory; one writes, the other reads."""

from __future__ import annotations

from lib.engine.collectives import Array

from .headers import HEADER_BYTES, NUMBER, Header
from .shared_blocks import Block
from .shared_memory import CACHE_LINE, HostMemory

SLOTS = 4
"""Headers that may wait in a ring. Further ones are sent through MPI: a sender never waits."""

RING_BYTES = 2 * CACHE_LINE + SLOTS * HEADER_BYTES
"""The reader's word, the writer's word, then the slots."""


class Ring:
    """One end of a ring. A message's number, written last, tells the reader that the header is complete."""

    def __init__(self, host: HostMemory, memory: Array) -> None:
        self._sync = host.sync
        words = memory[: 2 * CACHE_LINE].data.cast("q")
        self._taken, self._elsewhere = words[:1], words[CACHE_LINE // 8 :][:1]
        """How many headers the reader has taken; the last message whose header the writer has sent through MPI."""
        starts = range(2 * CACHE_LINE, RING_BYTES, HEADER_BYTES)
        self._slots = [Header(memory[start : start + HEADER_BYTES]) for start in starts]
        self._passed = 0
        """How many have gone through this end."""
        self._slot = self._slots[0]
        """The next one."""

    def write(self, number: int, arr: Array, clock: int, block: Block | None = None) -> Header | None:
        """Writes a header, with the elements if they fit; None if the ring is full."""
        slot = self._slot
        if self._passed - self._taken[0] >= SLOTS:
            return None
        slot.write(arr, clock, block)
        self._sync()
        slot.words[NUMBER] = number
        self._pass()
        return slot

    def announce_elsewhere(self, number: int) -> None:
        """Says that the header of this message comes through MPI."""
        self._elsewhere[0] = number

    def is_elsewhere(self, number: int) -> bool:
        """True if the header of this message, or a later one, comes through MPI."""
        return self._elsewhere[0] >= number

    def next(self, number: int) -> Header | None:
        """The header of the message of this number, if it is the next one here. `pass_on` frees its place."""
        slot = self._slot
        if slot.words[NUMBER] != number:
            return None
        self._sync()
        return slot

    def pass_on(self) -> None:
        """Lets the writer use the place of the header that was read."""
        self._pass()
        self._sync()
        self._taken[0] = self._passed

    def _pass(self) -> None:
        self._passed += 1
        self._slot = self._slots[self._passed % SLOTS]
