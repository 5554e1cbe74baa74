"""`puzzles run` of a layout: its plan on the engine, with real tensors; bytes and peaks, predicted and measured."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lib import PuzzleError
from lib.layout import Graph, GraphPlan, propagate
from lib.layout.notation import graph_from_data, graph_to_data
from lib.values.algebra import counted
from puzzles.catalog.layout.puzzle import LayoutPuzzle
from puzzles.catalog.text_lines import print_table
from puzzles.failure import Failure
from puzzles.tracks.workbench import TensorOptions, Workbench

from .judge import plan_of_file

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
    from lib.engine.launcher import by_mpiexec

    request = json.dumps(graph_to_data(plan.graph))
    answered = by_mpiexec(plan.graph.devices, "puzzles.tracks.layout.run_on_tensors", request)
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
    devices = len(result.sent)
    console.print(
        Text(f"{slug} on {counted(devices, 'device')}, {result.on}, small tensors of whole numbers", style="bold")
    )
    console.print(_tensors(result))
    for _, text in plan.paying():
        console.print(Text(text), soft_wrap=True)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("device", "bytes sent", "predicted", "", "peak", ""):
        table.add_column(heading, justify="right", no_wrap=True)
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
