"""Compares what a server made of its clients' messages with what it should be, and names the mistake if it is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..trial import Performed, Wrong

Mistakes = Mapping[str, Any]
"""What a typical mistake leads to, by the words that tell a player so."""


def array_of(performed: Performed, call: int, shape: tuple[int, ...], device: int = 0) -> Any:
    """What a device returned.

    Raises:
        Wrong: it is no array of this shape.
    """
    got = performed.results[call][device]
    if not isinstance(got, np.ndarray) or got.shape != shape:
        given = f"one of shape {got.shape}" if isinstance(got, np.ndarray) else f"of type {type(got).__name__}"
        raise Wrong(f"device {device}, forward() should return an array of shape {shape}; it is {given}")
    return got


def near(got: Any, right: Any, tolerance: float = 0.0) -> bool:
    """Whether all numbers are equal, or as near as `tolerance`, relative to the largest right one, allows."""
    return bool((np.abs(got - right) <= tolerance * np.abs(right).max(initial=0)).all())


def require(got: Any, right: Any, where: str, mistakes: Mistakes, tolerance: float = 0.0) -> None:
    """Nothing, if an array is as it should be.

    Raises:
        Wrong: with the words of the mistake that leads to what was got; otherwise with the first wrong number.
    """
    if near(got, right, tolerance):
        return
    for words, wrong in mistakes.items():
        if near(got, wrong, tolerance):
            raise Wrong(f"{where}: {words}")
    allowed = tolerance * np.abs(right).max(initial=0)
    place = tuple(int(i[0]) for i in np.nonzero(~(np.abs(got - right) <= allowed)))
    at = ", ".join(map(str, place))
    raise Wrong(f"{where}: at [{at}] it is {got[place]:g} and should be {right[place]:g}")


def require_rows(performed: Performed, call: int, right: Any, mistakes: Mistakes, tolerance: float = 0.0) -> None:
    """The same for what the server has rebuilt of every client's update, a row for each. `mistakes` are such rows
    too."""
    got = array_of(performed, call, right.shape)
    for row in range(len(right)):
        wrong = {words: rows[row] for words, rows in mistakes.items()}
        require(got[row], right[row], f"the update of client {row + 1}, as rebuilt", wrong, tolerance)
