"""What a player's code cannot do in a browser, each with a sentence on what to do instead."""

import builtins
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from puzzles.failure import Failure


def _input(*given: object) -> NoReturn:
    raise RuntimeError("a run cannot ask for input; write the value into the code")


def _sleep(*given: object) -> NoReturn:
    raise RuntimeError("time.sleep does not move the clock of the game; remove it: operations take the time they cost")


def _leave(*given: object) -> NoReturn:
    sys.exit()


REPLACED: tuple[tuple[Any, str, Callable[..., NoReturn]], ...] = (
    (builtins, "input", _input),
    (time, "sleep", _sleep),
    (os, "_exit", _leave),
    (os, "abort", _leave),
)
"""Functions that would wait for nobody, or end Python itself."""

WORDS = (
    (
        r"\w*Error: No module named '([\w.]+)'.*",
        r"there is no \1 in the browser; use lib and Python's standard library",
    ),
    (r"\w+: can't start new thread.*", "a browser's Python has no threads; write one coroutine, which every rank runs"),
    (r"; a run may start few processes and threads.*", "; a browser's Python starts no processes"),
)
"""Patterns in the text of an error, and what the page says instead."""


@contextmanager
def replaced() -> Iterator[None]:
    """While a player's code runs, the functions above raise errors that name the remedy."""
    saved = [(module, name, getattr(module, name)) for module, name, _ in REPLACED]
    for module, name, instead in REPLACED:
        setattr(module, name, instead)
    try:
        yield
    finally:
        for module, name, before in saved:
            setattr(module, name, before)


def in_words(failure: Failure | None) -> Failure | None:
    """The failure as the page says it: without advice that needs an installation or a command line."""
    if failure is None:
        return None
    sentence = failure.sentence
    for pattern, words in WORDS:
        sentence = re.sub(pattern, words, sentence)
    return failure._replace(sentence=sentence)
