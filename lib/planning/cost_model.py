"""The prices of a split in the run of its pipeline: a cost record by size, and the bytes of each value."""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from types import MappingProxyType

from lib import Costs, Setting
from lib.game.costs import Tier

from .gpus import CONTENTION, LATENCY, REACHED, call_seconds
from .job import Job
from .layer_cost import Moves, activation_bytes, copied_bytes, exact, layer_times, shared, tokens_of, workspace_bytes
from .memory_model import GATHERED, MOST_GATHERED, MOST_REDUCED, logit_bytes, updated_bytes, widths
from .split import Split

UNIT = 1000
"""Ticks in a step: a step is a millisecond, a tick a microsecond."""

TICKS = 10**6
"""Ticks in a second."""

MAX_BUCKETS = 16
"""About how many units the layers of a replica's pipeline are joined to; units are reduced one by one."""


LOSS_PASSES = 44
"""Bytes that PyTorch's cross entropy reads and writes for each logit: a cast to 32 bits 6, the log-softmax 16 (it reads
three times), an empty gradient 4, the gradient 12, a cast back 6."""

WEIGHT_CASTS, GRADIENT_CASTS = 10, 14
"""Bytes that FSDP2 on one GPU reads and writes for each parameter: once a step a cast of the weight to 16 bits (6) and
a copy into the gathered weights (4); for each microbatch a cast of the gradient to 32 bits (6) and a copy (8)."""


@dataclass(frozen=True)
class Prices:
    """The prices of a split. A unit is some layers of one stage, which the run plays as one layer.

    Ticks: `forward`, `back_input` and `back_weight` of a unit, `loss` (the head, forward and backward), `message`; for
    each unit `reduce` (its gradient), `gather` (its weight), `update`, `copy` (its state to or from the host). Bytes:
    `kept` of a unit for the backward of a microbatch; `border` of an activation between units; `weight`, `gradient` and
    `state` of a unit, whose shards are `shard` times as large as even ones (experts have fewer copies); `gathered` and
    `reduced` while its weight and gradient are unsharded (ZeRO 2 and 3); `first` and `last` on the ranks with the
    embedding and the head; `workspace` on each rank.
    """

    units: tuple[int, ...]
    """The units of each stage."""
    layers: int
    """The layers of each unit."""
    replicas: int
    parameters: int
    forward: int
    back_input: int
    back_weight: int
    loss: int
    message: int
    reduce: int
    gather: int
    update: int
    copy: int
    kept: int
    border: int
    weight: int
    gathered: int
    gradient: int
    reduced: int
    state: int
    shard: Fraction
    first: int
    last: int
    workspace: int


@cache
def prices(job: Job, split: Split, eager: bool = False) -> Prices:
    """The prices of a split that fits the job. Computation takes longer where collectives overlap with it: forward and
    backward with ZeRO 3, backward with ZeRO 2, and otherwise the last microbatch's backward. The last is counted in the
    update, since it happens once a step. Times and bytes are those of fused or of eager code, whose times differ for
    PyTorch's kernels."""
    job = of_layers(job, split)
    model, gpu, tp = job.model, job.gpu, split.tp
    units, layers = units_of(job, split)
    replicas = split.sharing
    layer = sum(weights_of_layer(job, split))
    ends = model.vocabulary_weights / tp
    alone = split.pp == 1
    parameters = round(layers * layer + (2 * ends / units[0] if alone else 0))
    shard = shards_of(job, split)
    times = layer_times(job, shared(split), eager and job.kernels == "pytorch")
    tokens = tokens_of(job, split)
    counted = sum(split.stage_layers(job)) > model.layers  # the embedding and the head are among the layers
    elements = tokens * model.hidden // tp
    wide = widths(job, split)
    shards = replicas if split.zero else 1
    # The first and the last rank update the embedding and the head too; the step waits for them.
    updated = parameters if alone or counted else parameters + ends * split.pp / sum(units)
    update = float(shard) * updated * updated_bytes(job, split) / shards / gpu.bytes_per_second
    cast_weight, cast_gradient = cast_seconds(job, parameters)
    head = (1 + job.mtp) * 3 * 2 * tokens * ends / (gpu.flops * job.efficiency) + loss_seconds(job, split)
    moves = moves_of(job, split)
    reduce = moves.ticks("scatterreduce" if split.zero else "allreduce", parameters, replicas)
    gather = moves.ticks("allgather", parameters // replicas, replicas)
    matrices = float(shard) * layers * layer
    orthogonal = _orthogonalized(job, split, layers, matrices, gather) if job.optimizer == "muon" else 0
    again = times.forward / split.every if split.recompute == "full" and split.every > 1 else 0.0
    copy = copied_bytes(job, split) / (gpu.host * REACHED)
    forward = round(layers * max(times.forward, copy) * TICKS)
    back_weight = round((layers * times.backward_weight + cast_gradient) * TICKS)
    back_input = round(layers * max(times.backward_input + again, copy - times.backward_weight) * TICKS)
    recomputed = forward if split.recompute == "full" and split.every == 1 else 0
    backward = recomputed + back_input + back_weight
    waits = CONTENTION if job.overlap and replicas > 1 else 0
    reduction = reduce * split.reductions(job) / split.batches(job)
    slower_forward = waits * min(forward, gather) if split.zero == 3 else 0
    slower = waits * min(backward, {2: reduction, 3: gather + reduce}.get(split.zero, 0))
    slower -= slower_forward if recomputed else 0  # which the forward that is run again has in its price
    once = waits * min(backward, reduce) if split.zero < 2 else 0  # only the last microbatch's backward
    share = Fraction(1, replicas)
    by_zero = (wide.weight * (share if split.zero == 3 else 1), wide.gradient * (share if split.zero > 1 else 1))
    of_state = (wide.state + job.state - job.layer_state) * (share if split.zero else 1) * (split.offload == "none")
    of_ends = float(sum(by_zero) + of_state + wide.root)
    root = round(2 * ends * wide.root) if alone else 0
    unlike = ends - (layer if counted else 0)
    border = 2 * elements
    logits = logit_bytes(job, eager) * tokens * model.vocab / tp / job.loss_chunks
    return Prices(
        units=units,
        layers=layers,
        replicas=replicas,
        parameters=parameters,
        forward=round(forward + slower_forward),
        back_input=round(back_input + slower / 2),
        back_weight=round(back_weight + slower / 2),
        loss=0 if counted else _ticks(head),
        message=moves.ticks("pass_to", elements, 2),
        reduce=reduce,
        gather=gather,
        update=round((update + cast_weight) * TICKS + once + orthogonal),
        copy=moves.by_size("fetch", parameters // shards),
        kept=round(layers * activation_bytes(job, split, eager)),
        border=border,
        weight=parameters * wide.weight,
        gathered=(parameters if eager else min(parameters, MOST_GATHERED)) * wide.gathered,
        gradient=parameters * wide.gradient,
        reduced=(min(parameters, MOST_REDUCED) if split.zero == 3 and not eager else parameters) * wide.reduced,
        state=round(parameters * wide.state + (parameters - layers * layer) * (job.state - job.layer_state)),
        shard=shard,
        first=root if alone else round(unlike * of_ends),
        last=(0 if alone else round(unlike * of_ends)) + round(logits),
        workspace=round(workspace_bytes(job, split, eager)),
    )


def loss_seconds(job: Job, split: Split) -> float:
    """Seconds of a microbatch's loss, forward and backward, without the head's products: of fused code, and for one GPU
    by kernel of PyTorch's, with the last norm and the embedding's gradient, which begins as zeros."""
    model, gpu, tokens = job.model, job.gpu, tokens_of(job, split)
    if job.by_kernel:
        moved = tokens * (LOSS_PASSES * model.vocab + model.last_norm_bytes) + 2 * model.vocabulary_weights
        return (1 + job.mtp) * moved / gpu.bytes_per_second
    return (1 + job.mtp) * (2 * logit_bytes(job, False) * tokens * model.vocab / split.tp / gpu.bandwidth)


def cast_seconds(job: Job, parameters: int) -> tuple[float, float]:
    """Seconds in which one GPU by kernel copies weights, once a step, and gradients, for each microbatch. Rates that
    are fitted to runs of many GPUs contain these copies."""
    each = parameters / job.gpu.bytes_per_second if job.by_kernel else 0.0
    return WEIGHT_CASTS * each, GRADIENT_CASTS * each


def _orthogonalized(job: Job, split: Split, layers: int, matrices: float, gather: float) -> float:
    """Ticks of Muon in an update of some layers: full matrices are gathered, along tp, and over the replicas if states
    are sharded. Then their owners share the iterations; without ZeRO every rank does all."""
    dense, routed = job.model.orthogonalizing_flops()
    replicas, tp, gpu = split.sharing if split.zero else 1, split.tp, job.gpu
    work = (dense + routed / split.ep) * layers / job.model.layers / (replicas * tp if split.zero else 1)
    sent = GATHERED * (tp - 1) * matrices / replicas / gpu.rate(min(tp, gpu.machine), tp)
    return (work / (gpu.flops * job.efficiency) + sent) * TICKS + (gather if split.zero else 0)


def moves_of(job: Job, split: Split) -> Moves:
    """The prices of what a pipeline and its replicas send."""
    gpu, replicas = job.gpu, split.sharing
    members = members_of_replicas(job, split, replicas)
    rate = gpu.rate(members, replicas)
    stages = gpu.members(split.adjacent, split.pp)
    wide = widths(job, split)
    state = shards_of(job, split) * wide.state
    groups, near = between_groups(job, split)
    between = call_seconds(gpu.link(near, groups), groups) if groups > 1 else 0.0
    sent = sent_between(split) * job.gradient / gpu.rate(near, groups)
    call, host = _ticks(call_seconds(gpu.link(members, replicas), replicas)), _ticks(LATENCY["host"])
    seconds = {  # of each call besides its bytes, in ticks, and of each element
        **dict.fromkeys(("allreduce", "scatterreduce"), (call + _ticks(between), job.gradient / rate + sent)),
        "allgather": (call, wide.gathered / rate),
        "pass_to": (_ticks(LATENCY[gpu.link(stages, split.pp)]), 2 / gpu.rate(stages, split.pp)),
        **dict.fromkeys(("offload", "fetch"), (host, float(state) / (gpu.host * REACHED))),
    }
    beta = {name: exact(per_element * TICKS) for name, (_, per_element) in seconds.items()}
    return Moves({name: ticks for name, (ticks, _) in seconds.items()}, beta)


def of_layers(job: Job, split: Split) -> Job:
    """The job as its layers see it: modules of layers that are recomputed in full do not count."""
    return replace(job, modules=()) if job.modules and split.recompute == "full" else job


def weights_of_layer(job: Job, split: Split) -> tuple[float, float]:
    """Weights of an average layer on a rank: those that all replicas have, and those of its experts, which are cut
    along tp only if no ranks share the experts."""
    dense, routed = (weights / job.model.layers for weights in (job.model.dense_weights, job.model.routed_weights))
    return dense / split.tp, routed / (split.ep if split.ep > 1 else split.tp)


def shards_of(job: Job, split: Split) -> Fraction:
    """How much larger the shards of a layer are than even ones, because its experts have fewer copies."""
    if not split.zero or split.ep == 1:
        return Fraction(1)
    even, uneven = (round(sum(weights_of_layer(job, other))) for other in (replace(split, ep=1), split))
    return Fraction(even, uneven)


@cache
def setting_of(job: Job, split: Split) -> Setting:
    """The setting of a run of all ranks, whose collectives are priced by what their ranks send."""
    priced, moves = prices(job, split), moves_of(job, split)
    halves = {"backward_input": priced.back_input, "backward_weight": priced.back_weight}
    ticks = {"forward": priced.forward, "backward": sum(halves.values()), **halves}
    ticks |= {"loss": priced.loss, "update": priced.update, "receive": 0}
    costs = Costs(
        f"{job.model.name} on {job.gpu.name}",
        hidden=job.model.hidden // split.tp,
        length=tokens_of(job, split),
        parameters=priced.parameters,
        ticks=MappingProxyType(ticks),
        unit=UNIT,
        overlap=True,
        lanes="group",
        tiers=MappingProxyType({"host": Tier(0, 0)} if split.offload == "states" else {}),
        calls=MappingProxyType(dict(moves.calls)),
        beta=MappingProxyType(dict(moves.beta)),
    )
    replicas = {"dp": priced.replicas} if priced.replicas > 1 else {}
    return Setting(costs, mesh={**replicas, "pp": split.pp})


def setting_of_replica(job: Job, split: Split) -> Setting:
    """The setting of a run of one replica, whose collectives and copies take as long as among all replicas."""
    priced, setting = prices(job, split), setting_of(job, split)
    ticks = {"allreduce": priced.reduce, "scatterreduce": priced.reduce, "allgather": priced.gather}
    ticks |= {"offload": priced.copy, "fetch": priced.copy}  # of a state, which is whole here
    beta = {name: each for name, each in setting.costs.beta.items() if name not in ("offload", "fetch")}
    calls = {**setting.costs.calls, **ticks}
    costs = replace(setting.costs, calls=MappingProxyType(calls), beta=MappingProxyType(beta))
    return replace(setting, costs=costs, mesh=(("dp", 1), ("pp", split.pp)))


def units_of(job: Job, split: Split) -> tuple[tuple[int, ...], int]:
    """The units of each stage, and the layers of a unit. Stages of different sizes have units of one layer."""
    stages = split.stage_layers(job)
    layers = stages[0]
    if split.zero == 3 or len(set(stages)) > 1:
        return stages, 1
    units = max(n for n in range(1, layers + 1) if layers % n == 0 and (n == 1 or n * len(stages) <= MAX_BUCKETS))
    return (units,) * len(stages), layers // units


def members_of_replicas(job: Job, split: Split, count: int) -> int:
    """How many ranks of a group of `count` replicas share a machine. Ranks along cp and those that share experts are
    adjacent; others are a whole pipeline apart."""
    inner = split.adjacent
    near = min(inner // split.tp, max(1, job.gpu.machine // split.tp))
    pipelines = max(1, job.gpu.machine // (inner * split.pp)) if inner <= job.gpu.machine else 1
    return min(count, near * pipelines)


# --- Groups that have all shards each (HSDP): their all-reduce of shards follows the reduction within a group ---


def between_groups(job: Job, split: Split) -> tuple[int, int]:
    """The number of groups, and how many of them have a member in a machine."""
    groups = split.dp * split.cp // split.sharing
    return groups, max(1, members_of_replicas(job, split, split.dp * split.cp) // split.sharing)


def sent_between(split: Split) -> float:
    """Bytes sent between groups, to all-reduce shards, for each byte that a reduction sends within a group."""
    groups = split.dp * split.cp // split.sharing
    return 2 * (groups - 1) / (groups * (split.sharing - 1)) if groups > 1 else 0.0


def _ticks(seconds: float) -> int:
    return round(seconds * TICKS)
