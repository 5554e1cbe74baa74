"""A plan: one split of a job, with its step time, memory and traffic; plans that tie; where the time goes; its
schedule.

A plan only gathers: ticks and peaks are counted in `estimate`, prices in `prices`. Two plans whose times differ by less
than the usual error of the model are a tie, and are said to be one: a planner that ranked them would pretend to know
more. The parts of a step's time add up to the step. Memory is a range, from fused to eager code, so there are three
verdicts and not two.

The schedule of a plan is a coroutine that plays the actions of `estimate` on the Model, for pictures and for the tests,
which compare the figures of plans with runs of all ranks. An earlier version took the figures from such a run; that
took four fifths of a search.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from .estimate import Program, RankMemory, most_sent, program_of, rank_memory, turns, walked
from .job import LINKS, Job
from .prices import (
    TICKS,
    between_groups,
    cast_seconds,
    compute_seconds,
    copied_bytes,
    core_backward,
    ep_traffic,
    experts_of,
    forward_seconds,
    layer_times,
    link_of,
    loss_seconds,
    members_of_replicas,
    of_layers,
    prices,
    sent_between,
    setting_of_replica,
    shared,
)
from .split import Split, require_fit

if TYPE_CHECKING:  # a plan is counted without a run
    from lib import Model, Trace, Weight
    from lib.pipelines.timetable import Cell

VERDICTS = ("fits", "depends on the code", "does not fit")
"""The whole range of memory fits, only its lower end fits, or none of it."""


def verdict_of(low: int, high: int, usable: int) -> str:
    return VERDICTS[0 if high <= usable else 1 if low <= usable else 2]


@dataclass(frozen=True, eq=False)
class Plan:
    """What a step of a split takes, by the ledger's rules: the `seconds` of a step, compiled, and its
    `eager_seconds`, which differ for PyTorch's kernels; the memory of each rank of
    the pipeline; `sent`, the bytes that a GPU sends in a step, by axis (tp, cp, ep, pp, dp, groups of HSDP, host);
    `links`, the link of each axis; `bubble`, the share of the time in which the ranks of a pipeline do not compute."""

    job: Job
    split: Split
    seconds: float
    eager_seconds: float
    bubble: float
    ranks: tuple[RankMemory, ...]
    sent: Mapping[str, int]
    links: Mapping[str, str]
    waits: Mapping[str, float]
    """Seconds in which a rank of the pipeline waits on average: `dp` for replicas, `host` for the host."""

    @cached_property
    def trace(self) -> Trace:
        """A run of one replica, for pictures: its collectives take the ticks that they take among all replicas, so its
        operations and times are the plan's. It shares nothing, so its memory and traffic are not."""
        from lib.ledger.runner import played  # here, since asyncio takes longer to import than all of lib

        priced, program = prices(self.job, self.split), program_of(self.job, self.split)
        size = sum(priced.units), self.split.batches(self.job), self.split.pp
        return played(planned(program), size, setting_of_replica(self.job, self.split)).trace

    @property
    def tokens_per_second(self) -> float:
        return self.job.tokens / self.seconds

    @property
    def mfu(self) -> float:
        return self.job.mfu(self.seconds)

    @cached_property
    def fullest(self) -> RankMemory:
        """The rank with the highest peak in fused code."""
        return max(self.ranks, key=lambda rank: rank.peak)

    @property
    def memory(self) -> Mapping[str, int]:
        """Bytes of the fullest GPU in fused code, by kind."""
        return self.fullest.low

    @property
    def peak(self) -> int:
        """Bytes of the fullest GPU in fused code, without holes: the lower end of the range."""
        return self.fullest.peak

    @property
    def high(self) -> int:
        """Bytes that the fullest GPU reserves in eager code: the upper end of the range."""
        return max(rank.high for rank in self.ranks)

    @property
    def verdict(self) -> str:
        """One of VERDICTS."""
        return verdict_of(self.peak, self.high, self.job.gpu.usable)

    @property
    def fits(self) -> bool:
        """Whether fused code fits."""
        return self.peak <= self.job.gpu.usable

    @cached_property
    def by_link(self) -> Mapping[str, int]:
        """Bytes that a GPU sends in a step over each kind of link. Of rows for experts, a part stays in its machine."""
        sent = {link: sum(n for axis, n in self.sent.items() if self.links[axis] == link) for link in LINKS}
        if self.links["ep"] == "network":
            _, out, within = ep_traffic(self.job, shared(self.split))
            near = round(self.sent["ep"] * within / (out + within))
            sent |= {"nvlink": sent["nvlink"] + near, "network": sent["network"] - near}
        return sent


def plan(job: Job, split: Split) -> Plan:
    """The figures of a split.

    Raises:
        RuleError: the job cannot be split like this; the text says what would fit.
    """
    require_fit(job, split)
    fused, eager = walked(job, split), walked(job, split, eager=True)
    ticks, eager_ticks = (max(rank.ticks for rank in ranks) for ranks in (fused, eager))
    bubble = 1 - sum(rank.busy for rank in fused) / (split.pp * ticks)
    memory = tuple(rank_memory(job, split, place, *ranks) for place, ranks in enumerate(zip(fused, eager)))
    waits = {axis: sum(rank.waits[axis] for rank in fused) / split.pp / TICKS for axis in ("dp", "host")}
    seconds, sent = (ticks / TICKS, eager_ticks / TICKS), sent_in_step(job, split)
    return Plan(job, split, *seconds, bubble, memory, sent, links(job, split), waits)


def sent_in_step(job: Job, split: Split) -> Mapping[str, int]:
    """Bytes that a GPU sends, by axis, in the pipeline and in the calls of each layer and microbatch."""
    priced, times = prices(job, split), layer_times(of_layers(job, split), shared(split))
    program, sent = program_of(job, split), most_sent(job, split)
    units = max(len(program.layers_of(place)) for place in range(split.pp))
    layers = split.batches(job) * units * priced.layers
    again = 1 / split.every if split.recompute == "full" else 0
    within = {axis: round(layers * (times.sent[axis] + again * times.sent_forward[axis])) for axis in times.sent}
    copied = round(2 * layers * copied_bytes(job, split))
    return {
        **within,
        "pp": sent["messages"],
        "dp": sent["gradients"] + sent["weights"],
        "groups": round(sent["gradients"] * sent_between(split)),
        "host": sent["host"] + copied,
    }


def links(job: Job, split: Split) -> Mapping[str, str]:
    """The slowest link of each axis."""
    stride, gpu = split.adjacent, job.gpu
    groups, near = between_groups(job, split)
    return {
        **{axis: link_of(job, split, axis) for axis in ("tp", "cp", "ep")},
        "pp": gpu.link(gpu.members(stride, split.pp), split.pp),
        "dp": gpu.link(members_of_replicas(job, split, split.sharing), split.sharing),
        "groups": gpu.link(near, groups),
        "host": "host",
    }


ERRORS = {"megatron": 0.03, "pytorch": 0.1}
"""Half of the published steps are predicted within this share; docs/truth.md has the exact figures."""

EXPERTS_ERROR = 0.06
"""The same for models with experts."""


def usual_error(job: Job) -> float:
    return max(ERRORS[job.kernels], EXPERTS_ERROR if job.model.experts else 0)


class Family(NamedTuple):
    """The fastest split of a kind that fits, with the estimated seconds of its step and bytes of its fullest GPU in
    fused code."""

    name: str
    split: Split
    seconds: float
    peak: int


def family_of(split: Split) -> str:
    """The kind of a split, by what its ranks share."""
    names = {"pp": "pipeline", "tp": "tensor parallel", "cp": "context parallel", "ep": "expert parallel"}
    shared = [name for axis, name in names.items() if getattr(split, axis) > 1]
    if split.zero == 3 and split.dp * split.cp > 1:
        shared.append("HSDP" if split.shards else "FSDP")
    elif not shared:
        return "data parallel"
    return " + ".join(shared)


def tied(plans: Sequence[Plan]) -> list[Plan]:
    """The fastest of some plans, and those that are slower by less than the model's usual error."""
    best = min(plans, key=lambda plan: plan.seconds)
    return [plan for plan in plans if plan.seconds <= best.seconds * (1 + usual_error(best.job))]


def tie_text(plans: Sequence[Plan]) -> str:
    """Which plans are a tie, why, and how they differ; empty if the fastest has no tie. Plans are numbered from 1."""
    tie = tied(plans)
    if len(tie) < 2:
        return ""
    places = {id(plan): k for k, plan in enumerate(plans, 1)}
    kernels, share = tie[0].job.kernels, 100 * usual_error(tie[0].job)
    smallest = min(tie, key=lambda plan: plan.peak)
    quietest = min(tie, key=lambda plan: plan.by_link["network"])
    names = ", ".join(str(places[id(plan)]) for plan in tie)
    return (
        f"Plans {names} are a tie: they differ by less than {share:.0f} %, the usual error of predictions with "
        f"{kernels} kernels. Plan {places[id(smallest)]} needs the least memory; plan {places[id(quietest)]} "
        "sends the least over the network."
    )


# --- Where the time of a step goes, on average over the ranks of a pipeline: from the ideal step to this one ---

PARTS: Mapping[str, str] = MappingProxyType(
    {
        "ideal": "the model's flops at the full rate",
        "matrix": "matrix products below the full rate",
        "attention": "the core of attention below the full rate",
        "elementwise": "reading and writing activations",
        "permute": "moving rows to and from experts",
        "recomputation": "recomputation",
        "tp": "tensor parallel communication",
        "cp": "context parallel communication",
        "ep": "exposed expert parallel communication",
        "imbalance": "uneven rows of experts",
        "contention": "collectives that slow computation",
        "update": "the optimizer",
        "dp": "waiting for replicas",
        "host": "waiting for the host",
        "bubble": "the pipeline's bubble",
    }
)
"""What the seconds of a step are spent on, in words; every part except the ideal is a loss."""

LEAST_PART = 0.0005
"""Smaller parts of a step are not shown."""


def time_parts(plan: Plan) -> Mapping[str, float]:
    """Seconds of a step by what they are spent on, see PARTS; they add up to the step. `ideal` is a step at the rate of
    the data sheet, so its share of the step is the plan's MFU. Recomputation includes its own communication; the bubble
    includes the messages. Uneven rows are what balanced routing would save; waiting for the host has what full CUDA
    graphs would save after that."""
    split, job = plan.split, of_layers(plan.job, plan.split)
    priced, times = prices(job, split), layer_times(job, shared(split))
    units = split.batches(job) * sum(priced.units) / split.pp
    layers = units * priced.layers
    balanced = replace(job, balanced=True)
    prompt = replace(balanced, graphs="full")  # all kernels are launched in time
    experts, once = experts_of(prompt, split), layer_times(replace(prompt, modules=()), shared(split))
    given, even, in_time = (sum(layer_times(variant, shared(split))[:3]) for variant in (job, balanced, prompt))
    plain = replace(split, recompute="none") if split.recompute == "ops" else split
    linear, core, moved = forward_seconds(job, plain)
    with_ops = sum(compute_seconds(job, split)) - sum(compute_seconds(job, plain))
    again = times.forward / split.every if split.recompute == "full" else with_ops
    played = priced.forward + priced.back_input + priced.back_weight
    played += priced.forward if split.recompute == "full" and split.every == 1 else 0
    of_head = split.batches(job) * priced.loss / TICKS / split.pp
    copied, loss = 0.0, 0.0
    if job.by_kernel:
        copied = units * cast_seconds(job, priced.parameters)[1]
        loss = split.batches(job) * loss_seconds(job, split)
    ideal = plan.seconds * plan.mfu
    ideal_core = ideal * job.tokens * job.model.attention_flops(job.sequence, job.flash) / job.flops
    parts = {
        "ideal": ideal,
        "matrix": 3 * layers * (linear + experts.slower) + of_head - loss - (ideal - ideal_core),
        "attention": layers * core * (1 + core_backward(job, plain)) - ideal_core,
        "elementwise": 3 * layers * moved + copied + loss,
        "permute": layers * (2 * experts.moved + experts.summed),
        "recomputation": layers * (again + in_time - sum(once[:3])),
        **{axis: layers * once.added.get(axis, 0.0) for axis in ("tp", "cp", "ep")},
        "imbalance": layers * (given - even),
        "contention": units * played / TICKS - layers * (sum(times[:3]) + again - with_ops) - copied,
        "update": sum(priced.units) / split.pp * priced.update / TICKS,
        "dp": plan.waits["dp"],
        "host": plan.waits["host"] + layers * (even - in_time),
    }
    return {**parts, "bubble": plan.seconds - sum(parts.values())}


# --- A plan's schedule ---


def planned(program: Program) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """The schedule that plays a program, on a mesh with the axes dp (if there are replicas) and pp."""

    async def schedule(model: Model) -> None:
        rank = _Rank(model, program)
        for pattern, rank.cell, rank.received, rank.sent in turns(program, model.index("pp")):
            for _, operation, layer in pattern.actions:
                waiting = getattr(rank, operation.replace(" ", "_"))(layer, rank.cell.batch)
                if waiting is not None:
                    await waiting

    return schedule


class _Rank:
    """One rank: a method for each action, of a layer and a microbatch. `activations[layer, batch]` is the input of a
    layer, `grad_activations[layer, batch]` the gradient of its output. With ZeRO 3 `weights["gathered"]` is the full
    weight of one layer."""

    cell: Cell
    received: int
    sent: int

    def __init__(self, model: Model, program: Program) -> None:
        self.model, self.program, self.zero = model, program, program.zero
        self.peers = model.axis("pp")
        self.shard = (model.index("dp"), len(model.axis("dp"))) if program.replicated else (0, 1)
        self.pending: dict[str, Any] = {}
        """The calls that are awaited later, by the operation and the layer."""
        self.gradients: list[Any] = []
        """Gradients of weights that are not stored yet, the newest last."""

    def load(self, layer: int, _: int) -> None:
        model = self.model
        weight, state = model.load_weights(layer, *(self.shard if self.zero == 3 else (0, 1)))
        model.weights[layer] = weight
        if self.program.offload:
            shard = self.shard if self.zero else (0, 1)
            model.parked[layer] = model.load_weights(layer, *shard, tier="host")[1]
        else:
            model.opt_states[layer] = state.shard(*self.shard) if self.zero in (1, 2) else state

    def input(self, layer: int, batch: int) -> None:
        first = self.shard[0] * self.program.table.batches
        self.model.activations[layer, batch] = self.model.get_activation([first + batch])

    def weight(self, layer: int) -> Weight:
        return self.model.weights["gathered" if self.zero == 3 else layer]

    def forward(self, layer: int, batch: int) -> None:
        model = self.model
        model.activations[layer + 1, batch] = model.forward(layer, model.activations[layer, batch], self.weight(layer))

    def recompute(self, layer: int, batch: int) -> None:
        self.model.forward(layer, self.model.activations[layer, batch], self.weight(layer))

    def loss(self, layer: int, batch: int) -> None:
        self.model.grad_activations[layer, batch] = self.model.loss(self.model.activations.pop((layer + 1, batch)))

    def backward(self, layer: int, batch: int) -> None:
        model = self.model
        given = model.activations.pop((layer, batch)), model.grad_activations.pop((layer, batch))
        new, model.grad_activations[layer - 1, batch] = model.backward(layer, *given, self.weight(layer))
        self.gradients.append(new)

    def backward_input(self, layer: int, batch: int) -> None:
        model = self.model
        given = model.activations[layer, batch], model.grad_activations[layer, batch]
        model.grad_activations[layer - 1, batch] = model.backward_input(layer, *given, self.weight(layer))

    def backward_weight(self, layer: int, batch: int) -> None:
        model = self.model
        grad = model.grad_activations.pop((layer, batch))
        self.gradients.append(model.backward_weight(layer, model.activations.pop((layer, batch)), grad))

    def drop(self, layer: int, batch: int) -> None:
        del self.model.grad_activations[layer - 1, batch]

    # --- Gradients, weights and states ---

    def keep(self, layer: int, _: int) -> None:
        self.model.grad_weights[layer] = self.gradients.pop()

    def add(self, layer: int, _: int) -> None:
        self.model.grad_weights[layer] += self.gradients.pop()

    def keep_reduced(self, layer: int, _: int) -> None:
        self.model.grad_weights["reduced", layer] = self.gradients.pop()

    def add_reduced(self, layer: int, _: int) -> None:
        self.model.grad_weights["reduced", layer] += self.gradients.pop()

    def release(self, layer: int, _: int) -> None:
        del self.model.weights["gathered"]

    def update(self, layer: int, _: int) -> None:
        model = self.model
        grad = model.grad_weights.pop(("reduced", layer) if self.program.replicated else layer)
        weight, state = model.weights.pop(layer), model.opt_states.pop(layer)
        weight = weight.shard(*self.shard) if self.zero in (1, 2) else weight
        model.weights[layer], model.opt_states[layer] = model.update(layer, grad, weight, state)

    def store(self, layer: int, _: int) -> None:
        self.model.set_final_weight(layer, self.model.weights[layer])

    # --- Calls ---

    async def receive(self, _: int, batch: int) -> None:
        values, layer, other = self.border(sends=False)
        values[layer, batch] = await self.model.receive(other, self.received)

    def send(self, _: int, batch: int) -> None:
        values, layer, other = self.border(sends=True)
        self.pending["send"] = self.model.pass_to(other, values.pop((layer, batch)), self.sent)

    def border(self, sends: bool) -> tuple[dict[Any, Any], int, int]:
        """Of the turn's message: where its value is stored, the layer of its key, and the other rank."""
        model, is_forward, layers = self.model, self.cell.op == "F", self.program.layers(self.cell.stage)
        is_at_end = is_forward == sends  # an activation leaves the end of the stage, and a gradient comes there
        (place,) = self.program.table.ranks_of[self.cell.stage + (1 if is_at_end else -1)]
        layer = (layers.stop if is_at_end else layers.start) - (not is_forward)
        return model.activations if is_forward else model.grad_activations, layer, self.peers[place]

    async def wait_send(self, *_: int) -> None:
        await self.pending.pop("send")

    def gather(self, layer: int, _: int) -> None:
        self.pending[f"gather {layer}"] = self.model.allgather(self.model.weights[layer], layer, group="dp")

    async def wait_gather(self, layer: int, _: int) -> None:
        self.model.weights["gathered" if self.zero == 3 else layer] = await self.pending.pop(f"gather {layer}")

    def reduce(self, layer: int, _: int) -> None:
        reduce = self.model.scatterreduce if self.zero else self.model.allreduce
        by_microbatch = self.zero > 1 and not self.program.by_run
        grad = self.gradients.pop() if by_microbatch else self.model.grad_weights.pop(layer)
        self.pending[f"reduce {layer}"] = reduce(grad, layer, group="dp")

    async def wait_reduce(self, layer: int, _: int) -> None:
        self.gradients.append(await self.pending.pop(f"reduce {layer}"))

    def fetch(self, layer: int, _: int) -> None:
        self.pending[f"fetch {layer}"] = self.model.fetch(self.model.parked.pop(layer))

    async def wait_fetch(self, layer: int, _: int) -> None:
        self.model.opt_states[layer] = await self.pending.pop(f"fetch {layer}")

    def park(self, layer: int, _: int) -> None:
        self.pending[f"park {layer}"] = self.model.offload(self.model.opt_states.pop(layer), "host")

    async def wait_park(self, layer: int, _: int) -> None:
        self.model.parked[layer] = await self.pending.pop(f"park {layer}")
