"""Plans: a graph with every tensor placed, its traffic and memory, its run, and what it does as text.

A plan is data: operators with layouts, and a layout for every source. All figures follow from it, so a plan by
propagation, by completion, by the exact planner or by hand is judged in the same way.

Which plan is chosen is left to the planners. Rejected: figures that each planner counts for itself, because two
planners could then not be compared; and memory as one sum, because most tensors do not live from start to end.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lib.layout.exchanges import SUM_EXCHANGE, Step, SumExchange
from lib.layout.graph import DistributedOperator, Graph, strategy_text
from lib.layout.layouts import Array, Ints, Pieces, Placement, TensorLayout, cut, join, parts, placement, same_placement
from lib.layout.redistribution import Redistribution, can_become, least_bytes, redistribute

if TYPE_CHECKING:
    from lib.layout.execution import Executed


# --- How the breadth-first rule settled an operator ---

CONFIGURED = "configured"
OF_WEIGHT = "where its weight is stored"


class Reached(NamedTuple):
    """An edge by which the rule reaches an operator: `tensor` has the layout `known` at the settled end.

    The operator takes it as input number `place`, or computes it if that is None.
    """

    neighbor: str
    tensor: str
    known: TensorLayout
    place: int | None


@dataclass(frozen=True)
class Decision:
    """How the breadth-first rule settled an operator: `reason` in a few words.

    `reached` is empty for a configured operator and for the optimizer, whose layouts no edge decides.
    """

    operator: str
    reason: str
    reached: tuple[Reached, ...] = ()
    full: bool = True
    """Whether candidates used all devices or one."""

    def __str__(self) -> str:
        neighbors = " and ".join(dict.fromkeys(edge.neighbor for edge in self.reached))
        return f"{self.reason}, reached from {neighbors}" if neighbors else self.reason


# --- Peak memory: contents of each device at every moment of a plan, operator by operator ---
#
# Held are the tensors whose live range it is (`live_ranges`), copies of them in other layouts from the move until the
# last reader in that phase has computed, and the buffers of a move or reduction while it takes place (`buffers`). An
# operator is one kernel: its inputs and its output are there together, and nothing else.


class OperandFetch(NamedTuple):
    """How an input comes to the layout that an operator needs: by its own steps, or as an earlier one left it."""

    steps: tuple[Step, ...]
    copy: int | None = None
    """The number of a moved copy that several operators use: the first one moves it, the others find it."""
    last: bool = True
    """True if nobody uses the copy afterwards."""
    source: int | None = None
    """The number of the copy from which it moves, if it does not move from where the tensor lives."""
    source_ends: bool = False
    """True if nobody uses that copy afterwards."""


def ends(graph: Graph) -> dict[str, tuple[str, ...]]:
    """By operator: the tensors that are freed once it has computed."""
    last = {tensor: name for name, op in graph.operators.items() for tensor in op.inputs}
    number = {name: i for i, name in enumerate(graph.operators)}
    replaces = graph.step.replaces
    for new, source in replaces.items():
        last[source] = max(new, last.get(source, new), key=number.__getitem__)
    stay = {*graph.sources, *replaces, *graph.results}.difference(replaces.values())
    freed: dict[str, tuple[str, ...]] = dict.fromkeys(graph.operators, ())
    for tensor, reader in last.items():
        if tensor not in stay:
            freed[reader] += (tensor,)
    return freed


def most_elements(steps: Sequence[Step], freed: bool = False) -> Ints:
    """The most elements that steps take at the same time, by device, in addition to the first step's source.

    A step's source is freed when the next piece is complete. The first one's belongs to whoever has it, unless it is
    `freed` as well, as an operator's own piece is.
    """
    most = np.zeros(steps[0].source.devices, dtype=np.int64)
    for i, step in enumerate(steps):
        gone = steps[0].source.elements if freed and i else 0
        most = np.maximum(most, buffer_elements(step) + (step.source.elements if i else 0) - gone)
    return most


@lru_cache(maxsize=65536)
def buffer_elements(step: Step) -> Ints:
    """The elements of a step's buffers and of the new piece, by device, when they are most."""
    old, new = step.source.elements, step.target.elements
    is_even = not (step.source.uneven or step.target.uneven)
    if step.name == "all-reduce":
        most = new
    elif step.name == "reduce-scatter":  # the parts, and the sum of this device's
        most = len(step.group(0)) * new + new
    elif step.name == "all-gather":  # everyone's piece, and the new one in which they are put in place
        most = (new if is_even else len(step.group(0)) * old) + new
    elif step.name == "all-to-all":  # the parts, as many that arrive, and then the new piece
        packed = old if is_even else _packed(step)
        most = packed + max(packed, new)
    elif step.name == SUM_EXCHANGE:
        return new + _of_sums(step.sum_exchange)
    else:
        return new + _largest(step.exchange.moves.table)
    return np.full(step.source.devices, most, dtype=np.int64)


def _packed(step: Step) -> int:
    group = step.group(0)
    part: int = prod(side.stop - side.start for side in step.meeting(0, group[0]))
    return len(group) * part


def _of_sums(exchange: SumExchange) -> Ints:
    """All summands that arrive with the sums of this device's shares; or the sums with the largest message."""
    devices = exchange.source.devices
    sums = np.bincount(exchange.owner, weights=exchange.hi - exchange.lo, minlength=devices).astype(np.int64)
    packed, arrived = exchange.summands.table.max(axis=1), exchange.summands.table.sum(axis=0)
    most: Ints = np.maximum(packed, sums + np.maximum(arrived, _largest(exchange.sums.table)))
    return most


def _largest(pairs: Ints) -> Ints:
    """By device, the largest message, which is packed when it is sent, and put in place when it arrives."""
    most: Ints = np.maximum(pairs.max(axis=1), pairs.max(axis=0))
    return most


class Moment(NamedTuple):
    """What is on the fullest device at one time: `bytes` in all, and by name."""

    operator: str
    doing: str
    """ "moves x", "computes", or "reduces its output"."""
    bytes: int
    device: int
    held: Mapping[str, int]
    """Unless all are remembered, only of moments that hold more than any before."""

    def __str__(self) -> str:
        return f"'{self.operator}' {self.doing}"


class MemoryTimeline:
    """The memory of a plan over time: a moment for each move, each computation and each reduction."""

    def __init__(
        self,
        graph: Graph,
        operators: Mapping[str, DistributedOperator],
        storage_layouts: Mapping[str, TensorLayout],
        fetches: Mapping[str, tuple[OperandFetch, ...]],
        remember_all: bool = False,
    ) -> None:
        self.moments: list[Moment] = []
        self.peaks = np.zeros(graph.devices, dtype=np.int64)
        """The most bytes that each device holds."""
        self._remember_all, self._size = remember_all, graph.itemsize
        self._held = {name: layout.elements * self._size for name, layout in storage_layouts.items()}
        self._copies: dict[int, tuple[str, int]] = {}
        freed = ends(graph)
        self._note("", "starts", {})
        for name, op in operators.items():
            self._operator(name, op, fetches[name], freed[name])

    def _operator(
        self, name: str, op: DistributedOperator, fetches: tuple[OperandFetch, ...], freed: tuple[str, ...]
    ) -> None:
        size = self._size
        copies: dict[str, int] = {}
        over: set[int] = set()
        taken = {fetch.copy for fetch in fetches}
        for place, (tensor, fetch) in enumerate(zip(op.operator.inputs, fetches)):
            if fetch.copy is not None and fetch.last:
                over.add(fetch.copy)
            if fetch.copy in self._copies or not fetch.steps:
                continue
            self._note(name, f"moves '{tensor}'", copies, most_elements(fetch.steps) * size, "the move")
            if fetch.source is not None and fetch.source_ends:
                if fetch.source in taken:
                    over.add(fetch.source)
                else:
                    del self._copies[fetch.source]
            label, moved = f"{tensor} for {name}, input {place}", op.inputs[place].elements * size
            if fetch.copy is None:
                copies[label] = moved
            else:
                self._copies[fetch.copy] = label, moved
        output = {name: op.local.elements * size}
        self._note(name, "computes", copies | output)
        for tensor in freed:
            del self._held[tensor]
        for copy in over:
            self._copies.pop(copy, None)
        if op.reduction:
            self._note(
                name, "reduces its output", output, most_elements(op.reduction, freed=True) * size, "the reduction"
            )
        self._held[name] = op.output.elements * size

    def _note(
        self, name: str, doing: str, temporary: Mapping[str, int], extra: Ints | None = None, what: str = ""
    ) -> None:
        base = sum(self._held.values()) + sum(size for _, size in self._copies.values()) + sum(temporary.values())
        total = base + (extra if extra is not None else np.zeros_like(self.peaks))
        device = int(total.argmax())
        held: dict[str, int] = {}
        if self._remember_all or total[device] > self.peaks.max():
            held = {**self._held, **dict(self._copies.values()), **temporary}
            if extra is not None and extra[device]:
                held[what] = int(extra[device])
        self.peaks = np.maximum(self.peaks, total)
        self.moments.append(Moment(name, doing, int(total[device]), device, held))

    @property
    def fullest(self) -> Moment:
        """The first moment at which a device holds the most."""
        return max(self.moments, key=lambda moment: moment.bytes)


# --- A graph with every tensor placed: traffic on each edge, memory per device, and how each input is fetched ---


class Edge(NamedTuple):
    """A tensor on its way to the operator that takes it as input number `place`; `bytes` over all devices.

    If an earlier operator took it in the same layout, that one is `moved_for`, and nothing moves again. If it moves
    from the copy that an earlier operator took in another layout, that one is `copied_from`.
    """

    tensor: str
    operator: str
    place: int
    source: TensorLayout
    target: TensorLayout
    bytes: int
    moved_for: str = ""
    copied_from: str = ""

    def __str__(self) -> str:
        return f"{self.tensor} -> {self.operator}"


@dataclass(frozen=True)
class GraphPlan:
    """Distributed operators, and a stored layout for every source."""

    graph: Graph
    operators: Mapping[str, DistributedOperator]
    storage_layouts: Mapping[str, TensorLayout]
    tied: bool = False
    """True if identical layers are laid out alike, and other plans were not compared."""
    at_least: int | None = None
    """What every plan under the same caps costs, if it is not known that this one is the cheapest: bytes, and if it was
    planned for a `rate`, also the bytes that could be sent while devices compute."""
    gap: float = 0.0
    """How far that is below what this plan costs: at most this part of it could be saved."""
    rate: int | None = None
    """Operations of a device in the time of a byte, for which it was planned."""
    taken_from: Mapping[tuple[str, int], TensorLayout | None] = field(default_factory=dict)
    """By operator and input, if it is fixed: the layout of the copy from which the input moves, or None."""
    decisions: Mapping[str, Decision] = field(default_factory=dict, compare=False)
    """By operator: how the breadth-first rule settled it. Empty for other plans."""

    def layout(self, tensor: str) -> TensorLayout:
        """The layout of a tensor: as a source is stored, or as its operator leaves it."""
        return self.storage_layouts[tensor] if tensor in self.storage_layouts else self.operators[tensor].output

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Every edge, in the order of the program.

        A tensor moves from where it lives, or from a copy that an earlier operator of the same phase took, if that is
        cheaper.
        """
        edges = []
        copies: dict[tuple[str, int], dict[Placement, tuple[str, TensorLayout]]] = {}
        for name, op in self.graph.operators.items():
            for place, (tensor, wanted) in enumerate(zip(op.inputs, self.operators[name].inputs)):
                home, taken = self.layout(tensor), copies.setdefault((tensor, self.graph.phase(name)), {})
                given, before, source = home, "", ""
                if placement(wanted) in taken and not same_placement(home, wanted):
                    before = taken[placement(wanted)][0]
                else:
                    given, source = self._source(name, place, home, wanted, taken)
                moved = 0 if before else self._cost(given, wanted)
                edges.append(Edge(tensor, name, place, given, wanted, moved, before, source))
                if not same_placement(home, wanted):
                    taken.setdefault(placement(wanted), (name, wanted))
        return tuple(edges)

    def _source(
        self,
        name: str,
        place: int,
        home: TensorLayout,
        wanted: TensorLayout,
        copies: Mapping[Placement, tuple[str, TensorLayout]],
    ) -> tuple[TensorLayout, str]:
        """The layout from which an input moves, and the operator that took a copy in it, or ''."""
        if (name, place) in self.taken_from:
            fixed = self.taken_from[name, place]
            if fixed is None or placement(fixed) not in copies:  # an earlier operator took it from where it lives
                return home, ""
            return fixed, copies[placement(fixed)][0]
        best, source, least = home, "", self._cost(home, wanted)
        for reader, layout in copies.values() if least else ():
            if can_become(layout, wanted) and self._cost(layout, wanted) < least:
                best, source, least = layout, reader, self._cost(layout, wanted)
        return best, source

    def _cost(self, given: TensorLayout, wanted: TensorLayout) -> int:
        return least_bytes(given, wanted, self.graph.itemsize)

    @cached_property
    def padding(self) -> dict[tuple[str, tuple[int, ...]], int]:
        """Bytes of padding on all devices, by tensor and padded shape, of each that some pieces have: as it is stored,
        or as an operator takes it or computes it."""
        padding: dict[tuple[str, tuple[int, ...]], int] = {}
        placed = [*((edge.tensor, edge.target) for edge in self.edges), *self.storage_layouts.items()]
        placed += [(name, layout) for name, op in self.operators.items() for layout in (op.local, op.output)]
        for name, layout in placed:
            if layout.uneven:
                copies = layout.devices // prod(layout.splits)
                extra = copies * (prod(layout.padded_shape) - prod(layout.shape)) * self.graph.itemsize
                key = name, layout.padded_shape
                padding[key] = max(padding.get(key, 0), extra)
        return padding

    def collective_bytes(self, name: str) -> int:
        """Bytes that an operator's own collectives move, over all devices."""
        return self.operators[name].moved * self.graph.itemsize

    @cached_property
    def bytes(self) -> int:
        """Bytes moved in total: redistribution on the edges plus the operators' own collectives."""
        return sum(edge.bytes for edge in self.edges) + sum(map(self.collective_bytes, self.operators))

    @cached_property
    def memory(self) -> int:
        """Bytes on each device: stored sources, and every operator's output, which training keeps for backward.

        In a training step, where backward is known: stored sources, that is inputs, weights and the optimizer's state;
        gradients of weights; and the outputs of forward that backward uses.
        """
        return sum(self.memory_by_role.values())

    @cached_property
    def memory_by_role(self) -> dict[str, int]:
        """Bytes on each device of inputs, weights, optimizer state, gradients and activations."""
        kept = {name: layout.elements for name, layout in self.storage_layouts.items()}
        kept |= {name: op.output.elements for name, op in self.operators.items() if self.graph.keeps(name)}
        return self.graph.bytes_by_role(kept)

    @property
    def peak(self) -> int:
        """Most bytes that a device holds at the same time when operators run in the order of the graph.

        Counts every tensor in its live range, moved copies, and the buffers of moves and reductions (`peak_moment` has
        the operator, and what is held then). The meters of `on_engine` read the same.
        """
        return self.peak_moment.bytes

    @property
    def peak_moment(self) -> Moment:
        """When a device first holds the most."""
        return self.timeline.fullest

    @cached_property
    def timeline(self) -> MemoryTimeline:
        """What devices hold at every moment; `timeline.peaks` is the peak of each device."""
        return MemoryTimeline(self.graph, self.operators, self.storage_layouts, self.fetches)

    def reason(self, operator: str) -> str:
        """Why an operator has its layout."""
        if operator in self.decisions:
            return str(self.decisions[operator])
        return CONFIGURED if operator in self.graph.strategies else ""

    @property
    def flops(self) -> int:
        """Floating-point operations per device."""
        return sum(op.flops for op in self.operators.values())

    @property
    def redundancy(self) -> float:
        """How many times the operations of all matrix products are computed, on all devices together."""
        products = [op for op in self.operators.values() if op.operator.is_product]
        alone = sum(op.operator.flops({}) for op in products)
        return sum(op.flops for op in products) * self.graph.devices / alone if alone else 1.0

    def redistribution(self, edge: Edge) -> Redistribution:
        """The redistribution of an edge's tensor."""
        return self.moves[edge.operator][edge.place]

    @cached_property
    def moves(self) -> dict[str, list[Redistribution]]:
        """By operator: the redistribution of each of its inputs."""
        moves: dict[str, list[Redistribution]] = {name: [] for name in self.operators}
        for edge in self.edges:
            moves[edge.operator].append(redistribute(edge.source, edge.target, self.graph.itemsize))
        return moves

    @cached_property
    def sent(self) -> Ints:
        """Bytes that each device sends."""
        return self._in_bytes(step.sent for step in self._steps)

    @cached_property
    def received(self) -> Ints:
        """Bytes that each device receives."""
        return self._in_bytes(step.received for step in self._steps)

    def _in_bytes(self, elements: Iterable[Ints]) -> Ints:
        return sum(elements, np.zeros(self.graph.devices, dtype=np.int64)) * self.graph.itemsize

    @property
    def _steps(self) -> list[Step]:
        """Every step that takes place; the steps of a shared move once."""
        moves = [step for edge in self.edges if not edge.moved_for for step in self.redistribution(edge).steps]
        return moves + [step for op in self.operators.values() for step in op.reduction]

    @cached_property
    def freed(self) -> dict[str, tuple[str, ...]]:
        """By operator: the tensors that are freed once it has computed, before its output is reduced."""
        return ends(self.graph)

    def prepare(self) -> None:
        """Computes the tables that devices look up. Otherwise the first device to look would be charged for them."""
        _ = self.freed
        for layout in (*self.storage_layouts.values(), *(x for op in self.operators.values() for x in op.inputs)):
            parts(layout)
        taken = (fetch.steps for fetches in self.fetches.values() for fetch in fetches)
        for step in chain(*taken, *(op.reduction for op in self.operators.values())):
            step.prepare()

    @cached_property
    def fetches(self) -> dict[str, tuple[OperandFetch, ...]]:
        """By operator: how each input comes to its layout."""
        taken: dict[Hashable, list[Edge]] = {}
        """By copy: the edges that take it, or move from it, in order."""

        def key(edge: Edge, layout: TensorLayout) -> Hashable:
            return edge.tensor, placement(layout), self.graph.phase(edge.operator)

        for edge in self.edges:
            taken.setdefault(key(edge, edge.target), []).append(edge)
            if edge.copied_from:
                taken[key(edge, edge.source)].append(edge)
        number = {copy: i for i, (copy, edges) in enumerate(taken.items()) if len(edges) > 1}
        fetches: dict[str, list[OperandFetch]] = {name: [] for name in self.operators}
        for edge in self.edges:
            copy, steps = key(edge, edge.target), self.redistribution(edge).named_steps
            shared = number.get(copy) if steps else None
            fetch = OperandFetch(steps, shared, edge is taken[copy][-1])
            if edge.copied_from:
                source = key(edge, edge.source)
                fetch = fetch._replace(source=number[source], source_ends=edge is taken[source][-1])
            fetches[edge.operator].append(fetch)
        return {name: tuple(operands) for name, operands in fetches.items()}

    # --- What it computes, and its text ---

    def run(self, values: Mapping[str, Array]) -> dict[str, Pieces]:
        """The distributed program on numpy, all devices side by side: the pieces of every tensor.

        The reference for `on_engine`, where each device has only its own pieces.
        """
        tensors = {name: cut(values[name], self.storage_layouts[name]) for name in self.graph.check_values(values)}
        copies: dict[int, Pieces] = {}
        for name, op in self.operators.items():
            inputs = []
            for move, tensor, fetch in zip(self.moves[name], op.operator.inputs, self.fetches[name]):
                source = tensors[tensor] if fetch.source is None else copies[fetch.source]
                moved = copies[fetch.copy] if fetch.copy in copies else move.run(source)
                if fetch.copy is not None:
                    copies[fetch.copy] = moved
                inputs.append(moved)
            pieces = {d: op.compute(d, [operand[d] for operand in inputs]) for d in range(self.graph.devices)}
            for step in op.reduction:
                pieces = step.run(pieces)
            tensors[name] = pieces
        return tensors

    def on_engine(self, values: Mapping[str, Array], on: str | None = None) -> Executed:
        """The program on `lib.engine`, where every device holds its own pieces and gets everything else by engine
        calls.

        `on` is as for `lib.engine.launch`: "inprocess", or "mpi" in a program that mpiexec started. If elements
        have `graph.itemsize` bytes, the meters read what `sent` predicts.

        Raises:
            LayoutError: the value of a source is missing or has another shape.
        """
        from lib.layout.execution import execute  # here: planning needs no engine, and it imports us

        self.graph.check_values(values)
        return execute(self, values, on)

    def values(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The same run, with every tensor joined from its pieces."""
        return {name: join(pieces, self.layout(name)) for name, pieces in self.run(values).items()}

    def paying(self) -> list[tuple[int, str]]:
        """Edges and operators that cost bytes, most expensive first: 'relu -> matmul2 pays 12,288 bytes
        (all-to-all)'."""
        payments = []
        for edge in self.edges:
            if edge.bytes:
                names = ", ".join(self.redistribution(edge).names)
                payments.append((edge.bytes, f"{edge} pays {edge.bytes:,} bytes ({names})"))
        for name, op in self.operators.items():
            if op.moved:
                names = ", ".join(step.name for step in op.reduction)
                payments.append(
                    (self.collective_bytes(name), f"{name} pays {self.collective_bytes(name):,} bytes ({names})")
                )
        return sorted(payments, key=lambda pair: -pair[0])

    def explain(self) -> str:
        """The plan operator by operator, as text: strategies, local shapes, collectives, bytes."""
        lines = []
        edges = {(edge.operator, edge.place): edge for edge in self.edges}
        for name, op in self.operators.items():
            for place in range(len(op.inputs)):
                edge = edges[name, place]
                if edge.moved_for:
                    lines.append(f"  {edge}: as moved for {edge.moved_for}, 0 bytes")
                elif edge.source.elements != edge.target.elements or edge.bytes:
                    steps = ", ".join(self.redistribution(edge).names)
                    of = f" from the copy of {edge.copied_from}" if edge.copied_from else ""
                    lines.append(f"  {edge}: {steps}{of}, {edge.bytes:,} bytes")
            shapes = " x ".join(str(layout.local_shape) for layout in op.inputs)
            lines.append(f"{name}: {op.operator.kind} {strategy_text(op.strategy)}, {shapes} -> {op.local.local_shape}")
            for step in op.reduction:
                moved = int(step.received.sum()) * self.graph.itemsize
                lines.append(f"  {name}: {step.name}, {moved:,} bytes, -> {step.target.local_shape}")
        for (name, shape), extra in self.padding.items():
            lines.append(
                f"'{name}' is padded from {self.graph.shapes[name]} to {shape}: {extra:,} bytes on all devices"
            )
        if self.tied:
            lines.append("there may be cheaper plans: identical layers are laid out alike; plan(effort=) compares all")
        if self.at_least is not None:
            saved = f", so that at most {self.gap:.1%} could be saved" if self.gap else ""
            of = "equivalent bytes, computing included" if self.rate else "bytes"
            lines.append(
                f"there may be cheaper plans: not all were considered, but none is below {self.at_least:,} {of}{saved}"
            )
        if self.redundancy > 1.005:
            lines.append(
                f"{self.flops:,} flops on each device: together {self.redundancy:.2f} times as many as on one device"
            )
        lines.append(f"at most {self.peak:,} bytes at a time on a device, when {self.peak_moment}")
        if self.rate:
            each = self.flops // self.rate
            whole = self.bytes + each * self.graph.devices
            lines.append(
                f"computing takes as long as sending {each:,} bytes from each device: {whole:,} equivalent bytes"
            )
        most = int(self.sent.max())
        lines.append(f"{self.bytes:,} bytes moved, at most {most:,} by a device; {self.memory:,} bytes on each device")
        return "\n".join(lines)
