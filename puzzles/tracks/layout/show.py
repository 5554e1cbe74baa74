"""Shows the completed plan of a layout: as a picture, as text, as a page, and on the engine with real tensors.

Operators have their strategies, edges the bytes that they move. A run on tensors uses small whole numbers, so products
are exact in single precision and a difference is an error; only gelu and softmax leave fractions. It compares every
tensor with the stand-alone program's, and bytes and peaks with the plan's. A target that is missed does not matter
here. Rejected: drawing the player's own calls of `shard`, which say nothing of what propagation adds to them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from lib import PuzzleError
from lib.layout import Graph, GraphPlan, complete, propagate
from lib.layout.notation import graph_from_data, graph_to_data
from lib.ledger.algebra import counted
from puzzles.catalog.layout.puzzle import LayoutPuzzle
from puzzles.failure import Failure, write_file
from puzzles.text_lines import print_table, table_of_figures
from puzzles.tracks import base
from puzzles.tracks.base import DrawOptions, OptionError, TensorOptions, Workbench, as_svg, report_failure
from puzzles.tracks.outcomes import capitalized

from .judge import plan_of_file

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

TEXT_WIDTH = 100
"""Columns of text in a file."""
MAX_DEVICES = 64
"""As many as the picture of who holds what shows."""


class Show(base.Show[LayoutPuzzle]):
    has_pictures = True

    def picture(self, puzzle: LayoutPuzzle, kept: str, judged: bool = True, colour: str = "layer") -> str:
        """The plan of a kept run as SVG; empty if there is none."""
        plan = self.track.judge.restored(puzzle, kept)
        return as_svg("drawing.layout_graph:draw_plan", plan, puzzle.title, **limits(puzzle)) if plan else ""

    def picture_text(self, puzzle: LayoutPuzzle, kept: str, width: int, colour: str = "layer") -> str:
        from drawing.layout_text import explained

        plan = self.track.judge.restored(puzzle, kept)
        return "" if plan is None else explained(plan, width).plain

    def sketch(self, puzzle: LayoutPuzzle, rendered: Callable[..., str]) -> str:
        """The graph as it is given, completed by the rule."""
        from drawing import svg
        from drawing.layout_graph import draw_plan

        if not puzzle.given:
            return ""  # nothing to complete it from
        return svg(draw_plan(propagate(puzzle.graph()), "The graph as it is given, completed by the rule"))

    def draw(self, puzzle: LayoutPuzzle, options: DrawOptions, bench: Workbench) -> bool:
        """`puzzles draw` of a layout: writes the picture, and returns whether there is a plan."""
        if options.against or options.pareto or options.critical or options.colour != "layer":
            raise OptionError(f"{puzzle.slug} is a layout; only its plan can be drawn, without these options")
        target = options.output or f"{puzzle.slug}.svg"
        write = None if options.text and not options.output else _writer(puzzle, target, options.dark)
        plan = plan_of_file(puzzle, bench)
        if isinstance(plan, Failure):
            return report_failure(puzzle.slug, plan, bench)
        if options.text:
            bench.console.print(text_of_plan(plan, puzzle, options.width), soft_wrap=True, end="")
        if write is not None:
            write(plan)
            bench.wrote(target)
        return True

    def require_runnable(self, puzzle: LayoutPuzzle, options: TensorOptions) -> None:
        if options.output:
            raise OptionError(f"{puzzle.slug} is a layout, and 'puzzles draw' draws it; leave out -o")
        super().require_runnable(puzzle, options)

    def run_on_tensors(self, puzzle: LayoutPuzzle, options: TensorOptions, bench: Workbench) -> bool:
        return replay_plan(puzzle, options, bench)


def text_of_plan(plan: GraphPlan, puzzle: LayoutPuzzle, width: int) -> Text:
    """The plan, who holds what, and how the rule got there, as text of `width` columns."""
    from rich.text import Text  # here, since a browser shows plans too, and has no terminal

    from drawing.layout_text import holders_text, plan_text, propagation_text

    head, steps = Text("\nWho holds what\n"), Text("\nStep by step\n")
    found = plan_text(plan, width, **limits(puzzle)) + head + holders_text(plan, width)
    return found + steps + propagation_text(plan, width)


def _writer(puzzle: LayoutPuzzle, target: str, dark: bool) -> Callable[[GraphPlan], None]:
    """What writes a plan to a file of this name: a picture, text as .txt, or a page with everything as .html."""
    import drawing
    from drawing.layout_graph import draw_plan

    ending = Path(target).suffix.lower()
    if ending == ".txt":
        return lambda plan: write_file(target, text_of_plan(plan, puzzle, TEXT_WIDTH).plain)
    if ending == ".html":
        return lambda plan: write_file(target, plan_page(plan, puzzle, dark))
    drawing.require_ending(target, of_a_run=False)
    return lambda plan: drawing.save(draw_plan(plan, puzzle.title, dark, **limits(puzzle)), target)


def plan_page(plan: GraphPlan, puzzle: LayoutPuzzle, dark: bool = False) -> str:
    """A page that needs nothing else: the plan, who holds what, each step of the propagation, and all of it as text."""
    import drawing
    from drawing.layout_graph import draw_plan, draw_plans, draw_propagation
    from drawing.layout_tensor import draw_holders
    from drawing.palette import INK, PAPER, dark_variant

    pictures = [draw_plan(plan, "The plan", dark, **limits(puzzle))]
    if plan.graph.pins:
        title = "Ends propagated as GSPMD does"
        pictures.append(draw_plans({title: complete(puzzle.graph(), {}).plan, "The plan": plan}, title, dark))
    if plan.graph.devices <= MAX_DEVICES:
        pictures.append(draw_holders(plan, dark=dark, cap=puzzle.memory_cap))
    pictures.append(draw_propagation(plan, dark=dark))
    ink, paper = (dark_variant(colour) if dark else colour for colour in (INK, PAPER))
    style = f"body{{margin:2em;font-family:sans-serif;color:{ink};background:{paper}}}svg{{display:block;margin:1em 0}}"
    text = text_of_plan(plan, puzzle, TEXT_WIDTH).plain
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(puzzle.title)}</title>\n'
        f"<style>{style}</style>\n<h1>{escape(puzzle.title)}</h1>\n<p>{escape(capitalized(puzzle.limits))}.</p>\n"
        + "\n".join(map(drawing.svg, pictures))
        + f"\n<details><summary>The same as text</summary><pre>{escape(text)}</pre></details></html>\n"
    )


class PlanLimits(TypedDict):
    """The keyword arguments of `draw_plan` that a puzzle decides."""

    target: int
    cap: int
    given: tuple[str, ...]


def limits(puzzle: LayoutPuzzle) -> PlanLimits:
    """What a picture of a plan shows of its puzzle."""
    return {"target": puzzle.target, "cap": puzzle.memory_cap, "given": tuple(puzzle.given)}


# --- On real tensors ---


CLOSE = 1e-5
"""Of a tensor's largest element: gelu and softmax leave fractions, which other orders of summing round differently."""

SPREAD = 4
"""Weights and inputs are whole numbers below this, of either sign; products of them are exact in single precision."""


@dataclass(frozen=True)
class PlanRun:
    """Result of a run: the worst error over all tensors; by device the bytes predicted and sent, the peak predicted and
    measured, and the calls."""

    on: str
    tensors: int
    error: float
    predicted: tuple[int, ...]
    sent: tuple[int, ...]
    predicted_peaks: tuple[int, ...]
    peaks: tuple[int, ...]
    calls: tuple[dict[str, int], ...]

    @property
    def passed(self) -> bool:
        return self.error <= CLOSE and (self.sent, self.peaks) == (self.predicted, self.predicted_peaks)


def replay_plan(puzzle: LayoutPuzzle, options: TensorOptions, bench: Workbench) -> bool:
    """Plans a player's layout, runs the plan, and returns whether tensors, bytes and peaks are as predicted; targets do
    not matter here."""
    needed = puzzle.graph().devices
    if options.devices not in (None, needed):
        return bench.refuse(f"is laid out on {needed} devices; leave out -n, or use -n {needed}")
    plan = plan_of_file(puzzle, bench)
    if isinstance(plan, Failure):
        return bench.refuse(f"was not run: {bench.message(plan)}")
    try:
        result = on_transport(plan, options.on)
    except PuzzleError as why:
        return bench.refuse(f"could not be run: {why}")
    show_plan_run(bench.console, puzzle.slug, plan, result)
    return result.passed


def on_transport(plan: GraphPlan, on: str) -> PlanRun:
    """Runs the plan here, or in as many processes as there are devices, which get the configured graph."""
    if on != "mpi":
        return run_plan(plan, on)
    from lib.engine.launcher import by_mpiexec  # here, since a picture needs no engine

    request = json.dumps(graph_to_data(plan.graph))
    answered = by_mpiexec(plan.graph.devices, "puzzles.tracks.layout.show", request)
    return PlanRun(**json.loads(answered, object_hook=_tuples))


def answer(request: str) -> str:
    """Runs the plan of a request in one of several processes under mpiexec."""
    graph = graph_from_data(json.loads(request))
    return json.dumps(asdict(run_plan(propagate(graph), "mpi")))


def run_plan(plan: GraphPlan, on: str) -> PlanRun:
    """Runs the plan on the engine, and compares every tensor with the stand-alone program's."""
    values = whole_values(plan.graph)
    done, alone = plan.on_engine(values, on), plan.graph.run(values)
    errors = [_error(done.value(name), alone[name]) for name in plan.operators]
    calls = tuple(dict(meter.calls) for meter in done.meters)
    predicted, peaks = tuple(map(int, plan.sent)), tuple(map(int, plan.timeline.peaks))
    return PlanRun(on, len(errors), float(np.max(errors)), predicted, done.sent, peaks, done.peaks, calls)


def whole_values(graph: Graph) -> dict[str, Any]:
    """Small whole numbers for every source, in elements of `graph.itemsize` bytes; for a gather, rows of its table."""
    rng = np.random.default_rng(0)
    rows = {op.inputs[1]: op.input_shapes[0][0] for op in graph.operators.values() if op.kind == "gather"}
    values: dict[str, Any] = {}
    for name in graph.sources:
        spread = 2 if graph.step else SPREAD  # a step multiplies more often, and numbers should stay small
        low, high, kind = (0, rows[name], "i") if name in rows else (1 - spread, spread, "f")
        values[name] = rng.integers(low, high, graph.shapes[name]).astype(f"{kind}{graph.itemsize}")
        if graph.sources[name] == "state":
            # as large as averages of squares are: a division by little would magnify rounding
            values[name] = (2.0**22 * (1 + abs(values[name]))).astype(values[name].dtype)
    return values


def show_plan_run(console: Console, slug: str, plan: GraphPlan, result: PlanRun) -> None:
    """Shows the verdict, the edges that were predicted to pay, and each device's bytes and peak."""
    from rich.text import Text  # here, as above

    devices = len(result.sent)
    console.print(
        Text(f"{slug} on {counted(devices, 'device')}, {result.on}, small tensors of whole numbers", style="bold")
    )
    console.print(_tensors(result))
    for _, text in plan.paying():
        console.print(Text(text), soft_wrap=True)
    table = table_of_figures("device", "bytes sent", "predicted", "", "peak", "")
    table.add_column("calls", overflow="fold")
    for device, calls in enumerate(result.calls):
        sent, predicted, peak = result.sent[device], result.predicted[device], result.peaks[device]
        as_predicted = peak == result.predicted_peaks[device]
        table.add_row(
            *(str(device), f"{sent:,}", f"{predicted:,}", "equal" if sent == predicted else "DIFFERS"),
            *(f"{peak:,}", "equal" if as_predicted else f"DIFFERS from {result.predicted_peaks[device]:,}"),
            ", ".join(f"{n} {name}" for name, n in sorted(calls.items())) or "none",
        )
    print_table(console, table)
    console.print(f"{sum(result.sent):,} bytes moved; {sum(result.predicted):,} were predicted.")
    console.print(f"A device holds at most {plan.peak:,} bytes at a time, when {plan.peak_moment}.", markup=False)


def _tensors(result: PlanRun) -> str:
    if not result.error <= CLOSE:  # NaN is not close either
        return f"Tensors DIFFER from a single device's (by {result.error:.2g} of the largest)."
    how = "exactly" if not result.error else f"within {result.error:.1g} of the largest"
    return f"All {result.tensors} results equal a single device's, {how}."


def _error(found: Any, right: Any) -> float:
    """The largest difference, as a share of the largest element."""
    difference = float(np.abs(found - right).max())
    return difference / (float(np.abs(right).max()) or 1.0)


def _tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
