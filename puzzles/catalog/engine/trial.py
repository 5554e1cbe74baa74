"""What a class is tried with, and what came of it: plain data both, so that a run can happen in another process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lib.engine.metering.meter import Reading


@dataclass(frozen=True)
class Call:
    """One call of a method on every device: each device's argument, and each device's right result; where there are
    fewer results than devices, the other devices' are not compared. None instead of the results: none is compared
    (`Trial.check` may look at them)."""

    method: str
    arguments: Sequence[Any]
    wanted: Sequence[Any] | None = None
    mistakes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Results of mistakes that many make, each device's, by a sentence that tells a player what it was."""


@dataclass(frozen=True)
class Trial:
    """One launch of a class. Arguments and results are numbers, texts, arrays, and lists, tuples and dictionaries
    of them.

    The class is made with `arguments`, gets `params` (if any) by load_checkpoint, then every call in order; with
    `stream`, inputs and the right outputs of an inference loop come last.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    calls: Sequence[Call] = ()
    stream: tuple[list[Any], list[Any]] | None = None
    devices: int = 4
    tolerance: float = 0.0
    """Relative to the largest right number of an array; 0 asks for equality."""
    check: Callable[[Performed], None] | None = None
    """What else has to hold; raises `Wrong`."""
    targets: Mapping[str, int] | None = None
    """Limits of this trial, where they are not the puzzle's."""
    hidden: bool = False
    """Whether players are not told of it: a class that is wrong only here passes, without its third star."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of `launch`."""
    about: str = ""
    """What is special about this trial, told beside what goes wrong in it."""


@dataclass(frozen=True)
class Performed:
    """What came of a launch: `results[call][device]`, the outputs of the stream, and every device's meter after
    loading and after each call: `readings[0]` is after loading, `readings[-1]` the end."""

    results: Sequence[Sequence[Any]]
    outputs: Sequence[Any]
    readings: Sequence[Sequence[Reading]]


class Wrong(Exception):
    """A result that is not what it should be, in a sentence for the player."""
