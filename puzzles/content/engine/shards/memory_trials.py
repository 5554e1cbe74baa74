"""Trials of ZeROMemory: models, clusters and budgets, and the messages for a plan that is not the best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from puzzles.catalog.engine.trial import MethodCall, Performed, Trial, WrongResultError
from puzzles.catalog.engine.two_layer_mlp import DEVICES

ZeROPlan = tuple[int, int]
"""Stage (0 to 3) and degree (the number of devices that share)."""


class Case(NamedTuple):
    """The number of parameters and devices, and each device's budget in bytes; tried at a size `scale` times
    smaller."""

    parameters: int
    devices: int
    budget: int
    scale: int

    def __str__(self) -> str:
        return f"{self.parameters / 1e9:g}e9 parameters on {self.devices} devices of {gigabytes(self.budget)}"

    def plans(self) -> list[ZeROPlan]:
        """All plans that fit, best first: fewest bytes sent, then the smallest degree, then the lowest stage."""
        degrees = [degree for degree in range(1, self.devices + 1) if self.devices % degree == 0]
        every = [(0, 1)] + [(stage, degree) for stage in (1, 2, 3) for degree in degrees]
        return sorted((plan for plan in every if bytes_per_device(self.parameters, *plan) <= self.budget), key=cost)


def cost(plan: ZeROPlan) -> tuple[int, int, int]:
    """Sort key of plans: volume sent, in numbers per parameter; then degree; then stage."""
    stage, degree = plan
    return (3 if stage == 3 else 2, degree, stage)


def bytes_per_device(parameters: int, stage: int, degree: int) -> float:
    """Bytes per device (Rajbhandari et al. 2020): 16P; 4P + 12P/N; 2P + 14P/N; 16P/N."""
    whole, shared = ((16, 0), (4, 12), (2, 14), (0, 16))[stage]
    return parameters * (whole + shared / degree)


def gigabytes(count: float) -> str:
    return f"{count / 1e9:.10g} GB"


PAPER_CASES = [
    Case(7_500_000_000, 64, budget, 312_500)
    for budget in (
        128_000_000_000,
        80_000_000_000,
        60_000_000_000,
        48_000_000_000,
        24_000_000_000,
        16_640_625_000,
        16_600_000_000,
        1_900_000_000,
        1_800_000_000,
    )
]
OTHER_CASES = [
    *(Case(1_500_000_000, 48, budget * 10_000_000, 31_250) for budget in (1600, 800, 500, 340, 50, 49)),
    Case(175_000_000_000, 512, 80_000_000_000, 13_671_875),
    Case(1_000_000_000_000, 1024, 32_000_000_000, 39_062_500),
    Case(1_000_000_000_000, 1024, 16_000_000_000, 39_062_500),
]


def zero_memory() -> Trial:
    return zero_memory_trial(PAPER_CASES)


def zero_memory_others() -> Trial:
    """A cluster whose size is not a power of two, and larger models."""
    return zero_memory_trial(OTHER_CASES)


def zero_memory_trial(cases: Sequence[Case]) -> Trial:
    def check(performed: Performed) -> None:
        for i, case in enumerate(cases):
            for device, result in enumerate(performed.results[i]):
                where = f"device {device}, case {i + 1} ({case})"
                require_best(case, result, where)
                require_held(case, result, performed.readings[i + 1][device].live, where)

    peak = max(
        round(bytes_per_device(case.parameters, *case.plans()[0])) // case.scale for case in cases if case.plans()
    )
    calls = tuple(MethodCall("forward", [case._asdict()] * DEVICES) for case in cases)
    return Trial(calls=calls, check=check, targets={"collectives": 0, "peak": peak})


def require_best(case: Case, result: Any, where: str) -> None:
    """Compares a plan with the best one.

    Raises:
        WrongResultError: the plan is not the best; the message says which other plan is better, and why.
    """
    fits = case.plans()
    if result is None:
        if fits:
            raise WrongResultError(f"{where}: forward returned None, but a plan fits")
        return
    if not isinstance(result, (tuple, list)) or len(result) != 2 or not all(isinstance(n, int) for n in result):
        raise WrongResultError(
            f"{where}: forward should return (stage, degree), two whole numbers, or None; got {result!r}"
        )
    stage, degree = result
    if stage not in range(4) or degree < 1 or case.devices % degree:
        raise WrongResultError(
            f"{where}: there is no plan (stage {stage}, degree {degree}); stages are 0 to 3, and the degree must "
            "divide the number of devices"
        )
    needed = bytes_per_device(case.parameters, stage, degree)
    named = f"{where}: stage {stage} with degree {degree}"
    if needed > case.budget:
        raise WrongResultError(f"{named} needs {gigabytes(needed)} per device")
    best, mine = cost(fits[0]), cost((stage, degree))
    if mine[0] > best[0]:
        raise WrongResultError(f"{named} fits, but sends 3 numbers per parameter; another stage fits that sends only 2")
    if mine[1] > best[1]:
        raise WrongResultError(f"{named} fits, but so does a smaller degree that sends no more")
    if mine[2] > best[2]:
        raise WrongResultError(f"{named} fits, but so does a lower stage with the same degree")


def require_held(case: Case, result: Any, live: int, where: str) -> None:
    """Compares the live bytes on the meter with the formula.

    Raises:
        WrongResultError: they differ.
    """
    if result is None:
        if live:
            raise WrongResultError(f"{where}: without a plan, keep no arrays; the meter reads {live:,} B")
        return
    needed = round(bytes_per_device(case.parameters, *result)) // case.scale
    if live != needed:
        raise WrongResultError(
            f"{where}: stage {result[0]} with degree {result[1]} takes {needed:,} B at a scale of 1 to {case.scale:,}, "
            f"but the meter reads {live:,} B"
        )
