"""Configs of other programs from a split, each for a named version, and splits from configs.

`export_config(job, split, "megatron")` writes flags of Megatron-LM, `"torchtitan"` TOML, `"deepspeed"` JSON, and
`"fsdp2"` Python. What a program cannot do is refused by name. `read_config` reads Megatron's flags and torchtitan's
TOML.
"""

from .formats import FORMATS, export_config, read_config
from .reading import Config

__all__ = ["FORMATS", "Config", "export_config", "read_config"]
