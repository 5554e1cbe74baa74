"""What is said of a layout: its targets and figures, its graph, and what is counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from puzzles.tracks import base
from puzzles.tracks.base import Section
from puzzles.tracks.outcomes import Measure, capitalized

if TYPE_CHECKING:
    from puzzles.catalog.layout import LayoutPuzzle

CALLS = (
    ("graph.shard(name, strategy)", "Configures an operator: for each input, the number of parts of each dimension."),
    (
        "graph.shard(name, strategy, out=(...))",
        "The same, with partial sums reduce-scattered into these parts of the output.",
    ),
    ("graph.operators, graph.shapes", "The operators by name, in order; the shape of every tensor."),
    ("graph.consumers(tensor)", "The operators that read a tensor, and as which input."),
    ("propagate(graph).explain()", "The plan after propagation: strategies, local shapes, bytes on every edge."),
)

BYTES = (
    "bytes moved",
    "What all devices send: redistributions of tensors, and the collectives that complete sums. A tensor that several "
    "operators read in the same layout moves once.",
)
PEAK = (
    "peak",
    "The most that a device holds at any moment. 'puzzles run' shows it; there is no limit. Tensors count until their "
    "last reader has computed, and copies and buffers of redistributions while they exist.",
)
LEFT_OUT = (
    "stars",
    "Two stars: the fewest bytes if every sum is all-reduced. Three: the fewest bytes with reduce-scatters as well. "
    "Both are for strategies that use all devices; after a pass, the game says whether another plan moves less.",
)
COUNTED = (
    BYTES,
    (
        "memory",
        "Inputs, weights and every operator's output on one device, as if all were kept for backward, without the "
        "copies that redistributions make.",
    ),
    PEAK,
)
COUNTED_IN_STEPS = (
    BYTES,
    (
        "memory",
        "Inputs, weights, optimizer state, weight gradients, and the activations that backward uses, on one device; "
        "without the gradients of activations and the copies that redistributions make.",
    ),
    PEAK,
)


class Words(base.Words["LayoutPuzzle"]):
    form = "one function that configures a few operators of a graph"
    definition = "def {}(graph)"
    imports = "from lib.layout import Graph\n"
    columns = (("bytes moved", "bytes"), ("memory", "memory"))
    overview_columns = ("ops", "moved", "held")

    def measures(self, puzzle: LayoutPuzzle, figures: Mapping[str, float]) -> Sequence[Measure]:
        return [
            Measure.at_most("bytes moved", figures.get("bytes"), puzzle.target, "bytes"),
            Measure.at_most("bytes on each device", figures.get("memory"), puzzle.memory_cap, "memory"),
        ]

    def limits(self, puzzle: LayoutPuzzle) -> str:
        return capitalized(puzzle.limits)

    def record(self, puzzle: LayoutPuzzle, figures: Mapping[str, float], stars: int, family: str = "") -> str:
        if not puzzle.is_proven:
            return super().record(puzzle, figures, stars, family)
        if stars < 3:
            return f"For the third star, move {puzzle.best:,} bytes, with reduce-scatters."
        if puzzle.least is not None:
            return (
                "Three stars: the exact planner finds no plan that moves less under this cap, as long as strategies "
                "use all devices. With copies on some devices, or an axis split in part, it finds "
                f"{puzzle.least:,} bytes."
            )
        return (
            "Three stars: the exact planner finds no plan that moves less under this cap, including plans that leave "
            "devices unused or split an axis in part."
        )

    def sections(self, puzzle: LayoutPuzzle) -> Sequence[Section]:
        counted = COUNTED_IN_STEPS if puzzle.graph().step else COUNTED
        return [
            Section("Graph", [(line, "") for line in graph_lines(puzzle)]),
            Section("Counted", (*counted, LEFT_OUT)),
            Section("Calls", CALLS),
        ]

    def overview_cells(self, puzzle: LayoutPuzzle) -> Sequence[str]:
        return str(puzzle.annotations), f"{puzzle.target:,}", f"{puzzle.memory_cap:,}"

    def overview_note(self, puzzles: Sequence[LayoutPuzzle]) -> str:
        return "Limits: operators to configure; bytes moved in total; bytes held by each device."

    def devices(self, puzzle: LayoutPuzzle) -> int:
        return puzzle.graph().devices


def graph_lines(puzzle: LayoutPuzzle) -> list[str]:
    """The program, a line for each operator."""
    graph = puzzle.graph()
    lines = [f"{name}: {role} {graph.shapes[name]}" for name, role in graph.sources.items()]
    for i, name in enumerate(graph.sources):
        lines[i] += f"  # pinned {graph.pins[name]}" if name in graph.pins else ""
    for name, op in graph.operators.items():
        given = f"  # configured {graph.strategies[name]}" if name in graph.strategies else ""
        given += f"  # pinned {graph.pins[name]}" if name in graph.pins else ""
        lines.append(f"{name} = {op.kind}({', '.join(op.inputs)}): {op.output_shape}{given}")
    return lines
