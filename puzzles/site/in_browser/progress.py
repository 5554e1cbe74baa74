"""A run while it goes on: what it prints, and the line of the player's code that it has reached."""

import sys
from collections.abc import Callable, Iterator
from io import TextIOBase
from time import monotonic
from types import CodeType
from typing import Any

MAX_PRINTED = 100_000
"""Characters of what the player's code prints that are sent to the page."""

CUT = "\n... and more, which is not shown"

SLICE = 0.2
"""Seconds after which a line is noted again, and between two messages on what is printed."""

TOOL = 4
"""Ours among the tools of `sys.monitoring`, whose numbers 0 to 2 and 5 are given."""


class Progress(TextIOBase):
    """Takes what is printed, and sends it with the line that runs.

    A line is sent as soon as it is reached, since what it computes may never end; but only once in a slice of time, so
    that a loop is hardly slower.
    """

    def __init__(self, send: Callable[[str, int], object]) -> None:
        self._send, self._text, self._line, self._sent = send, "", 0, 0.0
        self._room = MAX_PRINTED

    def write(self, text: str) -> int:
        if self._room:
            kept = text[: self._room]
            self._room -= len(kept)
            self._text += kept if self._room else kept + CUT
            if monotonic() - self._sent > SLICE:
                self.send()
        return len(text)

    def send(self) -> None:
        """Sends what was not sent yet."""
        self._send(self._text, self._line)
        self._text, self._sent = "", monotonic()

    def follow(self, code: CodeType) -> None:
        """Notes the lines of a code, and of what it defines, from now on. Older Pythons than 3.12 cannot."""
        if sys.version_info >= (3, 12):
            watch = sys.monitoring
            if watch.get_tool(TOOL) is None:
                watch.use_tool_id(TOOL, "progress")
            watch.register_callback(TOOL, watch.events.LINE, self._reached)
            watch.register_callback(TOOL, watch.events.JUMP, self._jumped)
            for part in _parts(code):
                watch.set_local_events(TOOL, part, watch.events.LINE | watch.events.JUMP)

    def _reached(self, code: CodeType, line: int) -> Any:
        self._line = line
        self.send()
        return sys.monitoring.DISABLE  # type: ignore[attr-defined]  # from Python 3.12 on

    def _jumped(self, code: CodeType, begin: int, end: int) -> None:
        """A loop begins another round."""
        if monotonic() - self._sent > SLICE:
            sys.monitoring.restart_events()  # type: ignore[attr-defined]
            self.send()


def _parts(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts(constant)
