"""What a config says of a split and of its job."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import prod
from typing import Any

from lib.errors import RuleError

from ..job import Job
from ..split import Split


@dataclass(frozen=True)
class Config:
    """Fields of a split, without dp where the number of GPUs decides it, and what a job needs besides model and GPU; 0
    where the config does not say it."""

    split: Mapping[str, Any]
    batch: int
    sequence: int
    fp8: bool
    kernels: str

    def split_on(self, gpus: int) -> Split:
        """The split on so many GPUs."""
        given = dict(self.split)
        inner = prod(given.get(axis, 1) for axis in ("tp", "pp", "cp"))
        if gpus % inner:
            raise RuleError(f"pp x cp x tp is {inner} in the config, which does not divide {gpus} GPUs")
        return Split(**{"dp": gpus // inner, **given})


def whole(name: str, value: Any) -> int:
    """A whole number of a config."""
    try:
        if isinstance(value, (bool, float)):
            raise ValueError
        return int(value)
    except (TypeError, ValueError):
        raise RuleError(f"{name} must be a whole number; got {str(value)[:40]!r}") from None


def require_usual(split: Split, program: str, **usual: Any) -> None:
    """Refuses what a program cannot do: fields that differ from what they must be."""
    assert set(usual) <= {field.name for field in fields(Split)}
    for name, wanted in usual.items():
        allowed = wanted if isinstance(wanted, tuple) else (wanted,)
        if getattr(split, name) not in allowed:
            raise RuleError(
                f"{program} cannot be configured with {name} {getattr(split, name)}; it takes "
                f"{' or '.join(map(str, allowed))}. Fix this in the split, or choose another format"
            )


def require_16_bits(job: Job, program: str) -> None:
    """Refuses matrix products in 8 bits."""
    if job.fp8:
        raise RuleError(
            f"{program} has no setting here for matrix products in 8 bits; leave out fp8, or add them by hand"
        )
