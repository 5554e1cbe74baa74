"""The least figures of the sharded puzzles."""

from collections.abc import Mapping

from puzzles.catalog.engine import lower_bounds
from puzzles.catalog.engine.lower_bounds import FigureBound, MakeBounds
from puzzles.catalog.engine.trial import Trial
from puzzles.content.engine.data.lower_bounds import any_of, trained


def zero_memory(trial: Trial) -> dict[str, FigureBound]:
    assert trial.targets is not None
    held = FigureBound(trial.targets["peak"], "the arrays of the case with the largest plan are held at once")
    return {**lower_bounds.calls(), "peak": held}


def sharded_adam(trial: Trial) -> dict[str, FigureBound]:
    """At the end a device holds the weights in float16, and its rows of the master weights."""
    numbers = sum(weight.size for weight in trial.params.values())
    returned = 2 * numbers + 4 * numbers // trial.devices
    return {**any_of(trial), "kept": FigureBound(returned, "a device holds what its last step returned")}


def with_dx(trial: Trial) -> dict[str, FigureBound]:
    return any_of(trial, lambda trial: trained(trial, with_dx=True))


LOWER_BOUNDS: Mapping[str, MakeBounds] = {
    "ZeRO1": any_of,
    "ZeRO2": any_of,
    "FSDP": with_dx,
    "UnevenFSDP": any_of,
    "ShardedAdam": sharded_adam,
    "ZeROMemory": zero_memory,
}
