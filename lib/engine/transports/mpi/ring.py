"""A ring of headers from one process to another on its host, in shared memory; one writes, the other reads."""

from __future__ import annotations

from lib.engine.collectives import Array

from .headers import HEADER_BYTES, NUMBER, Header
from .shared_memory import CACHE_LINE, HostMemory

SLOTS = 4
"""Headers that may wait in a ring. Further ones are sent through MPI: a sender never waits."""

RING_BYTES = 2 * CACHE_LINE + SLOTS * HEADER_BYTES
"""The words of the reader, that of the writer, then the slots."""


TAKEN, WANTED = range(2)
"""The reader's words: how many headers it has taken, and which message it waits for."""

CLAIMED, ELSEWHERE = range(2)
"""The writer's words: which message it has claimed, and the last one whose header did not go through the ring."""


class Ring:
    """One end of a ring. A message's number, written last, tells the reader that the header is complete.

    A large array follows its header through MPI, and has to be copied unless the receiver waits for it. So the reader
    says which message it waits for: until that is there, it does nothing else. The writer claims it, looks again
    whether it is still wanted, and only then sends the caller's own array. A reader that does not wait any more looks
    whether the message has been claimed (as in Dekker's algorithm), and then waits for it after all."""

    def __init__(self, host: HostMemory, memory: Array) -> None:
        self._sync = host.sync
        words = memory[: 2 * CACHE_LINE].data.cast("q")
        self._of_reader, self._of_writer = words[:2], words[CACHE_LINE // 8 :][:2]
        starts = range(2 * CACHE_LINE, RING_BYTES, HEADER_BYTES)
        self._slots = [Header(memory[start : start + HEADER_BYTES]) for start in starts]
        self._passed = 0
        """How many have gone through this end."""
        self._slot = self._slots[0]
        """The next one."""

    def write(self, number: int, arr: Array, clock: int) -> Header | None:
        """Writes a header, with the elements if they fit; None if the ring is full."""
        slot = self._slot
        if self._passed - self._of_reader[TAKEN] >= SLOTS:
            return None
        slot.write(arr, clock)
        self._sync()
        slot.words[NUMBER] = number
        self._pass()
        return slot

    def send_elsewhere(self, number: int) -> None:
        """Says that the header of this message comes through MPI."""
        self._of_writer[ELSEWHERE] = number

    def is_elsewhere(self, number: int) -> bool:
        """True if the header of this message, or a later one, comes through MPI."""
        return self._of_writer[ELSEWHERE] >= number

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
        self._of_reader[TAKEN] = self._passed

    def _pass(self) -> None:
        self._passed += 1
        self._slot = self._slots[self._passed % SLOTS]

    def want(self, number: int) -> None:
        """Says that the reader waits for this message; 0: for none."""
        self._of_reader[WANTED] = number
        self._sync()

    def is_claimed(self, number: int) -> bool:
        """True if the writer counts on this message being wanted."""
        return self._of_writer[CLAIMED] == number

    def claim(self, number: int) -> bool:
        """True if the reader waits for this message, and will until it is there."""
        if self._of_reader[WANTED] != number:
            return False
        self._of_writer[CLAIMED] = number
        self._sync()
        if self._of_reader[WANTED] == number:
            return True
        self._of_writer[CLAIMED] = 0
        return False
