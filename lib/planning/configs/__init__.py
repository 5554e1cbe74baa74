"""Configs of other programs from a split, each for a named version, and splits from configs.

`export_config(job, split, "megatron")` writes flags of Megatron-LM, `"torchtitan"` TOML, `"deepspeed"` JSON, and
`"fsdp2"` Python. Choices that a program does not support are refused by name. `read_config` reads Megatron's flags and
torchtitan's TOML.
"""

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from lib.errors import RuleError

from ..job import Job
from ..split import Split, require_fit
from .megatron import read as read_megatron
from .megatron import write as write_megatron
from .reading import Config, require_16_bits, require_usual
from .torchtitan import read as read_torchtitan
from .torchtitan import write as write_torchtitan

__all__ = ["FORMATS", "Config", "export_config", "read_config"]

# --- Configs that are only written: JSON of DeepSpeed, and Python with FSDP2 ---

DEEPSPEED = "DeepSpeed, docs/_pages/config-json.md at 00376da"


def write_deepspeed(job: Job, split: Split) -> str:
    """The JSON. Keys that begin with an underscore are comments, which DeepSpeed's JSON does not have; recomputation is
    configured in the model's code."""
    require_16_bits(job, "DeepSpeed")
    require_usual(
        split, "DeepSpeed's JSON", tp=1, pp=1, cp=1, ep=1, shards=0, every=1, recompute=("none", "full"),
        offload=("none", "states"),
    )  # fmt: skip
    zero: dict[str, Any] = {"stage": split.zero}
    if split.zero:
        zero |= {"overlap_comm": job.overlap, "contiguous_gradients": True, "reduce_scatter": True}
    if split.offload == "states":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    config = {
        "_for": DEEPSPEED,
        "_recompute": split.recompute,
        "train_batch_size": job.batch,
        "train_micro_batch_size_per_gpu": split.microbatch,
        "gradient_accumulation_steps": split.batches(job),
        "bf16": {"enabled": True},
        "zero_optimization": zero,
    }
    return json.dumps(config, indent=2) + "\n"


FSDP2 = "torch 2.13"
WRAPPER = "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper"
ON_HOST = "    # this policy keeps weights and gradients on the host too, which the plan does not"


def write_fsdp2(job: Job, split: Split) -> str:
    """A module with a function `shard(model)`."""
    require_16_bits(job, "FSDP2")
    require_usual(
        split, "FSDP2", tp=1, pp=1, cp=1, ep=1, zero=(2, 3), recompute=("none", "full"), offload=("none", "states")
    )
    sizes = f"({split.dp // split.shards}, {split.shards})" if split.shards else f"({split.dp},)"
    names = '("replicate", "shard")' if split.shards else '("shard",)'
    offload, reshard = split.offload == "states", split.zero == 3
    again = split.recompute == "full"
    imports = ["MixedPrecisionPolicy", "fully_shard"]
    options = "mesh=mesh, mp_policy=policy" + (", offload_policy=CPUOffloadPolicy()" if offload else "")
    lines = [
        f'"""{job.model.name} on {job.gpus} GPUs, for {FSDP2}."""',
        "",
        "import torch",
        *([WRAPPER] if again else []),
        "from torch.distributed.device_mesh import init_device_mesh",
        f"from torch.distributed.fsdp import {', '.join(['CPUOffloadPolicy', *imports] if offload else imports)}",
        "",
        f"MICROBATCH = {split.microbatch}  # sequences",
        f"MICROBATCHES = {split.batches(job)}  # of each rank in a step",
        "",
        "",
        "def shard(model):",
        *([ON_HOST] if offload else []),
        f'    mesh = init_device_mesh("cuda", {sizes}, mesh_dim_names={names})',
        "    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)",
        "    for place, (name, block) in enumerate(model.layers.named_children()):",
    ]
    if again:
        lines += [
            f"        if place % {split.every} == 0:",
            "            block = checkpoint_wrapper(block)",
            "            model.layers.register_module(name, block)",
        ]
    lines += [
        f"        fully_shard(block, {options}, reshard_after_forward={reshard})",
        f"    fully_shard(model, {options})",
        "    return model",
    ]
    return "\n".join(lines) + "\n"


# --- All formats ---

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
