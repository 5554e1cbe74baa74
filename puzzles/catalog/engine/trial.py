"""Trials of a class and their outcomes: both are plain data, so that a trial can run in another process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from lib.engine.metering import Reading


@dataclass(frozen=True)
class MethodCall:
    """One call of a method on every device, with each device's argument and expected result.

    Results beyond the expected ones are not compared. If the expected results are None, none is (`Trial.check` may
    compare them).
    """

    method: str
    arguments: Sequence[Any]
    wanted: Sequence[Any] | None = None
    mistakes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Each device's results of common mistakes, by a sentence for the player that names the mistake."""


@dataclass(frozen=True)
class Trial:
    """One launch of a class. Arguments and results are numbers, texts, arrays, and lists, tuples and dictionaries
    of them.

    The class is created with `arguments`, gets `params` (if any) by load_checkpoint, then every call in order. With
    `stream`, the inputs and expected outputs of an inference loop come last.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    calls: Sequence[MethodCall] = ()
    stream: tuple[list[Any], list[Any]] | None = None
    devices: int = 4
    tolerance: float = 0.0
    """Tolerance relative to the largest expected number of an array; 0 means equality."""
    check: Callable[[Performed], None] | None = None
    """Further conditions on the outcome; raises `WrongResultError`."""
    targets: Mapping[str, int] | None = None
    """Limits of this trial; None for the puzzle's limits."""
    hidden: bool = False
    """True if players do not see it: a class that is wrong only here passes, without its third star."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of `launch`."""
    packing: bool = False
    """True if this is about compression: bytes sent are then counted of the arrays. Otherwise each number costs at
    least 4 bytes, see `lib.engine.collectives.unpacked_bytes`, so that packing several into one is of no use."""
    about: str = ""
    """What is special about this trial, shown before its messages."""
    spmd: Mapping[str, Any] | None = None
    """Of a puzzle on annotations: the shapes of `inputs` and `parameters` by name, and the `mesh`. The judge then runs
    the class's method `program` through `Spmd`, so only its annotations decide what moves."""


@dataclass(frozen=True)
class Performed:
    """Outcome of a launch: `results[call][device]`, the outputs of the stream, and every device's meter after loading
    and after each call: `readings[0]` is after loading, `readings[-1]` at the end."""

    results: Sequence[Sequence[Any]]
    outputs: Sequence[Any]
    readings: Sequence[Sequence[Reading]]

    def priced(self, trial: Trial) -> Performed:
        """With the bytes sent as the trial counts them."""
        if trial.packing:
            return self
        return replace(self, readings=[[replace(one, sent=one.unpacked) for one in step] for step in self.readings])


class WrongResultError(Exception):
    """A result differs from the expected one; the message is a sentence for the player. It belongs to the method, if
    one is given."""

    def __init__(self, problem: str, method: str = "") -> None:
        super().__init__(problem)
        self.method = method


@contextmanager
def results_of(method: str) -> Iterator[None]:
    """A context whose wrong results belong to a method, unless they name another."""
    try:
        yield
    except WrongResultError as why:
        why.method = why.method or method
        raise
