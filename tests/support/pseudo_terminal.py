"""Runs a command in a pseudo-terminal, and says what is on its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

import pyte

PATIENCE = 60.0
"""Seconds until a screen that does not come is a failure."""


class PseudoTerminal:
    """`python -m puzzles ...` with a terminal of its own; ends with the block."""

    def __init__(self, arguments: list[str], columns: int, rows: int, environment: Mapping[str, str]) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.status: int | None = None
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execve(sys.executable, [sys.executable, "-m", "puzzles", *arguments], dict(environment))
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.status is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._terminal)

    @property
    def lines(self) -> list[str]:
        """The rows of the screen, without the empty ones at its end."""
        rows = [row.rstrip() for row in self.screen.display]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def press(self, key: str) -> None:
        os.write(self._terminal, key.encode())

    def until(self, condition: Callable[[str], bool]) -> list[str]:
        """Reads until the screen meets a condition, and returns its lines."""
        end = time.monotonic() + PATIENCE
        while not condition(self.text):
            assert self._read(end - time.monotonic()), f"the program has ended, or shows only:\n{self.text}"
        return self.lines

    def until_end(self) -> list[str]:
        """Reads to the end of the program, keeps its exit code, and returns what is on the screen then."""
        end = time.monotonic() + PATIENCE
        while self._read(end - time.monotonic()):
            pass
        self.status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self.lines

    def is_cooked(self) -> bool:
        """True if the terminal echoes and gathers lines, as a shell expects it."""
        return termios.tcgetattr(self._terminal)[3] & (termios.ECHO | termios.ICANON) == termios.ECHO | termios.ICANON

    def _read(self, seconds: float) -> bool:
        """Feeds what was printed to the screen; False if nothing comes, or nothing ever will."""
        if not select.select([self._terminal], [], [], max(seconds, 0))[0]:
            return False
        try:
            printed = os.read(self._terminal, 1 << 16)
        except OSError:  # the program has closed its end
            return False
        self._stream.feed(printed)
        return bool(printed)
