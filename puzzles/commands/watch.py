"""`puzzles watch`: grades what changed on every save, and responds to single keys."""

import os
import queue
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from puzzles.sandbox.limits import Limits

from .shared.params import bytes_text, colour_option, seconds_text, terminal
from .shared.watch_state import WatchState

SEQUENCE = re.compile(r"\x1b(\[[\d;]*[@-~]|O.|.|$)")
"""What arrows, function keys and Alt send; the letters in it were not pressed."""

MAX_BYTES = 64
"""Of one read."""


@contextmanager
def single_keys() -> Iterator[None]:
    """Within the block, keys arrive one by one, without Enter, and are not shown. Only input changes: raw mode, which
    `click.getchar` sets, would also break the ends of printed lines."""
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


DEFAULT = Limits()


@click.command()
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("--time-limit", type=seconds_text, default=DEFAULT.seconds, show_default=True, help="Seconds per puzzle.")
@click.option("--memory-limit", type=bytes_text, default="1024M", show_default=True, help="Memory of a process.")
@colour_option
def watch(path: str, time_limit: float, memory_limit: int, colour: str | None) -> None:
    """Grade FILE again on every save.

    Single keys show hints, the statement, the picture and the next puzzle.
    """
    game = WatchState(path, Limits(seconds=time_limit, memory=memory_limit), terminal(), colour=colour or "layer")
    events: queue.Queue[str] = queue.Queue()
    stop = threading.Event()
    with single_keys():
        for source in (_saves(path, stop), keys()):
            threading.Thread(target=_forward_events, args=(source, events), daemon=True).start()
        try:
            game.begin()
            while game.handle(events.get()):
                pass
        finally:
            stop.set()


def _forward_events(source: Iterator[str], events: queue.Queue[str]) -> None:
    for event in source:
        events.put(event)


def _saves(path: str, stop: threading.Event) -> Iterator[str]:
    from watchfiles import watch as changes  # here, because it is slow to import

    file = Path(path).resolve()
    for changed in changes(file.parent, stop_event=stop, recursive=False, raise_interrupt=False):
        if any(Path(name).resolve() == file for _, name in changed):
            yield "saved"
