"""`puzzles run` of a schedule: what a free game took; a trace replayed on real tensors, predicted and measured.

The run in the sandbox gives a trace, and only the trace is replayed: the player's code never runs beside the tensors.
So a replay needs no isolation, and PyTorch or MPI need not be in the sandbox. Rejected: tensors in the player's own
run, whose times would include the game's bookkeeping.
"""

import json
from contextlib import redirect_stdout
from io import StringIO
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.text import Text

from lib import PuzzleError, Report, Trace, trace_to_json
from lib.engine.launcher import by_mpiexec
from lib.engine.replay.pipelining import RUNS as RUNS_OF_STAGES
from lib.engine.replay.pipelining import WIDTH as WIDTH_OF_STAGE
from lib.engine.replay.pipelining import MeasuredRun, run_pipelining
from lib.engine.replay.replay import Replay, replay, replay_from_json, usual_width
from lib.ledger.algebra import counted
from lib.pipelines import recognize
from lib.pipelines.torch_csv import Pipeline, event_times
from puzzles.catalog.schedule import SchedulePuzzle
from puzzles.catalog.schedule_papers import with_papers
from puzzles.failure import Failure
from puzzles.text_lines import print_table, table_of_figures
from puzzles.tracks.base import TensorOptions, Workbench
from puzzles.tracks.outcomes import RunRequest

from .free_game import FreeGame, summary
from .judge import request_at, trace_in

WIDTH = 84


def replay_run(puzzle: SchedulePuzzle, options: TensorOptions, bench: Workbench) -> bool:
    """Replays the schedule of one puzzle as the referee saw it, and draws it if there is a file for that.

    Returns True if everything was as predicted.
    """
    size = puzzle.goal.size if options.devices is None else puzzle.goal.size._replace(ranks=options.devices)
    trace = _correct_trace(request_at(puzzle, size), bench)
    if isinstance(trace, Failure):
        return bench.refuse(f"was not run: {bench.message(trace)}")
    if found := recognize(trace):
        bench.console.print(Text(f"This is {with_papers(found)}."))
    return replay_trace(puzzle.slug, puzzle.title, trace, options, bench)


def replay_trace(slug: str, title: str, trace: Trace, options: TensorOptions, bench: Workbench) -> bool:
    """Replays a correct trace, as `replay_run` does, or hands its pipeline to torch.distributed.pipelining."""
    times: Any
    more: Any = {"time_limit": options.time_limit}
    try:
        if options.pipelining:
            pipeline = Pipeline.of(trace)
            ran = run_pipelining(
                pipeline, options.communication, options.width or WIDTH_OF_STAGE, folder=options.profile, **more
            )
            lines, times, passed = lines_of(pipeline, ran), event_times(pipeline, ran.cells), ran.same
            bench.console.print(Text("\n".join([title, *lines])), soft_wrap=True)
        else:
            if options.on == "torch" and not options.small:
                more["width"] = options.width or usual_width(trace, options.device, options.time_limit)
            elif options.on != "mpi":
                more["width"] = options.width
            result = on_transport(
                trace, options.on, options.small, options.device, profile=options.profile, **more, runs=RUNS
            )
            title = f"{title}: {_runs(result)}"
            lines, times, passed = captions(result), times_of(result), result.passed
            show_replay(bench.console, slug, trace, result)
    except PuzzleError as why:
        return bench.refuse(f"could not be run: {why}")
    if options.output:
        import drawing

        measured_first = options.on == "torch"
        picture = drawing.draw_replay(trace, times, title, lines, False, options.colour, measured_first)
        drawing.save(picture, options.output)
        bench.wrote(options.output)
    if options.profile:
        bench.console.print(f"Wrote {options.profile}/rank0.json and on; next: puzzles profile {options.profile}")
    return passed


def lines_of(pipeline: Pipeline, ran: MeasuredRun) -> list[str]:
    """What torch.distributed.pipelining ran, and what was measured."""
    table = pipeline.table
    how = "equal one process's" if ran.same else "DIFFER from one process's"
    busy = [sum(end - start for start, end in cells.values()) / ran.seconds for cells in ran.cells]
    return [
        f"PyTorch ran {counted(table.stages, 'stage')}, {counted(table.batches, 'microbatch')}, on "
        f"{counted(table.ranks, 'process')} (gloo, float64).",
        f"The gradients {how}: they differ by {ran.error:.1g} of the largest.",
        f"The median of {RUNS_OF_STAGES} measured steps took {_length(ran.seconds)}; busy: "
        + ", ".join(f"rank {rank} {share:.0%}" for rank, share in enumerate(busy))
        + ".",
    ]


def _length(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} µs"


def _correct_trace(request: RunRequest, bench: Workbench) -> Trace | Failure:
    """The trace of a run that is correct, or the reason why there is none."""
    outcome = bench.run(request)
    if outcome.is_absent:
        return Failure("crash", bench.absent())
    score = request.score_of(outcome)
    return score if isinstance(score, Failure) else trace_in(outcome.row or {})


def on_transport(trace: Trace, on: str, small: bool, device: str = "cpu", **more: Any) -> Replay:
    """The replay: here, or by as many processes as there are ranks. `more` is for `replay`."""
    if on != "mpi":
        return replay(trace, on, small, device=device, **more)
    request = json.dumps({"trace": trace_to_json(trace), "small": small})
    return replay_from_json(by_mpiexec(len(trace.ranks), "lib.engine.replay.replay", request))


RUNS = 3
"""Measured runs of a replay; the first one, which warms up, is not among them."""


def _runs(result: Replay) -> str:
    return "1 measured run" if result.runs == 1 else f"median of {result.runs} measured runs"


def captions(result: Replay) -> list[str]:
    same = sum(rank.same for rank in result.ranks)
    return [
        f"On {counted(len(result.ranks), 'device')}, {result.on}, {_tensors(result)}.",
        f"{_weights(result)} Memory, messages and bytes as predicted on {same} of "
        f"{counted(len(result.ranks), 'rank')}.",
    ]


def times_of(result: Replay) -> list[list[tuple[float | None, ...]]]:
    """The measured times of events, as pictures take them."""
    return [[(span.start, span.end, span.called, span.awaited) for span in rank] for rank in result.measured]


def show_replay(console: Console, slug: str, trace: Trace, result: Replay) -> None:
    """The verdict, each rank's figures, and two pictures of the time."""
    from drawing.predicted_vs_measured import replay_text

    console.print(
        Text(f"{slug} on {counted(len(result.ranks), 'device')}, {result.on}, {_tensors(result)}", style="bold")
    )
    console.print(_weights(result))
    tiers = ["bytes on tiers"] if any(r.parked or r.predicted_parked for r in result.ranks) else []
    table = table_of_figures("rank", "peak bytes", *tiers, "messages", "bytes sent", "as predicted")
    for rank, r in enumerate(result.ranks):
        pairs = [(r.peak, r.predicted_peak), (r.messages, r.predicted_messages), (r.sent, r.predicted_sent)]
        if tiers:
            pairs.insert(1, (r.parked, r.predicted_parked))
        table.add_row(str(rank), *(_figure(*pair) for pair in pairs), "equal" if r.same else "DIFFERS")
    print_table(console, table)
    for note in result.notes:
        console.print(Text(note))
    console.print(Text(replay_text(trace, times_of(result), min(console.width, WIDTH))), soft_wrap=True)


def _figure(measured: int, predicted: int) -> str:
    return f"{measured:,}" if measured == predicted else f"{measured:,} (predicted {predicted:,})"


def _tensors(result: Replay) -> str:
    return "small tensors of whole numbers" if result.small else f"matrices of {result.width} x {result.width}, float32"


def _weights(result: Replay) -> str:
    what = "outputs" if result.results == "outputs" else "updated weights"
    if not result.same_weights:
        return f"The {what} DIFFER from a single device's (by {result.error:.2g} of the largest)."
    how = "exactly" if not result.error else f"within {result.error:.1g} of the largest"
    return f"The {what} equal a single device's, {how}."


def run_freely(game: FreeGame, options: TensorOptions, bench: Workbench) -> bool:
    """Runs and judges a free game, and returns whether it is correct, and on tensors as predicted."""
    outcome = bench.run(game.request())
    if outcome.is_absent:
        return bench.refuse(f"was not run: {bench.absent()}")
    judged = game.judged(outcome)
    if isinstance(judged, Failure):
        return bench.refuse(f"is not correct ({game.described}): {bench.message(judged)}")
    trace, report = judged
    show_report(bench.console, game, trace, report)
    if options.tensors:
        return replay_trace(game.slug, game.title, trace, options, bench)
    if options.output:
        import drawing

        with redirect_stdout(StringIO()):  # `draw` prints figures, which are shown already
            picture = drawing.draw(trace, game.title, colour=options.colour)
        drawing.save(picture, options.output)
        bench.wrote(options.output)
    return True


def show_report(console: Console, game: FreeGame, trace: Trace, report: Report) -> None:
    """What a correct run is and took: sentences, and a row for each rank, or for several neighbours that are alike."""
    console.print(Text(game.title, style="bold"), soft_wrap=True)
    for line in summary(trace, report):
        console.print(Text(line))
    table = table_of_figures("rank", "busy", "peak memory", "messages", "bytes sent")
    rows = [(f"{r.busy:.1%}", f"{max(r.memory):,}", f"{r.messages:,}", f"{r.bytes_sent:,}") for r in report.ranks]
    for cells, alike in groupby(range(len(rows)), rows.__getitem__):
        ranks = list(alike)
        table.add_row(str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}", *cells)
    print_table(console, table)
    if game.note:
        console.print(Text(game.note))
