"""What passes between the page and its two Pythons, one that runs players' code and one that judges: plain data.

A call is the name of a function and its arguments as JSON, answered as JSON. What the first Python found out in its
runs is a record. The other reads it strictly, field by field, and gives its runs to the same judge as everywhere: a
record may come from hostile code, so nothing in it is believed but the traces that the referee executes again. Puzzles
of teachers: their TOML files go into the archive of the site, without solutions, and are added here. Classes of
teachers do not, because their trials are Python files and would be published with the site.

A link holds a solution, a run or a timetable, compressed in its fragment, which no browser sends to a server. It is
made here, for the page and for `puzzles share`, and read by the page's `share.js` alone.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import tomllib
import zlib
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import resources
from importlib.util import find_spec
from io import BytesIO, StringIO
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile

from lib import PuzzleError
from puzzles.catalog.puzzle import Puzzle
from puzzles.custom import add_folder, folders
from puzzles.failure import Failure, sanitized
from puzzles.judge.judge import judge, run_judge
from puzzles.judge.verdict import Verdict
from puzzles.player.local_run import NotebookDefinition
from puzzles.sandbox.worker.reading import Sketch, bound_names
from puzzles.tracks import TRACKS, Track, track_of
from puzzles.tracks.outcomes import RunOutcome, RunRequest

# --- Puzzles of teachers ---


FILE = "puzzles/page/in_browser/own.json"
"""Their place in the archive."""


def is_played(track: Track[Any], own: bool) -> bool:
    """True if the page plays a track's puzzles. It plays no `own` classes of a teacher: their trials are Python files,
    and would be published with the site."""
    return track.in_browser and not (own and track.needs_trials)


def packed() -> bytes:
    """The files of all folders that have been added, by folder and name, as JSON; empty if there is none to play."""
    found = {
        folder.path.name: {
            own.file.name: own.file.read_text(encoding="utf-8-sig")
            for own in folder.puzzles.values()
            if is_played(TRACKS[own.track], own=True) and own.file.suffix == ".toml"
        }
        for folder in folders()
    }
    played = {name: texts for name, texts in found.items() if texts}
    return json.dumps(played, sort_keys=True).encode() if played else b""


def add(data: bytes, below: Path) -> None:
    """Writes packed files into folders below this one, and adds these. Layouts come with numpy."""
    has_numpy = find_spec("numpy") is not None
    for name, texts in json.loads(data).items():
        folder = below / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            if has_numpy or "numpy" not in TRACKS[tomllib.loads(text)["track"]].page_needs:
                (folder / file).write_text(text, encoding="utf-8")
        if any(folder.iterdir()):
            add_folder(folder)


# --- Calls ---


Calls = Mapping[str, Callable[..., Any]]


async def answered(calls: Calls, name: str, given: str) -> str:
    """What a function returns, or what it refuses, in words."""
    try:
        value = calls[name](*json.loads(given))
        return json.dumps({"value": await value if inspect.isawaitable(value) else value})
    except (SyntaxError, ValueError, PuzzleError) as why:
        return json.dumps({"error": str(why)})


def add_custom_puzzles() -> None:
    """Adds the puzzles of teachers that are in the archive, if there are any."""
    with suppress(OSError):
        add(resources.files(__package__).joinpath("own.json").read_bytes(), Path(mkdtemp()))


# --- The record of a player's runs ---


MAX_RUNS, MAX_TEXT = 100, 2_000
"""Runs of one judgement, and characters of a failure's text."""


class KeptRun(NamedTuple):
    """A run: what a track sends of it, as text, and why it failed. With neither there was no definition."""

    sent: str = ""
    failure: Failure | None = None

    def outcome(self, track: Track[Any]) -> RunOutcome:
        return outcome_of(track, self.sent, self.failure) if self.sent else RunOutcome(None, self.failure)


def outcome_of(track: Track[Any], text: str, failure: Failure | None = None) -> RunOutcome:
    """The outcome of a run in text."""
    try:
        return RunOutcome(track.judge.row_of(text), failure)
    except (ValueError, RecursionError) as why:
        return RunOutcome(failure=Failure("rule", sanitized(f"this run cannot be judged: {why}")))


@dataclass(frozen=True)
class RunRecord:
    """All that a judgement needs: what is known of the definition, and its runs as the judge requests them."""

    problem: Failure | None = None
    sketch: Sketch = Sketch()  # noqa: RUF009  # immutable
    line: int = 0
    runs: tuple[KeptRun, ...] = ()

    @staticmethod
    def runs_of(track: Track[Any], outcomes: Iterable[RunOutcome]) -> tuple[KeptRun, ...]:
        """The runs as the track sends them."""
        return tuple(KeptRun(track.judge.sent(one.row) if one.row is not None else "", one.failure) for one in outcomes)

    def without_lines(self) -> RunRecord:
        """The same with no line anywhere."""
        runs = tuple(run._replace(failure=run.failure and run.failure._replace(line=0)) for run in self.runs)
        problem, found = self.problem and self.problem._replace(line=0), self.sketch._replace(methods=())
        return replace(self, problem=problem, sketch=found, line=0, runs=runs)

    def data(self) -> dict[str, Any]:
        return {
            "problem": self.problem and list(self.problem),
            "sketch": list(self.sketch),
            "line": self.line,
            "runs": [[run.sent, run.failure and list(run.failure)] for run in self.runs],
        }

    @classmethod
    def read(cls, data: Any) -> RunRecord:
        match data:
            case {
                "problem": problem,
                "sketch": [str(digest), (None | list()) as todo, list(methods)],
                "line": int(line),
                "runs": list(runs),
            } if len(runs) <= MAX_RUNS:
                calls = None if todo is None else tuple(_parts(todo, *[str] * len(todo)))
                found = Sketch(digest, calls, tuple(tuple(_parts(one, str, int)) for one in methods))
                return cls(_failure(problem), found, line, tuple(map(_run, runs)))
        raise ValueError("the run left no record that can be judged")


def _parts(data: Any, *kinds: type) -> Any:
    """A list of as many parts, each of its kind."""
    if isinstance(data, list) and len(data) == len(kinds) and all(map(isinstance, data, kinds)):
        return data
    raise ValueError("the record of the run is damaged")


def _run(data: Any) -> KeptRun:
    sent, failure = _parts(data, str, object)
    return KeptRun(sent, _failure(failure))


def _failure(data: Any) -> Failure | None:
    if data is None:
        return None
    reason, sentence, line, file, method = _parts(data, str, str, int, str, str)
    return Failure(reason[:MAX_TEXT], sanitized(sentence[:MAX_TEXT]), line, file[:MAX_TEXT], method[:MAX_TEXT])


MISSING = RunOutcome(failure=Failure("crash", "this run is missing in the record"))


def judged(puzzle: Puzzle, data: Any) -> Verdict:
    """The verdict on a record; a failure if it is none."""
    track = track_of(puzzle.slug)
    try:
        record = RunRecord.read(data)
    except ValueError as why:
        record = RunRecord(problem=Failure("rule", str(why)))
    definition = NotebookDefinition(sketch=record.sketch, line=record.line, problem=record.problem)
    runs = iter(record.runs)

    def outcome(request: RunRequest) -> RunOutcome:
        if request.own is not None:
            return RunOutcome(request.own())
        run = next(runs, None)
        return MISSING if run is None else run.outcome(track)

    return run_judge(judge(puzzle, definition, keep=True), outcome)


def judged_run(puzzle: Puzzle, trace: str) -> Verdict:
    """The verdict on a saved run. It says nothing of other sizes, of which there is no run."""
    outcome = outcome_of(track_of(puzzle.slug), trace)
    return run_judge(judge(puzzle, NotebookDefinition(), keep=True, only_shown=True), lambda request: outcome)


# --- Solutions as links and as files ---


PORT = 8000
LOCAL = f"http://127.0.0.1:{PORT}/"
"""The address of `make serve`."""


def fragment(slug: str, kind: str, text: str) -> str:
    """What follows the '#' in a link, whose `kind` is code, run (a trace as JSON) or timetable (as text)."""
    return f"{slug}/{kind}/{squeezed(text)}"


def link(site: str, slug: str, kind: str, text: str) -> str:
    return f"{site.partition('#')[0]}#{fragment(slug, kind, text)}"


def squeezed(text: str) -> str:
    """A text, compressed (raw deflate), in the letters of base64 that addresses allow."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return urlsafe_b64encode(squeeze.compress(text.encode()) + squeeze.flush()).decode().rstrip("=")


def zipped(codes: Mapping[str, str]) -> str:
    """An archive with the code for each puzzle as a file, in base64."""
    data = BytesIO()
    with ZipFile(data, "w", ZIP_DEFLATED) as archive:
        for slug, code in codes.items():
            name = re.sub(r"\W", "_", slug, flags=re.ASCII)
            archive.writestr(f"my_solutions/{name}.py", code.encode(errors="surrogatepass"))
    return b64encode(data.getvalue()).decode()


def split(text: str) -> dict[str, str]:
    """The code for each puzzle that a file defines: the file without the lines that define other puzzles.

    Raises:
        SyntaxError, ValueError: the file is not valid Python.
    """
    nodes, lines = ast.parse(text).body, StringIO(text, newline="").readlines()
    names = [frozenset(bound_names(node)) for node in nodes]
    found = [slug for track in TRACKS.values() for slug in track.slugs if any(slug in bound for bound in names)]

    def code_of(slug: str) -> str:
        others = {*found} - {slug}
        lines_of = {True: set[int](), False: set[int]()}
        for node, bound in zip(nodes, names):
            lines_of[bool(bound & others) and slug not in bound].update(_lines(node))
        left_out = lines_of[True] - lines_of[False]
        return "".join(line for number, line in enumerate(lines, 1) if number not in left_out)

    return {slug: code_of(slug) for slug in found}


def _lines(node: ast.stmt) -> range:
    first = min(one.lineno for one in (node, *getattr(node, "decorator_list", ())))
    return range(first, (node.end_lineno or node.lineno) + 1)
