"""Layouts: the child sends nothing but strategies; they are completed, measured and judged here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from puzzles.catalog.layout import LAYOUT_PUZZLES
from puzzles.tracks.base import Attempt, Part, Section, Track

if TYPE_CHECKING:
    from puzzles.catalog.layout.layout_puzzle import LayoutPuzzle

# What needs numpy is imported inside the methods that judge: list does without.

CALLS = (
    ("graph.shard(name, strategy)", "Configures an operator: for each input, into how many parts each dimension."),
    ("graph.operators, graph.shapes", "The operators by name, in order; the shape of every tensor."),
    ("graph.consumers(tensor)", "Who takes a tensor, and as which input."),
    ("propagate(graph).explain()", "What propagation makes of it: strategies, local shapes, bytes on every edge."),
)


class Layouts(Track):
    """Where tensors live: a function configures operators of a graph, and propagation does the rest."""

    name = "layout"
    title = "Where tensors live"
    idea = "one function that configures a few operators of a graph: which layouts move the least?"
    columns = (("bytes moved", "bytes", "bytes"), ("memory", "memory", "memory"))

    @property
    def parts(self) -> Sequence[Part]:
        return [Part(self.name, self.title, self.idea, tuple(LAYOUT_PUZZLES))]

    def puzzle(self, slug: str) -> LayoutPuzzle:
        return LAYOUT_PUZZLES[slug]

    def targets(self, puzzle: LayoutPuzzle) -> Mapping[str, int]:
        return {"bytes": puzzle.target, "memory": puzzle.memory_cap}

    def attempts(self, puzzle: LayoutPuzzle) -> Iterator[Attempt]:
        from .judge import judged

        yield Attempt("the graph", {}, lambda row: judged(puzzle, row))

    def kept(self, row: Mapping[str, Any]) -> str:
        from .judge import strategies_text

        return strategies_text(row)

    def called(self, puzzle: LayoutPuzzle) -> str:
        return f"layout puzzle {puzzle.number}"

    def limits(self, puzzle: LayoutPuzzle) -> str:
        return puzzle.limits[:1].upper() + puzzle.limits[1:]

    def figures_text(self, puzzle: LayoutPuzzle, figures: Mapping[str, float]) -> str:
        moved, held = (f"{figures[name]:,}" if figures else "-" for name in ("bytes", "memory"))
        return f"{moved} of {puzzle.target:,} bytes moved, {held} of {puzzle.memory_cap:,} bytes on each device"

    def starter_head(self, puzzles: Sequence[LayoutPuzzle]) -> str:
        return "from lib.layout import Graph\n"

    def signature(self, slug: str) -> str:
        return f"def {slug}(graph)"

    def record(self, puzzle: LayoutPuzzle, figures: Mapping[str, float], stars: int) -> str:
        return "Three stars: by the exact planner, with sums all-reduced, nothing moves less under this cap."

    def sections(self, puzzle: LayoutPuzzle) -> Sequence[Section]:
        return [Section("Graph", [(line, "") for line in graph_lines(puzzle)]), Section("Calls", CALLS)]


def graph_lines(puzzle: LayoutPuzzle) -> list[str]:
    """The program, a line for each operator."""
    graph = puzzle.graph()
    lines = [f"{name}: {role} {graph.shapes[name]}" for name, role in graph.sources.items()]
    for name, op in graph.operators.items():
        given = f"  # configured {graph.strategies[name]}" if name in graph.strategies else ""
        lines.append(f"{name} = {op.kind}({', '.join(op.inputs)}): {op.output_shape}{given}")
    return lines
