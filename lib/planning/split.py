"""One way to split a job over its GPUs, the conditions that it must meet, and what a player predicts for it.

A split is only numbers and names; it knows neither time nor memory. `problems` says why a job cannot be split so, and
which numbers would fit: the first problem is the answer, because later checks assume that earlier ones have passed.
Conditions are those of the schedules and of arithmetic. What a certain program cannot do is refused when its config is
written, not here. Layers that do not divide are dealt out by one rule, so that a split has one meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import lcm

from lib.errors import RuleError
from lib.ledger.algebra import counted

from .job import Job, Transformer

# --- What a player predicts for a split before it is played ---

DOMINATES = {
    "recomputation": ("recomputation",),
    "tp": ("tp",),
    "cp": ("cp",),
    "ep": ("ep", "permute", "imbalance"),
    "replicas": ("dp", "contention", "update"),
    "host": ("host",),
    "bubble": ("bubble",),
}
"""What may take the most time of a step besides computing everything once, each with its parts in `time_parts`."""

MOST_GIB = 10**6


@dataclass(frozen=True)
class Prediction:
    """`gib`: GiB of the fullest GPU. `dominates`: what takes the most time besides computing everything once, one of
    DOMINATES."""

    gib: float
    dominates: str

    def __post_init__(self) -> None:
        if type(self.gib) not in (int, float) or not 0 < self.gib < MOST_GIB:
            raise RuleError(f"a Prediction's gib is the GiB of the fullest GPU, more than 0; got {self.gib!r:.40}")
        if self.dominates not in DOMINATES:
            raise RuleError(f"a Prediction's dominates is one of {', '.join(DOMINATES)}; got {self.dominates!r:.40}")


# --- Splits ---

SCHEDULES = ("1f1b", "gpipe", "interleaved", "breadth_first", "zb_h1", "zb_v")
"""Orders of a pipeline by name."""

CHUNKED = ("interleaved", "breadth_first")
"""Schedules that may have any number of chunks."""

RECOMPUTED = ("none", "selective", "ops", "full")
"""What backward recomputes: nothing; the core of attention; half of each layer's operations, as PyTorch's selective
checkpointing of operations; each layer, from its input."""

OFFLOADED = ("none", "states", "activations")
"""What is offloaded to the host: nothing; the optimizer's states; what is kept for backward, except a layer's input."""


@dataclass(frozen=True)
class Split:
    """Axes, from the fastest: `tp` ranks share each layer, `cp` ranks the tokens of a sequence, `ep` ranks the experts
    (adjacent ranks along tp, cp and dp, so `ep` divides the product of these); `pp` ranks form a pipeline; `dp` is the
    number of replicas. `sp`: between layers, tokens are split along tp (Korthikanti et al. 2022). `chunks`: stages of
    each rank. `microbatch`: sequences at a time. `zero`: the stage of ZeRO, 0 to 3. `shards`: the number of replicas
    that share the shards of ZeRO (0: all). With fewer, as in HSDP, each group of so many has all shards, and groups
    reduce gradients among them. `every`: only every so many layers are fully recomputed. `layers`: the layers of each
    stage, if the planner does not deal them; the first and the last stage may have none besides the embedding and the
    head. `warmup`: forwards of the first rank of an interleaved pipeline before its first backward; 0: pp x chunks + pp
    - 2, as in Megatron. Fewer hold fewer activations."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    sp: bool = True
    zero: int = 1
    schedule: str = "1f1b"
    chunks: int = 1
    microbatch: int = 1
    recompute: str = "none"
    offload: str = "none"
    shards: int = 0
    every: int = 1
    layers: tuple[int, ...] = ()
    warmup: int = 0

    def __str__(self) -> str:
        axes = [f"dp {self.dp}", *(f"{axis} {getattr(self, axis)}" for axis in ("pp", "cp", "ep", "tp"))]
        chosen = " x ".join(axis for axis in axes if axis == axes[0] or not axis.endswith(" 1"))
        zero = f"ZeRO {self.zero}" + (f" in {self.shards}" if self.shards else "")
        return f"{chosen}, {zero}, {self.order_text}, microbatch {self.microbatch}"

    @property
    def order_text(self) -> str:
        chunks = f" x{self.chunks}" if self.schedule in CHUNKED else ""
        return self.schedule + chunks + (f" w{self.warmup}" if self.warmup else "")

    @property
    def stages(self) -> int:
        """The stages of the pipeline, `chunks` for each rank."""
        return self.pp * self.chunks

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """The stages of a rank of the pipeline: one in each round, or two in a V."""
        if self.schedule == "zb_v":
            return rank, 2 * self.pp - 1 - rank
        return tuple(range(rank, self.stages, self.pp))

    @property
    def recompute_text(self) -> str:
        """What is recomputed, for a table: 'full / 2' means every second layer."""
        return self.recompute + (f" / {self.every}" if self.every > 1 else "")

    @property
    def adjacent(self) -> int:
        """Adjacent ranks with the same layers: those along tp and cp, and all of a group that shares the experts."""
        return lcm(self.tp * self.cp, self.ep)

    @property
    def sharing(self) -> int:
        """Replicas that share the shards of ZeRO."""
        return self.shards or self.dp * self.cp

    @property
    def by_run(self) -> bool:
        """Whether ZeRO 2 reduces gradients once for each run of a chunk's microbatches: a rank with several chunks adds
        gradients until it turns to another chunk (Grattafiori et al. 2024, Llama 3, section 3.3.2)."""
        return self.zero == 2 and self.schedule in CHUNKED

    def reductions(self, job: Job) -> int:
        """How often a rank reduces the gradient of a layer in a step."""
        m = self.batches(job)
        if self.zero < 2 or (self.by_run and self.schedule != "interleaved"):
            return 1
        return m // self.pp if self.by_run else m

    def batches(self, job: Job) -> int:
        """Microbatches that each replica has in a step."""
        return job.batch // (self.dp * self.microbatch)

    def stage_layers(self, job: Job) -> tuple[int, ...]:
        """The layers of each stage: `layers` if given, or equal numbers. If only that divides, the embedding and the
        head count as one layer each (Llama 3 405B: 126 layers on 16 stages); otherwise the cut is balanced. With two
        more stages than layers, the first has only the embedding and the last only the head."""
        layers, stages = job.model.layers, self.stages
        if self.layers:
            return self.layers
        for total in (layers, layers + 2):
            if total % stages == 0 and stages <= layers:
                return (total // stages,) * stages
        return balanced(job.model, stages)


@cache
def balanced(model: Transformer, stages: int) -> tuple[int, ...]:
    """The cut whose largest stage takes the least time, and whose squares are least. Each layer goes to the stage with
    the least time so far; of equal stages, to the last, since the first holds the most microbatches. The last also has
    the head, and may have no layer."""
    head = model.vocabulary_weights / (model.active_weights / model.layers)
    counts = [0] * stages
    for _ in range(model.layers):
        loads = [count + (head if stage == stages - 1 else 0) for stage, count in enumerate(counts)]
        counts[max(range(stages), key=lambda stage: (-loads[stage], stage))] += 1
    return tuple(counts)


def problems(job: Job, split: Split) -> Iterator[str]:
    """Why a job cannot be split like this, and what would fit. Only the first problem counts: later checks assume that
    earlier ones have passed."""
    model = job.model
    for axis in ("dp", "tp", "pp", "cp", "ep", "microbatch", "chunks"):
        number = getattr(split, axis)
        if type(number) is not int or number < 1:
            yield f"{axis} must be a whole number from 1 on; got {number!r:.40}"
    for name, known in (("schedule", SCHEDULES), ("recompute", RECOMPUTED), ("offload", OFFLOADED)):
        if getattr(split, name) not in known:
            yield f"there is no {name} {getattr(split, name)!r:.40}; there are {', '.join(known)}"
    if type(split.sp) is not bool:
        yield f"sp must be True or False; got {split.sp!r:.40}"
    if split.zero not in (0, 1, 2, 3):
        yield f"ZeRO has the stages 0 to 3; got {split.zero!r:.40}"
    used = split.dp * split.tp * split.pp * split.cp
    if used != job.gpus:
        product = f"dp {split.dp} x pp {split.pp} x cp {split.cp} x tp {split.tp}"
        inner = used // split.dp
        fit = f"dp {job.gpus // inner} would" if job.gpus % inner == 0 else _fit("pp x cp x tp", job.gpus, inner)
        yield f"{product} makes {counted(used, 'GPU')}, and there {'is' if job.gpus == 1 else 'are'} {job.gpus}; {fit}"
    for axis, count, of in (
        ("tp", model.kv_heads if split.tp <= model.kv_heads else model.heads, "heads"),
        ("cp", job.sequence, "tokens of a sequence"),
        ("ep", model.experts or 1, "experts"),
    ):
        given = getattr(split, axis)
        if count % given:
            yield f"{axis} {given} does not divide {count} {of}; {_fit(axis, count, given)}"
    sharing = split.dp * split.cp * split.tp
    if sharing % split.ep:
        fit = _fit("ep", sharing, split.ep)
        yield f"ep {split.ep} does not divide the dp x cp x tp = {sharing} ranks that share the experts; {fit}"
    yield from _of_chunks(split)
    if model.layers + 2 < split.stages:
        yield (
            f"{counted(model.layers, 'layer')}, the embedding and the head cannot fill {split.stages} stages; pp x "
            f"chunks may be at most {model.layers + 2}"
        )
    if split.layers != () and not _cut(split, model.layers):
        yield (
            f"layers must be {split.stages} whole numbers, one for each stage, which add up to {model.layers}, and of "
            f"which only the first and the last may be 0; got {split.layers!r:.60}"
        )
    if job.batch % (split.dp * split.microbatch):
        yield (
            f"{counted(job.batch, 'sequence')} cannot be split across {counted(split.dp, 'replica')} in microbatches "
            f"of {split.microbatch}; " + _fit("dp x microbatch", job.batch, split.dp * split.microbatch)
        )
    m = split.batches(job)
    if split.schedule == "interleaved" and m % split.pp:
        yield f"interleaved takes {split.pp} microbatches at a time, and a replica has {m}; " + _fit("pp", m, split.pp)
    elif split.schedule.startswith("zb") and (split.pp < 2 or m < split.pp):
        yield f"{split.schedule} needs at least 2 stages, and a microbatch for each; got {split.pp} and {m}"
    yield from _of_choices(split)


def _of_chunks(split: Split) -> Iterator[str]:
    if split.schedule == "zb_v" and split.chunks != 2:
        yield f"zb_v has 2 chunks on each rank; got {split.chunks}"
    elif split.schedule not in (*CHUNKED, "zb_v") and split.chunks != 1:
        yield f"{split.schedule} has one chunk on each rank, not {split.chunks}; more are for {', '.join(CHUNKED)}"
    elif split.schedule in CHUNKED and (split.chunks < 2 or split.pp < 2):
        yield f"{split.schedule} needs at least 2 chunks on each of at least 2 stages; 1f1b has one"
    elif split.schedule.startswith("zb") and split.recompute == "full" and split.every == 1:
        least = "; take recompute none, selective or ops, or every 2"
        yield f"{split.schedule} splits backward, and full recomputation needs it in one piece{least}"


def _cut(split: Split, layers: int) -> bool:
    """Whether `layers` of a split are a cut of the model's layers."""
    given = split.layers
    whole = type(given) is tuple and all(type(count) is int and count >= 0 for count in given)
    return whole and len(given) == split.stages and sum(given) == layers and 0 not in given[1:-1]


def _of_choices(split: Split) -> Iterator[str]:
    replicas = split.dp * split.cp
    for name, least in (("shards", 0), ("every", 1), ("warmup", 0)):
        number = getattr(split, name)
        if type(number) is not int or number < least:
            yield f"{name} must be a whole number from {least} on; got {number!r:.40}"
            return
    if split.shards and (not split.zero or split.shards == 1 or replicas % split.shards):
        fit = (
            _fit("shards", replicas, split.shards) if split.zero else "with ZeRO 0 nothing is in shards; leave them out"
        )
        yield f"shards {split.shards} do not divide {replicas} replicas into groups that share shards; {fit}"
    if split.shards % split.ep:
        yield f"ep {split.ep} does not divide the {split.shards} shards; {_fit('ep', split.shards, split.ep)}"
    least, most = split.stages - 1, split.stages + split.pp - 2
    if split.warmup and (split.schedule != "interleaved" or not least <= split.warmup <= most):
        fit = f"{least} to {most} here" if split.schedule == "interleaved" else "for the schedule interleaved"
        yield f"warmup {split.warmup} is not possible; it is the first rank's forwards of warm-up, {fit}"
    if split.every > 1 and split.recompute != "full":
        yield f"every {split.every} is for full recomputation; take recompute full, not {split.recompute}"


def require_fit(job: Job, split: Split) -> None:
    """Refuses a split that does not fit the job."""
    for problem in problems(job, split):
        raise RuleError(problem)


def _fit(axis: str, *counts: int) -> str:
    """'tp may be 1, 2, 4 or 8': the divisors of the first count (and of the third) that are nearest to the second."""
    count, given, *more = counts
    nearest = sorted({n for of in (count, *more) for n in divisors(of)}, key=lambda n: abs(n - given))[:6]
    *first, last = map(str, sorted(nearest))
    return f"{axis} may be {', '.join(first)}{' or ' if first else ''}{last}"


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})
