"""Chooses the message for a receive from any source: the first by the simulated clock, never by order of arrival.

MPI leaves the choice to the implementation. Here it is put off until no rank can run, when every message that could
come has come; so it does not depend on the order in which ranks are started or scheduled.
"""

from collections.abc import Callable
from heapq import heappop, heappush

from .waits import Message, ReceiveWait


class Offers:
    """Messages that receives from any source could take. The earliest is the one whose receive starts first, then the
    one sent first, then the one from the lower rank."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, int, int, ReceiveWait, Message]] = []
        self._count = 0

    def add(self, receiver: ReceiveWait, source: int, message: Message) -> None:
        """Offers a message from `source` to an open receive."""
        self._count += 1
        start = max(receiver.clock, message.sent)
        heappush(self._heap, (start, message.sent, source, receiver.rank, self._count, receiver, message))

    def earliest(self, is_open: Callable[[ReceiveWait, int, Message], bool]) -> tuple[ReceiveWait, int] | None:
        """Removes the earliest offer of which `is_open` says that it is still there: the receive, and the sender."""
        while self._heap:
            _, _, source, _, _, receiver, message = heappop(self._heap)
            if is_open(receiver, source, message):
                return receiver, source
        return None
