"""Holds messages under way, by sender and receiver; a sender waits while its last message is unread."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

M = TypeVar("M")


class Mailboxes(Generic[M]):
    """A mailbox for each pair of sender and receiver, read in the order of sending.

    It holds one unread message, as a rendezvous protocol without a pool of buffers would; `bounded=False` is for
    transports that buffer everything.
    """

    def __init__(self, ranks: int, bounded: bool = True) -> None:
        self._bounded = bounded
        self._boxes: list[dict[int, deque[M]]] = [{} for _ in range(ranks)]

    def full(self, source: int, to: int) -> bool:
        """True while the next message must wait until one is taken."""
        return self._bounded and bool(self._boxes[to].get(source))

    def put(self, source: int, to: int, message: M) -> None:
        """Adds a message from `source`; its mailbox must not be full."""
        box = self._boxes[to].get(source)
        if box is None:
            self._boxes[to][source] = deque((message,))
        else:
            box.append(message)

    def first(self, source: int, to: int) -> M | None:
        """The message that would be taken next, if there is one."""
        box = self._boxes[to].get(source)
        return box[0] if box else None

    def take(self, source: int, to: int) -> M:
        """Removes the oldest message.

        Raises:
            LookupError: there is none.
        """
        return self._boxes[to][source].popleft()

    def unread(self, to: int) -> Iterator[tuple[int, M]]:
        """The messages for a rank, each with its sender; by sender, then in the order of sending."""
        for source, box in sorted(self._boxes[to].items()):
            for message in box:
                yield source, message
