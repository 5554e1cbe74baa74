"""A schedule in the child: its function runs on every rank, and the trace is sent back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import lib
from lib import PuzzleError, Size, trace_to_json
from puzzles.failure import line_in, of_crash, of_refusal

from .stage import Place, Told, Unplayable


def prepare(request: Mapping[str, Any]) -> Size:
    """The size to play at."""
    return Size(*request["size"])


def run_definition(slug: str, function: Any, size: Size, place: Place) -> Told:
    """The trace as far as the run went, and why it went no further, if so."""
    require_schedule(slug, function)
    outcome = lib.run(function, *size)
    data = {"trace": trace_to_json(outcome.trace)}
    error = outcome.error
    if error is None:
        return Told(data)
    if isinstance(error, PuzzleError):
        return Told(data, of_refusal(error, line_in(error.__traceback__, place.file) or place.line))
    model = outcome.models[outcome.errors.index(error)]
    return Told(data, of_crash(error, place.file, f"rank {model.rank}, t={model.time:g}", place.line))


def require_schedule(slug: str, function: Callable[..., Any]) -> None:
    if not callable(function):
        raise Unplayable(f"{slug} is of type {type(function).__name__}, not a function; write 'def {slug}(model):'")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise Unplayable(f"there is a 'yield' in {slug}, so calling it runs none of its lines; take it out")
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise Unplayable(f"{slug} is called with one argument, the model; write 'def {slug}(model):'") from None
    except ValueError:
        return  # written in C: calling it will tell
