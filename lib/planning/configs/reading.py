"""The contents of a config: fields of a split and of its job."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import prod
from typing import Any

from lib.errors import RuleError

from ..job import Job
from ..split import Split


@dataclass(frozen=True)
class Config:
    """Fields of a split (without dp if the number of GPUs determines it), and what a job needs besides model and GPU.
    Numbers that the config leaves open are 0."""

    split: Mapping[str, Any]
    batch: int
    sequence: int
    fp8: bool
    kernels: str

    def split_on(self, gpus: int) -> Split:
        """The split on a number of GPUs."""
        given = dict(self.split)
        inner = prod(given.get(axis, 1) for axis in ("tp", "pp", "cp"))
        if gpus % inner:
            raise RuleError(f"pp x cp x tp is {inner} in the config, which does not divide {gpus} GPUs")
        return Split(**{"dp": gpus // inner, **given})


def whole(name: str, value: Any) -> int:
    try:
        if isinstance(value, (bool, float)):
            raise ValueError
        return int(value)
    except (TypeError, ValueError):
        raise RuleError(f"{name} must be a whole number; got {str(value)[:40]!r}") from None


def require_usual(split: Split, program: str, **usual: Any) -> None:
    """Refuses a split with fields that differ from what a program supports."""
    assert set(usual) <= {field.name for field in fields(Split)}
    for name, wanted in usual.items():
        allowed = wanted if isinstance(wanted, tuple) else (wanted,)
        if getattr(split, name) not in allowed:
            raise RuleError(
                f"{program} cannot be configured with {name} {getattr(split, name)}; it takes "
                f"{' or '.join(map(str, allowed))}. Fix this in the split, or choose another format"
            )


def require_16_bits(job: Job, program: str) -> None:
    if job.fp8:
        raise RuleError(
            f"{program} has no setting here for matrix products in 8 bits; leave out fp8, or add them by hand"
        )
