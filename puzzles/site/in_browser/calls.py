"""A call from the page: the name of a function and its arguments as JSON, answered as JSON."""

import inspect
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import resources
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from lib import PuzzleError
from puzzles.site import custom

Calls = Mapping[str, Callable[..., Any]]


async def answered(calls: Calls, name: str, given: str) -> str:
    """What a function returns, or what it refuses, in words."""
    try:
        value = calls[name](*json.loads(given))
        return json.dumps({"value": await value if inspect.isawaitable(value) else value})
    except (SyntaxError, ValueError, PuzzleError) as why:
        return json.dumps({"error": str(why)})


def add_custom_puzzles() -> None:
    """Adds the puzzles of teachers that are in the archive, if there are any."""
    with suppress(OSError):
        custom.add(resources.files(__package__).joinpath("own.json").read_bytes(), Path(mkdtemp()))
