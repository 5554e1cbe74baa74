"""Limits the processes of one run: its supervisor is asked about each new one, and counts.

The kernel's own limit counts all of a user's, so that runs at the same time would use up each other's. The question is
seccomp's user notification, see seccomp_unotify(2). Tasks that ask at the same moment may exceed the limit, but not
twice over.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from errno import EAGAIN
from fcntl import ioctl
from struct import pack, unpack_from

RECEIVE, SEND = 0xC0502100, 0xC0182101
"""SECCOMP_IOCTL_NOTIF_RECV and _SEND."""

QUESTION_BYTES = 80
CONTINUE = 1


class TaskLimit:
    """Both ends of one run: a worker hands over the listener of its filter, the supervisor answers."""

    def __init__(self, most: int, count: Callable[[], int]) -> None:
        """`count` returns how many tasks the run has."""
        self.most = most
        self._count = count
        self._here, self._there = socket.socketpair()
        self._listener = -1

    def hand_over(self, listener: int) -> None:
        """In the worker: sends the listener, if there is one."""
        if listener >= 0:
            socket.send_fds(self._there, [b"x"], [listener])

    def begin(self) -> int:
        """In the supervisor, when the worker has been forked: the file descriptor that becomes readable next."""
        self._there.close()
        return self._here.fileno()

    def accept(self) -> int:
        """Takes the listener: a file descriptor that becomes readable with each question; -1 if there is none."""
        _, received, _, _ = socket.recv_fds(self._here, 1, 1)
        self._listener = received[0] if received else -1
        return self._listener

    def answer(self) -> None:
        question = bytearray(QUESTION_BYTES)
        with suppress(OSError):  # who asked has ended, or was interrupted and asks again
            ioctl(self._listener, RECEIVE, question)
            (number,) = unpack_from("<Q", question)
            free = self._count() < self.most
            ioctl(self._listener, SEND, pack("<QqiI", number, 0, 0 if free else -EAGAIN, CONTINUE if free else 0))

    def close(self) -> None:
        self._here.close()
        if self._listener >= 0:
            socket.close(self._listener)
