"""Holds unread messages, by sender, tag and receiver; a sender waits while its last message of a tag is unread."""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

M = TypeVar("M")


class Mailboxes(Generic[M]):
    """A mailbox for each sender, receiver and tag, read in the order of sending.

    It holds one unread message, as a rendezvous protocol without a pool of buffers would; `bounded=False` is for
    transports that buffer everything. With tags two streams from one rank to another do not block each other.
    """

    def __init__(self, ranks: int, bounded: bool = True) -> None:
        self._bounded = bounded
        self._boxes: list[dict[tuple[int, int], deque[M]]] = [{} for _ in range(ranks)]

    def full(self, source: int, to: int, tag: int = 0) -> bool:
        """True while the next message must wait until one is taken."""
        return self._bounded and bool(self._boxes[to].get((source, tag)))

    def put(self, source: int, to: int, message: M, tag: int = 0) -> None:
        """Adds a message from `source`; its mailbox must not be full."""
        box = self._boxes[to].get((source, tag))
        if box is None:
            self._boxes[to][source, tag] = deque((message,))
        else:
            box.append(message)

    def first(self, source: int, to: int, tag: int = 0) -> M | None:
        """The message that would be taken next, if there is one."""
        box = self._boxes[to].get((source, tag))
        return box[0] if box else None

    def take(self, source: int, to: int, tag: int = 0) -> M:
        """Removes the oldest message.

        Raises:
            LookupError: there is none.
        """
        return self._boxes[to][source, tag].popleft()

    def unread(self, to: int, tag: int | None = None) -> Iterator[tuple[int, M]]:
        """The messages for a rank, each with its sender; by sender and tag, then in the order of sending. With a `tag`,
        those of that tag only."""
        for (source, of), box in sorted(self._boxes[to].items()):
            if tag is None or of == tag:
                for message in box:
                    yield source, message
