"""Reads what a child sends and prints, with limits, until it ends or has to be ended."""

from __future__ import annotations

import os
import selectors
from time import monotonic

SHOWN = 4096
"""Bytes of a run's output that are kept to be shown."""


class Watch:
    """One child: its result and its output, as they come."""

    def __init__(self, pid: int, result: int, output: int, most_output: int, longest_result: int) -> None:
        self.pid = pid
        self.result = result
        self.output = output
        self.most_output = most_output
        self.longest_result = longest_result
        self.printed = 0
        self.sent = 0
        self.kept = {result: b"", output: b""}

    def until_the_end(self, control: int, wake: int, deadline: float) -> tuple[str, int]:
        """How the child ended: 'exit' or 'signal' with a number, or why it has to be: 'time', 'output', 'result', and
        'hung up' if the grader has gone."""
        with selectors.DefaultSelector() as selector:
            for fd in (self.result, self.output):
                os.set_blocking(fd, False)
            for fd in (self.result, self.output, control, wake):
                selector.register(fd, selectors.EVENT_READ)
            while (left := deadline - monotonic()) > 0:
                ready = {key.fd for key, _ in selector.select(left)}
                if control in ready:
                    return "hung up", 0  # nobody listens any more
                if wake in ready:
                    os.read(wake, 4096)
                    status = self._status()
                    if status is not None:
                        while self._take(self.output) or self._take(self.result):
                            if self._flood():
                                break
                        return self._flood() or status
                for fd in (self.result, self.output):
                    if fd in ready and not self._take(fd):
                        selector.unregister(fd)
                if flood := self._flood():
                    return flood
        return "time", 0

    def _status(self) -> tuple[str, int] | None:
        """How the child has ended, if it has. Orphans that came to us are collected on the way."""
        while (found := os.waitpid(-1, os.WNOHANG))[0] not in (0, self.pid):
            pass
        pid, status = found
        if pid == 0:
            return None
        if os.WIFSIGNALED(status):
            return "signal", os.WTERMSIG(status)
        return "exit", os.WEXITSTATUS(status)

    def _flood(self) -> tuple[str, int] | None:
        if self.sent > self.longest_result:
            return "result", self.longest_result
        return ("output", self.most_output) if self.printed > self.most_output else None

    def _take(self, fd: int) -> bool:
        """Reads once; False when there is nothing, or never again."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return False
        if fd == self.result:
            self.sent += len(data)
            self.kept[fd] += data if self.sent <= self.longest_result else b""
        else:
            self.printed += len(data)
            self.kept[fd] = (self.kept[fd] + data)[:SHOWN]
        return bool(data)
