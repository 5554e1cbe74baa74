"""Reads what a worker sends and prints, with limits, until it ends or has to be ended."""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .task_limit import TaskLimit  # for Linux only

MAX_SHOWN_OUTPUT = 4096
"""Bytes of a run's output that are kept to be shown."""


LOOK_EVERY = 0.2
"""Seconds between two looks at what the kernel does not limit in sum: memory and files."""


class WorkerMonitor:
    """Collects the result and the output of one worker, by the file descriptors of their pipes."""

    def __init__(self, pid: int, result: int, output: int, most_output: int, longest_result: int) -> None:
        self.pid = pid
        self.result = result
        self.output = output
        self.most_output = most_output
        self.longest_result = longest_result
        self.printed = 0
        self.sent = 0
        self.kept = {result: bytearray(), output: bytearray()}

    def wait(
        self, control: int, wake: int, tasks: TaskLimit, deadline: float, look: Callable[[], tuple[str, int] | None]
    ) -> tuple[str, int]:
        """Reads until the worker has ended ("exit" or "signal", with a number) or has to be ended ("time"; "output" or
        "result", with the limit; what `look` finds, which is asked again and again; "hung up" if the grader has gone,
        which makes `control` readable).

        `wake` becomes readable when a process has ended. Questions about `tasks` are answered. `deadline` is a time of
        `time.monotonic`.
        """
        with selectors.DefaultSelector() as selector:
            for fd in (self.result, self.output):
                os.set_blocking(fd, False)
            handing_over, listener = tasks.begin(), -1
            for fd in (self.result, self.output, control, wake, handing_over):
                selector.register(fd, selectors.EVENT_READ)
            next_look = monotonic() + LOOK_EVERY
            while (left := deadline - monotonic()) > 0:
                ready = {key.fd for key, _ in selector.select(min(left, max(0.0, next_look - monotonic())))}
                if monotonic() >= next_look:
                    if found := look():
                        return found
                    next_look = monotonic() + LOOK_EVERY
                if control in ready:
                    return "hung up", 0
                if wake in ready:
                    os.read(wake, 4096)
                    status = self._status()
                    if status is not None:
                        return self._read_rest() or status
                if handing_over in ready:
                    selector.unregister(handing_over)
                    if (listener := tasks.accept()) >= 0:
                        selector.register(listener, selectors.EVENT_READ)
                if listener in ready:
                    tasks.answer()
                for fd in (self.result, self.output):
                    if fd in ready and not self._read(fd):
                        selector.unregister(fd)
                if flood := self._flood():
                    return flood
        return "time", 0

    def _status(self) -> tuple[str, int] | None:
        """The end of the worker, if it has ended. Waits for orphans that this process has adopted on the way."""
        while (found := os.waitpid(-1, os.WNOHANG))[0] not in (0, self.pid):
            pass
        pid, status = found
        if pid == 0:
            return None
        if os.WIFSIGNALED(status):
            return "signal", os.WTERMSIG(status)
        return "exit", os.WEXITSTATUS(status)

    def _read_rest(self) -> tuple[str, int] | None:
        """Empties the pipes of a worker that has ended; the limit that this exceeds, if any."""
        while self._read(self.output) or self._read(self.result):
            if self._flood():
                break
        return self._flood()

    def _flood(self) -> tuple[str, int] | None:
        if self.sent > self.longest_result:
            return "result", self.longest_result
        return ("output", self.most_output) if self.printed > self.most_output else None

    def _read(self, fd: int) -> bool:
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
            self.kept[fd] += data[: MAX_SHOWN_OUTPUT - len(self.kept[fd])]
        return bool(data)
