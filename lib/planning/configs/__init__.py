"""Configs of other programs from a split, each for a named version, and splits from configs.

`export_config(job, split, "megatron")` writes flags of Megatron-LM, `"torchtitan"` TOML, `"deepspeed"` JSON, and
`"fsdp2"` Python. Choices that a program does not support are refused by name. `read_config` reads Megatron's flags and
torchtitan's TOML.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from lib.errors import RuleError

from ..job import Job
from ..split import Split, require_fit
from .megatron import read as read_megatron
from .megatron import write as write_megatron
from .reading import Config
from .torchtitan import read as read_torchtitan
from .torchtitan import write as write_torchtitan
from .written import write_deepspeed, write_fsdp2

__all__ = ["FORMATS", "Config", "export_config", "read_config"]

FORMATS: Mapping[str, Callable[[Job, Split], str]] = MappingProxyType(
    {"megatron": write_megatron, "torchtitan": write_torchtitan, "deepspeed": write_deepspeed, "fsdp2": write_fsdp2}
)


def export_config(job: Job, split: Split, name: str) -> str:
    """The config of a split for one of FORMATS."""
    if name not in FORMATS:
        raise RuleError(f"there is no format {name!r:.40}; there are {', '.join(FORMATS)}")
    require_fit(job, split)
    return FORMATS[name](job, split)


def read_config(text: str) -> Config:
    """Reads Megatron's flags or torchtitan's TOML. A text with flags (`--name value`) is Megatron's."""
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return read_megatron(text) if any(line.startswith("--") for line in lines) else read_torchtitan(text)
