"""A schedule judged as a puzzle, and the eight classics with their figures."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from lib import CLASSIC_SETTING, Goal, Model, Outcome, Report, Setting, Size, referee, run


class Classic(NamedTuple):
    """One row of the table of classic puzzles: the problem's size, and what its reference schedule scores."""

    slug: str
    size: Size
    time: int
    memory: int
    timesteps: float
    peak_memory: int

    @property
    def goal(self) -> Goal:
        return Goal(self.slug, self.size, self.time, self.memory)

    @property
    def solution(self) -> Callable[[Model], Any]:
        return getattr(import_module(f"solutions.{self.slug}"), self.slug)


CLASSICS = [
    Classic("basic", Size(2, 4, 1), 17, 2_600_000, 16.5, 2_621_440),
    Classic("grad_accum", Size(2, 4, 1), 17, 2_000_000, 16.5, 1_966_080),
    Classic("ddp", Size(2, 4, 4), 5, 1_800_000, 5.1, 1_835_008),
    Classic("wsdp", Size(6, 4, 4), 20, 2_800_000, 19.9, 2_752_512),
    Classic("fsdp", Size(6, 4, 4), 20, 2_300_000, 19.9, 2_359_296),
    Classic("pipeline", Size(8, 4, 4), 66, 3_300_000, 66.9, 3_145_728),
    Classic("gpipe", Size(8, 4, 4), 33, 4_100_000, 33.3, 4_194_304),
    Classic("pipeline_fsdp", Size(4, 4, 16), 15, 1_000_000, 15.5, 966_656),
]


def finished(schedule: Callable[..., Any], *given: Any, **options: Any) -> Outcome:
    """The run of a schedule, which comes to its end."""
    outcome = run(schedule, *given, **options)
    assert outcome.error is None, outcome.error
    return outcome


def judge(
    schedule: Callable[[Model], Any],
    layers: int = 2,
    batches: int = 2,
    ranks: int = 1,
    setting: Setting = CLASSIC_SETTING,
) -> Report:
    """The referee's report on a schedule that runs through, under the rules of a puzzle."""
    size = Size(layers, batches, ranks)
    outcome = run(schedule, *size, setting=setting)
    if outcome.error is not None:
        raise outcome.error
    return referee(outcome.trace, Goal("test", size, time=10**6, memory=10**9, setting=setting))


def refusal(
    schedule: Callable[[Model], Any],
    layers: int = 2,
    batches: int = 2,
    ranks: int = 1,
    setting: Setting = CLASSIC_SETTING,
) -> Any:
    """The error that refuses a schedule, from the runtime immediately or from the referee at the end."""
    size = Size(layers, batches, ranks)
    outcome = run(schedule, *size, setting=setting)
    if outcome.error is not None:
        return outcome.error
    return referee(outcome.trace, Goal("test", size, time=10**6, memory=10**9, setting=setting)).error
