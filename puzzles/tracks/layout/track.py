"""The layout track: a function that configures operators of a graph; propagation completes and measures the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from puzzles.catalog.fields import Fields
from puzzles.catalog.layout import CHAPTER, LAYOUT_PUZZLES
from puzzles.failure import Failure
from puzzles.tracks.base import Track
from puzzles.tracks.outcomes import Measure, Row, RunRequest, capitalized
from puzzles.tracks.shown import Column, OptionError, Overview, Section

if TYPE_CHECKING:
    from lib.layout import GraphPlan
    from puzzles.catalog.layout.puzzle import LayoutPuzzle
    from puzzles.tracks.workbench import DrawOptions, TensorOptions, Workbench

# What needs numpy is imported inside the methods that judge: list does without.

CALLS = (
    ("graph.shard(name, strategy)", "Configures an operator: for each input, the number of parts of each dimension."),
    (
        "graph.shard(name, strategy, out=(...))",
        "The same, with partial sums reduce-scattered into these parts of the output.",
    ),
    ("graph.operators, graph.shapes", "The operators by name, in order; the shape of every tensor."),
    ("graph.consumers(tensor)", "The operators that use a tensor, and as which input."),
    ("propagate(graph).explain()", "The plan after propagation: strategies, local shapes, bytes on every edge."),
)


BYTES = (
    "bytes moved",
    "What all devices send: redistributions of tensors, and the collectives that complete sums. A tensor that several "
    "operators take in one layout moves once.",
)
PEAK = (
    "peak",
    "Shown by 'puzzles run', not limited: what a device holds at a time. Tensors count until their last reader has "
    "computed, and copies and buffers of redistributions while they exist.",
)
LEFT_OUT = (
    "stars",
    "Two stars: the fewest bytes with all sums all-reduced; three: with reduce-scatters as well. Both among strategies "
    "that use all devices; a pass says whether anything else would move less.",
)
COUNTED = (
    BYTES,
    (
        "memory",
        "Inputs, weights and every operator's output, on one device, as if all were kept for backward; not the copies "
        "that redistributions make.",
    ),
    PEAK,
)
COUNTED_IN_STEPS = (
    BYTES,
    (
        "memory",
        "Inputs, weights, optimizer state, gradients of weights, and the activations that backward uses, per device; "
        "not gradients of activations, nor the copies that redistributions make.",
    ),
    PEAK,
)


class Layouts(Track["LayoutPuzzle"]):
    """Layouts of tensors: a function configures operators of a graph, and propagation does the rest."""

    listing = LAYOUT_PUZZLES
    puzzle_class = "LayoutPuzzle"
    why_no_records = "a layout has no records, because its targets are proven to be the least"
    name = "layout"
    title = CHAPTER.title
    idea = CHAPTER.idea
    form = "one function that configures a few operators of a graph"
    stage = "puzzles.sandbox.worker.stages.layout"
    has_pictures = True
    columns = (("bytes moved", "bytes"), ("memory", "memory"))

    def read(self, slug: str, fields: Fields) -> LayoutPuzzle:
        from .custom import read_puzzle

        return read_puzzle(slug, fields)

    def targets(self, puzzle: LayoutPuzzle) -> Mapping[str, int]:
        return {"bytes": puzzle.target, "memory": puzzle.memory_cap}

    def requests(self, puzzle: LayoutPuzzle) -> Iterator[RunRequest]:
        from .score import request_for

        yield request_for(puzzle)

    def measures(self, puzzle: LayoutPuzzle, figures: Mapping[str, float]) -> Sequence[Measure]:
        return [
            Measure.at_most("bytes moved", figures.get("bytes"), puzzle.target, "bytes"),
            Measure.at_most("bytes on each device", figures.get("memory"), puzzle.memory_cap, "memory"),
        ]

    def kept(self, row: Row) -> str:
        from .score import strategies_text

        return strategies_text(row)

    def restored(self, puzzle: LayoutPuzzle, kept: str) -> GraphPlan | None:
        from .score import plan_of

        plan = plan_of(puzzle, kept) if kept else None
        return None if isinstance(plan, Failure) else plan

    def called(self, puzzle: LayoutPuzzle) -> str:
        return f"layout puzzle {LAYOUT_PUZZLES.number(puzzle.slug)}"

    def limits(self, puzzle: LayoutPuzzle) -> str:
        return capitalized(puzzle.limits)

    def starter_head(self, puzzles: Sequence[LayoutPuzzle]) -> str:
        return "from lib.layout import Graph\n"

    def signature(self, slug: str) -> str:
        return f"def {slug}(graph)"

    def record(self, puzzle: LayoutPuzzle, figures: Mapping[str, float], stars: int, family: str = "") -> str:
        if not puzzle.is_proven:
            return super().record(puzzle, figures, stars, family)
        if stars < 3:
            return f"Three stars: {puzzle.best:,} bytes, with reduce-scatters."
        if puzzle.least is not None:
            return (
                "Three stars: the exact planner finds no plan that moves less under this cap, as long as strategies "
                f"use all devices. With devices that hold copies, or parts of axes, it finds {puzzle.least:,} bytes."
            )
        return (
            "Three stars: the exact planner finds no plan that moves less under this cap, not even one that leaves "
            "devices unused or splits parts of axes."
        )

    def sections(self, puzzle: LayoutPuzzle) -> Sequence[Section]:
        counted = COUNTED_IN_STEPS if puzzle.graph().step else COUNTED
        return [
            Section("Graph", [(line, "") for line in graph_lines(puzzle)]),
            Section("Counted", (*counted, LEFT_OUT)),
            Section("Calls", CALLS),
        ]

    def overview(self, slugs: Sequence[str]) -> Overview:
        numbers = [Column(heading, "right", no_wrap=True) for heading in ("ops", "moved", "held")]
        columns = [Column("#", "right"), Column("puzzle", no_wrap=True, style="bold"), Column("title"), *numbers]
        rows = [
            (
                str(LAYOUT_PUZZLES.number(p.slug)),
                p.slug,
                p.title,
                str(p.annotations),
                f"{p.target:,}",
                f"{p.memory_cap:,}",
            )
            for p in map(self.puzzle, slugs)
        ]
        notes = ["Limits: operators to configure; bytes moved in total; bytes held by each device."]
        return Overview(columns, rows, notes)

    def devices(self, puzzle: LayoutPuzzle) -> int:
        return puzzle.graph().devices

    # --- Pictures and tensors ---

    def picture(self, puzzle: LayoutPuzzle, kept: str, judged: bool = True) -> str:
        from .draw import plan_picture

        return plan_picture(self.restored(puzzle, kept), puzzle)

    def picture_text(self, puzzle: LayoutPuzzle, kept: str, width: int) -> str:
        from drawing.layouts.text import explained

        plan = self.restored(puzzle, kept)
        return "" if plan is None else explained(plan, width).plain

    def draw(self, puzzle: LayoutPuzzle, options: DrawOptions, bench: Workbench) -> bool:
        from .draw import draw_plan_of

        return draw_plan_of(puzzle, options, bench)

    def require_runnable(self, puzzle: LayoutPuzzle, options: TensorOptions) -> None:
        if options.output:
            raise OptionError(f"{puzzle.slug} is a layout, and 'puzzles draw' draws it; leave out -o")

    def run_on_tensors(self, puzzle: LayoutPuzzle, options: TensorOptions, bench: Workbench) -> bool:
        from .run_on_tensors import replay_plan

        return replay_plan(puzzle, options, bench)


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
