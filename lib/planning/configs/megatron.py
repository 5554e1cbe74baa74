"""Flags of Megatron-LM (core 0.20 dev, d98e8a6, 2026-08).

`write` names the flags that decide a split; it refuses a choice that this version does not have, instead of leaving it
out. `read` takes every flag that changes time or memory, and sorts the others: those that every plan assumes, those
that are harmless, and the rest, which is named to the user as not read. So nothing is ignored in silence. Sizes that
the flags leave open get Megatron's defaults. Flags of later versions are not known; the version stands in what is
written.
"""

import re
import shlex
from typing import Any

from lib.errors import RuleError

from ..job import MODULES, Job
from ..split import Split
from .reading import Config, Entries, require_usual, whole

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
    require_usual(
        job, "Megatron-LM", gradient=(2, 4), state=(8, 12), loss_chunks=1, consecutive=False, optimizer="adam"
    )
    flags = [f"--{flag} {getattr(split, field)}" for field, flag in SIZES.items()]
    flags += [f"--global-batch-size {job.batch}", f"--seq-length {job.sequence}", "--bf16"]
    if split.tp > 1 and split.sp:
        flags.append("--sequence-parallel")
    if job.model.experts:
        flags += _experts(job, split)
    if split.schedule == "interleaved":
        flags.append(f"--num-virtual-stages-per-pipeline-rank {split.chunks}")
    stages = split.stage_layers(job)
    if len(set(stages)) > 1 or (job.mtp and split.pp > 1):
        # `Et*3|t*4|t*2mL` is the embedding and 3 layers, 4 layers, and 2 layers, one for multi-token prediction, and
        # the loss.
        if stages[-1] < job.mtp:
            raise RuleError(f"Megatron-LM has the {job.mtp} layers of mtp in the last stage, which has {stages[-1]}")
        counts = *stages[:-1], stages[-1] - job.mtp
        layout = "|".join(f"t*{count}" if count else "" for count in counts) + "m" * job.mtp
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
    flags += [f"--mtp-num-layers {job.mtp}"] if job.mtp else []
    flags += ["--grad-reduce-in-bf16"] if job.gradient == 2 else []
    flags += ["--optimizer-cpu-offload"] if split.offload == "states" else []
    flags += ["--use-precision-aware-optimizer"] if split.offload == "states" or job.state == 8 else []
    flags += [f"--{name} bf16" for name in MOMENTS] if job.state == 8 else []
    flags += GRAPH_FLAGS[job.graphs]
    if job.fp8:
        flags.append("--fp8-format hybrid")
    head = [f"# {VERSION}; {job.model.name} on {job.gpus} GPUs"]
    if split.tp * split.cp > 1 and split.zero < 2:
        head.append("# before Blackwell it needs CUDA_DEVICE_MAX_CONNECTIONS=1 in the environment")
    return "\n".join([*head, *flags]) + "\n"


MOMENTS = ("exp-avg-dtype", "exp-avg-sq-dtype")
WIDTHS = {"bf16": 2, "fp16": 2, "fp8": 1}
"""Types of Adam's moments, besides which the optimizer has a weight of 4 bytes, and the bytes of narrow ones."""

SWITCHES = {"ep_overlap": "overlap-moe-expert-parallel-comm", "balanced": "moe-router-force-load-balancing"}
"""Fields of a job that are flags without a value."""

GRAPH_FLAGS = {
    "none": (),
    "partial": ("--cuda-graph-impl transformer_engine", "--cuda-graph-scope attn moe_router moe_preprocess"),
    "full": ("--cuda-graph-impl full_iteration",),
}


def _experts(job: Job, split: Split) -> list[str]:
    flags = [f"--expert-model-parallel-size {split.ep}", "--expert-tensor-parallel-size 1"] if split.ep > 1 else []
    backend = "deepep" if job.gpu.machine <= 8 else "hybridep"  # the backend for machines of 72 GPUs
    flex = ["--moe-token-dispatcher-type flex", f"--moe-flex-dispatcher-backend {backend}"]
    flags += flex if job.dispatch == "dedup" else ["--moe-token-dispatcher-type alltoall"]
    return flags + [f"--{flag}" for field, flag in SWITCHES.items() if getattr(job, field)]


def _recomputation(job: Job, split: Split) -> list[str]:
    if split.recompute in ("none", "selective"):
        modules = {*job.modules, *(["core_attn"] if split.recompute == "selective" else [])}
        named = [f"--recompute-modules {' '.join(sorted(modules))}"] if job.modules else []
        return ["--recompute-granularity selective", *named] if modules else []
    of_stage = max(split.stage_layers(job))
    if split.every > 1 and (of_stage % split.every or len(set(split.stage_layers(job))) > 1):
        raise RuleError(
            f"Megatron-LM recomputes the same number of layers in each stage, and every {split.every} does not divide "
            f"the {of_stage} layers of a stage; take another --every"
        )
    method, count = ("uniform", 1) if split.every == 1 else ("block", of_stage // split.every)
    return ["--recompute-granularity full", f"--recompute-method {method}", f"--recompute-num-layers {count}"]


HARMLESS = re.compile(
    r"lr(-.*)?|min-lr|train-.*|eval-.*|save(-.*)?|load(-.*)?|no-(save|load)-.*|log-.*|data-.*|tokenizer-.*"
    r"|(vocab|merge)-file|split|seed|(start-)?weight-decay.*|end-weight-decay|adam-.*|clip-grad|init-method-.*|exit-.*"
    r"|tensorboard-.*|wandb-.*|num-workers|distributed-(backend|timeout-minutes)|ckpt-.*|dist-ckpt-.*|async-save"
    r"|use-(dist-ckpt|mcore-models|checkpoint-.*|rotary-position-embeddings)|finetune|mock-data"
    r"|override-opt-param-scheduler|normalization|norm-epsilon|rotary-.*|no-position-embedding|position-embedding-type"
    r"|disable-bias-linear|add-qkv-bias|apply-layernorm-1p|attention-softmax-in-fp32|manual-gc.*|timing-log-.*"
    r"|moe-(aux-loss-coeff|z-loss-coeff|router-(dtype|score-function|bias-update-rate|enable-expert-bias))"
    r"|check-for-nan-in-loss-and-grad|no-check-for-nan-in-loss-and-grad|calculate-per-token-loss|bf16|fp16"
    r"|initial-loss-scale|loss-scale.*|max-position-embeddings|make-vocab-size-divisible-by|num-dataset-builder-threads"
    r"|nproc.per.node|nnodes|node.rank|master.(addr|port)|rdzv.*"
)
"""Flags that change neither the time nor the memory of a step, or hardly; also those of torchrun."""


def read(text: str) -> Config:
    """Reads the flags. If only some layers are recomputed (`block`), `--num-layers` must give the number of layers."""
    flags = Entries(_flags(text))
    split: dict[str, Any] = {field: whole(f"--{flag}", flags.get(flag, 1), 1) for field, flag in SIZES.items()}
    split["ep"] = whole("--expert-model-parallel-size", flags.get("expert-model-parallel-size", 1), 1)
    split["sp"] = "sequence-parallel" in flags or split["tp"] == 1
    split |= _pipeline(flags, split["pp"])
    split["zero"] = _zero(flags)
    split |= _read_recomputation(flags, split["pp"] * split.get("chunks", 1))
    if "optimizer-cpu-offload" in flags:
        split["offload"] = "states"
        flags.assume("optimizer-offload-fraction", "1", "1.0")
    if {"optimizer-cpu-offload", *MOMENTS} & set(flags.entries):
        flags.assume("use-precision-aware-optimizer", "")
    how = {
        "kernels": "megatron",
        "fp8": "fp8-format" in flags,
        "overlap": "overlap-grad-reduce" in flags,
        "flash": _has_flash(flags),
        "gradient": 2 if "grad-reduce-in-bf16" in flags or flags.get("main-grads-dtype") == "bf16" else 4,
        "state": 4 + sum(WIDTHS.get(flags.get(name), 4) for name in MOMENTS),
        "mtp": whole("--mtp-num-layers", flags.get("mtp-num-layers", 0), 0),
        "modules": _modules(flags),
        **_read_experts(flags),
    }
    if split["zero"] == 3:
        flags.assume("overlap-param-gather", "")  # with ZeRO 1 and 2 a plan gathers weights at the end of the step
    for name, *values in ASSUMED:
        flags.assume(name, *values)
    flags.assume("expert-tensor-parallel-size", "1" if split["ep"] > 1 else str(split["tp"]))
    batch, sequence = (whole(f"--{name}", flags.get(name, 0)) for name in ("global-batch-size", "seq-length"))
    sizes, missing = _sizes(flags)
    unread = tuple(f"--{name} {flags.entries[name]}".strip() for name in flags.unread(HARMLESS))
    if not {"bf16", "fp16"} & set(flags.entries):
        unread += ("no --bf16 (16 bits are assumed)",)
    if split["ep"] > 1 < split["tp"] and "expert-tensor-parallel-size" not in flags:
        unread += ("no --expert-tensor-parallel-size 1 (experts that are not cut along tp are assumed)",)
    return Config(split, batch, sequence, how, sizes, missing, unread)


ASSUMED = (
    ("accumulate-allreduce-grads-in-fp32", ""),
    ("moe-grouped-gemm", ""),
    ("moe-permute-fusion", ""),
    ("main-params-dtype", "fp32"),
    ("main-grads-dtype", "fp32"),
    ("cp-comm-type", "p2p"),
    ("optimizer", "adam"),
    ("transformer-impl", "transformer_engine"),
    ("moe-layer-freq", "1"),
)
"""Flags with the values that every plan assumes; with others they are not read."""


def _read_experts(flags: Entries) -> dict[str, Any]:
    """How tokens are sent to experts, and how kernels are launched."""
    sending = flags.entries.get("moe-token-dispatcher-type", "alltoall")
    flags.assume("moe-token-dispatcher-type", "alltoall", "flex")
    if sending == "flex":
        flags.assume("moe-flex-dispatcher-backend", "deepep", "hybridep")
        flags.assume("moe-enable-deepep", "")
    named, scope = flags.get("cuda-graph-impl", "none"), flags.get("cuda-graph-scope", "")
    graphs = "none" if named == "none" else "full" if "full_iteration" in (named, scope) else "partial"
    switches = {field: flag in flags for field, flag in SWITCHES.items()}
    return {"dispatch": "dedup" if sending == "flex" else "alltoall", "graphs": graphs, **switches}


def _pipeline(flags: Entries, pp: int) -> dict[str, Any]:
    """The chunks, and the layers of each stage if they differ."""
    stages = whole("--num-virtual-stages-per-pipeline-rank", flags.get("num-virtual-stages-per-pipeline-rank", 1), 1)
    layers: tuple[int, ...] = ()
    if "num-layers-per-virtual-pipeline-stage" in flags:
        of_chunk = whole(
            "--num-layers-per-virtual-pipeline-stage", flags.get("num-layers-per-virtual-pipeline-stage"), 1
        )
        stages = max(_layers(flags, "--num-layers-per-virtual-pipeline-stage") // (of_chunk * pp), 1)
    if "pipeline-model-parallel-layout" in flags:
        layers = _layout(flags.get("pipeline-model-parallel-layout"))
        stages = max(len(layers) // pp, 1)
    ends = [f"decoder-{end}-pipeline-num-layers" for end in ("first", "last")]
    if stages == 1 and pp > 1 and any(end in flags.entries for end in ends):
        layers = _uneven(flags, pp, *ends)
    counted = {f"account-for-{end}-in-pipeline-split" for end in ("embedding", "loss")}
    if counted <= set(flags.entries):
        flags.asked |= counted  # a plan counts both as layers if the layers alone do not divide
    return {
        **({"layers": layers} if layers else {}),
        **({"schedule": "interleaved", "chunks": stages} if stages > 1 else {}),
    }


def _uneven(flags: Entries, pp: int, *ends: str) -> tuple[int, ...]:
    first, last = (whole(f"--{end}", flags.get(end)) if end in flags else None for end in ends)
    given = [count for count in (first, last) if count is not None]
    rest, stages = _layers(flags, f"--{ends[0]}") - sum(given), pp - len(given)
    if rest % max(stages, 1) or (rest and not stages):
        raise RuleError(f"the {rest} layers between the ends of the pipeline do not fill its other {stages} stages")
    middle = (rest // stages,) * stages if stages else ()
    return (*(() if first is None else (first,)), *middle, *(() if last is None else (last,)))


def _zero(flags: Entries) -> int:
    sharded = "use-distributed-optimizer" in flags
    if "use-torch-fsdp2" in flags:
        return 2 if "torch-fsdp2-no-reshard-after-forward" in flags else 3
    if "use-megatron-fsdp" not in flags:
        return 1 if sharded else 0
    strategy = flags.get("data-parallel-sharding-strategy", "no_shard")
    stages = {"no_shard": 0, "optim": 1, **{name: zero for zero, name in SHARDED.items()}}
    if strategy not in stages:
        raise RuleError(
            f"--data-parallel-sharding-strategy {strategy[:40]} is not known; there are {', '.join(stages)}"
        )
    return stages[strategy]


def _has_flash(flags: Entries) -> bool:
    """Transformer Engine has flash attention unless another backend is named."""
    named = flags.get("attention-backend", "auto")
    return "use-flash-attn" in flags or named not in ("unfused", "local")


NEEDED = {
    "num-layers": "layers",
    "hidden-size": "hidden",
    "num-attention-heads": "heads",
    "vocab-size": "vocab",
    "seq-length": "sequence",
}
"""The flags without which the sizes of a model are not known."""

SIZES_OF_EXPERTS = {"moe-router-topk": "top_k", "moe-ffn-hidden-size": "expert_ffn"}
OTHER_SIZES = {
    "ffn-hidden-size": "ffn",
    "kv-channels": "head_size",
    "num-experts": "experts",
    "moe-shared-expert-intermediate-size": "shared_ffn",
    "moe-router-num-groups": "groups",
    "moe-router-group-topk": "top_groups",
    **SIZES_OF_EXPERTS,
}

WINDOW = {"window-size": r"\(?(\d{1,9})(?:, ?0)?\)?", "window-attn-skip-freq": r"(\d{1,9})"}
"""Windows as they are read: of earlier tokens only, and in all layers but every so many."""


def _sizes(flags: Entries) -> tuple[dict[str, Any], str]:
    """The fields of a model that the flags give, with Megatron's defaults if no needed size is missing; and the first
    flag that is missing."""
    given = {name: field for name, field in {**NEEDED, **OTHER_SIZES}.items() if name in flags}
    sizes: dict[str, Any] = {field: whole(f"--{name}", flags.get(name)) for name, field in given.items()}
    gated, tied = "swiglu" in flags, "untie-embeddings-and-output-weights" not in flags
    dropout = any(flags.get(f"{part}-dropout", "0.1").strip("0.") for part in ("hidden", "attention"))
    groups = whole("--num-query-groups", flags.get("num-query-groups", 1)) if "group-query-attention" in flags else 0
    if groups:
        sizes["kv_heads"] = groups
    dense = re.fullmatch(
        r"\(?\[0\]\*(\d{1,4})\+\[1\]\*\d{1,4}\)?", flags.entries.get("moe-layer-freq", "").replace(" ", "")
    )
    if dense:
        flags.asked.add("moe-layer-freq")
        sizes["dense_layers"] = int(dense[1])
    for name, form in WINDOW.items():
        if window := re.fullmatch(form, flags.entries.get(name, "")):
            flags.asked.add(name)
            sizes["window" if name == "window-size" else "full_every"] = int(window[1])
    missing = next((f"--{name}" for name in NEEDED if name not in flags), "")
    if missing:
        return sizes, missing
    hidden = sizes["hidden"]
    usual = {"ffn": int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden}
    if "experts" in sizes:
        usual |= {"top_k": 2, "expert_ffn": sizes.get("ffn", usual["ffn"])}
        usual["biased"] = "disable-bias-linear" not in flags
    else:
        sizes = {name: size for name, size in sizes.items() if name not in SIZES_OF_EXPERTS.values()}
    return {**usual, **sizes, "gated": gated, "tied": tied, "dropout": dropout}, ""


def _read_recomputation(flags: Entries, stages: int) -> dict[str, Any]:
    granularity = flags.get("recompute-granularity", "selective" if "recompute-activations" in flags else "none")
    if granularity == "selective" and "core_attn" not in flags.get("recompute-modules", "core_attn").split():
        granularity = "none"
    if granularity not in ("none", "selective", "full"):
        raise RuleError(f"--recompute-granularity is selective or full; got {granularity[:40]!r}")
    if granularity != "full" or flags.get("recompute-method", "uniform") == "uniform":
        return {"recompute": granularity}
    count = whole("--recompute-num-layers", flags.get("recompute-num-layers", 1))
    of_stage = _layers(flags, "--recompute-method block") // stages
    if count < 1 or of_stage % count:
        raise RuleError(f"--recompute-num-layers {count} is not a part of the {of_stage} layers of a stage")
    return {"recompute": "full", "every": of_stage // count}


def _modules(flags: Entries) -> tuple[str, ...]:
    """What backward computes again besides the core of attention. If some of it is not known, the flag is not read."""
    modules = {*flags.get("recompute-modules", "").split()}
    if not modules <= {*MODULES}:
        flags.asked.discard("recompute-modules")
    selective = flags.get("recompute-granularity") == "selective"
    return tuple(sorted(modules & {*MODULES} - {"core_attn"})) if selective else ()


def _layout(text: str) -> tuple[int, ...]:
    """The layers of each stage, from a layout in the form that `write` uses."""
    layout = re.fullmatch(r"E((?:t\*\d+)?(?:\|t\*\d+)*\|?m*)L", text)
    if layout is None:
        raise RuleError(f"--pipeline-model-parallel-layout is read in the form 'Et*3|t*4|t*2L'; got {text[:60]!r}")
    return tuple(int(part[2:].rstrip("m") or 0) + part.count("m") for part in layout[1].split("|"))


def _layers(flags: Entries, why: str) -> int:
    if "num-layers" not in flags:
        raise RuleError(f"{why} needs --num-layers, which the flags do not have; add it")
    return whole("--num-layers", flags.get("num-layers"))


def _flags(text: str) -> dict[str, str]:
    """Each flag with its values, or with an empty text if it has none."""
    values: dict[str, str] = {}
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as why:
        raise RuleError(f"the flags cannot be read: {why}") from None
    name = ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            values[name] = value
        elif name:
            values[name] = f"{values[name]} {word}".strip()
    return values
