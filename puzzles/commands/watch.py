"""`puzzles watch`: grades what changed on every save, and responds to single keys."""

import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import click

from puzzles.sandbox.limits import Limits

from .shared.colour_option import colour_option
from .shared.keys import keys, single_keys
from .shared.params import Bytes, Seconds, terminal
from .shared.watch_state import WatchState

DEFAULT = Limits()


@click.command()
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("--time-limit", type=Seconds(), default=DEFAULT.seconds, show_default=True, help="Seconds per puzzle.")
@click.option("--memory-limit", type=Bytes(), default="1024M", show_default=True, help="Memory of a process.")
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
        except KeyboardInterrupt:
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
