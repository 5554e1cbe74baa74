"""The formats of configs, by name; which of them a text is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from lib.errors import RuleError

from ..job import Job
from ..split import Split, require_fit
from . import deepspeed, fsdp2, megatron, torchtitan
from .reading import Config

FORMATS: Mapping[str, Callable[[Job, Split], str]] = MappingProxyType(
    {
        "megatron": megatron.write,
        "torchtitan": torchtitan.write,
        "deepspeed": deepspeed.write,
        "fsdp2": fsdp2.write,
    }
)


def export_config(job: Job, split: Split, name: str) -> str:
    """The config of a split for a program: one of FORMATS.

    Raises:
        RuleError: there is no such format, the job cannot be split so, or the program cannot do it.
    """
    if name not in FORMATS:
        raise RuleError(f"there is no format {name!r:.40}; there are {', '.join(FORMATS)}")
    require_fit(job, split)
    return FORMATS[name](job, split)


def read_config(text: str) -> Config:
    """What Megatron's flags or torchtitan's TOML say. A text with flags (`--name value`) is Megatron's.

    Raises:
        RuleError: the text is neither, or has a value that cannot be read; the text says which.
    """
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return megatron.read(text) if any(line.startswith("--") for line in lines) else torchtitan.read(text)
