"""JSON of DeepSpeed (docs/_pages/config-json.md at 00376da)."""

import json
from typing import Any

from ..job import Job
from ..split import Split
from .reading import require_16_bits, require_usual

VERSION = "DeepSpeed, docs/_pages/config-json.md at 00376da"


def write(job: Job, split: Split) -> str:
    """The JSON. Keys that begin with an underscore are for people: DeepSpeed's JSON has no comments, and recomputation
    is a matter of the model's code.
    """
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
        "_for": VERSION,
        "_recompute": split.recompute,
        "train_batch_size": job.batch,
        "train_micro_batch_size_per_gpu": split.microbatch,
        "gradient_accumulation_steps": split.batches(job),
        "bf16": {"enabled": True},
        "zero_optimization": zero,
    }
    return json.dumps(config, indent=2) + "\n"
