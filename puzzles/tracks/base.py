"""Base class of a track: its puzzles, the runs that it asks for and their scores, its words, pictures and replays.

All others know a track by this class only, so a package from outside can add one: see `puzzles.tracks.register`."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeVar

from puzzles.catalog.listing import Listing
from puzzles.catalog.puzzle import Puzzle
from puzzles.sandbox.deadline import TIME_LIMIT
from puzzles.sandbox.worker.stages.stage import DefinitionSite

from .open_track import OpenTrack
from .outcomes import SEE_NOTE, LocalRun, Measure, Row, RunRequest, amount, capitalized, listed
from .shown import OptionError, PuzzleGroup, Section
from .workbench import DrawOptions, TensorOptions, Turns, Workbench

P = TypeVar("P", bound=Puzzle)


class Track(OpenTrack[P], ABC):
    """A kind of puzzle. Puzzles are loaded when they are first used, because some need numpy."""

    name: str
    """In commands and in results."""
    title: str
    idea: str
    """The question that its puzzles ask."""
    colours: Sequence[str] = ()
    """What the colours of its pictures may show, if a player can choose."""
    stage: str
    """Dotted name of the module that runs definitions in the worker; see `puzzles.sandbox.worker.stages`."""
    max_result: int = 1 << 20
    """Bytes that one run may send back."""
    reasons: Sequence[str] = ("layout",)
    """One-word reasons of failures that its runs may report, besides the reasons of every track. Any code may use
    `lib.layout`."""
    why_title: str = "where memory and traffic go"
    in_browser: bool = False
    """True if the page plays it."""
    page_needs: Sequence[str] = ()
    """What it needs besides Python: "numpy"; "suspending" of Python by the browser, where devices wait in calls."""
    columns: Sequence[tuple[str, str]] = ()
    """Columns of tables of results: heading and figure, with its target if one of the `measures` names it. Without them
    `figures_text` fills one column."""
    overview_columns: Sequence[str] = ()
    """Headings of the size and the targets in a table of a chapter's puzzles. Without them, or without a listing, the
    puzzles are listed one below the other."""
    form: str = ""
    """What a player writes, in words."""
    noun: str = "function"
    """Kind of definition that solves a puzzle."""
    graded_by_default: bool = False
    """True if a file is graded on all puzzles of the track, whether it attempts them or not; `is_default` may say it of
    some."""
    star_imports_solve: bool = False
    """True if a name that `from module import *` may have imported is run to find out."""
    is_saved: bool = False
    """True if `verify` can judge a kept run again."""
    has_pictures: bool = False
    """True if `draw` can draw a player's solution."""
    runs_without_tensors: bool = False
    """True if `run --no-tensors` can judge a player's solution."""
    turn_seconds: float = TIME_LIMIT
    """Wall time of one turn of `play`, unless the player sets another limit."""

    # --- Puzzles ---

    @property
    def groups(self) -> Sequence[PuzzleGroup]:
        """The chapters; together all puzzles in the order in which they are best played."""
        chapters = self._listed.chapters
        return [PuzzleGroup(one.name, one.title, one.idea, one.slugs, getattr(one, "folder", "")) for one in chapters]

    @property
    def slugs(self) -> tuple[str, ...]:
        return tuple(slug for group in self.groups for slug in group.slugs)

    def is_default(self, slug: str) -> bool:
        """True if every file is graded on this puzzle, and a fresh file of solutions holds it."""
        return self.graded_by_default

    def puzzle(self, slug: str) -> P:
        """The puzzle of exactly this slug."""
        return self._listed[slug]

    @property
    def _listed(self) -> Listing[P]:
        if self.listing is None:
            raise NotImplementedError(f"the track '{self.name}' defines neither a listing nor groups and puzzles")
        return self.listing

    # --- Grading ---

    @abstractmethod
    def targets(self, puzzle: P) -> Mapping[str, float]:
        """The targets by name, as the puzzle states them."""

    @abstractmethod
    def requests(self, puzzle: P) -> Iterator[RunRequest]:
        """The runs that a definition is judged by: at the shown size first, then at others."""

    @abstractmethod
    def measures(self, puzzle: P, figures: Mapping[str, float]) -> Sequence[Measure]:
        """The figures with their targets; values are None without figures."""

    async def run_here(self, slug: str, definition: Any, request: RunRequest, turns: Turns) -> LocalRun:
        """Runs a definition in this process, on the running event loop, for `play`. Whatever it raises is a failure.

        By default it runs the worker's stage as one turn.
        """
        stage = import_module(self.stage)
        prepared = stage.prepare({**request.data, "slug": slug})
        site = DefinitionSite("", 0)
        result = turns.turn(lambda: stage.run_definition(slug, definition, prepared, site))
        return LocalRun(result.data, failure=result.failure)

    def figures_json(self, figures: Mapping[str, float]) -> dict[str, Any]:
        """The fields of a result in JSON that hold its figures."""
        return {"track": self.name, "figures": dict(figures)}

    def limits_json(self, puzzle: P) -> dict[str, dict[str, float]]:
        """By the name of a figure in JSON: the number that it may be `at_most`, or has to be `below`."""
        return {name: {"at_most": target} for name, target in self.targets(puzzle).items()}

    # --- Kept runs ---

    def sent(self, row: Row) -> str:
        """A run in this process as JSON, from which the judge in another one has all that it needs."""
        return json.dumps(row)

    def row_of_sent(self, text: str) -> Row:
        """The row of a run that another process has sent; a ValueError if the text is none."""
        row = json.loads(text)
        if not isinstance(row, dict):
            raise ValueError("it is not a run")
        return row

    def kept(self, row: Row) -> str:
        """The part of a run from which it can be judged or drawn again, as JSON; empty if there is none."""
        return ""

    def saved_as(self, puzzle: P) -> str:
        """Name of the file for a kept run that `verify` judges again; empty if it cannot."""
        return f"{puzzle.slug}.json" if self.is_saved else ""

    def row_of_saved(self, text: str) -> Row:
        """The row of a saved run.

        Raises:
            ValueError: the text is not a saved run.
        """
        raise ValueError(f"runs of the track '{self.name}' are not saved")

    def restored(self, puzzle: P, kept: str) -> Any:
        """The kept run as an object, for `Result.trace`; None if there is none."""
        return None

    def report(self, puzzle: P, restored: Any) -> Any:
        """A report on a restored run that was correct, for `Result.report`; None if there is none."""
        return None

    # --- Words ---

    def called(self, puzzle: P) -> str:
        """Name of a puzzle in a sentence: 'layout puzzle 4', 'FSDP'."""
        return f"{self.name} puzzle {self._listed.number(puzzle.slug)}"

    def heading(self, puzzle: P) -> str:
        """Name and title: 'Puzzle 4: Fully sharded data parallel'."""
        return f"{capitalized(self.called(puzzle))}: {puzzle.title}"

    def mention(self, puzzle: P) -> str:
        """Name and title within a sentence: 'puzzle 4, Fully sharded data parallel'."""
        return f"{self.called(puzzle)}, {puzzle.title}"

    def listed_as(self, puzzle: P) -> str:
        """Name and title in a list of results."""
        return self.heading(puzzle)

    @abstractmethod
    def limits(self, puzzle: P) -> str:
        """Size and targets in a line."""

    def listed_limits(self, puzzle: P) -> str:
        """The same where the puzzles of a chapter are listed."""
        return self.limits(puzzle)

    def figures_text(self, puzzle: P, figures: Mapping[str, float]) -> str:
        """The figures with their targets in a line: '19.9 timesteps (target < 21), ...'."""
        return ", ".join(measure.text() for measure in self.measures(puzzle, figures))

    @abstractmethod
    def starter_head(self, puzzles: Sequence[P]) -> str:
        """The imports that the starters of these puzzles need."""

    @abstractmethod
    def signature(self, slug: str) -> str:
        """Beginning of a definition: 'def fsdp(model)'."""

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
        """What is new in a puzzle's setting, as the rows of a table that follows its statement."""
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

    # --- Pictures and tensors ---

    def picture(self, puzzle: P, kept: str, judged: bool = True) -> str:
        """A kept run as SVG, with the referee's words unless they are shown elsewhere; empty if there is none. A track
        with `colours` also takes one of them as `colour`."""
        return ""

    def pictures(self, puzzle: P, kept: str, figures: Mapping[str, float], colour: str = "layer") -> Sequence[str]:
        """All pictures of a kept run for a report, as SVG; some may be empty."""
        return [self.picture(puzzle, kept, **self.coloured(colour))]

    def beside_reference(self, puzzle: P, kept: str, colour: str = "layer") -> str:
        """A kept run next to the reference's as SVG; empty if there is no such picture."""
        return ""

    def coloured(self, colour: str) -> dict[str, Any]:
        """What the methods that draw are given for a `colour` that a player has chosen, where there is a choice."""
        return {"colour": colour} if self.colours else {}

    def picture_text(self, puzzle: P, kept: str, width: int) -> str:
        """A kept run as lines of text for a terminal; empty if there is none. A track with `colours` also takes one of
        them as `colour`."""
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
        if options.output:
            raise OptionError(f"there is no picture of {puzzle.slug}; leave out -o")

    def run_on_tensors(self, puzzle: P, options: TensorOptions, bench: Workbench) -> bool:
        """Runs a player's solution on real tensors for `puzzles run`, shows the result, and returns whether everything
        was as predicted. By default that is a run in the sandbox, judged as `grade` judges it."""
        return bench.grade(options.on)
