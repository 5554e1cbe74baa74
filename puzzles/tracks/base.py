"""A track: its puzzles, and three objects that say everything else of them, in files of these names:

- `judge.py`: the runs that a definition is judged by, their scores, and what is kept of them.
- `words.py`: targets, figures and sentences: names, headings, lines below a title, sections of a page.
- `show.py`: pictures, and runs on real tensors.

All others know a track by these classes only, so a package from outside can add one: see `puzzles.tracks.register`. A
method that is not abstract is an option; by default a track does without. What a file of puzzles states of its
reference, besides targets, is an optional object, `references`.

One class with all of this was considered, and was the design before: it needed a second mechanism, which found a
track's functions by the names of their modules, because judging needs numpy and listing must not. Here an object is
loaded when it is first asked for, with all that it imports. A fourth object for puzzles in files was the design after
that; all of it served schedules, but for the names of folders and classes.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from io import StringIO
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from puzzles.catalog.content import PuzzleGroup, read_puzzle
from puzzles.catalog.fields import Fields, OwnPuzzleError, RefusedError
from puzzles.catalog.puzzle import Listing, Puzzle
from puzzles.failure import Failure
from puzzles.sandbox.limits import TIME_LIMIT
from puzzles.sandbox.worker.stages import DefinitionSite, stage_of

from .outcomes import SEE_NOTE, LocalRun, Measure, Row, RunOutcome, RunRequest, amount, capitalized, listed

if TYPE_CHECKING:
    from rich.console import Console


P = TypeVar("P", bound=Puzzle)


class Section(NamedTuple):
    """A part of a puzzle's page: lines to show as they are, each with its meaning, which may be empty."""

    title: str
    lines: Sequence[tuple[str, str]]


class OptionError(RefusedError):
    """A command's option that a track does not support. The text says what to do instead."""


def part(name: str, module: str = "") -> Any:
    """An object of a track: of the class of this name, in a module beside the track, by default that of its name."""

    def made(track: Track[Any]) -> Any:
        return getattr(import_module(f"{type(track).__module__}.{module or name.lower()}"), name)(track)

    return cached_property(made)


class Track(Generic[P]):
    """A kind of puzzle. Puzzles are loaded when they are first used, because some need numpy."""

    name: str
    """In commands and in results."""
    title: str
    idea: str
    """The question that its puzzles ask."""
    listing: Listing[P] | None = None
    """The puzzles of a track to which chapters can be added; other tracks define `groups` and `puzzle` themselves."""
    in_browser: bool = False
    """True if the page plays it."""
    page_needs: Sequence[str] = ()
    """What it needs besides Python: "numpy"; "suspending" of Python by the browser, where devices wait in calls."""
    needs_trials: bool = False
    """True if a puzzle needs a Python file with trials, which tell right results."""
    solutions: str = ""
    """The folder of the references of the game's puzzles, in `solutions`."""

    judge: Judge[P] = part("Judge")
    words: Words[P] = part("Words")
    show: Show[P] = part("Show")
    references: References[P] | None = None
    """What its files state of reference solutions, if they state anything but targets."""

    @property
    def groups(self) -> Sequence[PuzzleGroup]:
        """The chapters; together all puzzles in the order in which they are best played."""
        return self.puzzles.chapters

    @property
    def slugs(self) -> tuple[str, ...]:
        return tuple(slug for group in self.groups for slug in group.slugs)

    def is_default(self, slug: str) -> bool:
        """True if every file is graded on this puzzle, and a fresh file of solutions holds it."""
        return False

    def puzzle(self, slug: str) -> P:
        """The puzzle of exactly this slug."""
        return self.puzzles[slug]

    def read(self, slug: str, fields: Fields) -> P:
        """The puzzle that the fields of a file describe.

        Raises:
            OwnPuzzleError: they do not; or puzzles of this track are written in Python.
        """
        if self.listing is None:
            raise OwnPuzzleError(f"{fields.where}: puzzles of the track '{self.name}' are written in Python")
        puzzle: P = read_puzzle(self.name, slug, fields)
        return puzzle

    @property
    def puzzles(self) -> Listing[P]:
        """The listing of a track that has one."""
        if self.listing is None:
            raise NotImplementedError(f"the track '{self.name}' defines neither a listing nor groups and puzzles")
        return self.listing


class TrackPart(Generic[P]):
    """One of the four objects of a track."""

    def __init__(self, track: Track[P]) -> None:
        self.track = track


class Judge(TrackPart[P], ABC):
    """The runs that a definition is judged by, and what is kept of them."""

    stage: str
    """What runs definitions in the worker: a module by its dotted name, or 'module:Class'; see
    `puzzles.sandbox.worker.stages`."""
    max_result: int = 1 << 20
    """Bytes that one run may send back."""
    reasons: Sequence[str] = ("layout",)
    """One-word reasons of its failures, besides the reasons of every track. Any code may use `lib.layout`."""
    is_saved: bool = False
    """True if a kept run is saved in a file, which `verify` can judge again."""
    turn_seconds: float = TIME_LIMIT
    """Wall time of one turn of `play`, unless the player sets another limit."""

    @abstractmethod
    def requests(self, puzzle: P) -> Iterator[RunRequest]:
        """The runs that a definition is judged by: at the shown size first, then at others."""

    async def run_here(self, slug: str, definition: Any, request: RunRequest, turns: Turns) -> LocalRun:
        """Runs a definition in this process, on the running event loop, for `play`. Whatever it raises is a failure.

        By default it runs the worker's stage as one turn.
        """
        stage = stage_of(self.stage)
        prepared = stage.prepare({**request.data, "slug": slug})
        site = DefinitionSite("", 0)
        result = turns.turn(lambda: stage.run_definition(slug, definition, prepared, site))
        return LocalRun(result.data, failure=result.failure)

    def sent(self, row: Row) -> str:
        """A run in this process as JSON, from which the judge in another one has all that it needs."""
        return (self.kept(row) if self.is_saved else "") or json.dumps(row)

    def kept(self, row: Row) -> str:
        """The part of a run from which it can be judged or drawn again, as JSON; empty if there is none."""
        return ""

    def row_of(self, text: str) -> Row:
        """The row of a run that another process has sent, or that was kept and saved.

        Raises:
            ValueError: the text is not a run.
        """
        try:
            row = json.loads(text)
        except RecursionError:
            row = None
        if not isinstance(row, dict):
            raise ValueError("it is not a run")
        return row

    def restored(self, puzzle: P, kept: str) -> Any:
        """The kept run as an object, for `Result.trace`; None if there is none."""
        return None

    def report(self, puzzle: P, restored: Any) -> Any:
        """A report on a restored run that was correct, for `Result.report`; None if there is none."""
        return None


class Words(TrackPart[P], ABC):
    """Targets and figures, and what is said of a puzzle and of its verdicts."""

    form: str = ""
    """What a player writes, in words."""
    definition: str = ""
    """Beginning of a definition, with {} for its name: 'def {}(model)'."""
    imports: str = ""
    """The imports that starters need."""
    why_title: str = "where memory and traffic go"
    columns: Sequence[tuple[str, str]] = ()
    """Columns of tables of results: heading and figure, with its target if one of the `measures` names it. Without them
    `figures_text` fills one column."""
    overview_columns: Sequence[str] = ()
    """Headings of the size and the targets in a table of a chapter's puzzles. Without them, or without a listing, the
    puzzles are listed one below the other."""

    def targets(self, puzzle: P) -> Mapping[str, float]:
        """The targets by name, as the puzzle states them."""
        return {measure.figure: measure.target for measure in self.measures(puzzle, {})}

    @abstractmethod
    def measures(self, puzzle: P, figures: Mapping[str, float]) -> Sequence[Measure]:
        """The figures with their targets; values are None without figures."""

    def tightest(self, figures: Mapping[str, float]) -> Mapping[str, float]:
        """The lowest targets that these figures meet, by the names that a file of puzzles has."""
        return {name: int(value) for name, value in figures.items()}

    def figures_json(self, figures: Mapping[str, float]) -> dict[str, Any]:
        """The fields of a result in JSON that hold its figures."""
        return {"track": self.track.name, "figures": dict(figures)}

    def limits_json(self, puzzle: P) -> dict[str, dict[str, float]]:
        """By the name of a figure in JSON: the number that it may be `at_most`, or has to be `below`."""
        return {one.figure: {"below" if one.below else "at_most": one.target} for one in self.measures(puzzle, {})}

    def heading(self, puzzle: P) -> str:
        """Name and title: 'fsdp: Fully sharded data parallel'."""
        return f"{puzzle.slug}: {puzzle.title}"

    @abstractmethod
    def limits(self, puzzle: P) -> str:
        """Size and targets in a line."""

    def listed_limits(self, puzzle: P) -> str:
        """The same where the puzzles of a chapter are listed."""
        return self.limits(puzzle)

    def figures_text(self, puzzle: P, figures: Mapping[str, float]) -> str:
        """The figures with their targets in a line: '19.9 timesteps (target < 21), ...'."""
        return ", ".join(measure.text() for measure in self.measures(puzzle, figures))

    def starter_head(self, puzzles: Sequence[P]) -> str:
        """The imports that the starters of these puzzles need."""
        return self.imports

    def signature(self, slug: str) -> str:
        """Beginning of a definition: 'def fsdp(model)'."""
        return self.definition.format(slug)

    @property
    def noun(self) -> str:
        """Kind of definition that solves a puzzle."""
        return "class" if self.signature("").startswith("class ") else "function"

    def record(self, puzzle: P, figures: Mapping[str, float], stars: int, family: str = "") -> str:
        """A sentence on what is best known, and on the third star, after a pass; `family` is the kind of solution,
        where a score says it."""
        return "Three stars: nothing better is known." if stars >= 3 else ""

    def third_star(self, puzzle: P, figures: Mapping[str, float], stars: int, family: str = "") -> str:
        """The sentences of `record` on the third star: what it takes, or that it is earned; empty if a note says it."""
        said = self.record(puzzle, figures, stars, family)
        return "" if said == SEE_NOTE else said

    def built(self, puzzle: P, kept: str) -> str:
        """What a kept run that passed is called: 'data parallelism (Li et al. 2020)'; empty if that is unknown."""
        return ""

    def margin(self, puzzle: P, figures: Mapping[str, float]) -> str:
        """A sentence on how far the figures of a pass are below their targets."""
        counting = [one for one in self.measures(puzzle, figures) if one.met or not one.for_star]
        rest = [(measure.target - (measure.value or 0), measure.words) for measure in counting]
        under = [amount(round(left, 6), words) for left, words in rest if left > 0]
        if not under:
            return f"You meet {'the target' if len(rest) == 1 else 'every target'} exactly."
        exactly = {0: "", 1: " and meet the other target exactly"}.get(
            len(rest) - len(under), " and meet the other targets exactly"
        )
        return f"{capitalized(listed(under))} under target{exactly}."

    def comparison(self, puzzle: P, figures: Mapping[str, float], kept: str) -> Iterable[str]:
        """Sentences on a kept run that passed: how far it is from what is possible, and from the reference solution."""
        return ()

    def setting_rows(self, puzzle: P) -> Sequence[Sequence[str]]:
        """What is new in a puzzle's setting, in Markdown, as the rows of a table that follows its statement; the first
        row has the headings."""
        return ()

    def sections(self, puzzle: P) -> Sequence[Section]:
        """The part of a puzzle's page between its statement and its starter."""
        return ()

    def background(self, puzzle: P) -> Sequence[tuple[str, str]]:
        """Titled paragraphs that follow 'In practice'."""
        return ()

    def sources(self, puzzle: P) -> Sequence[str]:
        return list(filter(None, [*map(str, puzzle.sources), puzzle.credit]))

    def overview_cells(self, puzzle: P) -> Sequence[str]:
        """The cells below `overview_columns`."""
        return ()

    def overview_note(self, puzzles: Sequence[P]) -> str:
        """The line below the table of these puzzles."""
        return ""

    def devices(self, puzzle: P) -> int:
        """Number of ranks or devices at the shown size."""
        return 1


class Show(TrackPart[P]):
    """Pictures of kept runs, and runs on real tensors. A `colour` is what the colours of a picture show, where a track
    has a choice of `colours`."""

    has_pictures: bool = False
    """True if `draw` can draw a player's solution."""
    colours: Sequence[str] = ()

    def picture(self, puzzle: P, kept: str, judged: bool = True, colour: str = "layer") -> str:
        """A kept run as SVG, with the referee's words unless they are shown elsewhere; empty if there is none."""
        return ""

    def pictures(self, puzzle: P, kept: str, figures: Mapping[str, float], colour: str = "layer") -> Sequence[str]:
        """All pictures of a kept run for a report, as SVG; some may be empty."""
        return [self.picture(puzzle, kept, colour=colour)]

    def sketch(self, puzzle: P, rendered: Callable[..., str]) -> str | None:
        """The picture beside a statement on the page and in notebooks, as SVG; empty if the puzzle has none, None if
        its track has none. `rendered` fills a template of the reports, by its name, with the values that it gets."""
        return None

    def beside_reference(self, puzzle: P, kept: str, colour: str = "layer") -> str:
        """A kept run next to the reference's as SVG; empty if there is no such picture."""
        return ""

    def picture_text(self, puzzle: P, kept: str, width: int, colour: str = "layer") -> str:
        """A kept run as lines of text for a terminal; empty if there is none."""
        return ""

    def draw(self, puzzle: P, options: DrawOptions, bench: Workbench) -> bool:
        """Draws a player's solution for `puzzles draw`, and returns whether every run succeeded.

        Raises:
            OptionError: these options are not supported, or nothing is drawn.
            click.ClickException: there is nothing to draw.
        """
        raise OptionError(f"there is no picture of {puzzle.slug}; 'puzzles grade' measures it")

    def require_runnable(self, puzzle: P, options: TensorOptions) -> None:
        """Refuses options of `puzzles run` before anything runs.

        Raises:
            OptionError: the text says which.
        """
        if options.tensors is False:
            raise OptionError(f"{puzzle.slug} always works on tensors; --no-tensors is for schedules")
        if options.on == "torch":
            raise OptionError(
                f"{puzzle.slug} is judged with numpy; in your own program, launch(..., on='torch') runs a class on "
                "PyTorch"
            )
        if options.output:
            raise OptionError(f"there is no picture of {puzzle.slug}; leave out -o")

    def run_on_tensors(self, puzzle: P, options: TensorOptions, bench: Workbench) -> bool:
        """Runs a player's solution on real tensors for `puzzles run`, shows the result, and returns whether everything
        was as predicted. By default that is a run in the sandbox, judged as `grade` judges it."""
        return bench.grade(options.on)


class ReferenceRow(NamedTuple):
    """A row that a file of puzzles has on what its reference scores."""

    table: str
    """The list that it is in."""
    fields: Mapping[str, Any]
    place: str
    """At which size, in words."""
    words: str
    """The figures in words."""
    python: str
    """What a puzzle in Python has instead, and where."""

    def agrees_with(self, measured: ReferenceRow) -> bool:
        """True if each field that it has is as it was measured; a row of a file may have fewer fields."""
        same = (self.table, self.place) == (measured.table, measured.place)
        return same and all(measured.fields.get(name) == content for name, content in self.fields.items())


class References(TrackPart[P], ABC):
    """What a file states of its reference: rows on what it scores in several games."""

    @abstractmethod
    def games(self, puzzle: P) -> Sequence[P]:
        """The games, without targets."""

    @abstractmethod
    def row(self, game: P, puzzle: P, file: str, figures: Mapping[str, float], family: str) -> ReferenceRow | None:
        """The row on the reference in this file, which has these figures in one of those games; None if it needs
        none."""

    @abstractmethod
    def stated(self, puzzle: P, file: str) -> Sequence[ReferenceRow]:
        """The rows on the reference in this file that the puzzle has."""


# --- What a command lends a track ---


T = TypeVar("T")

Runner = Callable[[RunRequest], RunOutcome]
"""Runs the player's definition once, somewhere, and returns what came of it."""


class Turns(Protocol):
    """Runs a player's code in this process, piece by piece, each with a time limit and open to interrupts."""

    def turn(self, work: Callable[[], T]) -> T:
        """Returns what `work` returns."""

    def in_turns(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with each step of the coroutine that it may return as a turn."""


class Workbench(Protocol):
    """Given to `Show.draw` and `Show.run_on_tensors`, for one puzzle."""

    path: str
    """The player's file or folder."""
    console: Console

    def run(self, request: RunRequest, path: str = "") -> RunOutcome:
        """Runs the definition in a file (default: the player's) once, in the sandbox."""

    def absent(self, path: str = "") -> str:
        """The sentence for a file (default: the player's) without a definition of the puzzle."""

    def message(self, failure: Failure, path: str = "") -> str:
        """A failure of a file (default: the player's) as its author reads it: a notebook's lines counted by cell."""

    def refuse(self, why: str) -> bool:
        """Shows why the puzzle is not run, as a sentence that begins with its name, and returns False."""

    def wrote(self, path: str) -> None:
        """Reports a file that was written, and opens it if the player wants that."""

    def require_readable(self, path: str) -> None:
        """Ends the command if a file cannot be read."""

    def files(self, path: str) -> list[str]:
        """The files at or below a path that seem to define the puzzle."""

    def grade(self, where: str = "inprocess") -> bool:
        """Judges the player's definition, shows the verdict, and returns whether it passed."""


def run_once(request: RunRequest, bench: Workbench) -> Row | Failure:
    """What a run of the player's file sent back; or why there is nothing."""
    outcome = bench.run(request)
    return outcome.failure or (Failure("crash", bench.absent()) if outcome.row is None else outcome.row)


def as_svg(place: str, *given: Any, **named: Any) -> str:
    """What 'module:function' draws, as SVG; empty where that fails: some runs cannot be drawn, and that must not cost
    the report."""
    module, _, name = place.partition(":")
    try:
        from drawing import svg

        with redirect_stdout(StringIO()):  # `draw` prints figures, as it always did
            return str(svg(getattr(import_module(module), name)(*given, **named)))
    except Exception:
        return ""


def report_failure(slug: str, failure: Failure | None, bench: Workbench) -> bool:
    """Prints why a run failed, if it did; returns True if it did not."""
    if failure is not None:
        import click  # here, since a browser draws too, and has no commands

        click.echo(f"{slug} failed: {bench.message(failure)}", err=True)
    return failure is None


@dataclass(frozen=True)
class DrawOptions:
    """Options of `puzzles draw`; `output` is empty for the usual name."""

    output: str = ""
    text: bool = False
    width: int = 80
    against: str = ""
    pareto: bool = False
    critical: bool = False
    dark: bool = False
    colour: str = "layer"


@dataclass(frozen=True)
class TensorOptions:
    """Options of `puzzles run`; `devices` is None for as many as the puzzle has, `tensors` for a replay of puzzles
    only. For PyTorch: where it computes, whether it gets a pipeline as CSV, with its `communication`, the folder of a
    `profile`, and its time limit in seconds. `width`: the size of a layer's matrix, 0 for the usual one."""

    on: str = "inprocess"
    devices: int | None = None
    small: bool = False
    output: str = ""
    tensors: bool | None = None
    colour: str = "layer"
    device: str = "cpu"
    pipelining: bool = False
    communication: bool = False
    profile: str = ""
    time_limit: float | None = None
    width: int = 0
