"""Reads single keys from a terminal, without disturbing what is printed."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

SEQUENCE = re.compile(r"\x1b(\[[\d;]*[@-~]|O.|.|$)")
"""What arrows, function keys and Alt send; its letters were not pressed."""

MAX_BYTES = 64
"""Of one read."""


@contextmanager
def single_keys() -> Iterator[None]:
    """Within the block, keys arrive one by one, without Enter, and are not shown. Only input changes: raw mode, as
    `click.getchar` sets it, would also keep the terminal from returning to the margin at the end of a line."""
    try:
        import termios
    except ImportError:  # Windows, where `getchar` changes nothing
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    mode = termios.tcgetattr(terminal)
    mode[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(terminal, termios.TCSADRAIN, mode)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def keys() -> Iterator[str]:
    """The keys as they are pressed, in lower case; 'q' at the end of the input, and then no more."""
    while True:
        for key in _pressed() or "q":
            yield key.lower()
            if key == "q":
                return


def _pressed() -> str:
    """At least one key; empty at the end of the input."""
    try:
        if not sys.stdin.isatty():
            return sys.stdin.read(1)
        if sys.platform == "win32":
            return click.getchar()
        while True:
            given = os.read(sys.stdin.fileno(), MAX_BYTES).decode(errors="replace")
            pressed = SEQUENCE.sub("", given)
            if pressed or not given:
                return pressed
    except (EOFError, KeyboardInterrupt, OSError):
        return ""
