"""What each rank holds during a run, by kind and in flight, and what its peak consists of, as data and in words.

A value is charged while it is stored in a dictionary, and until its last use. Charging only what is stored would let
local variables be free; charging until Python frees an object would make figures depend on the interpreter. Memory is
sampled when an event starts, as in the original puzzles.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import NamedTuple

from lib.ledger.algebra import consecutive, named, shards_text, share_text
from lib.ledger.costs import PAIR, Costs
from lib.ledger.lanes import clocks, computing
from lib.ledger.lifetimes import Lifetimes, Span
from lib.ledger.setting import Setting
from lib.ledger.trace import Op, Trace, halves
from lib.ledger.values import (
    Activation,
    ActivationGrad,
    Batched,
    Delta,
    KeyValue,
    KeyValueGrad,
    OptState,
    OuterState,
    Parked,
    Scalar,
    Sharded,
    Value,
    Weight,
    WeightGrad,
)

from .recomputation import RankState, executed


class Profile(NamedTuple):
    """One rank's memory in elements: at the start of each event and, last, at the end of the run."""

    memory: list[int]
    lifetimes: Lifetimes


def profile(lives: Lifetimes, sizes: Sequence[int]) -> Profile:
    """Charges each value from its creation to its last use, and while it is stored. `sizes` are indexed by number.

    A final weight counts as used until the end. Memory is not sampled between events, as in the original puzzles.
    """
    return Profile(lives.sampled(lives.held, sizes), lives)


def lasting_peak(
    ops: Sequence[Op], sizes: Sequence[int], lives: Lifetimes, read: Mapping[int, int], costs: Costs
) -> int:
    """The peak, in elements, if training continued: loaded values count from the start, and sent values until they are
    read. `read` maps each pass_to, by its index, to the tick at which its message is received."""
    return max(lives.sampled(_lasting(ops, lives, read, costs), sizes))


def _lasting(ops: Sequence[Op], lives: Lifetimes, read: Mapping[int, int], costs: Costs) -> Iterator[Span]:
    loaded = {number for op in ops if op.name == "load_weights" for number in op.outputs}
    starts = list(clocks(ops, costs))
    under_way: dict[int, int] = {}  # by number: the last operation before the value has been read elsewhere
    for i, tick in read.items():
        before = bisect_left(starts, tick, lo=i) - 1
        for number in ops[i].inputs:
            under_way[number] = max(before, under_way.get(number, -1))
    for number, after, until in lives.held:
        needed = until > after
        yield number, -1 if needed and number in loaded else after, max(until, under_way.get(number, -1))


class Share(NamedTuple):
    """Elements of one kind: in the rank's dictionaries, and outside them but used later."""

    stored: int
    hidden: int


class Sample(NamedTuple):
    """The memory that a rank needs at one moment; the shares add up to its memory in the referee's report."""

    weights: Share
    opt_states: Share
    activations: Share
    gradients: Share


SHARE_OF: Mapping[type[Value], int] = {
    **dict.fromkeys((Weight, Parked), 0),
    **dict.fromkeys((OptState, OuterState), 1),
    **dict.fromkeys((Activation, KeyValue), 2),
    **dict.fromkeys((ActivationGrad, WeightGrad, KeyValueGrad, Delta, Scalar), 3),
}
"""The field of a sample to which each kind of value belongs; a parked value takes no device memory."""


def memory_by_kind(trace: Trace) -> tuple[tuple[Sample, ...], ...]:
    """For each rank, a sample at each event and one at the end of the run, as far as the trace is legal."""
    return tuple(_samples(rank, trace) for rank in executed(trace))


def _samples(rank: RankState, trace: Trace) -> tuple[Sample, ...]:
    lives = rank.liveness.lifetimes()
    kinds = [SHARE_OF[type(rank.values[number])] for number in range(len(rank.values))]
    sizes = [rank.values[number].memory(trace.costs) for number in range(len(rank.values))]
    shares: list[Sequence[Share]] = []
    for kind in range(len(Sample._fields)):
        held = lives.sampled([span for span in lives.held if kinds[span[0]] == kind], sizes)
        stored = lives.sampled([span for span in lives.stored if kinds[span[0]] == kind], sizes)
        shares.append([Share(inside, all_of_it - inside) for inside, all_of_it in zip(stored, held)])
    return tuple(map(Sample, *shares))


Piece = tuple[tuple[int, ...], int]
"""A chunk, which is a run of consecutive layers, and a microbatch."""


def inflight(trace: Trace, m_b: float = 1, m_w: float = 1, chunk: int = 0) -> tuple[float, ...]:
    """For each rank, the most microbatches of a chunk that it holds at once, in program order.

    A piece weighs `m_b` from its forward to the input half of its backward, and then `m_w` to the weight half: the M_B
    and M_W of Qi et al. 2024, section 2.3. A full backward ends both. A chunk has `chunk` layers, or by default all
    consecutive layers of a rank.
    """
    return tuple(_most(ops, m_b, m_w, chunk) for ops in trace.ranks)


def _most(ops: Sequence[Op], m_b: float, m_w: float, chunk: int) -> float:
    chunk_of = _chunks((op.layer for op in ops if op.name in ("forward", PAIR) and op.layer is not None), chunk)
    to_input: dict[Piece, set[int]] = {}
    to_weight: dict[Piece, set[int]] = {}
    most = 0.0
    for op in (half for whole in ops for half in halves(whole)):
        if op.layer not in chunk_of or not op.batches:
            continue
        for batch in op.batches:
            piece = chunk_of[op.layer], batch
            if op.name == "forward":
                to_input.setdefault(piece, set()).add(op.layer)
                to_weight.setdefault(piece, set()).add(op.layer)
            if op.name in ("backward", "backward_input"):
                _done(to_input, piece, op.layer)
            if op.name in ("backward", "backward_weight"):
                _done(to_weight, piece, op.layer)
        most = max(most, m_b * len(to_input) + m_w * len(to_weight.keys() - to_input.keys()))
    return most


def _done(left: dict[Piece, set[int]], piece: Piece, layer: int) -> None:
    layers = left.get(piece, set())
    layers.discard(layer)
    if not layers:
        left.pop(piece, None)


def _chunks(layers: Iterable[int], chunk: int) -> dict[int, tuple[int, ...]]:
    """The chunk of each layer: `chunk` layers, or the longest run of a rank's layers that includes it."""
    runs = consecutive(set(layers))
    if chunk:
        runs = [[*part] for run in runs for _, part in groupby(run, lambda layer: layer // chunk)]
    return {layer: tuple(run) for run in runs for layer in run}


# --- A peak: every value charged at that moment, and when it is read again, if ever ---


class Item(NamedTuple):
    """One value that is charged at the peak.

    `fate` says when it is read: "now", by the event that starts at the peak; "later"; "awaited", by a pending call;
    "kept", only after the run (a final weight or its optimizer state); "never". `line` is the line that made it, 0 if
    unknown; `read` is the clock, in ticks, of the next operation that reads it, or None. `in_call` is True if it is not
    stored, and a pending call uses or makes it.
    """

    value: Value
    elements: int
    stored: bool
    fate: str
    line: int
    read: int | None
    in_call: bool = False


class PeakContents(NamedTuple):
    """The peak of a run: its elements, rank and time in ticks, the event that starts then (None: the end of the run),
    and the charged values. The elements of the items add up to `memory`."""

    memory: int
    rank: int
    tick: int
    event: Op | None
    items: tuple[Item, ...]
    setting: Setting

    @property
    def costs(self) -> Costs:
        return self.setting.costs


def peak_contents(ranks: Sequence[RankState], profiles: Sequence[Profile], setting: Setting) -> PeakContents:
    """The contents of a run's peak: the first moment with the most memory, on the first rank that reaches it."""
    rank = max(range(len(ranks)), key=lambda rank: max(profiles[rank].memory))
    state, prof = ranks[rank], profiles[rank]
    ops, lives, costs = state.done, prof.lifetimes, setting.costs
    times = list(clocks(ops, costs))
    memory, at, tick = peak_moment(state, prof)
    event = ops[at] if at < lives.end else None
    stored = {number for number, after, until in lives.stored if after < at <= until}
    charged = [number for number, after, until in lives.held if after < at <= until]
    later = [(i, ops[i]) for i in range(at, len(ops)) if ops[i].name != "store"]
    reads = {number: i for i, op in reversed(later) for number in op.inputs}  # by value: its next read
    joined = {op.args[0] for op in ops[:at] if op.name == "await"}
    calls = [op for i, op in enumerate(ops[:at]) if i not in joined and not computing(op, costs)]
    under_way = {number for op in calls for number in (*op.inputs, *op.outputs)}
    final = {number for op in ops[:at] if op.name in ("set_final_weight", "set_final_copy") for number in op.inputs}
    lines = {number: op.line for op in ops for number in op.outputs}
    items = []
    for number in charged:
        value, read = state.values[number], reads.get(number)
        if read is None:
            needed = number in final or _is_last_state(value, setting)
            fate, next_read = "kept" if needed else "never", None
        else:
            fate = "now" if read == at else "awaited" if ops[read].name == "await" else "later"
            next_read = times[read]
        in_call = number in under_way and number not in stored
        items.append(Item(value, value.memory(costs), number in stored, fate, lines[number], next_read, in_call))
    return PeakContents(memory, state.rank, tick, event, tuple(items), setting)


def peak_moment(state: RankState, prof: Profile) -> tuple[int, int, int]:
    """The first moment at which a rank needs most: the elements, the index of the operation that starts then (the end:
    past the last one), and the tick."""
    ops, lives, memory = state.done, prof.lifetimes, max(prof.memory)
    sample = prof.memory.index(memory)
    if sample == len(lives.events):
        return memory, lives.end, max((ops[i].end for i in lives.events), default=0)
    return memory, lives.events[sample], next(islice(clocks(ops, state.costs), lives.events[sample], None))


def _is_last_state(value: Value, setting: Setting) -> bool:
    """True for the optimizer state that belongs to a final weight."""
    first = setting.steps - setting.outer + 1 if isinstance(value, OuterState) else setting.steps
    return isinstance(value, OptState | OuterState) and value.step >= first


# --- A peak in words: a heading, and one row for similar values, so that it fits a screen ---

UNREAD = "never read again"
AGAIN = "`get_activation` gives it again"
MAX_LINES_NAMED = 4


class Row(NamedTuple):
    """Values of one kind that are read at similar times: their elements in all, and a description."""

    elements: int
    what: str
    when: str
    unread: bool
    """True if no operation reads them again and the step's result does not need them."""


def peak_lines(peak: PeakContents) -> list[str]:
    """The explanation as lines of at most about 100 characters: a heading, the rows, and what can be deleted."""
    if not peak.items:
        return ["There is no peak: no rank kept a value during an operation."]
    rows = peak_rows(peak)
    lines = [f"The peak, {peak.memory:,} elements, is on rank {peak.rank} {_moment(peak)}:"]
    width = max(len(f"{row.elements:,}") for row in rows)
    lines += [f"  {row.elements:>{width},}  {row.what}: {row.when}" for row in rows]
    unread = sum(row.elements for row in rows if row.unread)
    if unread:
        lines.append(f"Nobody reads {unread:,} of these elements again: delete those values before this moment.")
    else:
        calls = any(item.fate == "awaited" for item in peak.items)
        await_them = "await calls earlier, " if calls else ""
        lines.append(
            f"All of it is still needed. To lower the peak, {await_them}change the order of the work, or keep less."
        )
    return lines


def peak_rows(peak: PeakContents) -> list[Row]:
    """The rows, first values that are not read again, then the largest; their elements add up to the peak."""
    groups: dict[tuple[object, ...], list[Item]] = {}
    for item in filter(lambda item: item.elements, peak.items):
        value = item.value
        border = value.layer in (-1, value.layers) or returns_again(item)  # the model's input and output get own rows
        alike = (item.fate, type(value), _step(value), item.stored, item.in_call, border, _part(value))
        groups.setdefault(alike, []).append(item)
    rows = [_row(items, peak) for items in groups.values()]
    return sorted(rows, key=lambda row: (not row.unread, -row.elements, row.what))


def unstored_text(peak: PeakContents) -> str:
    """Values charged at the peak that are in no dictionary, in words; empty if all are stored.

    Overlapped calls usually have pending values, so these are only added up.
    """
    unstored = [item._replace(stored=True) for item in peak.items if not item.stored]  # so that no row repeats it
    rows = peak_rows(peak._replace(items=tuple(item for item in unstored if not item.in_call)))
    texts = [f"{row.what} ({row.elements:,} elements, {row.when})" for row in rows]
    in_calls = sum(item.elements for item in unstored if item.in_call)
    return "; ".join([*texts, f"{in_calls:,} elements of pending calls"] if in_calls else texts)


def _moment(peak: PeakContents) -> str:
    time = f"at t={peak.costs.text(peak.tick)}"
    if peak.event is None:
        return f"{time}, at the end of the run"
    line = f" (line {peak.event.line})" if peak.event.line else ""
    begins = "starts" if computing(peak.event, peak.costs) else "is called"
    return f"{time}, as {peak.event.call()} {begins}{line}"


def _row(items: Sequence[Item], peak: PeakContents) -> Row:
    first = items[0]
    return Row(
        sum(item.elements for item in items),
        _what(items, peak.setting.steps),
        _when(items, peak),
        first.fate == "never",
    )


def _what(items: Sequence[Item], steps: int) -> str:
    """'4 weights of layers 0-3, shard 1 of 4, outside the dictionaries'."""
    first, values = items[0], [item.value for item in items]
    count = f"{len(items)} " if len(items) > 1 else ""
    step = _step(first.value)
    updated = "updated " if steps == 1 and step and isinstance(first.value, Weight | OptState) else ""
    parts = [f"{count}{updated}{noun(first.value)}{'s' if len(items) > 1 else ''} {layers_text(values)}"]
    batches = sorted(frozenset[int]().union(*(getattr(value, "batches", ()) for value in values)))
    parts += [named("batch", batches)] if batches else []
    parts += [_part(first.value)] if _part(first.value) else []
    parts += [f"step {step}"] if steps > 1 else []
    parts += ["in a pending call"] if first.in_call else [] if first.stored else ["outside the dictionaries"]
    return ", ".join(parts)


def noun(value: Value) -> str:
    """The kind of a value without its article: 'weight', 'optimizer state'."""
    return value.kind.partition(" ")[2]


def layers_text(values: Sequence[Value]) -> str:
    """The layers that the values belong to; the model's input and output are named as such."""
    layers = sorted({value.layer for value in values})
    if layers == [-1]:
        return "of the model's input"
    if isinstance(values[0], Activation) and layers == [values[0].layers]:
        return "after the last layer"
    return f"of {named('layer', layers)}"


def returns_again(item: Item) -> bool:
    """True for an input of the model that is read only later: the model itself returns it then."""
    return item.fate == "later" and isinstance(item.value, Activation) and item.value.layer == 0


def _step(value: Value) -> int:
    return getattr(value, "step", 0)


def _part(value: Value) -> str:
    """Its shards, or its summand and share of the tokens, in words; empty for a full value."""
    if isinstance(value, Batched):
        return share_text(value).removeprefix(", ")
    return shards_text(value) if isinstance(value, Sharded) and len(value.shards) != value.total else ""


def _when(items: Sequence[Item], peak: PeakContents) -> str:
    match items[0].fate:
        case "never":
            return f"{UNREAD}{_made(items)}"
        case "kept":
            return "kept for the next step"
        case "awaited":
            return f"held until its call is awaited at t={peak.costs.text(min(item.read or 0 for item in items))}"
        case "now":
            assert peak.event is not None  # somebody reads it
            return f"read by this {peak.event.name}"
    again = f"; {AGAIN}" if returns_again(items[0]) else ""
    return f"next read at t={peak.costs.text(min(item.read or 0 for item in items))}{again}"


def _made(items: Sequence[Item]) -> str:
    lines = sorted({item.line for item in items if item.line})
    shown = [f"line {line}" for line in lines[:MAX_LINES_NAMED]] + (["..."] if len(lines) > MAX_LINES_NAMED else [])
    return f" (made at {'; '.join(shown)})" if lines else ""
