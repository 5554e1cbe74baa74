"""What ZeROMemory is tried with: models, clusters and budgets, and what is said of a plan that is not the best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from puzzles.catalog.engine.trial import Call, Performed, Trial, Wrong
from puzzles.catalog.engine.two_layers import DEVICES

Plan = tuple[int, int]
"""Stage and degree."""


class Case(NamedTuple):
    """A model of so many parameters on so many devices, each with a budget in bytes; tried `scale` times smaller."""

    parameters: int
    devices: int
    budget: int
    scale: int

    def __str__(self) -> str:
        return f"{self.parameters / 1e9:g}e9 parameters on {self.devices} devices of {gigabytes(self.budget)}"

    def plans(self) -> list[Plan]:
        """Everything that fits, the best first: least is sent, then the smallest degree, then the lowest stage."""
        degrees = [degree for degree in range(1, self.devices + 1) if self.devices % degree == 0]
        every = [(0, 1)] + [(stage, degree) for stage in (1, 2, 3) for degree in degrees]
        return sorted((plan for plan in every if memory(self.parameters, *plan) <= self.budget), key=rank)


def rank(plan: Plan) -> tuple[int, int, int]:
    """What is compared, in this order: volume in numbers for each parameter, degree, stage."""
    stage, degree = plan
    return (3 if stage == 3 else 2, degree, stage)


def memory(parameters: int, stage: int, degree: int) -> float:
    """Bytes on a device (Rajbhandari et al. 2020): 16P; 4P + 12P/N; 2P + 14P/N; 16P/N."""
    whole, shared = ((16, 0), (4, 12), (2, 14), (0, 16))[stage]
    return parameters * (whole + shared / degree)


def gigabytes(count: float) -> str:
    return f"{count / 1e9:.10g} GB"


PAPER = [
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
OTHERS = [
    *(Case(1_500_000_000, 48, budget * 10_000_000, 31_250) for budget in (1600, 800, 500, 340, 50, 49)),
    Case(175_000_000_000, 512, 80_000_000_000, 13_671_875),
    Case(1_000_000_000_000, 1024, 32_000_000_000, 39_062_500),
    Case(1_000_000_000_000, 1024, 16_000_000_000, 39_062_500),
]


def zero_memory() -> Trial:
    return chosen(PAPER)


def zero_memory_others() -> Trial:
    """A cluster that is no power of two, and larger models."""
    return chosen(OTHERS)


def chosen(cases: Sequence[Case]) -> Trial:
    def check(performed: Performed) -> None:
        for i, case in enumerate(cases):
            for device, result in enumerate(performed.results[i]):
                where = f"device {device}, case {i + 1} ({case})"
                require_best(case, result, where)
                require_held(case, result, performed.readings[i + 1][device].live, where)

    peak = max(round(memory(case.parameters, *case.plans()[0])) // case.scale for case in cases if case.plans())
    calls = tuple(Call("forward", [case._asdict()] * DEVICES) for case in cases)
    return Trial(calls=calls, check=check, targets={"peak": peak})


def require_best(case: Case, result: Any, where: str) -> None:
    """Raises `Wrong`, if a plan is not the best one, saying what is wrong with it."""
    fits = case.plans()
    if result is None:
        if fits:
            raise Wrong(f"{where}: nothing was chosen, but something fits")
        return
    if not isinstance(result, (tuple, list)) or len(result) != 2 or not all(isinstance(n, int) for n in result):
        raise Wrong(f"{where}: forward should return (stage, degree), two whole numbers, or None; it is {result!r}")
    stage, degree = result
    if stage not in range(4) or degree < 1 or case.devices % degree:
        raise Wrong(
            f"{where}: there is no plan (stage {stage}, degree {degree}); stages are 0 to 3, and a degree divides the "
            "number of devices"
        )
    needed = memory(case.parameters, stage, degree)
    told = f"{where}: stage {stage} in degree {degree}"
    if needed > case.budget:
        raise Wrong(f"{told} takes {gigabytes(needed)} on a device")
    best, mine = rank(fits[0]), rank((stage, degree))
    if mine[0] > best[0]:
        raise Wrong(f"{told} fits, but sends 3 numbers for each parameter; another stage fits that sends 2")
    if mine[1] > best[1]:
        raise Wrong(f"{told} fits, but so does a smaller degree, and no more is sent")
    if mine[2] > best[2]:
        raise Wrong(f"{told} fits, but so does a lower stage in the same degree")


def require_held(case: Case, result: Any, live: int, where: str) -> None:
    """Raises `Wrong`, if the meter does not read what the formula says."""
    if result is None:
        if live:
            raise Wrong(f"{where}: without a plan nothing should be kept, but the meter reads {live:,} B")
        return
    needed = round(memory(case.parameters, *result)) // case.scale
    if live != needed:
        raise Wrong(
            f"{where}: stage {result[0]} in degree {result[1]} takes {needed:,} B, at a scale of 1 to {case.scale:,}, "
            f"but the meter reads {live:,} B"
        )
