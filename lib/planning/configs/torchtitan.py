"""TOML of torchtitan v0.2.2, the last release with TOML (torchtitan/config/job_config.py).

`write` gives the sections that a split determines, and no others, so that they can be pasted into a config. `read`
sorts all entries, as for Megatron: what it takes, what every plan assumes, what is harmless, and the rest, which is
named. The sizes of a model are not in a config, only its name; so models that are presets here are known, and any other
must be named by the user. Defaults are torchtitan's.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from itertools import count, islice
from typing import Any

from lib.errors import RuleError

from ..job import Job
from ..presets import table
from ..split import Split
from .reading import Config, Entries, require_16_bits, require_usual, whole

VERSION = "torchtitan v0.2.2"

SCHEDULES = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved": "Interleaved1F1B",
    "breadth_first": "LoopedBFS",
    "zb_v": "ZBVZeroBubble",
}
"""Names of PyTorch's schedules."""


def write(job: Job, split: Split) -> str:
    """The sections that a split determines. Here FSDP keeps weights and reduces each gradient, which is ZeRO 1 with a
    pipeline and ZeRO 2 without one."""
    require_16_bits(job, "torchtitan")
    require_usual(
        split, "torchtitan", schedule=tuple(SCHEDULES), sp=True, recompute=("none", "ops", "full"), offload="none",
        warmup=0, zero=(0, 1, 3) if split.pp > 1 else (0, 2, 3),
    )  # fmt: skip
    groups = split.dp * split.cp // split.sharing if split.zero else split.dp
    if split.dp % groups or (split.cp > 1 and not split.zero):
        raise RuleError(f"torchtitan shards weights along cp too: take ZeRO, and shards that cp {split.cp} divides")
    stages = split.stage_layers(job)
    counted = int(sum(stages) > job.model.layers)
    checkpoint = "selective" if split.recompute == "ops" or split.every > 1 else split.recompute
    lines = [
        f"# {VERSION}; {job.model.name} on {job.gpus} GPUs",
        "[training]",
        f"local_batch_size = {job.batch // split.dp if split.pp > 1 else split.microbatch}",
        f"global_batch_size = {job.batch}",
        f"seq_len = {job.sequence}",
        "",
        "[parallelism]",
        f"data_parallel_replicate_degree = {groups}",
        f"data_parallel_shard_degree = {split.dp // groups}",
        f'fsdp_reshard_after_forward = "{"always" if split.zero == 3 else "never"}"',
        f"tensor_parallel_degree = {split.tp}",
        f"context_parallel_degree = {split.cp}",
        f"expert_parallel_degree = {split.ep}",
        *(['expert_parallel_comm_backend = "deepep"'] if split.ep > 1 and job.dispatch == "dedup" else []),
        f"pipeline_parallel_degree = {split.pp}",
    ]
    if split.pp > 1:
        lines += [
            f'pipeline_parallel_schedule = "{SCHEDULES[split.schedule]}"',
            f"pipeline_parallel_microbatch_size = {split.microbatch}",
        ]
        if len(set(stages)) > 1:
            lines.append(f"module_fqns_per_model_part = {json.dumps(_modules(stages))}")
        else:
            lines += [
                f"pipeline_parallel_layers_per_stage = {stages[0]}",
                f"pipeline_parallel_first_stage_less_layers = {counted}",
                f"pipeline_parallel_last_stage_less_layers = {counted}",
            ]
    lines += ["", "[activation_checkpoint]", f'mode = "{checkpoint}"']
    if checkpoint == "selective":
        lines.append(f'selective_ac_option = "{"op" if split.recompute == "ops" else split.every}"')
    return "\n".join([*lines, "", "[compile]", "enable = true"]) + "\n"


def _modules(stages: tuple[int, ...]) -> list[list[str]]:
    """The modules of each stage, as torchtitan's Llama names them."""
    layers = (f"layers.{layer}" for layer in count())
    parts = [list(islice(layers, number)) for number in stages]
    return [["tok_embeddings", *parts[0]], *parts[1:-1], [*parts[-1], "norm", "output"]]


def read(text: str) -> Config:
    """Reads the TOML. The number of chunks follows from the layers of a stage and of the model, so it is read only if
    `[model]` has `layers`, or if the schedule always has two."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as why:
        raise RuleError(f"this is neither TOML of torchtitan nor flags of Megatron-LM: {why}") from None
    entries = Entries(dict(_entries(tables)))

    def number(name: str, usual: int = 1, least: int | None = None) -> int:
        return whole(name, entries.get(name, usual), least)

    def degree(name: str, usual: int = 1) -> int:
        return number(f"parallelism.{name}", usual, min(usual, 1))

    split: dict[str, Any] = {
        "tp": degree("tensor_parallel_degree"),
        "cp": degree("context_parallel_degree"),
        "ep": degree("expert_parallel_degree"),
        "pp": degree("pipeline_parallel_degree"),
    }
    replicas, shards = degree("data_parallel_replicate_degree"), degree("data_parallel_shard_degree", -1)
    if shards > 0:
        split["dp"] = replicas * shards
    reshard = str(entries.get("parallelism.fsdp_reshard_after_forward", "default"))
    split["zero"] = _zero(reshard, split["pp"], shards * split["cp"])
    if replicas > 1 and split["zero"]:
        split["shards"] = shards * split["cp"]
    local = number("training.local_batch_size", 8)
    split["microbatch"] = local if split["pp"] == 1 else degree("pipeline_parallel_microbatch_size")
    if split["pp"] > 1:
        split |= _pipeline(entries, split["pp"])
    split |= _recomputation(entries)
    batch, sequence = number("training.global_batch_size", 0), number("training.seq_len", 0)
    sending = entries.get("parallelism.expert_parallel_comm_backend", "standard")
    how = {
        "kernels": "pytorch",
        "fp8": "float8" in str(entries.get("model.converters", "")),
        "dispatch": "alltoall" if sending == "standard" else "dedup",
        "balanced": bool(entries.get("debug.moe_force_load_balance", False)),
    }
    for name, *values in ASSUMED:
        entries.assume(name, *values)
    named = KNOWN.get((str(entries.get("model.name")), str(entries.get("model.flavor"))))
    row = dict(table("models")[named], name=named) if named else {}
    missing = "" if named else "model.name and model.flavor of a known model"
    unread = tuple(f"{name} = {json.dumps(entries.entries[name])}" for name in entries.unread(HARMLESS))
    return Config(split, max(batch, 0), sequence, how, row, missing, unread)


KNOWN = {
    ("llama3", "8B"): "llama-3-8b",
    ("llama3", "70B"): "llama-3-70b",
    ("llama3", "405B"): "llama-3-405b",
    ("deepseek_v3", "671B"): "deepseek-v3",
}
"""Presets of torchtitan's models."""

ASSUMED = (
    ("training.mixed_precision_param", "bfloat16"),
    ("training.mixed_precision_reduce", "float32"),
    ("training.dtype", "float32"),
    ("training.enable_cpu_offload", "false"),
    ("optimizer.name", "adam", "adamw"),
    ("parallelism.enable_async_tensor_parallel", "false"),
    ("parallelism.disable_loss_parallel", "false"),
    ("parallelism.context_parallel_rotate_method", "alltoall"),
    ("compile.enable", "true", "false"),  # the range of memory has fused and eager code
)
"""Entries with the values that every plan assumes; with others they are not read."""

HARMLESS = re.compile(
    r"(job|profiling|metrics|lr_scheduler|checkpoint|comm|validation|experimental|debug)\..*"
    r"|model\.(tokenizer_path|hf_assets_path|print_after_conversion)|optimizer\.(lr|beta[12]|eps|weight_decay)"
    r"|training\.(steps|seed|max_norm|dataset|dataset_path|gc_.*|deterministic)|parallelism\.pipeline_parallel_split_points"
    r"|compile\.components"
)
"""Entries that change neither the time nor the memory of a step, or hardly."""


def _entries(tables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The entries of all tables, named as in `training.seq_len`."""
    for name, value in tables.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{inner}", entry) for inner, entry in _entries(value))
        elif name in ("training", "parallelism", "activation_checkpoint", "model"):
            raise RuleError(f"{name} must be a table, [{name}]; got {str(value)[:40]!r}")
        else:
            yield name, value


def _zero(reshard: str, pp: int, shards: int) -> int:
    if reshard not in ("default", "always", "never"):
        raise RuleError(f"parallelism.fsdp_reshard_after_forward is default, always or never; got {reshard[:40]!r}")
    if shards == 1:
        return 0
    whole_weights = reshard == "never" or (reshard == "default" and pp > 1)
    return (1 if pp > 1 else 2) if whole_weights else 3


def _pipeline(entries: Entries, pp: int) -> dict[str, Any]:
    name = str(entries.get("parallelism.pipeline_parallel_schedule", "1F1B"))
    known = {theirs.lower(): ours for ours, theirs in SCHEDULES.items()}
    if name.lower() not in known:
        raise RuleError(f"pipeline_parallel_schedule is one of {', '.join(SCHEDULES.values())} here; got {name[:40]!r}")
    schedule, modules = known[name.lower()], entries.get("parallelism.module_fqns_per_model_part")
    if modules is not None:
        if not isinstance(modules, list) or not all(isinstance(part, list) for part in modules):
            raise RuleError(f"module_fqns_per_model_part is a list of lists of names; got {str(modules)[:40]!r}")
        layers = tuple(sum(str(name).startswith("layers.") for name in part) for part in modules)
        return {"schedule": schedule, "chunks": max(1, len(modules) // pp), "layers": layers}
    of_model = entries.get("model.layers")
    of_stage = entries.get("parallelism.pipeline_parallel_layers_per_stage")
    ends = [f"parallelism.pipeline_parallel_{end}_stage_less_layers" for end in ("first", "last")]
    less = [whole(end, entries.entries.get(end, 1)) for end in ends]
    if less[0] == less[1]:
        entries.asked.update(ends)  # a plan takes equally many layers from both ends
    if schedule in ("1f1b", "gpipe"):
        return {"schedule": schedule}
    chunks = 2
    if schedule != "zb_v" and of_model and of_stage:
        counted = whole("model.layers", of_model) + sum(less)
        chunks = counted // (whole("pipeline_parallel_layers_per_stage", of_stage, 1) * pp)
    return {"schedule": schedule, "chunks": chunks}


def _recomputation(entries: Entries) -> dict[str, Any]:
    mode = entries.get("activation_checkpoint.mode", "selective")
    option = str(entries.get("activation_checkpoint.selective_ac_option", "2"))
    if mode in ("none", "full"):
        return {"recompute": mode}
    if mode != "selective":
        raise RuleError(f"activation_checkpoint.mode is none, selective or full; got {str(mode)[:40]!r}")
    if option == "op":
        return {"recompute": "ops"}
    return {"recompute": "full", "every": whole("activation_checkpoint.selective_ac_option", option)}
