"""The contents of a config: a model, fields of a split and of its job, and what is not read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import prod
from typing import Any

from lib.errors import RuleError, Sentences

from ..job import Job, Transformer
from ..presets import transformer_of_sizes
from ..split import Split


class Entries:
    """The entries of a config by name. What is asked for counts as read; the rest is named to the user, unless it
    changes neither time nor memory."""

    def __init__(self, entries: Mapping[str, Any]) -> None:
        self.entries = entries
        self.asked: set[str] = set()

    def __contains__(self, name: str) -> bool:
        self.asked.add(name)
        return name in self.entries

    def get(self, name: str, usual: Any = None) -> Any:
        self.asked.add(name)
        return self.entries.get(name, usual)

    def assume(self, name: str, *values: str) -> None:
        """Counts an entry as read if it has a value that every plan assumes."""
        if str(self.entries.get(name)).lower() in values:
            self.asked.add(name)

    def unread(self, harmless: re.Pattern[str]) -> tuple[str, ...]:
        return tuple(name for name in self.entries if name not in self.asked and not harmless.fullmatch(name))


@dataclass(frozen=True)
class Config:
    """Fields of a split (without dp if the number of GPUs determines it), and of its job: `how` has kernels, fp8, and
    what else the config decides. Numbers that the config leaves open are 0. `sizes` are fields of a model, of which
    the entry `missing` is not there. `unread` are entries that may change time or memory, and are not read."""

    split: Mapping[str, Any]
    batch: int
    sequence: int
    how: Mapping[str, Any]
    sizes: Mapping[str, Any]
    missing: str
    unread: tuple[str, ...]

    def model(self, **changed: Any) -> Transformer:
        """The model whose sizes the config gives, some of them replaced."""
        if self.missing:
            raise RuleError(f"the config has no {self.missing}, so name a model, as in --model llama-3-70b")
        return transformer_of_sizes("the config's model", self.sizes, **changed)

    def differences(self, model: Transformer) -> tuple[str, ...]:
        """The sizes in the config that a model does not have."""
        return tuple(
            f"{name} {size} (it has {getattr(model, name)})"
            for name, size in self.sizes.items()
            if name != "sequence" and getattr(model, name) != size
        )

    def split_on(self, gpus: int) -> Split:
        """The split on a number of GPUs."""
        given = dict(self.split)
        inner = prod(given.get(axis, 1) for axis in ("tp", "pp", "cp"))
        if gpus % inner:
            raise RuleError(SAYS("axes do not divide", inner=inner, gpus=gpus))
        return Split(**{"dp": gpus // inner, **given})


def whole(name: str, value: Any, least: int | None = None) -> int:
    try:
        if isinstance(value, (bool, float)) or (least is not None and int(value) < least):
            raise ValueError
        return int(value)
    except (TypeError, ValueError):
        which = "" if least is None else f" from {least} on"
        raise RuleError(f"{name} must be a whole number{which}; got {str(value)[:40]!r}") from None


def require_usual(plan: Split | Job, program: str, **usual: Any) -> None:
    """Refuses a split or a job with fields that differ from what a program supports."""
    assert set(usual) <= {field.name for field in fields(plan)}
    for name, wanted in usual.items():
        allowed = wanted if isinstance(wanted, tuple) else (wanted,)
        if getattr(plan, name) not in allowed:
            raise RuleError(
                f"{program} cannot be configured with {name} {getattr(plan, name)}; it takes "
                f"{' or '.join(map(str, allowed))}. Fix this in the {type(plan).__name__.lower()}, or choose another "
                "format"
            )


def require_16_bits(job: Job, program: str) -> None:
    """Refuses 8 bits, and choices for which only Megatron-LM has settings."""
    if job.fp8:
        raise RuleError(SAYS("no fp8 setting", program=program))
    require_usual(job, program, modules=((),), graphs="none", ep_overlap=False, mtp=0, optimizer="adam")


SAYS = Sentences(
    {
        "axes do not divide": "pp x cp x tp is {inner} in the config, which does not divide {gpus} GPUs",
        "no fp8 setting": "{program} has no setting here for matrix products in 8 bits; leave out fp8, or add them by hand",
    }
)
