"""What a planned step takes, by the ledger's rules over whole numbers: time, bytes sent, and what each rank holds.

The step is a pipeline of units, with replicas that share gradients, states or weights (ZeRO). Its ranks' actions are
decided in one place (`turns`): each message has its own tag, and a rank awaits a message before it sends the next one,
so that it computes while a message is pending; gradients of a unit are reduced after its last microbatch. `walked`
counts the ticks and bytes of these actions, `rank_memory` and `most_sent` what ranks hold and send, and `planned`
plays them on the Model. The tests compare all of these with runs of all ranks for every kind of split: ticks are equal,
and so are the bytes of the first replica. If the replicas do not divide the parameters of a unit, some other replicas
hold one element more in each shard.

A search estimates thousands of actions in a millisecond, since little of a step is new. What a rank does for a cell
depends on the cell's stage and operation and on what is pending, so most microbatches repeat the pattern of an earlier
one. What a pattern takes once its message is there depends on when pending calls end, relative to its start; so each
such outcome is counted once. All microbatches are counted. An earlier version counted a few, and continued them at the
rate of the last period. This is wrong where a rank's slack is used up slowly: `zb_v` on two stages has equal periods,
and then longer ones.
"""

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import repeat
from types import MappingProxyType
from typing import Any, NamedTuple

from lib.ledger.costs import elements_sent
from lib.pipelines import breadth_first, gpipe, interleaved, one_f_one_b, zb_h1, zb_v
from lib.pipelines.timetable import Cell, Timetable

from .job import Job
from .prices import Prices, prices, units_of, widths, with_holes
from .split import CHUNKED, SCHEDULES, Split

# --- Actions ---

Action = tuple[str, str, int]
"""The name of what it does to the rank's values (`values.effects_of`), an operation, and the layer it is done with. The
name is the operation, but where an operation has several effects.

a layer: `load` its weight and state, `keep` the newest gradient as its sum or `add` it to its sum, `keep_reduced` or
    `add_reduced` what a reduction has made, `release` its gathered weight, `update`, `store` its final weight
a layer, calls: `gather` the weight, `reduce` the gradient, `fetch` the state from the host, `park` the state there; and
    `wait gather` and so on, for the end of the call
a layer and the turn's microbatch: `input`, `forward`, `recompute` (forward again), `loss`, `backward`,
    `backward_input`, `backward_weight`, `drop` (the gradient of the model's input)
the turn's messages: `receive`, and the call `send`; `wait send`, for the end of the last one
"""


@dataclass(frozen=True, eq=False)
class Pattern:
    """Actions of a rank, one object for all turns that repeat them. `kind` is the number of their names and operations
    (see Program): the same actions of other layers, or of another rank, take as long and hold as much."""

    actions: tuple[Action, ...]
    kind: int


Turn = tuple[Pattern, Cell, int, int]
"""What a rank does for a cell; the numbers of the messages that it receives and sends (NONE: it has none)."""

NONE = -1


@dataclass(frozen=True, eq=False)
class Program:
    """The order of the cells, the units of the stages, and how replicas share. A stage may have no units."""

    table: Timetable
    units: tuple[int, ...]
    """The units of each stage."""
    replicated: bool = False
    zero: int = 0
    """The stage of ZeRO; 0 without replicas."""
    by_run: bool = False
    """With ZeRO 2, gradients are reduced when a rank turns to another chunk, not after each microbatch."""
    overlap: bool = True
    recompute: bool = False
    offload: bool = False
    kinds: dict[tuple[tuple[str, str], ...], int] = field(default_factory=dict)
    """The numbers of the patterns' names and operations."""

    def layers(self, stage: int) -> range:
        """The units of a stage, which are the layers of the run."""
        start = sum(self.units[:stage])
        return range(start, start + self.units[stage])

    def numbers(self, place: int, stage: int, op: str) -> tuple[int, int]:
        """The numbers of the messages that a cell of microbatch 0 receives and sends; NONE if the neighbour of its
        stage is on the same rank, or there is none. Further microbatches count on by two for each stage."""
        before, after = (stage - 1, stage + 1) if op == "F" else (stage + 1, stage - 1)
        apart = [op != "W" and self.table.ranks_of.get(other, (place,)) != (place,) for other in (before, after)]
        received, sent = (2 * of + (op != "F") if far else NONE for of, far in zip((before, stage), apart))
        return received, sent

    def layers_of(self, place: int) -> list[int]:
        return [layer for stage in self.table.stages_of(place) for layer in self.layers(stage)]


ORDERS: Mapping[str, Callable[..., Timetable]] = MappingProxyType(
    dict(zip(SCHEDULES, (one_f_one_b, gpipe, interleaved, breadth_first, zb_h1, zb_v), strict=True))
)
"""The generator of each schedule's order."""


def program_of(job: Job, split: Split) -> Program:
    """The program of a split's ranks."""
    units, replicas = units_of(job, split)[0], split.sharing
    again, on_host = split.recompute == "full" and split.every == 1, split.offload == "states"
    table = _timetable(split.schedule, split.pp, split.batches(job), split.chunks, split.warmup)
    zero = split.zero if replicas > 1 else 0
    return Program(table, units, replicas > 1, zero, zero == 2 and split.by_run, job.overlap, again, on_host)


@lru_cache(maxsize=64)
def _timetable(schedule: str, ranks: int, batches: int, chunks: int, warmup: int) -> Timetable:
    sizes = {"v": chunks} if schedule in CHUNKED else {}
    return ORDERS[schedule](ranks, batches, **sizes, **({"warmup": warmup} if warmup else {}))


def turns(program: Program, place: int) -> Iterator[Turn]:
    """What a rank does, in order; first and last for the step, with a cell that is not there."""
    rank, cells = _Rank(program, place), [cell for slot in program.table.rows[place] for cell in slot]
    next_backward = _following(cells, "BW", [cell.stage for cell in cells]) if program.by_run else repeat(NONE)
    next_layer: Iterable[int | None] = repeat(None)
    if program.zero == 3 and program.overlap:
        next_layer = _following(cells, "FBI", [next(iter(rank.order(cell.stage, cell.op)), None) for cell in cells])
    numbers = {(stage, op): program.numbers(place, stage, op) for stage in rank.layers for op in OPERATIONS}
    missing, each = dict.fromkeys(rank.layers, program.table.batches), 2 * program.table.stages
    patterns: dict[Any, tuple[Pattern, _State]] = {}
    outside, state = Cell(NONE, "", 0), _State()
    yield rank.begin(), outside, NONE, NONE
    for cell, backward, layer in zip(cells, next_backward, next_layer):
        stage, op, batch = cell
        received, sent = numbers[stage, op]
        if op in "BW":
            missing[stage] -= 1
        key = stage, op, not missing[stage], backward == stage, layer, state
        if key not in patterns:
            patterns[key] = rank.turn(stage, op, not missing[stage], backward == stage, layer, state)
        pattern, state = patterns[key]
        shift = each * batch
        yield pattern, cell, received + shift if received >= 0 else NONE, sent + shift if sent >= 0 else NONE
    yield rank.finish(state), outside, NONE, NONE


def _following(cells: Sequence[Cell], ops: str, values: Sequence[int | None]) -> list[int | None]:
    """For each cell, the value of the next cell with one of these operations that has a value."""
    later, following = None, list[int | None]()
    for cell, value in zip(reversed(cells), reversed(values)):
        following.append(later)
        later = value if cell.op in ops and value is not None else later
    return following[::-1]


class _State(NamedTuple):
    """What a rank has between two turns: the layer whose weight is gathered, and that whose weight is being gathered;
    the stages with a sum of gradients, and the layers with a sum of reduced gradients; the layers whose gradients are
    being reduced; and the name of the wait for the last message sent."""

    gathered: int | None = None
    coming: int | None = None
    summed: frozenset[int] = frozenset()
    reduced: frozenset[int] = frozenset()
    reducing: tuple[int, ...] = ()
    sending: str = ""


OPERATIONS = {"F": "forward", "B": "backward", "I": "backward_input", "W": "backward_weight"}


class _Rank:
    """Expands the turns of a rank."""

    def __init__(self, program: Program, place: int) -> None:
        self.program, self.place, self.zero = program, place, program.zero
        self.layers = {stage: program.layers(stage) for stage in program.table.stages_of(place)}
        self.mine = [layer for layers in self.layers.values() for layer in layers]
        self.inputs = frozenset(self.mine)
        """Layers of which the rank keeps the input; other activations only pass the border of a stage."""
        self.actions: list[Action] = []

    def do(self, operation: str, layer: int, name: str = "") -> None:
        self.actions.append((name or operation, operation, layer))

    def pattern(self) -> Pattern:
        """What was done since the last call."""
        actions, self.actions = self.actions, []
        kinds = self.program.kinds
        return Pattern(tuple(actions), kinds.setdefault(tuple([action[:2] for action in actions]), len(kinds)))

    def order(self, stage: int, op: str) -> Sequence[int]:
        """The layers of a cell, in order of use."""
        return self.layers[stage] if op == "F" else self.layers[stage][::-1]

    def begin(self) -> Pattern:
        for layer in self.mine:
            self.do("load", layer)
        return self.pattern()

    def turn(
        self, stage: int, op: str, last: bool, run_goes_on: bool, next_layer: int | None, state: _State
    ) -> tuple[Pattern, _State]:
        """What a rank does for a cell: its stage's `last` microbatch, one in a run of microbatches that goes on, or one
        before another cell uses the weight of `next_layer`."""
        self.gathered, self.coming, self.summed, self.reduced, self.reducing, sending = state
        program, operation = self.program, OPERATIONS[op]
        received, sent = program.numbers(self.place, stage, op)
        if received != NONE:
            kept = "receive" if self.layers[stage] else "receive to border"
            self.do("receive", 0, kept if op == "F" else "receive of a gradient")
        if op == "F" and stage == 0:
            self.do("input", 0, "input" if 0 in self.inputs else "input to border")
        order = self.order(stage, op)
        for layer, after in zip(order, [*order[1:], next_layer]):
            if self.zero == 3 and op != "W":
                self.weight(layer, after)
            if program.recompute and op == "B":
                self.do("recompute", layer)
            self.do(operation, layer, "forward to border" if op == "F" and layer + 1 not in self.inputs else operation)
            if op in "BW":
                if self.zero < 2 or program.by_run:
                    self.do("add" if stage in self.summed else "keep", layer)
                if self.zero > 1:
                    if not run_goes_on:
                        self.reduce_now(layer)
                elif last and program.replicated and program.overlap:
                    self.reduce(layer)
        if op in "BW":
            self.summed = self.summed - {stage} if self.zero > 1 and not run_goes_on else self.summed | {stage}
        if op == "F" and stage == program.table.stages - 1:
            self.do("loss", self.layers[stage].stop - 1)
        if op in "BI" and stage == 0:
            self.do("drop", 0)
        if sent != NONE:
            if sending:
                self.do("wait send", 0, sending)
            self.do("send", 0)
            sending = "wait send" if op == "F" else "wait send of a gradient"
        state = _State(self.gathered, self.coming, self.summed, self.reduced, self.reducing, sending)
        return self.pattern(), state

    def weight(self, layer: int, after: int | None) -> None:
        """Provides the full weight of a layer (ZeRO 3). The weight used `after` it is gathered while it computes."""
        if self.gathered != layer:
            if self.gathered is not None:
                self.do("release", self.gathered)
            if self.coming is None:
                self.do("gather", layer)
            self.do("wait gather", layer)
            self.gathered, self.coming = layer, None
        if self.program.overlap and after not in (None, layer):
            self.coming = after
            self.do("gather", after)

    # --- Gradients ---

    def reduce_now(self, layer: int) -> None:
        """Reduces the gradient of one microbatch, or of a run of microbatches (ZeRO 2 and 3), during computation."""
        self.settle()
        self.reduce(layer)
        if not self.program.overlap:
            self.settle()

    def reduce(self, layer: int) -> None:
        self.reducing += (layer,)
        self.do("reduce", layer)

    def settle(self) -> None:
        for layer in self.reducing:
            self.do("wait reduce", layer)
            self.do("add_reduced" if layer in self.reduced else "keep_reduced", layer)
        self.reduced |= {*self.reducing}
        self.reducing = ()

    # --- The end of the step ---

    def finish(self, state: _State) -> Pattern:
        """Updates each layer when its gradient is there. With ZeRO 1 and 2 each rank updates its shard, and gathers the
        weight. A state is fetched from the host while the previous one is used."""
        program = self.program
        self.gathered, _, _, self.reduced, self.reducing, sending = state
        if sending:
            self.do("wait send", 0, sending)
        if self.gathered is not None:
            self.do("release", self.gathered)
        if self.zero > 1:
            self.settle()
        elif program.replicated and not program.overlap:
            for layer in reversed(self.mine):
                self.reduce(layer)
        order = self.reducing or tuple(reversed(self.mine))
        parking: int | None = None
        for layer, after in zip(order, [*order[1:], None]):
            if self.reducing:
                self.do("wait reduce", layer)
                self.do("keep_reduced", layer)
            if program.offload:
                if parking is None:
                    self.do("fetch", layer)
                self.do("wait fetch", layer)
                if after is not None:
                    self.do("fetch", after)
            self.do("update", layer)
            if program.offload:
                if parking is not None:
                    self.do("wait park", parking)
                self.do("park", layer)
                parking = layer
            if self.zero in (1, 2):
                self.do("gather", layer)
        if parking is not None:
            self.do("wait park", parking)
        if self.zero in (1, 2):
            for layer in order:
                self.do("wait gather", layer)
        for layer in order:
            self.do("store", layer)
        return self.pattern()


# --- What ranks hold: the values, their bytes, and how each action changes their number ---

KINDS = ("weights", "gradients", "states", "activations", "ends", "workspace")
"""Kinds of memory: `ends` are the embedding, the head and its logits."""

WEIGHT, GATHERED, WEIGHT_SHARD = "weights", "gathered weights", "shards of weights"
GRADIENT, REDUCING = "gradients of weights", "gradients that are being reduced"
GRADIENT_SHARD = "shards of gradients of weights"
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
"""The kind of each value."""


def sizes_of(priced: Prices, program: Program) -> Mapping[str, int]:
    """Bytes of each value; shards are those of the first replica."""
    elements = priced.parameters // priced.replicas
    shards = [
        round(elements * (full // priced.parameters) * priced.shard)
        for full in (priced.weight, priced.gradient, priced.state)
    ]
    return {
        **dict(zip((WEIGHT_SHARD, GRADIENT_SHARD, STATE_SHARD), shards)),
        WEIGHT: priced.weight,
        GATHERED: priced.gathered,
        GRADIENT: priced.gradient,
        REDUCING: priced.reduced,
        STATE: priced.state,
        KEPT: priced.kept,
        OUTPUT: priced.border,
        INPUT_GRADIENT: priced.border,
    }


class Effect(NamedTuple):
    """The change of a rank's values by an action: by how many `after` its end (of a call: its start), and `before` its
    start. `operation` is the ledger's; memory is sampled when it starts. An action without one only renames or drops.
    """

    operation: str = ""
    after: Mapping[str, int] = MappingProxyType({})
    before: Mapping[str, int] = MappingProxyType({})


def effects_of(program: Program) -> Mapping[str, Effect]:
    """The effect of each action by its name. An all-reduce is in place, as with NCCL."""
    zero = program.zero
    gradient = REDUCING if zero > 1 else GRADIENT
    reduced, state = (GRADIENT_SHARD, STATE_SHARD) if zero else (GRADIENT, STATE)
    is_cut = zero in (1, 2)
    """The update has a shard of the weight, and gathers it."""
    return {
        "load": Effect(after={WEIGHT_SHARD if zero == 3 else WEIGHT: 1, **({} if program.offload else {state: 1})}),
        "input": Effect(after={KEPT: 1}),
        "input to border": Effect(after={OUTPUT: 1}),
        "forward": Effect("forward", {KEPT: 1}),
        "forward to border": Effect("forward", {OUTPUT: 1}),
        "recompute": Effect("forward"),
        "loss": Effect("loss", {OUTPUT: -1, INPUT_GRADIENT: 1}),
        "backward": Effect("backward", {KEPT: -1, gradient: 1}),
        "backward_input": Effect("backward_input", {INPUT_GRADIENT: 1}),
        "backward_weight": Effect("backward_weight", {INPUT_GRADIENT: -1, KEPT: -1, gradient: 1}),
        "drop": Effect(after={INPUT_GRADIENT: -1}),
        "keep": Effect(),
        "keep_reduced": Effect(),
        "add": Effect(after={gradient: -1}),
        "add_reduced": Effect(after={reduced: -1}),
        "release": Effect(after={GATHERED: -1}),
        "update": Effect("update", {reduced: -1}, {WEIGHT: -1, WEIGHT_SHARD: 1} if is_cut else {}),
        "store": Effect("set_final_weight"),
        "gather": Effect("allgather", {GATHERED if zero == 3 else WEIGHT: 1}),
        "wait gather": Effect(after={WEIGHT_SHARD: -1} if is_cut else {}),
        "reduce": Effect("scatterreduce", {reduced: 1}) if zero else Effect("allreduce"),
        "wait reduce": Effect(after={gradient: -1} if zero else {}),
        "fetch": Effect("fetch", {state: 1}),
        "wait fetch": Effect(),
        "park": Effect("offload"),
        "wait park": Effect(after={state: -1}),
        "send": Effect("pass_to"),
        "wait send": Effect(after={OUTPUT: -1}),
        "wait send of a gradient": Effect(after={INPUT_GRADIENT: -1}),
        "receive": Effect("receive", {KEPT: 1}),
        "receive to border": Effect("receive", {OUTPUT: 1}),
        "receive of a gradient": Effect("receive", {INPUT_GRADIENT: 1}),
    }


# --- Time and peak memory ---


class Estimate(NamedTuple):
    """Ticks of a step, and bytes of the fullest rank."""

    ticks: int
    peak: int


class Walked(NamedTuple):
    """A rank at the end of its step: the `ticks` until then, its `peak` in bytes, the ticks in which it computes, and
    those in which it waits for replicas (`dp`) and for the host (`host`)."""

    ticks: int
    peak: int
    busy: int
    waits: dict[str, int]


def estimate(job: Job, split: Split, eager: bool = False) -> Estimate:
    """What a step of a split takes, with bytes of fused or of eager code."""
    ranks = walked(job, split, eager)
    return Estimate(max(rank.ticks for rank in ranks), max(rank.peak for rank in ranks))


@lru_cache(maxsize=256)
def walked(job: Job, split: Split, eager: bool = False) -> tuple[Walked, ...]:
    """Each rank of the pipeline at the end of a step, with bytes of fused or of eager code."""
    priced, program = prices(job, split, eager), program_of(job, split)
    outcomes, ready, ended = _Outcomes(priced, program), dict[int, int](), dict[int, Walked]()
    waiting = [_rank(place, priced, program, outcomes, ready, ended) for place in range(program.table.ranks)]
    while waiting:
        waiting = [rank for rank in waiting if next(rank, False)]
    return tuple(ended[place] for place in range(program.table.ranks))


LANES = {"gather": "dp", "reduce": "dp", "fetch": "from host", "park": "to host", "send": "messages"}
"""The lane of each call, on which one call follows the other."""

WAITS = {f"wait {call}": call for call in LANES}

Pending = tuple[tuple[str, int], ...]
"""The calls that a rank has to wait for, and the ticks until each ends."""


class TurnFigures(NamedTuple):
    """What a turn takes once its message is there: its ticks, those in which it computes, and in which it waits for
    replicas and for the host; the most bytes at a start of its actions, and the bytes at its end, relative to its
    start; the ticks until the message that it sends arrives; and the calls that are pending at its end."""

    ticks: int
    busy: int
    dp: int
    host: int
    most: int
    change: int
    arrival: int
    pending: Pending


class _Outcomes(dict[tuple[int, Pending], TurnFigures]):
    """The outcome of each turn, counted once for all turns with the same kind of pattern and pending calls."""

    def __init__(self, priced: Prices, program: Program) -> None:
        self.program, self.patterns, sizes = program, [*program.kinds], sizes_of(priced, program)
        ticks = {
            **dict.fromkeys(("forward", "forward to border", "recompute"), priced.forward),
            "loss": priced.loss,
            "backward": priced.back_input + priced.back_weight,
            "backward_input": priced.back_input,
            "backward_weight": priced.back_weight,
            "update": priced.update,
            **dict.fromkeys(("fetch", "park"), priced.copy),
            "gather": priced.gather,
            "reduce": priced.reduce,
            "send": priced.message,
        }

        def total(values: Mapping[str, int]) -> int:
            return sum(number * sizes[what] for what, number in values.items())

        self.costs = {
            name: (total(effect.before) if effect.operation else None, ticks.get(name, 0), total(effect.after))
            for name, effect in effects_of(program).items()
        }
        """By the name of an action: bytes added before its start (None: memory is not sampled), ticks, bytes added at
        its end."""

    def __missing__(self, key: tuple[int, Pending]) -> TurnFigures:
        kind, pending = key
        clock = busy = memory = arrival = 0
        most = -(10**30)
        ends = {call: deque[int]() for call in LANES}
        lanes, waits = dict.fromkeys(LANES.values(), 0), dict.fromkeys(LANES.values(), 0)
        for call, end in pending:
            ends[call].append(end)
            lanes[LANES[call]] = max(lanes[LANES[call]], end)
        if kind >= len(self.patterns):
            self.patterns = [*self.program.kinds]
        for name, operation in self.patterns[kind]:
            before, ticks, after = self.costs[name]
            if before is not None:
                memory += before
                if memory > most:
                    most = memory
            memory += after
            if operation in LANES:
                lane = LANES[operation]
                lanes[lane] = arrival = (clock if clock > lanes[lane] else lanes[lane]) + ticks
                ends[operation].append(arrival)
            elif operation in WAITS:
                call = WAITS[operation]
                end = ends[call].popleft()
                if end > clock:
                    waits[LANES[call]] += end - clock
                    clock = end
            elif ticks:
                clock += ticks
                busy += ticks
        still = tuple((call, max(0, end - clock)) for call in LANES for end in ends[call])
        host = waits["from host"] + waits["to host"]
        self[key] = TurnFigures(clock, busy, waits["dp"], host, most, memory, arrival, still)
        return self[key]


def _rank(
    place: int, priced: Prices, program: Program, outcomes: _Outcomes, ready: dict[int, int], ended: dict[int, Walked]
) -> Generator[bool, None, None]:
    """Counts the turns of a rank; yields when it needs a message that has not been sent. `ready` maps messages to the
    times at which they arrive. Memory is sampled when a computation or a call starts."""
    clock = memory = peak = busy = dp = host = 0
    pending: Pending = ()
    for pattern, _, received, sent in turns(program, place):
        if received != NONE:
            while received not in ready:
                yield True
            wait = ready[received] - clock
            if wait > 0:
                clock += wait
                pending = tuple([(call, end - wait if end > wait else 0) for call, end in pending])
        ticks, computed, for_dp, for_host, most, change, arrival, pending = outcomes[pattern.kind, pending]
        if sent != NONE:
            ready[sent] = clock + arrival
        if memory + most > peak:
            peak = memory + most
        clock += ticks
        memory += change
        busy += computed
        dp += for_dp
        host += for_host
    stages = program.table.stages_of(place)
    fixed = priced.workspace + (priced.first if 0 in stages else 0)
    fixed += priced.last if program.table.stages - 1 in stages else 0
    ended[place] = Walked(clock, peak + fixed, busy, {"dp": dp, "host": host})


def memory_range(job: Job, split: Split) -> tuple[int, int]:
    """Bytes of the fullest GPU in fused code, and the most that eager code reserves."""
    low = estimate(job, split).peak
    return low, max(low, with_holes(job, split, estimate(job, split, eager=True).peak))


# --- Memory by kind, and bytes sent ---


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


def actions_of(program: Program, place: int) -> Iterator[Action]:
    """What a rank does, in order."""
    return (action for pattern, _, _, _ in turns(program, place) for action in pattern.actions)


FIXED = {"ends": "embedding, head and logits", "workspace": "activations of a layer that is computed again"}


def fullest(program: Program, place: int, sizes: Mapping[str, int]) -> tuple[Counter[str], str]:
    """The values of a rank at its fullest moment, and the operation that starts then."""
    effects, counts = effects_of(program), Counter[str]()
    most, peak, operation, number = -1, counts, "", 0
    for name, _, _ in actions_of(program, place):
        effect = effects[name]
        for what, by in effect.before.items():
            counts[what] += by
            number += by * sizes[what]
        if effect.operation and number > most:
            most, peak, operation = number, counts.copy(), effect.operation
        for what, by in effect.after.items():
            counts[what] += by
            number += by * sizes[what]
    return peak, operation


def rank_memory(job: Job, split: Split, place: int, fused: Walked, eager: Walked) -> RankMemory:
    priced, program = prices(job, split), program_of(job, split)
    sizes, stages = sizes_of(priced, program), program.table.stages_of(place)
    values, operation = fullest(program, place, sizes)
    ends = (priced.first if 0 in stages else 0) + (priced.last if program.table.stages - 1 in stages else 0)
    low = {**dict.fromkeys(KINDS[:4], 0), "ends": ends, "workspace": priced.workspace}
    shares = [PeakShare(what, number, number * sizes[what]) for what, number in values.items() if number]
    for share in shares:
        low[KIND_OF[share.what]] += share.bytes
    shares += [PeakShare(what, 1, low[kind]) for kind, what in FIXED.items() if low[kind]]
    shares.sort(key=lambda share: (-share.bytes, share.what))
    high = max(with_holes(job, split, eager.peak), fused.peak)
    layers = len(program.layers_of(place)) * priced.layers
    return RankMemory(place, layers, low, high, operation, tuple(shares))


SENT = ("messages", "gradients", "weights", "host")
"""Kinds of bytes that a rank sends in the pipeline and to its replicas."""


def most_sent(job: Job, split: Split) -> Mapping[str, int]:
    """Bytes by kind (see SENT) of the rank that sends the most."""
    priced, program, wide = prices(job, split), program_of(job, split), widths(job, split)
    n, elements, reduce = priced.replicas, priced.parameters, "scatterreduce" if program.zero else "allreduce"
    shard = elements // n if program.zero else elements
    of_call: dict[str, tuple[str, Fraction | int]] = {
        "send": ("messages", priced.border),
        "gather": ("weights", elements_sent("allgather", shard, n) * wide.gathered),
        "reduce": ("gradients", elements_sent(reduce, elements, n) * job.gradient),
        **dict.fromkeys(("fetch", "park"), ("host", shard * wide.state * priced.shard)),
    }
    totals = []
    for place in range(split.pp):
        sent: dict[str, Fraction | int] = dict.fromkeys(SENT, 0)
        for _, operation, _ in actions_of(program, place):
            if operation in of_call:
                kind, number = of_call[operation]
                sent[kind] += number
        totals.append({kind: round(number) for kind, number in sent.items()})
    return max(totals, key=lambda sent: sum(sent.values()))
