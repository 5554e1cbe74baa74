"""`puzzles run`: a schedule's trace, played on the engine with real tensors; foretold beside measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lib import PuzzleError, Trace, referee, trace_to_json
from lib.engine.replay.replay import Replay, replay, replay_from_json
from puzzles.catalog.engine import EnginePuzzle, trials_of
from puzzles.catalog.schedule import Puzzle
from puzzles.failure import Failure, of_refusal
from puzzles.grading.engine_on_mpi import grade_on
from puzzles.grading.schedule_run import play
from puzzles.grading.submission import Submission
from puzzles.reports.terminal import report_on
from puzzles.sandbox.deadline import TIME_LIMIT, Timer

LETTERS = {
    "forward": "F",
    "backward": "B",
    "loss": "L",
    "update": "U",
    "allreduce": "r",
    "allgather": "g",
    "scatterreduce": "s",
    "pass_to": ">",
    "receive": "<",
}
"""One letter for each operation that takes time, in the picture."""

WIDTH = 72


def run_solution(
    console: Console,
    path: str,
    puzzle: Puzzle,
    on: str = "inprocess",
    ranks: int | None = None,
    small: bool = False,
    output: str = "",
) -> bool:
    """Plays the schedule of one puzzle, as the referee has seen it, and draws it to `output` if that is a file's name.
    Whether all was as foretold."""
    submission = Submission.read(Path(path))
    goal = puzzle.goal if ranks is None else replace(puzzle.goal, size=puzzle.goal.size._replace(ranks=ranks))
    played = play(submission, puzzle.slug, goal.size, Timer(TIME_LIMIT))
    failure = played.failure
    if failure is None and played.trace is not None:
        error = referee(played.trace, goal).error
        failure = None if error is None else of_refusal(error)
    if played.trace is None or failure is not None:
        failure = failure or Failure("crash", f"{path} defines no {puzzle.slug}; name a file that does")
        console.print(Text(f"{puzzle.slug} is not run: {failure.message}"), soft_wrap=True)
        return False
    try:
        result = on_transport(played.trace, on, small)
    except PuzzleError as why:
        console.print(Text(f"{puzzle.slug} could not be run: {why}"), soft_wrap=True)
        return False
    show(console, puzzle.slug, result)
    if output:
        try:
            draw(output, puzzle, played.trace, result)
        except PuzzleError as why:
            raise click.UsageError(str(why)) from None
        console.print(f"Wrote {output}.")
    return result.passed


def run_class(console: Console, path: str, puzzle: EnginePuzzle, on: str, devices: int | None) -> bool:
    """Tries the class of an engine puzzle on a transport. Whether it passed."""
    needed = trials_of(puzzle)[0]().devices
    if devices not in (None, needed):
        console.print(f"{puzzle.slug} is tried on {needed} devices; leave out -n, or say -n {needed}")
        return False
    try:
        verdicts = grade_on(path, puzzle, on)
    except PuzzleError as why:
        console.print(Text(f"{puzzle.slug} could not be run: {why}"), soft_wrap=True)
        return False
    if not verdicts:
        console.print(Text(f"{path} has no class {puzzle.slug} yet; see 'puzzles start {puzzle.slug}'"), soft_wrap=True)
        return False
    report_on(console, f"{path}, {on}", verdicts[0])
    return all(verdict.status == "passed" for verdict in verdicts)


def on_transport(trace: Trace, on: str, small: bool) -> Replay:
    """The replay: here, or by as many processes as there are ranks."""
    if on != "mpi":
        return replay(trace, on, small)
    from lib.engine.transports.mpi.spawn import by_mpiexec

    request = json.dumps({"trace": trace_to_json(trace), "small": small})
    return replay_from_json(by_mpiexec(len(trace.ranks), "lib.engine.replay.replay", request))


def draw(output: str, puzzle: Puzzle, trace: Trace, result: Replay) -> None:
    """The foretold timeline above the measured one, as a file.

    Raises:
        PuzzleError: it cannot be written.
    """
    from drawing import draw_replay, save

    same = sum(rank.same for rank in result.ranks)
    told = [
        f"On {len(result.ranks)} devices, {result.on}, {_tensors(result)}.",
        f"{_weights(result)} Memory, messages and bytes as foretold on {same} of {len(result.ranks)} ranks.",
    ]
    times = [[(span.start, span.end) for span in rank] for rank in result.measured]
    save(draw_replay(trace, times, puzzle.title, told), output)


def show(console: Console, slug: str, result: Replay) -> None:
    """The verdict, each rank's figures, and two pictures of the time."""
    console.print(Text(f"{slug} on {len(result.ranks)} devices, {result.on}, {_tensors(result)}", style="bold"))
    console.print(_weights(result))
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("rank", "peak bytes", "messages", "bytes sent", "as foretold"):
        table.add_column(heading, justify="right", no_wrap=True)
    for rank, r in enumerate(result.ranks):
        pairs = ((r.peak, r.predicted_peak), (r.messages, r.predicted_messages), (r.sent, r.predicted_sent))
        table.add_row(str(rank), *(_figure(*pair) for pair in pairs), "equal" if r.same else "DIFFERS")
    console.print(table)
    for line in pictures(result, min(console.width, WIDTH + 12) - 12):
        console.print(Text(line), soft_wrap=True)


def _figure(measured: int, foretold: int) -> str:
    return f"{measured:,}" if measured == foretold else f"{measured:,} (foretold {foretold:,})"


def _tensors(result: Replay) -> str:
    return "small tensors of whole numbers" if result.small else "tensors of 512 x 512, float32"


def _weights(result: Replay) -> str:
    if not result.same_weights:
        return f"The updated weights DIFFER from those of a single device (by {result.error:.2g} of the largest)."
    how = "exactly" if not result.error else f"within {result.error:.1g} of the largest"
    return f"The updated weights are those of a single device, {how}."


def pictures(result: Replay, width: int = WIDTH) -> list[str]:
    """Foretold and measured time, one line for each rank, each picture as wide as its last event's end."""
    lines = []
    for title, spans, unit in (("foretold", result.predicted, 1.0), ("measured", result.measured, 1e3)):
        end = max((span.end for rank in spans for span in rank), default=0) or 1
        shown = f"{end:g} steps" if title == "foretold" else f"{end * unit:.3g} ms"
        lines.append(f"{title}, {shown}")
        for rank, events in enumerate(spans):
            lines.append(f"{rank:>4} |{_lane(events, width, end)}|")
    working = sum(span.end - span.start for rank in result.measured for span in rank) or 1
    lines.append("share of the work, foretold and measured: " + ", ".join(_shares(result, working)))
    lines.append("  ".join(f"{letter} {name}" for name, letter in LETTERS.items()))
    return lines


def _lane(events: Sequence[tuple[str, int | None, float, float]], width: int, end: float) -> str:
    lane = [" "] * width
    for name, _, start, stop in events:
        first = min(int(start / end * width), width - 1)
        for column in range(first, max(first + 1, round(stop / end * width))):
            if column < width and (lane[column] == " " or stop - start > end / width):
                lane[column] = LETTERS[name]
    return "".join(lane)


def _shares(result: Replay, working: float) -> list[str]:
    foretold: dict[str, float] = {}
    measured: dict[str, float] = {}
    for spans, shares in ((result.predicted, foretold), (result.measured, measured)):
        for rank in spans:
            for span in rank:
                shares[span.name] = shares.get(span.name, 0.0) + span.end - span.start
    total = sum(foretold.values()) or 1
    return [
        f"{name} {foretold[name] / total:.0%} {measured[name] / working:.0%}" for name in LETTERS if name in foretold
    ]
