"""`puzzles run`, `export` and `import`: a solution on real tensors, and pipelines from and to PyTorch's files.

What a player wrote runs in the sandbox, which hands over only its trace. A track runs and draws its own puzzles; here
it gets the sandbox and the terminal, as a workbench. With --size or any field of a setting, any function of a file is
played, without targets. A pipeline of PyTorch comes as CSV: its messages are left out on import, because they follow
from the order, and on export unless they are asked for, because PyTorch adds its own. A run that PyTorch cannot express
is refused, with the reason, rather than approximated.
"""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from lib import Costs, PuzzleError, Setting, Size, Trace
from lib import referee as judged
from lib import run as played
from puzzles.catalog.puzzle import Puzzle
from puzzles.failure import Failure, of_source, write_file
from puzzles.judge.discover import submissions
from puzzles.judge.grader import grade_puzzle
from puzzles.judge.session import Session, run_in
from puzzles.judge.submission import Submission
from puzzles.sandbox.limits import TIME_LIMIT, Limits
from puzzles.screens.terminal import report_on
from puzzles.text_lines import next_command
from puzzles.tracks import ALL, Track, track_for, track_of
from puzzles.tracks.base import TensorOptions
from puzzles.tracks.outcomes import RunOutcome, RunRequest

from .params import (
    colour_option,
    require_endings,
    require_picture,
    seconds_text,
    terminal,
    usage_errors,
    write_run,
)
from .puzzle_params import FIELDS, SLUG_TEXT, chosen, costs_text, game_options

if TYPE_CHECKING:
    from lib.pipelines import Timetable
    from puzzles.tracks.free_play import FreeGame


# --- A player's file ---


class CommandWorkbench:
    """The workbench for one definition and one file or folder of a player."""

    def __init__(self, path: str, track: Track[Any], slug: str, seconds: float, opens: bool = False) -> None:
        self.path = path
        self.opens = opens
        self.track = track
        self.slug = slug
        self.limits = Limits(seconds=seconds)
        self.console: Console = terminal()
        self._submissions: dict[str, Submission] = {}

    def _submission(self, path: str = "") -> Submission:
        """A file (default: the player's), read once: runs and messages use the same cells of a notebook."""
        path = path or self.path
        if path not in self._submissions:
            self._submissions[path] = Submission.read(Path(path))
        return self._submissions[path]

    def run(self, request: RunRequest, path: str = "") -> RunOutcome:
        submission = self._submission(path)
        if submission.failure is not None:
            return RunOutcome(failure=submission.failure)
        with Session(submission, self.limits, names=(self.slug,)) as session:
            return run_in(session, self.track, self.slug, request.data, self.limits.seconds)

    def absent(self, path: str = "") -> str:
        slug, track = self.slug, self.track
        start = f", or get a file to write in with '{next_command('start', slug)}'" if slug in ALL else ""
        advice = f"write '{track.words.signature(slug)}:'{start}"
        return f"{path or self.path} has no {track.words.noun} {slug}; {advice}"

    def message(self, failure: Failure, path: str = "") -> str:
        return self._submission(path).placed(failure.message)

    def refuse(self, why: str) -> bool:
        self.console.print(Text(f"{self.slug} {why}"), soft_wrap=True)
        return False

    def wrote(self, path: str) -> None:
        click.echo(f"Wrote {path}.")
        if self.opens and not webbrowser.open(Path(path).resolve().as_uri()):
            click.echo("There is no browser here to open it with.", err=True)

    def require_readable(self, path: str) -> None:
        problem = self._submission(path).problem
        if problem is not None:
            raise click.ClickException(f"{path}: {of_source(problem).message}")

    def files(self, path: str) -> list[str]:
        return [file.path for file in submissions([path]) if Submission.of(file).looks_defined(self.slug)]

    def grade(self, where: str = "inprocess") -> bool:
        slug, submission = self.slug, self._submission()
        with Session(submission, self.limits) as session:
            try:
                verdict = grade_puzzle(track_of(slug).puzzle(slug), session)
            except PuzzleError as why:
                return self.refuse(f"could not be run: {why}")
        if not verdict.attempted:
            begun = f"{slug} in {self.path} is still the starter; write your lines between the two marks"
            self.console.print(Text(begun if submission.looks_defined(slug) else self.absent()), soft_wrap=True)
            return False
        report_on(self.console, f"{self.path}, {where}", verdict)
        return verdict.status == "passed"


# --- Files of PyTorch ---


@click.command()
@click.argument("path", metavar="PATH", type=click.Path(exists=True, dir_okay=False))
@click.argument("name", metavar="SLUG", type=SLUG_TEXT)
@game_options
@click.option(
    "--format", "form", type=click.Choice(["torch-csv"]), default="torch-csv", show_default=True, help="The format."
)
@click.option(
    "--communication", is_flag=True, help="Write messages, gathers and scatters too; by default PyTorch adds its own."
)
@click.option("-o", "output", metavar="FILE.csv", help="Where to write  [default: the terminal]")
@click.option("--time-limit", type=seconds_text, default=TIME_LIMIT, show_default=True, help="Wall time of the run.")
def export(
    path: str, name: str, form: str, communication: bool, output: str | None, time_limit: float, **game: Any
) -> None:
    """Write a pipeline as a CSV file that PyTorch loads.

    The file has a row for each rank and a cell for each action. torch.distributed.pipelining loads it with
    _load_csv(FILE, format="compute_only"), or "compute_comms" with --communication. A run that PyTorch cannot express
    is refused, with the reason.
    """
    from lib.pipelines.torch_csv import write_csv

    found, trace = judged_run(path, name, game, time_limit)
    try:
        text = write_csv(trace, communication)
    except PuzzleError as why:
        raise click.ClickException(f"{found.slug} cannot be exported: {why}") from None
    if output is None:
        click.echo(text, nl=False)
        return
    with usage_errors():
        write_file(output, text)
    click.echo(f"Wrote {output}.")


def judged_run(path: str, name: str, options: Mapping[str, Any], seconds: float) -> tuple[FreeGame, Trace]:
    """The game, and the trace of a correct run."""
    from puzzles.tracks.free_play import FreeGame, own_game

    puzzle = chosen(name, options)
    track = track_for(puzzle)
    if isinstance(puzzle, Puzzle):
        own = own_game(puzzle.slug)
        if own is None:
            raise click.UsageError(
                f"{puzzle.slug} is a puzzle of the track '{track.name}'; only schedules have a trace"
            )
        game = FreeGame(puzzle.slug, *own[1:])
    else:
        game = puzzle
    bench = CommandWorkbench(path, track, game.slug, seconds)
    outcome = bench.run(game.request())
    if outcome.is_absent:
        raise click.ClickException(bench.absent())
    judged = game.judged(outcome)
    if isinstance(judged, Failure):
        raise click.ClickException(f"{game.slug} is not correct ({game.described}): {bench.message(judged)}")
    return game, judged[0]


MAX_FILE = 8 << 20
"""Bytes of a file that is read."""


@click.command("import")
@click.argument("path", metavar="FILE.csv", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--costs", metavar="NAME", type=costs_text, default="parts", help="Play with these costs.  [default: parts]"
)
@click.option("--layers", type=click.IntRange(1, 64), default=1, show_default=True, help="Layers of a stage.")
@click.option(
    "-o", "outputs", metavar="FILE", multiple=True,
    help="Write a file; may be repeated: a picture (.svg, .png, .pdf, .html, .txt), the trace for 'puzzles verify' "
    "(.json), or the order without communication (.csv).",
)  # fmt: skip
@colour_option
def import_(path: str, costs: Costs, layers: int, outputs: tuple[str, ...], colour: str | None) -> None:
    """Play and judge a pipeline from PyTorch's CSV file.

    The file may come from PyTorch's _dump_csv, with or without communication. Its messages are left out, because they
    follow from the order. In the game, each rank runs its cells in order, receives a value before its first use, and
    sends it when it is made.
    """
    from puzzles.tracks.free_play import FreeGame, show_report

    require_picture(colour, outputs)
    require_endings(outputs)
    table, trace = imported(path, layers, Setting(costs))
    report = judged(trace)
    if report.error is not None:
        raise click.ClickException(f"{path} is not correct: {report.error}")
    game = FreeGame(Path(path).stem, Size(*trace.size), trace.setting)
    show_report(terminal(), game, trace, report)
    if layers > 1 and (pairs := sum(len(slot) > 1 for row in table.rows for slot in row)):
        click.echo(
            f"Note: here {pairs} OVERLAP_F_B are played as a forward and then a backward; --layers 1 keeps them, and "
            "so does -o FILE.csv."
        )
    write_run(outputs, game.title, lambda: trace, table, colour=colour)


def imported(path: str, layers: int, setting: Setting) -> tuple[Timetable, Trace]:
    """The order of PyTorch's file, and a run of it."""
    from lib.pipelines import pipeline
    from lib.pipelines.torch_csv import read_csv

    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise click.UsageError(f"{path} has more than {MAX_FILE:,} bytes; a schedule is smaller")
        table = read_csv(data.decode())
        if layers == 1 and any(len(slot) > 1 for row in table.rows for slot in row):
            setting = replace(setting, costs=_with_pairs(setting.costs))
        outcome = played(pipeline(table), layers * table.stages, table.batches, table.ranks, setting=setting)
        if outcome.error is not None:
            raise outcome.error
    except OSError as why:
        raise click.UsageError(f"cannot read {path}: {why.strerror or why}") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{path} is not a text file; PyTorch's CSV has cells such as 0F0") from None
    except PuzzleError as why:
        raise click.UsageError(f"{path}: {why}") from None
    return table, outcome.trace


def _with_pairs(costs: Costs) -> Costs:
    """The same costs; if a pair (a forward and a backward at once) has no price, it takes as long as both together."""
    if costs.priced("pair"):
        return costs
    both = sum(costs.ticks.get(name, 0) for name in ("forward", "backward"))
    return replace(costs, name=f"{costs.name} with pairs", ticks={**costs.ticks, "pair": both})


# --- On real tensors ---


PATIENCE = 300.0
"""Seconds for PyTorch."""


@click.command()
@click.argument("path", metavar="PATH", type=click.Path(exists=True, dir_okay=False))
@click.argument("name", metavar="[SLUG]", required=False, type=SLUG_TEXT)
@game_options
@click.option(
    "--on",
    type=click.Choice(["inprocess", "mpi", "torch"]),
    default="inprocess",
    show_default=True,
    help="Run in this process, or in one process per device over MPI or PyTorch.",
)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", help="Where PyTorch computes.")
@click.option(
    "--through", type=click.Choice(["pipelining"]), help="Hand a pipeline to torch.distributed.pipelining, as CSV."
)
@click.option(
    "--communication", is_flag=True,
    help="With --through: use the schedule's own messages; by default PyTorch adds its own.",
)  # fmt: skip
@click.option(
    "--profile", "folder", metavar="FOLDER", type=click.Path(file_okay=False, path_type=Path),
    help="With --on torch: also write traces of torch.profiler to this folder, for 'puzzles profile'.",
)  # fmt: skip
@click.option("-n", "ranks", type=click.IntRange(1, 64), help="Number of devices  [default: as in the puzzle]")
@click.option("--small", is_flag=True, help="Use small tensors of whole numbers.")
@click.option(
    "--width", type=click.IntRange(16, 32_768), metavar="N",
    help="Size of a layer's matrix, a multiple of 16  [default: 512; on PyTorch so large that a product takes 1 ms]",
)  # fmt: skip
@click.option("-o", "output", metavar="FILE.svg", default="", help="Draw predicted above measured time.")
@colour_option
@click.option(
    "--tensors/--no-tensors", default=None, help="Run on tensors, or only judge  [default: tensors for a puzzle]"
)
@click.option(
    "--time-limit", type=seconds_text, help=f"Wall time of the run  [default: {TIME_LIMIT:g}; for PyTorch {PATIENCE:g}]"
)
@click.pass_context
def run(
    ctx: click.Context, /, path: str, name: str | None, on: str, device: str, through: str | None, communication: bool,
    folder: Path | None, ranks: int | None, small: bool, width: int | None, output: str, colour: str | None,
    tensors: bool | None, time_limit: float | None, **game: Any,
) -> None:  # fmt: skip
    """Run a solution on real tensors.

    Measures memory, messages and bytes, and compares them with the game's predictions; compares the results with a
    single device. The exit code is 0 if all agree. PATH may be a pipeline's .csv from PyTorch, without SLUG.

    With --size or --costs, plays any function in the file, at any size and without targets. The run's figures are
    shown, and the exit code is 0 if it is correct; --tensors, --on, --small and -o run it on tensors too.
    """

    if on != "torch" and (device != "cpu" or through or folder):
        raise click.UsageError("--device, --through and --profile are for --on torch")
    if communication and not through:
        raise click.UsageError("--communication is for --through pipelining")
    if through and (small or device != "cpu"):
        raise click.UsageError("--through pipelining takes no --device or --small")
    if width is not None and (small or on == "mpi" or width % 16):
        raise click.UsageError("--width is a multiple of 16, and not for --small or --on mpi")
    require_picture(colour, output)
    on_tensors = on != "inprocess" or small or width is not None or bool(output)
    if tensors is False and on_tensors:
        raise click.UsageError("--on, --small and -o are for a run on tensors; leave out --no-tensors")
    options = TensorOptions(
        on, ranks, small, output, tensors if tensors is not None else on_tensors or None, colour or "layer", device,
        bool(through), communication, str(folder.resolve()) if folder else "", time_limit or PATIENCE,
        width or 0,
    )  # fmt: skip
    if path.endswith(".csv"):
        others = game["more"] or [field for field in FIELDS if field != "costs" and game[field] is not None]
        if name is not None or ranks is not None or tensors is False or others:
            raise click.UsageError("a .csv states its own size and name; of these options only --costs applies to it")
        puzzle, trace = _in_csv(path, game["costs"])
    elif name is None:
        raise click.UsageError("name the puzzle after the file, as in 'puzzles run mine.py zb_h1'; a .csv needs none")
    else:
        puzzle, trace = chosen(name, game), None
    if ranks is not None and not isinstance(puzzle, Puzzle):
        raise click.UsageError("-n is for a puzzle's own size; set layers, batches and ranks with --size L,B,R")
    track = track_for(puzzle)
    with usage_errors():
        track.show.require_runnable(puzzle, options)
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise click.UsageError(f"cannot write to {folder}: {problem.strerror or problem}") from None
    bench = CommandWorkbench(path, track, puzzle.slug, time_limit or TIME_LIMIT)
    with usage_errors():
        if trace is None:
            passed = track.show.run_on_tensors(puzzle, options, bench)
        else:
            from puzzles.tracks.free_play import replay_trace

            passed = replay_trace(puzzle.slug, puzzle.title, trace, options, bench)
    ctx.exit(0 if passed else 1)


def _in_csv(path: str, costs: Any) -> tuple[Any, Any]:
    from puzzles.tracks.free_play import FreeGame

    _, trace = imported(path, 1, Setting(costs or "parts"))
    return FreeGame(Path(path).stem, trace.size, trace.setting), trace
