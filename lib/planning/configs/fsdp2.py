"""Python with FSDP2 (`fully_shard` of torch 2.13), for a model whose blocks are in `model.layers`."""

from ..job import Job
from ..split import Split
from .reading import require_16_bits, require_usual

VERSION = "torch 2.13"


def write(job: Job, split: Split) -> str:
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
        f'"""{job.model.name} on {job.gpus} GPUs, for {VERSION}."""',
        "",
        "import torch",
        *(
            ["from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper"]
            if again
            else []
        ),
        "from torch.distributed.device_mesh import init_device_mesh",
        f"from torch.distributed.fsdp import {', '.join(['CPUOffloadPolicy', *imports] if offload else imports)}",
        "",
        f"MICROBATCH = {split.microbatch}  # sequences",
        f"MICROBATCHES = {split.batches(job)}  # of each rank in a step",
        "",
        "",
        "def shard(model):",
        *(
            ["    # this policy keeps weights and gradients on the host too, which the plan does not"]
            if offload
            else []
        ),
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
