"""What a planned step takes: time, bytes sent, and what each rank holds at its peak, in fused or eager code.

The ticks and the waits are those of `timing`. What a rank holds and sends follows from its actions alone, whatever
their times are; so it is counted here action by action, by kind, and no run is needed. The tests compare it with runs
of all ranks.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

from lib.game.ring import elements_sent
from lib.schedules.cells import Message

from .actions import Action, OpIndex, Program, actions, program_of
from .cost_model import prices
from .job import Job
from .memory_model import widths, with_holes
from .split import Split
from .timing import Walked, walked

KINDS = ("weights", "gradients", "states", "activations", "ends", "workspace")
"""Kinds of memory: `ends` are the embedding, the head and its logits."""


class PeakShare(NamedTuple):
    """Similar values that live at a peak: what they are, their number, and their bytes in all."""

    what: str
    number: int
    bytes: int


class RankMemory(NamedTuple):
    """A rank of the pipeline at its peak. `low` has the bytes of fused code by kind; `high` is the most that eager code
    reserves. `operation` starts at the peak; `held` lists what lives then, in fused code. `layers` is the number of
    layers of its stages."""

    rank: int
    layers: int
    low: Mapping[str, int]
    high: int
    operation: str
    held: tuple[PeakShare, ...]

    @property
    def peak(self) -> int:
        return sum(self.low.values())


WEIGHT, GATHERED, WEIGHT_SHARD = "weights", "gathered weights", "shards of weights"
GRADIENT, REDUCING, GRADIENT_SHARD = (
    "gradients of weights", "gradients that are being reduced", "shards of gradients of weights",
)  # fmt: skip
STATE, STATE_SHARD = "states of the optimizer", "shards of states of the optimizer"
KEPT, OUTPUT, INPUT_GRADIENT = "activations kept for backward", "outputs of a stage", "gradients of activations"

KIND_OF: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys((WEIGHT, GATHERED, WEIGHT_SHARD), "weights"),
        **dict.fromkeys((GRADIENT, REDUCING, GRADIENT_SHARD), "gradients"),
        **dict.fromkeys((STATE, STATE_SHARD), "states"),
        **dict.fromkeys((KEPT, OUTPUT, INPUT_GRADIENT), "activations"),
    }
)
"""The kind of each value that a rank holds."""

FIXED = {"ends": "embedding, head and logits", "workspace": "activations of a layer that is computed again"}


class _Rank:
    """The values that a rank holds, by what they are; `peak` has those of the fullest moment, and the operation that
    starts then. `sent` has the bytes that it sends by kind, see SENT."""

    def __init__(self, place: int, job: Job, split: Split, program: Program) -> None:
        self.program, self.priced = program, prices(job, split)
        self.inputs = frozenset(program.layers_of(place))
        self.held: Counter[str] = Counter()
        self.sizes = sizes_of(job, split, program)
        self.bytes, self.most = 0, -1
        self.peak: tuple[Counter[str], str] = Counter(), ""
        self.sent: dict[str, Fraction] = dict.fromkeys(SENT, Fraction())
        zero, wide, elements = program.zero, widths(job, split), self.priced.parameters
        self.weight = WEIGHT_SHARD if zero == 3 else WEIGHT
        self.gathered = GATHERED if zero == 3 else WEIGHT
        self.gradient = REDUCING if zero > 1 else GRADIENT
        self.reduced = GRADIENT_SHARD if zero else GRADIENT
        self.state = STATE_SHARD if zero else STATE
        shard, replicas = elements // self.priced.replicas if zero else elements, self.priced.replicas
        reduce = "scatterreduce" if zero else "allreduce"
        of_call: dict[str, tuple[str, Fraction | int]] = {
            "send": ("messages", self.priced.border),
            "gather": ("weights", elements_sent("allgather", shard, replicas) * wide.gathered),
            "reduce": ("gradients", elements_sent(reduce, elements, replicas) * job.gradient),
            **dict.fromkeys(("fetch", "park"), ("host", shard * wide.state * self.priced.shard)),
        }
        for operation, what in actions(program, place):
            getattr(self, f"_{operation}")(what)
            if operation in of_call:
                kind, number = of_call[operation]
                self.sent[kind] += number

    def change(self, what: str, by: int) -> None:
        self.held[what] += by
        self.bytes += by * self.sizes[what]

    def sample(self, operation: str) -> None:
        """Memory is sampled when a computation, a message or a call starts."""
        if self.bytes > self.most:
            self.most, self.peak = self.bytes, (self.held.copy(), operation)

    def activation(self, layer: int) -> str:
        return KEPT if layer in self.inputs else OUTPUT

    # --- One method for each action ---

    def _load(self, layer: int) -> None:
        self.change(self.weight, 1)
        if not self.program.offload:
            self.change(self.state, 1)

    def _input(self, at: OpIndex) -> None:
        self.change(self.activation(0), 1)

    def _forward(self, at: OpIndex) -> None:
        self.sample("forward")
        self.change(self.activation(at[0] + 1), 1)

    def _recompute(self, at: OpIndex) -> None:
        self.sample("forward")

    def _loss(self, at: OpIndex) -> None:
        self.sample("loss")
        self.change(self.activation(at[0] + 1), -1)
        self.change(INPUT_GRADIENT, 1)

    def _backward(self, at: OpIndex) -> None:
        self.sample("backward")
        self.change(KEPT, -1)
        self.change(self.gradient, 1)

    def _backward_input(self, at: OpIndex) -> None:
        self.sample("backward_input")
        self.change(INPUT_GRADIENT, 1)

    def _backward_weight(self, at: OpIndex) -> None:
        self.sample("backward_weight")
        self.change(INPUT_GRADIENT, -1)
        self.change(KEPT, -1)
        self.change(self.gradient, 1)

    def _drop(self, at: OpIndex) -> None:
        self.change(INPUT_GRADIENT, -1)

    def _keep(self, layer: int) -> None:
        """The newest gradient is the sum."""

    _keep_reduced = _keep

    def _add(self, layer: int) -> None:
        self.change(self.gradient, -1)

    def _add_reduced(self, layer: int) -> None:
        self.change(self.reduced, -1)

    def _release(self, layer: int) -> None:
        self.change(GATHERED, -1)

    def _update(self, layer: int) -> None:
        if self.program.zero in (1, 2):
            self.change(WEIGHT, -1)
            self.change(WEIGHT_SHARD, 1)
        self.sample("update")
        self.change(self.reduced, -1)

    def _store(self, layer: int) -> None:
        self.sample("set_final_weight")

    def _gather(self, layer: int) -> None:
        self.sample("allgather")
        self.change(self.gathered, 1)

    def _reduce(self, layer: int) -> None:
        self.sample("scatterreduce" if self.program.zero else "allreduce")
        if self.program.zero:  # an all-reduce is in place, as with NCCL
            self.change(self.reduced, 1)

    def _fetch(self, layer: int) -> None:
        self.sample("fetch")
        self.change(self.state, 1)

    def _park(self, layer: int) -> None:
        self.sample("offload")

    def _wait(self, call: Action) -> None:
        match call[0]:
            case "gather" if self.program.zero in (1, 2):
                self.change(WEIGHT_SHARD, -1)
            case "reduce" if self.program.zero:
                self.change(self.gradient, -1)
            case "park":
                self.change(self.state, -1)
            case "send":
                self.change(self.passed(call[1], received=False), -1)

    def _receive(self, message: Message) -> None:
        self.sample("receive")
        self.change(self.passed(message, received=True), 1)

    def _send(self, message: Message) -> None:
        self.sample("pass_to")

    def passed(self, message: Message, received: bool) -> str:
        if message.made.op != "F":
            return INPUT_GRADIENT
        return self.activation(self.program.layers(message.made.stage).stop) if received else OUTPUT


def sizes_of(job: Job, split: Split, program: Program) -> Mapping[str, int]:
    """Bytes of each value that a rank holds, in fused code; shards are those of the first replica."""
    priced, wide = prices(job, split), widths(job, split)
    elements = priced.parameters // priced.replicas
    weight, gradient, state = (
        round(elements * width * priced.shard) for width in (wide.weight, wide.gradient, wide.state)
    )
    return {
        WEIGHT: priced.weight, GATHERED: priced.gathered, WEIGHT_SHARD: weight,
        GRADIENT: priced.gradient, REDUCING: priced.reduced, GRADIENT_SHARD: gradient,
        STATE: priced.state, STATE_SHARD: state,
        KEPT: priced.kept, OUTPUT: priced.border, INPUT_GRADIENT: priced.border,
    }  # fmt: skip


def rank_memory(rank: _Rank, place: int, job: Job, split: Split, fused: Walked, eager: Walked) -> RankMemory:
    priced, program = prices(job, split), rank.program
    values, operation = rank.peak
    stages = program.table.stages_of(place)
    ends = (priced.first if 0 in stages else 0) + (priced.last if program.table.stages - 1 in stages else 0)
    low = {**dict.fromkeys(KINDS[:4], 0), "ends": ends, "workspace": priced.workspace}
    for what, number in values.items():
        low[KIND_OF[what]] += number * rank.sizes[what]
    held = [PeakShare(what, number, number * rank.sizes[what]) for what, number in values.items() if number]
    held += [PeakShare(what, 1, low[kind]) for kind, what in FIXED.items() if low[kind]]
    held.sort(key=lambda share: (-share.bytes, share.what))
    assert sum(low.values()) == fused.peak, "a rank's values are counted as in its estimate"
    high = max(with_holes(job, split, eager.peak), fused.peak)
    return RankMemory(place, len(rank.inputs) * priced.layers, low, high, operation, tuple(held))


# --- Time and bytes sent ---

SENT = ("messages", "gradients", "weights", "host")
"""Kinds of bytes that a rank sends in the pipeline and to its replicas."""


class Figures(NamedTuple):
    """The `ticks` of the step, the ticks that each rank computes, the memory of each rank, by kind (see SENT) the bytes
    of the rank that sends the most, and the mean ticks in which a rank waits for replicas (`dp`) and for the host."""

    ticks: int
    busy: tuple[int, ...]
    memory: tuple[RankMemory, ...]
    sent: Mapping[str, int]
    waits: Mapping[str, float]

    @property
    def bubble(self) -> float:
        """The share of all ranks' time in which they do not compute."""
        return 1 - sum(self.busy) / (len(self.busy) * self.ticks)


def figures(job: Job, split: Split) -> Figures:
    """What a step of a split takes."""
    program = program_of(job, split)
    fused, eager = walked(job, split), walked(job, split, eager=True)
    ranks = [_Rank(place, job, split, program) for place in range(program.table.ranks)]
    memory = tuple(rank_memory(rank, place, job, split, fused[place], eager[place]) for place, rank in enumerate(ranks))
    totals = [{kind: round(total) for kind, total in rank.sent.items()} for rank in ranks]
    waits: dict[str, float] = defaultdict(float)
    for rank in fused:
        for axis, ticks in rank.waits.items():
            waits[axis] += ticks / len(fused)
    most = max(totals, key=lambda sent: sum(sent.values()))
    return Figures(max(rank.ticks for rank in fused), tuple(rank.busy for rank in fused), memory, most, waits)
