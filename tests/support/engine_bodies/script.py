"""A device that does what a function says, and how a body runs it on all devices."""

from collections.abc import Callable
from typing import Any

import numpy as np

from lib import PuzzleError
from lib.engine import ShardedEngine, launch
from lib.errors import Sentence
from tests.oracles.collective_arrays import N

PATIENCE = 0.3
"""Seconds until a wait on MPI is looked into: short here, so that the tests of deadlocks are."""


class Script(ShardedEngine):
    """A device that does what a function says."""

    def __init__(self, does: Callable[..., Any]) -> None:
        self.does = does

    def load_checkpoint(self, params: Any) -> None:
        self.params = params

    def forward(self, x: Any) -> Any:
        return self.does(self, x)

    def backward(self, grads: Any) -> Any:
        return self.does(self, grads)


def on_each(on: str, does: Callable[..., Any], x: Any = 0, n: int = N, metered: bool = False) -> list[Any]:
    """Runs a function on every device, for an input of each or one for all; the results by device."""
    with launch(Script, n, does, on=on, metered=metered, patience=PATIENCE) as run:
        return run.forward(x)


def refused(on: str, does: Callable[..., Any], x: Any = 0) -> str:
    """The message with which the run is refused."""
    return refusal_of(lambda: on_each(on, does, x))


def refusal_of(call: Callable[[], Any]) -> str:
    error = error_of(call)
    return f"{type(error).__name__}: {error}"


def error_of(call: Callable[[], Any]) -> PuzzleError:
    try:
        call()
    except PuzzleError as why:
        return why
    raise AssertionError("this was not refused")


def facts_of(on: str, does: Callable[..., Any]) -> dict[str, Any]:
    """The facts with which the run is refused."""
    problem = error_of(lambda: on_each(on, does)).problem
    assert isinstance(problem, Sentence), problem
    return problem.facts


def equal(got: Any, wanted: Any) -> bool:
    same = got.shape == wanted.shape and got.dtype == wanted.dtype
    return bool(same and np.array_equal(got, wanted, equal_nan=got.dtype.kind in "fc"))


def all_equal(got: list[Any], wanted: list[Any]) -> bool:
    return len(got) == len(wanted) and all(map(equal, got, wanted))


def several(shape: tuple[int, ...], dtype: str, seed: int = 1, order: str = "C") -> list[Any]:
    """An array for each device, small whole numbers."""
    draw = np.random.default_rng(seed)
    return [np.array(draw.integers(-3, 4, shape), dtype=dtype, order=order) for _ in range(N)]  # type: ignore[call-overload]
