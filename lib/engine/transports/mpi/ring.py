"""A ring of small messages from one process to another on its host, in shared memory; one writes, the other reads."""

from __future__ import annotations

from lib.engine.collectives import Array

from .headers import HEADER_BYTES, Header
from .shared_memory import CACHE_LINE, HostMemory

SLOTS = 4
"""Messages that may wait in a ring. Further ones are sent through MPI: a sender never waits."""

RING_BYTES = 2 * CACHE_LINE + SLOTS * HEADER_BYTES
"""The words of the reader, that of the writer, then the slots."""


class Ring:
    """One end of a ring. A message's number, written last, tells the reader that it is complete.

    A large array is not sent through the ring, but what both ends need to know to move it without a copy is here. The
    reader says which message it wants: it waits for nothing else until that is there. The writer claims it, looks again
    whether it is still wanted, and only then lets the receiver read the array itself. A reader that no longer wants a
    message looks whether it has been claimed (Dekker's algorithm), and if so waits for it."""

    def __init__(self, host: HostMemory, memory: Array) -> None:
        self._sync = host.sync
        words = memory[: 2 * CACHE_LINE].data.cast("q")
        self._of_reader, self._of_writer = words[:2], words[CACHE_LINE // 8 :][:1]
        """How many messages the reader has taken and which one it wants; which one the writer has claimed."""
        starts = range(2 * CACHE_LINE, RING_BYTES, HEADER_BYTES)
        self._slots = [Header(memory[start : start + HEADER_BYTES]) for start in starts]
        self._passed = 0
        """How many have gone through this end."""

    def want(self, number: int) -> None:
        """Says that the reader waits for this message."""
        self._of_reader[1] = number
        self._sync()

    def no_longer_wants(self, number: int) -> bool:
        """Says that the reader does not wait any more; False if the message has been claimed."""
        self.want(0)
        return self._of_writer[0] != number

    def claim(self, number: int) -> bool:
        """True if the reader waits for this message, and will until it is there."""
        if self._of_reader[1] != number:
            return False
        self._of_writer[0] = number
        self._sync()
        if self._of_reader[1] == number:
            return True
        self._of_writer[0] = 0
        return False

    def write(self, number: int, arr: Array, clock: int) -> bool:
        """Writes a message; False if it is too large, or the ring is full."""
        passed = self._passed
        if passed - self._of_reader[0] >= SLOTS:
            return False
        slot = self._slots[passed % SLOTS]
        if not slot.takes(arr):
            return False
        slot.write(arr, clock, 0)
        self._sync()
        slot.numbers[0] = number
        self._passed = passed + 1
        return True

    def has(self, number: int) -> bool:
        """True if the next message here is the one of this number."""
        return self._slots[self._passed % SLOTS].numbers[0] == number

    def read(self) -> tuple[int, Array]:
        """The clock and the array of the next message, which is here."""
        self._sync()
        slot = self._slots[self._passed % SLOTS]
        clock, _, _ = slot.read()
        assert slot.content is not None, "only arrays that fit are written to a ring"
        array = slot.content.copy()
        self._passed += 1
        self._sync()
        self._of_reader[0] = self._passed
        return clock, array
