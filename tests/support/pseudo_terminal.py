"""Runs a command in a pseudo-terminal, and says what is on its screen."""

import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pyte

PATIENCE = 60.0
"""Seconds until a screen that does not come is a failure."""


START = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGINT, signal.default_int_handler)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "puzzles", *sys.argv[1:]])
"""
"""Makes the terminal the one that controls the process, so that Ctrl-C reaches it; also where the tests were started in
the background of a shell, which makes programs ignore it."""


class PseudoTerminal:
    """`python -m puzzles ...` with a terminal of its own; ends with the block."""

    def __init__(self, arguments: list[str], columns: int, rows: int, environment: Mapping[str, str]) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.status: int | None = None
        self._terminal, inner = os.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, *arguments],
            stdin=inner, stdout=inner, stderr=inner, env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(inner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
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

    def until_it_waits(self) -> None:
        """Reads until the program sleeps: Python loses a signal that comes just before it begins to read a line."""
        end = time.monotonic() + PATIENCE
        while self._process_state() != "S":
            assert time.monotonic() < end, "the program is never idle"
            self._read(0.01)

    def _process_state(self) -> str:
        stat = Path(f"/proc/{self._process.pid}/stat")
        return stat.read_text().rpartition(") ")[2][:1] if stat.exists() else "S"

    def until_end(self) -> list[str]:
        """Reads to the end of the program, keeps its exit code, and returns what is on the screen then."""
        end = time.monotonic() + PATIENCE
        while self._read(end - time.monotonic()):
            pass
        self.status = self._process.wait(max(end - time.monotonic(), 1))
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
