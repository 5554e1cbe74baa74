"""Completion: annotations on a few tensors are propagated forwards and backwards until nothing changes.

Sources: Xu et al. 2021, "GSPMD", section 3.5 (dimensions are refined, never changed; operators that preserve
dimensions go first); Lepikhin et al. 2020, "GShard". Where GSPMD would choose silently, this reports a Conflict. Of the
claims, it propagates the one whose plan moves the fewest bytes, or none. Annotations are propagated in both directions
at the same time, or forwards first if that plan moves less and computes no more.

What a completed plan costs is left to `plans`, and the search for a better one to `exact`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any, NamedTuple

from lib.errors import Sentences
from lib.layout.exchanges import least_elements
from lib.layout.graph import DistributedOperator, Graph, arrange, layouts_of, require_graph
from lib.layout.layouts import (
    PEAK_WANTED,
    Axes,
    DeviceMatrix,
    LayoutError,
    TensorLayout,
    common_shape,
    require_int,
    respelled,
    same_placement,
)
from lib.layout.operators import DIMENSION_PRESERVING, Operator
from lib.layout.plans import GraphPlan
from lib.layout.redistribution import redistribute

Place = tuple[str, int]
"""A tensor, and the number of a dimension."""
MAX_CONFLICTS = 16
"""For so many dimensions, the outcomes of a conflict are compared."""


class Conflict(NamedTuple):
    """Claims that contradict each other, where, and how the conflict was resolved, in words."""

    place: str
    claims: tuple[str, ...]
    outcome: str

    def __str__(self) -> str:
        return f"{self.place}: {' and '.join(self.claims)}; {self.outcome}"


@dataclass(frozen=True)
class Completion:
    """A layout for every tensor, and the conflicts that occurred."""

    plan: GraphPlan
    layouts: Mapping[str, TensorLayout]
    conflicts: tuple[Conflict, ...]


def complete(graph: Graph, annotations: Mapping[str, Any], peak: int | None = None) -> Completion:
    """Propagates annotations over a graph. An annotated tensor keeps its layout; undecided dimensions stay
    unsplit.

    Annotations leave nothing to search, so `peak` only refuses: a completed plan that holds more bytes on a device at
    some time, as `GraphPlan.peak` counts them. `plan(graph, peak=...)` looks for one that does not.

    Raises:
        LayoutError: the plan's peak is higher than `peak`; the message has the operator and the largest tensors then.
        LayoutError: there is no annotation, or one is for a missing tensor, of the wrong shape, on incompatible device
            matrices, with a different number of devices than the graph's, a partial layout, or uneven where the graph
            refuses that.
    """
    require_graph(graph)
    if peak is not None:
        peak = require_int(peak, PEAK_WANTED, least=0)
    given = layouts_of(graph, annotations, "an annotation")
    if not given and not graph.pins:
        raise LayoutError("nothing is annotated; give a layout to at least one tensor")
    annotations = on_one_matrix({**graph.pins, **given})
    (spread, plan), forward = (_resolved(graph, annotations, is_forward) for is_forward in (False, True))
    if forward[1].bytes < plan.bytes and forward[1].flops <= plan.flops:
        spread, plan = forward
    layouts = spread.layouts()
    if peak is not None and plan.peak > peak:
        largest = sorted(plan.peak_moment.held.items(), key=lambda entry: -entry[1])[:3]
        names = ", ".join(f"{name} {size:,}" for name, size in largest)
        raise LayoutError(
            SAYS("completed plan too large", peak=plan.peak, when=plan.peak_moment, cap=peak, names=names)
        )
    return Completion(plan, layouts, tuple(spread.conflicts))


def _resolved(graph: Graph, annotations: Mapping[str, TensorLayout], is_forward: bool) -> tuple[_Spread, GraphPlan]:
    """Annotations spread over a graph, with each conflict resolved as moves the fewest bytes."""
    matrix = next(iter(annotations.values())).matrix
    chosen: dict[Place, Axes] = {}
    best = _Spread(graph, matrix, annotations, chosen, is_forward)
    plan = best.plan()
    for place, options in islice(best.options.items(), MAX_CONFLICTS):
        for axes in options:
            other = _Spread(graph, matrix, annotations, {**chosen, place: axes}, is_forward)
            tried = other.plan()
            if tried.bytes < plan.bytes:
                best, plan, chosen = other, tried, {**chosen, place: axes}
    return best, plan


class _Spread:
    """The state of completion: for each dimension of each tensor its axes, or None while it is undecided.

    If it `is_forward`, what is upstream decides first, and what is downstream where that leaves something open.
    """

    def __init__(
        self,
        graph: Graph,
        matrix: DeviceMatrix,
        annotations: Mapping[str, TensorLayout],
        chosen: Mapping[Place, Axes],
        is_forward: bool,
    ) -> None:
        self.graph, self.matrix, self.annotations, self.chosen = graph, matrix, annotations, chosen
        self.options: dict[Place, list[Axes]] = {}
        """By dimension of a tensor over which claims differ: the axes that are claimed."""
        self.known: dict[str, list[Axes | None]] = {name: [None] * len(s) for name, s in graph.shapes.items()}
        for name, layout in annotations.items():
            self.known[name] = list(layout.tensor_map)
        self.conflicts: list[Conflict] = []
        self.misfits: set[tuple[str, int, Axes]] = set()
        """Axes that an operator would split a dimension over, but not into the same elements as another tensor's."""
        self.reported: set[tuple[str, str]] = set()
        quick = [op for op in graph.operators.values() if op.kind in DIMENSION_PRESERVING]
        every = list(graph.operators.values())
        for forward in (True, False) if is_forward else (False,):
            while self._round(quick, forward) or self._round(every, forward):
                pass

    def plan(self) -> GraphPlan:
        layouts = self.layouts()
        operators = {name: self.distribute(op, layouts) for name, op in self.graph.operators.items()}
        return GraphPlan(self.graph, operators, {name: layouts[name] for name in self.graph.sources})

    def layouts(self) -> dict[str, TensorLayout]:
        shapes = self.graph.shapes
        return {
            name: TensorLayout(shapes[name], self.matrix, tuple(axes or () for axes in known))
            for name, known in self.known.items()
        }

    def distribute(self, operator: Operator, layouts: Mapping[str, TensorLayout]) -> DistributedOperator:
        """The operator with each letter split as in its output, otherwise as in its first input that splits it; or the
        other way around, inputs first, if that moves fewer bytes."""

        def moved(arranged: tuple[DistributedOperator, list[Conflict]]) -> int:
            fetched = zip(operator.inputs, arranged[0].inputs)
            return arranged[0].moved + sum(least_elements(layouts[x], wanted) for x, wanted in fetched)

        way, conflicts = min((self._arranged(operator, layouts, first) for first in (True, False)), key=moved)
        for conflict in conflicts:
            self._note(conflict)
        return way

    def _arranged(
        self, operator: Operator, layouts: Mapping[str, TensorLayout], output_first: bool
    ) -> tuple[DistributedOperator, list[Conflict]]:
        split: dict[str, Axes] = {}
        conflicts = []
        for tensor, letters in _tensors(operator, output_first):
            for letter, axes in zip(letters, layouts[tensor].tensor_map):
                parts = self._parts(axes)
                taken = {axis for used in split.values() for axis in used}
                if not axes or letter in split:
                    continue
                if not taken & set(axes) and operator.splits(letter, parts):
                    split[letter] = axes
                elif tensor != operator.name or output_first:
                    why = (
                        "is taken by another dimension"
                        if taken & set(axes)
                        else f"cannot split a {operator.kind} there"
                    )
                    said = (f"'{tensor}' splits '{letter}' over {self._names(axes)}", f"that {why}")
                    conflicts.append(Conflict(operator.name, said, f"'{tensor}' is redistributed"))
        wanted = layouts[operator.name]
        ways = arrange(operator, self.matrix, split)
        way = next((way for way in ways if same_placement(way.output, wanted)), ways[-1])
        if same_placement(way.output, wanted):
            return way, conflicts
        # The annotation requires something else than the result: complete the output to it right away.
        steps = redistribute(way.local, wanted).named_steps
        return DistributedOperator(operator, way.inputs, way.local, steps), conflicts

    def _round(self, operators: list[Operator], forward: bool) -> bool:
        """Collects the claims of all operators before changing anything, so that their order does not matter."""
        offers: dict[tuple[str, int], dict[Axes, str]] = {}
        for op in operators:
            for letter in op.letters:
                claims = self._claims(op, letter)
                if len(claims) > 1:
                    self._conflict(op.name, letter, claims)
                if len(claims) != 1 or letter not in op.free:
                    continue
                ((axes, claimant),) = claims.items()
                for tensor, letters in _tensors(op)[-1:] if forward else _tensors(op):
                    for dim, dim_letter in enumerate(letters):
                        if dim_letter == letter and self.known[tensor][dim] is None:
                            if not op.splits(letter, self._parts(axes)):
                                self.misfits.add((tensor, dim, axes))
                            offers.setdefault((tensor, dim), {})[axes] = f"'{claimant}' through {op.name}"
        return self._accept(offers)

    def _claims(self, op: Operator, letter: str) -> dict[Axes, str]:
        claims: dict[Axes, str] = {}
        for tensor, letters in _tensors(op):
            for dim, dim_letter in enumerate(letters):
                axes = self.known[tensor][dim]
                if dim_letter == letter and axes:
                    claims.setdefault(axes, tensor)
        return claims

    def _conflict(self, name: str, letter: str, claims: Mapping[Axes, str]) -> None:
        if (name, letter) in self.reported:
            return
        self.reported.add((name, letter))
        said = tuple(f"'{tensor}' splits '{letter}' over {self._names(axes)}" for axes, tensor in claims.items())
        self._note(Conflict(name, said, "it computes with the first that fits, and redistributes the other"))

    def _accept(self, offers: Mapping[tuple[str, int], Mapping[Axes, str]]) -> bool:
        changed = False
        wishes: dict[str, dict[int, Axes]] = {}
        for (tensor, dim), offer in offers.items():
            if len(offer) > 1:
                said = tuple(f"{who} wants {self._names(axes)}" for axes, who in offer.items())
                self._close(tensor, dim, said, offer)
                changed = True
            else:
                wishes.setdefault(tensor, {})[dim] = next(iter(offer))
        for tensor, wish in wishes.items():
            for dim, axes in wish.items():
                changed = True
                others = {**dict(enumerate(self.known[tensor])), **wish}
                rivals = [d for d, claimed in others.items() if d != dim and claimed and set(claimed) & set(axes)]
                who = next(iter(offers[tensor, dim].values()))
                if rivals:
                    shared = f"dimension {rivals[0]} wants {self._names(others[rivals[0]] or ())} as well"
                    self._close(tensor, dim, (f"{who} wants {self._names(axes)}", shared), [axes])
                elif (tensor, dim, axes) in self.misfits:
                    size, parts = self.graph.shapes[tensor][dim], self._parts(axes)
                    self._close(tensor, dim, (f"{who} wants {self._names(axes)}", f"{size} has no {parts} equal parts"))
                else:
                    self.known[tensor][dim] = axes
        return changed

    def _close(self, tensor: str, dim: int, said: tuple[str, ...], options: Iterable[Axes] = ()) -> None:
        """Settles a dimension over which claims differ: it stays unsplit, unless one of them has been chosen."""
        taken = {axis for axes in self.known[tensor] for axis in axes or ()}
        self.options[tensor, dim] = [a for a in options if not taken & set(a) and (tensor, dim, a) not in self.misfits]
        chosen = self.chosen.get((tensor, dim), ())
        self.known[tensor][dim] = chosen if chosen in self.options[tensor, dim] else ()
        split = f"it is split over {self._names(chosen)}, which moves fewer bytes"
        self._note(
            Conflict(f"'{tensor}', dimension {dim}", said, split if self.known[tensor][dim] else "it stays unsplit")
        )

    def _note(self, conflict: Conflict) -> None:
        if conflict not in self.conflicts:
            self.conflicts.append(conflict)

    def _parts(self, axes: Axes) -> int:
        return prod(self.matrix.shape[axis] for axis in axes)

    def _names(self, axes: Axes) -> str:
        return "+".join(self.matrix.names[axis] for axis in axes)


def _tensors(op: Operator, output_first: bool = False) -> list[tuple[str, tuple[str, ...]]]:
    inputs, output = list(zip(op.inputs, op.input_letters)), [(op.name, op.output_letters)]
    return output + inputs if output_first else inputs + output


def on_one_matrix(annotations: Mapping[str, TensorLayout]) -> dict[str, TensorLayout]:
    """The same layouts on one device matrix: the coarsest on which all can be expressed."""
    split = {name: layout for name, layout in annotations.items() if any(layout.tensor_map)} or dict(annotations)
    matrices = {layout.matrix: name for name, layout in split.items()}
    shape = common_shape(matrices)
    if shape is None:
        (matrix_a, a), (matrix_b, b), *_ = matrices.items()
        raise LayoutError(
            f"'{a}' is annotated on {matrix_a} and '{b}' on {matrix_b}, which have no common refinement; "
            "annotate on one device matrix"
        )
    named = next((matrix for matrix in matrices if len(matrices) == 1 or matrix.shape == shape), None)
    matrix = named or DeviceMatrix(shape, next(iter(matrices)).devices)
    whole = {name: TensorLayout(a.shape, matrix, ((),) * len(a.shape)) for name, a in annotations.items()}
    return {name: respelled(a, matrix) if name in split else whole[name] for name, a in annotations.items()}


SAYS = Sentences(
    {
        "completed plan too large": "the completed plan holds {peak:,} bytes on a device when {when}, more than {cap:,}: {names}; split one of these with an annotation, or let plan(graph, peak={cap}) choose",
    }
)
"""The refusals of this chapter: a reason, and a sentence over its facts."""
