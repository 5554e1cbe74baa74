"""Sends an exception from one process to all others, and prints it once."""

import pickle
import sys
import traceback
from collections.abc import Callable
from traceback import StackSummary
from typing import Any

from lib.engine.player_code import is_of_player
from lib.engine.transports.processes.carrier import Carrier
from lib.errors import PuzzleError

_must_abort = [False]
"""True if a device did not end in time after another one had failed."""

TRACEBACK = "Its traceback, most recent call last:\n"


def pickled(error: BaseException) -> bytes:
    """Pickles an exception for the other devices, with the player's lines of its traceback as a note; or its text if it
    cannot be pickled."""
    try:
        packed = pickle.dumps(error)
        copy = pickle.loads(packed)
    except Exception:
        copy = RuntimeError(f"{type(error).__name__}: {error}")
    for note in _notes(error):
        if note not in _notes(copy):
            copy.add_note(note)
    if not isinstance(error, PuzzleError) and not any(note.startswith(TRACEBACK) for note in _notes(copy)):
        copy.add_note(_player_lines(error))
    return pickle.dumps(copy)


def _notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


def _player_lines(error: BaseException) -> str:
    """The traceback on the device that raised an error, without the engine's frames."""
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if is_of_player(frame)]
    return "".join([TRACEBACK, *StackSummary.extract(frames).format()]).rstrip()


def marked(error: Any, device: int = 0, gave_up: bool = False) -> Any:
    """Marks an error that every process raises with the device that prints it. `gave_up`: some process may never read
    about it, so the others have to abort it."""
    error._device = device
    _must_abort[0] = gave_up
    return error


def print_once_on(carrier: Carrier) -> Callable[[type[BaseException], BaseException, Any], None]:
    """A `sys.excepthook`, which prints an error that ends the program. If all devices have it, only its own device
    prints it.

    If the others have to be aborted, the first process to do so prints it, because no other may get the chance.
    """

    def print_once(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        device = getattr(error, "_device", None)
        if device in (None, carrier.data.rank) or _must_abort[0]:
            traceback.print_exception(kind, error, trace)
            sys.stderr.flush()
        if device is None or _must_abort[0]:
            carrier.abort()  # the others do not know about the error, or do not read their messages

    return print_once
