"""Replays a schedule's trace with real tensors, and compares weights, memory and bytes with the predictions.

Devices are in this process, or processes of MPI or torch. Measured events are placed in time by the rules of the
trace's walk, not by a clock: in one process, devices take turns.

How a rank plays is left to `rank`, and what is compared to `comparison`. An operation that no tensor stands for is
refused by name before anything runs.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple, cast

from lib.engine.engine import ShardedEngine
from lib.engine.launcher import launch
from lib.engine.replay.comparison import RankReplay, compared, error_of
from lib.engine.replay.pipelining import RecordingEngine, names_of
from lib.engine.replay.rank import PERFORM, TIERS, OrderedRecomputation, ReplayEngine
from lib.engine.replay.workload import TOLERANCE, Workload, odd_kinds
from lib.errors import Sentences, TraceError
from lib.ledger.algebra import counted
from lib.ledger.collectives import COLLECTIVES
from lib.ledger.goal import Goal
from lib.ledger.lanes import Cursor, Walk
from lib.ledger.meetings import Call
from lib.ledger.setting import Game
from lib.ledger.trace import FORMS, TIMED, Op, Trace, group_of
from lib.ledger.trace_json import trace_from_json

# --- Places each measured event of a replay in time ---
#
# The measurements are the working times of events. From these, the clock runs as in the game: a collective starts when
# the last rank arrives and takes as long as its fastest rank, since the others were waiting; a message can be received
# once it is sent; an overlapped call runs on its lane. So the picture shows devices that run at the same time, even if
# they took turns.


class TimedEvent(NamedTuple):
    """One event: its operation, layer, start and end; for an overlapped call also when it was made, and when its rank
    began to wait for it."""

    name: str
    layer: int | None
    start: float
    end: float
    called: float | None = None
    awaited: float | None = None


def measured(trace: Trace, seconds: Sequence[Sequence[float]]) -> tuple[tuple[TimedEvent, ...], ...]:
    """Every rank's events, in seconds, from the working times of its events."""
    clocks = [RankClock(rank, ops) for rank, ops in enumerate(trace.ranks)]
    for clock, took in zip(clocks, seconds):
        clock.seconds = dict(zip([i for i, op in enumerate(clock.ops) if op.name in TIMED], took, strict=True))
    MeasuredWalk(clocks, trace).walk()
    return tuple(tuple(event for _, event in sorted(clock.events.items())) for clock in clocks)


@dataclass(slots=True, eq=False)
class RankClock(Cursor):
    """One rank: the working time of each event, and the events so far, by index of the operation."""

    seconds: dict[int, float] = field(default_factory=dict)
    events: dict[int, TimedEvent] = field(default_factory=dict)

    @property
    def took(self) -> float:
        return self.seconds[self.at]

    def add(self, op: Op, start: float, length: float) -> None:
        self.clock = start + length
        self.events[self.at] = TimedEvent(op.name, op.layer, start, self.clock)


class MeasuredWalk(Walk[RankClock]):
    def __init__(self, clocks: Sequence[RankClock], trace: Trace) -> None:
        super().__init__(Game.of(trace.size, trace.setting), clocks, buffered=True)  # as the engine's sends are

    def on_local(self, cursor: RankClock, op: Op) -> None:
        if op.name in TIMED:
            cursor.add(op, cursor.clock, cursor.took)

    def on_call(self, cursor: RankClock, op: Op) -> Call:
        return self.call(cursor, op, group_of(op) if op.name in COLLECTIVES else None, (None,) * len(op.inputs))

    def require_inputs(self, call: Call) -> None:
        pass

    def ticks(self, calls: Sequence[Call], outputs: Sequence[Any]) -> Any:
        return min(self.cursors[call.rank].seconds[call.at] for call in calls)

    def perform(self, calls: Sequence[Call]) -> list[tuple[Any, ...]]:
        return [(None,) * len(call.op.outputs) for call in calls]

    def on_end(self, cursor: RankClock, call: Call) -> None:
        beside = (call.clock,) if call.name in self.on_lanes else ()
        cursor.events[call.at] = TimedEvent(call.name, call.op.layer, call.start, call.end, *beside)

    def on_receive(self, cursor: RankClock, op: Op, sender: RankClock, sent_at: int) -> None:
        # The time in receive is mostly waiting; copying took as long as it took to send.
        arrived = sender.events[sent_at].end
        cursor.add(op, max(cursor.clock, arrived), min(cursor.took, sender.seconds[sent_at]))

    def on_await(self, cursor: RankClock, op: Op, call: Call) -> None:
        super().on_await(cursor, op, call)
        cursor.events[call.at] = cursor.events[call.at]._replace(awaited=cursor.clock)


# --- The replay ---

NO_TENSORS = ("given", "store", "delete", "await")
"""Operations that touch no tensor. A `given` value was made by hand, and is refused where it is used."""


WIDTHS = 16
"""Widths are multiples of this, so that ranks can split matrices."""


@dataclass(frozen=True)
class Replay:
    """The findings of a replay. `error` is the largest difference of an updated weight or an output from a single
    device's, divided by the largest one; 0 in whole numbers. Times in `measured` are in seconds."""

    on: str
    small: bool
    error: float
    ranks: tuple[RankReplay, ...]
    measured: tuple[tuple[TimedEvent, ...], ...]
    results: str = "weights"
    """What was compared: "weights", or the "outputs" of inference."""
    notes: tuple[str, ...] = ()
    """How the tensors differ from the game's values."""
    width: int = 0
    """The size of a layer's matrix."""
    runs: int = 1
    """How many runs were measured, after one to warm up; times are their medians."""

    @property
    def same_weights(self) -> bool:
        """True if the results equal a single device's."""
        return self.error <= (0.0 if self.small else TOLERANCE)

    @property
    def passed(self) -> bool:
        return self.same_weights and all(rank.same for rank in self.ranks)


def require_playable(trace: Trace) -> None:
    if trace.costs.weight % trace.costs.hidden**2:
        raise TraceError(SAYS("no whole matrices", costs=trace.costs.name, weight=trace.costs.weight))
    for rank, ops in enumerate(trace.ranks):
        for op in ops:
            if op.name not in PERFORM and op.name not in NO_TENSORS:
                raise TraceError(SAYS("cannot be played", name=op.name, rank=rank, line=op.line))
            form = FORMS[op.name]
            for argument, tier in zip(form.args + form.optional, op.args):
                if argument == "tier" and tier is not None and tier not in TIERS:
                    raise TraceError(
                        SAYS(
                            "tier not replayed",
                            rank=rank,
                            name=op.name,
                            tier=tier,
                            line=op.line,
                            tiers=" and ".join(TIERS),
                            tier_here=TIERS[0],
                        )
                    )


def replay(
    trace: Trace,
    on: str = "inprocess",
    small: bool = False,
    goal: Goal | None = None,
    device: str = "cpu",
    profile: str = "",
    time_limit: float | None = None,
    width: int = 0,
    runs: int = 1,
) -> Replay:
    """Executes a trace with real tensors, one device per rank, and compares the results with a single device's.

    `on`, `device` and `time_limit` are as in `launch`. On torch, torch.profiler records another run into the folder
    `profile`. `small` uses tensors of 16 x 16 and whole numbers, `width` matrices of this size. With a `goal`, the
    rules of a puzzle apply. The first run is compared and warms up; then `runs` are measured.

    Bytes are predicted from the sizes of tensors. Costs may price an activation gradient below an activation
    (`Costs.gradient`), since a block's activation is all that its forward leaves; both tensors have the same size.
    Costs may count more elements for a weight (`Costs.parameters`); its tensor is hidden x hidden.
    """
    require_playable(trace)
    names = names_of(trace) if profile else []
    recomputation = OrderedRecomputation(trace, strict=goal is not None)
    recomputation.run()
    if recomputation.made_up:
        raise TraceError(
            f"there is no tensor for {recomputation.made_up[0]}; get every value from the model's operations"
        )
    if runs < 1 or width < 0 or width % WIDTHS or (small and width):
        raise TraceError(
            SAYS("impossible measurement", WIDTHS=WIDTHS, runs=counted(runs, "run"), width=width, small=small)
        )
    workload, ranks = Workload(trace.size, trace.setting, small, width), recomputation.ranks
    arguments = len(trace.ranks), recomputation.scripts(workload.shapes), workload
    options: Any = {"on": on, "device": device, "time_limit": time_limit}
    with launch(ReplayEngine, *arguments, **options) as run:
        played, declared, meters = run.forward(0), run.call("declared"), run.meters
        repeated = [run.call("again") for _ in range(runs)]
    if profile:
        with launch(RecordingEngine, *arguments, names, profile, **options, metered=False) as run:
            run.forward(0)
    return Replay(
        on,
        small,
        error_of(workload, declared, ranks),
        tuple(compared(state, workload, *rank) for state, *rank in zip(ranks, played, meters)),
        measured(trace, [[median(event) for event in zip(*times)] for times in zip(*repeated)]),
        "outputs" if trace.setting.task == "infer" else "weights",
        tuple(_notes(trace)),
        workload.shapes.hidden,
        runs,
    )


LEAST_CELL = 1e-3
"""Seconds that a product of a layer takes at least at the usual width."""

LARGEST = 16_384


class ProductTimer(ShardedEngine):
    """Measures products of matrices on one device."""

    def load_checkpoint(self, params: Any) -> None:
        """Does nothing: matrices are made."""

    def forward(self, x: dict[str, int]) -> float:
        """Seconds of a product of matrices of length x width and width x width, the median of three after one."""
        length, width = x["length"], x["width"]
        left, right = self.xp.ones((length, width)), self.xp.ones((width, width))
        library, seconds = cast(Any, self._port).library, []
        for _ in range(4):
            start = perf_counter()
            left @ right
            library.synchronize()
            seconds.append(perf_counter() - start)
        return median(seconds[1:])


def usual_width(trace: Trace, device: str, time_limit: float | None = None) -> int:
    """The width of the trace's costs, doubled until a layer's product takes a millisecond on torch on this `device`."""
    width, length = trace.costs.hidden, trace.costs.length
    with launch(ProductTimer, 1, on="torch", device=device, metered=False, time_limit=time_limit) as run:
        while run.forward({"length": length, "width": width})[0] < LEAST_CELL and width < LARGEST:
            width, length = 2 * width, 2 * length
    return width


def _notes(trace: Trace) -> Iterator[str]:
    gradient, activation = trace.costs.activation_grad, trace.costs.activation
    if gradient != activation:
        yield (
            f"The costs {trace.costs.name!r} count {gradient:,} elements for an activation gradient and {activation:,} "
            "for an activation. Both tensors have the size of an activation, and predictions use it."
        )
    if trace.costs.parameters is not None:
        yield (
            f"The costs {trace.costs.name!r} count {trace.costs.weight:,} elements for a layer's weight. Its tensor "
            f"has {trace.costs.hidden} x {trace.costs.hidden} numbers, and predictions use that size."
        )
    if trace.costs.moments > 1:
        yield (
            f"The costs {trace.costs.name!r} count {trace.costs.moments} times a weight's elements for its optimizer "
            "state. Here one tensor as large as the weight stands for it, and predictions use its size."
        )
    if trace.setting.layer == "attention" and trace.costs.keys_and_values != activation:
        yield (
            f"The costs {trace.costs.name!r} count {trace.costs.keys_and_values:,} elements for keys and values. Here "
            f"one tensor of {activation:,} stands for both, and predictions use its size."
        )
    if kinds := odd_kinds(trace.setting):
        yield f"Weights of the kind {', '.join(kinds)} differ in size from other layers' weights; their tensors do not."


def replay_from_json(text: str) -> Replay:
    """Reads a replay that `replay_to_json` has written."""
    data: dict[str, Any] = json.loads(text)
    times = tuple(tuple(TimedEvent(*event) for event in rank) for rank in data.pop("measured"))
    ranks = tuple(RankReplay(**rank) for rank in data.pop("ranks"))
    return Replay(ranks=ranks, notes=tuple(data.pop("notes")), measured=times, **data)


def replay_to_json(result: Replay) -> str:
    return json.dumps(asdict(result))


def answer(request: str) -> str:
    """Replays the trace of a request in one of several processes under mpiexec."""
    asked = json.loads(request)
    return replay_to_json(replay(trace_from_json(asked["trace"]), "mpi", asked["small"]))


SAYS = Sentences(
    {
        "no whole matrices": "a replay's weights are hidden x hidden, and the costs {costs!r} give a layer {weight:,} parameters, which is not a whole number of matrices; leave it out of the costs",
        "cannot be played": "a replay cannot play {name}; rank {rank} calls it on line {line}",
        "tier not replayed": "rank {rank} calls {name} with the tier {tier!r} on line {line}, and the devices of a replay have {tiers} only; name the tier {tier_here!r}",
        "impossible measurement": "a replay measures at least 1 run, of matrices whose width is a multiple of {WIDTHS} unless they are small; got {runs}, width {width}, small {small}",
    }
)
"""The refusals of this chapter: a reason, and a sentence over its facts."""
