"""Flags of Megatron-LM (core 0.20 dev, d98e8a6, 2026-08)."""

import re
import shlex
from typing import Any

from lib.errors import RuleError

from ..job import Job
from ..split import Split
from .reading import Config, require_usual, whole

VERSION = "Megatron-LM d98e8a6 (core 0.20 dev, 2026-08)"

SIZES = {
    "tp": "tensor-model-parallel-size",
    "pp": "pipeline-model-parallel-size",
    "cp": "context-parallel-size",
    "microbatch": "micro-batch-size",
}
"""Flags that are always written; the flag for experts is added if ep > 1."""

SHARDED = {2: "optim_grads", 3: "optim_grads_params"}
"""Strategies of Megatron FSDP, by the stage of ZeRO."""

WITH_FSDP = ("--use-distributed-optimizer", "--no-gradient-accumulation-fusion", "--ckpt-format fsdp_dtensor")
"""Flags that Megatron FSDP also requires."""


def write(job: Job, split: Split) -> str:
    """The flags, one per line."""
    require_usual(
        split, "Megatron-LM", schedule=("1f1b", "interleaved"), recompute=("none", "selective", "full"), shards=0,
        offload=("none", "states"), warmup=0,
    )  # fmt: skip
    if split.offload == "states" and not split.zero:
        raise RuleError("Megatron-LM keeps states on the host with ZeRO only; take ZeRO 1")
    if split.cp > 1 and job.sequence % (2 * split.cp):
        raise RuleError(f"Megatron-LM cuts {job.sequence} tokens into 2 x cp pieces; take a cp that divides their half")
    flags = [f"--{flag} {getattr(split, field)}" for field, flag in SIZES.items()]
    flags += [f"--global-batch-size {job.batch}", f"--seq-length {job.sequence}", "--bf16"]
    if split.tp > 1 and split.sp:
        flags.append("--sequence-parallel")
    if split.ep > 1:
        flags.append(f"--expert-model-parallel-size {split.ep}")
    if split.schedule == "interleaved":
        flags.append(f"--num-virtual-stages-per-pipeline-rank {split.chunks}")
    stages = split.stage_layers(job)
    if len(set(stages)) > 1:
        # `Et*3|t*4|t*2L` is the embedding and 3 layers, 4 layers, and 2 layers and the loss.
        layout = "|".join(f"t*{count}" if count else "" for count in stages)
        flags.append(f'--pipeline-model-parallel-layout "E{layout}L"')
    elif sum(stages) > job.model.layers:
        flags += ["--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"]
    if split.zero == 1:
        flags.append("--use-distributed-optimizer")
    elif split.zero:
        flags += ["--use-megatron-fsdp", f"--data-parallel-sharding-strategy {SHARDED[split.zero]}", *WITH_FSDP]
    if job.overlap:
        flags += ["--overlap-grad-reduce"] + (["--overlap-param-gather"] if split.zero else [])
    flags += _recomputation(job, split)
    if split.offload == "states":
        flags += ["--optimizer-cpu-offload", "--use-precision-aware-optimizer"]
    if job.fp8:
        flags.append("--fp8-format hybrid")
    head = [f"# {VERSION}; {job.model.name} on {job.gpus} GPUs"]
    if split.tp * split.cp > 1 and split.zero < 2:
        head.append("# before Blackwell it needs CUDA_DEVICE_MAX_CONNECTIONS=1 in the environment")
    return "\n".join([*head, *flags]) + "\n"


def _recomputation(job: Job, split: Split) -> list[str]:
    if split.recompute == "none":
        return []
    if split.recompute == "selective":
        return ["--recompute-granularity selective"]
    of_stage = max(split.stage_layers(job))
    if split.every > 1 and (of_stage % split.every or len(set(split.stage_layers(job))) > 1):
        raise RuleError(
            f"Megatron-LM recomputes the same number of layers in each stage, and every {split.every} does not divide "
            f"the {of_stage} layers of a stage; take another --every"
        )
    method, count = ("uniform", 1) if split.every == 1 else ("block", of_stage // split.every)
    return ["--recompute-granularity full", f"--recompute-method {method}", f"--recompute-num-layers {count}"]


def read(text: str) -> Config:
    """Reads the flags. If only some layers are recomputed (`block`), `--num-layers` must give the number of layers."""
    flags = _flags(text)
    split: dict[str, Any] = {field: whole(f"--{flag}", flags.get(flag, 1)) for field, flag in SIZES.items()}
    split["ep"] = whole("--expert-model-parallel-size", flags.get("expert-model-parallel-size", 1))
    split["sp"] = split["tp"] == 1 or "sequence-parallel" in flags
    stages = whole("--num-virtual-stages-per-pipeline-rank", flags.get("num-virtual-stages-per-pipeline-rank", 1))
    if "num-layers-per-virtual-pipeline-stage" in flags:
        of_chunk = whole("--num-layers-per-virtual-pipeline-stage", flags["num-layers-per-virtual-pipeline-stage"])
        layers = _layers(flags, "--num-layers-per-virtual-pipeline-stage")
        stages = layers // (of_chunk * split["pp"])
    if "pipeline-model-parallel-layout" in flags:
        split["layers"] = _layout(flags["pipeline-model-parallel-layout"])
        stages = len(split["layers"]) // split["pp"]
    if stages > 1:
        split |= {"schedule": "interleaved", "chunks": stages}
    strategy = flags.get("data-parallel-sharding-strategy", "no_shard") if "use-megatron-fsdp" in flags else ""
    stages_of_zero = {"": 1 if "use-distributed-optimizer" in flags else 0, "no_shard": 0, "optim": 1}
    stages_of_zero |= {name: zero for zero, name in SHARDED.items()}
    if strategy not in stages_of_zero:
        known = ", ".join(name for name in stages_of_zero if name)
        raise RuleError(f"--data-parallel-sharding-strategy {strategy[:40]} is not known; there are {known}")
    split["zero"] = stages_of_zero[strategy]
    split |= _read_recomputation(flags, split["pp"] * stages)
    if "optimizer-cpu-offload" in flags:
        split["offload"] = "states"
    batch, sequence = (whole(f"--{name}", flags.get(name, 0)) for name in ("global-batch-size", "seq-length"))
    return Config(split, batch, sequence, "fp8-format" in flags, "megatron")


def _read_recomputation(flags: dict[str, str], stages: int) -> dict[str, Any]:
    granularity = flags.get("recompute-granularity", "none")
    if granularity not in ("none", "selective", "full"):
        raise RuleError(f"--recompute-granularity is selective or full; got {granularity[:40]!r}")
    if granularity != "full" or flags.get("recompute-method", "uniform") == "uniform":
        return {"recompute": granularity}
    count = whole("--recompute-num-layers", flags.get("recompute-num-layers", 1))
    of_stage = _layers(flags, "--recompute-method block") // stages
    if count < 1 or of_stage % count:
        raise RuleError(f"--recompute-num-layers {count} is not a part of the {of_stage} layers of a stage")
    return {"recompute": "full", "every": of_stage // count}


def _layout(text: str) -> tuple[int, ...]:
    """The layers of each stage, from a layout in the form that `write` uses."""
    found = re.fullmatch(r"E((?:t\*\d+)?(?:\|t\*\d+)*\|?)L", text)
    if found is None:
        raise RuleError(f"--pipeline-model-parallel-layout is read in the form 'Et*3|t*4|t*2L'; got {text[:60]!r}")
    return tuple(int(part[2:] or 0) for part in found[1].split("|"))


def _layers(flags: dict[str, str], why: str) -> int:
    if "num-layers" not in flags:
        raise RuleError(f"{why} needs --num-layers, which the flags do not have; add it")
    return whole("--num-layers", flags["num-layers"])


def _flags(text: str) -> dict[str, str]:
    """Each flag with its value, or with an empty text if it has none."""
    found: dict[str, str] = {}
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as why:
        raise RuleError(f"the flags cannot be read: {why}") from None
    name = ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            found[name] = value
        elif name and not found[name]:
            found[name] = word
    return found
