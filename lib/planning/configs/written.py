"""Configs that are only written: JSON of DeepSpeed, and Python with FSDP2."""

import json
from typing import Any

from ..job import Job
from ..split import Split
from .reading import require_16_bits, require_usual

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
