"""The protocol of tracks: nobody outside `puzzles/tracks` asks which one it is, and a fourth one needs nothing else."""

import ast
import asyncio
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lib.ledger.trace import FORMS
from puzzles import play
from puzzles.catalog.puzzle import Puzzle
from puzzles.cli.watch import WatchState
from puzzles.failure import Failure
from puzzles.judge import progress
from puzzles.judge.judge import SAYS
from puzzles.sandbox.limits import Limits
from puzzles.tracks import ALL, TRACKS, PuzzleGroup, Track, find, register, unregister
from puzzles.tracks.base import Judge, Show, Words
from puzzles.tracks.outcomes import Measure, Row, RunRequest, Score
from tests.support.commands import said
from tests.support.course import rules

pytestmark = pytest.mark.usefixtures("in_this_process")

ROOT = Path(__file__).parents[2]
AUTHORING = ROOT / "puzzles" / "player" / "authoring.py"
"""Writes the notebooks of one track, and says so."""
SITE = ROOT / "puzzles" / "page"
"""Plays the schedules by hand too, and says so."""


# --- Nobody asks ---


def outside() -> list[Path]:
    """Every module of puzzles/ that must not know one track from another."""
    files = [path for path in (ROOT / "puzzles").rglob("*.py") if not path.is_relative_to(AUTHORING)]
    inside = [
        SITE,
        ROOT / "puzzles" / "content",
        *(ROOT / "puzzles" / "tracks" / name for name in TRACKS),
        ROOT / "puzzles" / "tracks" / "__init__.py",
        ROOT / "puzzles" / "tracks" / "free_play.py",
        ROOT / "puzzles" / "catalog",
        ROOT / "puzzles/sandbox/worker/stages",
    ]
    return [path for path in files if not any(path.is_relative_to(folder) for folder in inside)]


def questions(tree: ast.AST) -> Iterator[str]:
    """Places where a track's name, title, puzzle, class or package is written down."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if text in WORDS or OF_A_TRACK.match(text):
                yield text
            case ast.ImportFrom(module=str(module), names=names) if any(
                OF_A_TRACK.match(f"{module}.{alias.name}") for alias in names
            ):
                yield module
            case ast.Import(names=names):
                yield from (alias.name for alias in names if OF_A_TRACK.match(alias.name))
            case ast.Name(id=str(name)) | ast.Attribute(attr=str(name)) if name in CLASSES:
                yield name


OF_A_TRACK = re.compile(rf"puzzles\.(tracks|catalog|content|sandbox\.worker\.stages)\.({'|'.join(TRACKS)})\b")
"""A module that belongs to one track."""

WORDS = {word for track in TRACKS.values() for word in (track.name, track.title, *track.slugs)} - FORMS.keys()
"""What belongs to one track; a slug such as 'offload' is also an operation."""

CLASSES = {type(track).__name__ for track in TRACKS.values()} | {"SCHEDULES", "ENGINE", "LAYOUTS"}


HIDDEN = {
    "puzzles/sandbox/worker/runner.py": ["puzzles.catalog.engine", "puzzles.content.engine"],
    "puzzles/screens/plans.py": ["schedule", "schedule"],
    "puzzles/tracks/base.py": ["layout"],
    "puzzles/cli/main.py": ["plan", "layout"] * 4,
    "puzzles/sandbox/worker/withheld.py": ["plan", "plan"],
}
"""The server loads no track, and hides the right results of trials from runs by the name of their package. A table of
plans has a column for the pipeline's schedule. Runs of any track may use `lib.layout`, and fail for its reason. Two
commands are called plan and layout, and a function that graded layouts may not import is `lib.layout.plan`."""


@pytest.mark.slow
def test_outside_of_tracks_nobody_asks_which_track_it_is() -> None:
    assert len(outside()) > 40
    found = {path: list(questions(ast.parse(path.read_text(encoding="utf-8")))) for path in outside()}
    assert {str(path.relative_to(ROOT)): asked for path, asked in found.items() if asked} == HIDDEN


@pytest.mark.parametrize(
    "code",
    [
        "if track.name == 'layout': pass",
        "from puzzles.tracks.schedule import Schedules",
        "track is SCHEDULES",
        "PRAISE = {'ddp': 'good dog'}",
        "if track.title == 'On real tensors': pass",
        "from puzzles.tracks import layout",
        "import puzzles.catalog.engine",
        "import_module('puzzles.catalog.layout')",
        "isinstance(track, Layouts)",
        "registry.Engine()",
    ],
)
def test_such_questions_are_found(code: str) -> None:
    assert list(questions(ast.parse(code)))


# --- A fourth track, from outside ---


@dataclass(frozen=True, kw_only=True)
class AnswerPuzzle(Puzzle):
    """A function of a number, with the result that is wanted for 1."""

    wanted: int


ANSWER = AnswerPuzzle(
    slug="answer",
    title="The answer",
    wanted=42,
    statement="Return n times 42.",
    starter='def answer(n):\n    """Six by nine."""\n    # ----- your code -----\n    # ----- end of your code -----\n',
    hints=("It is even.", "`return 42 * n`"),
    concept="Multiplication.",
    in_practice="Ask for the question as well. Deep Thought took long.",
    sources=(),
    credit="After a book",
)


class AnswerJudge(Judge[AnswerPuzzle]):
    stage = "answer_stage"
    reasons = ("silence",)

    def requests(self, puzzle: AnswerPuzzle) -> Iterator[RunRequest]:
        for n in (1, 2):
            yield RunRequest(f"n = {n}", {"argument": n}, lambda row, n=n: score(puzzle, row, n))  # type: ignore[misc]


class AnswerWords(Words[AnswerPuzzle]):
    columns = (("returned", "returned"),)

    def targets(self, puzzle: AnswerPuzzle) -> Mapping[str, int]:
        return {"returned": puzzle.wanted}

    def measures(self, puzzle: AnswerPuzzle, figures: Mapping[str, float]) -> Sequence[Measure]:
        return [Measure.at_most("returned", figures.get("returned"), puzzle.wanted, "returned")]

    def limits(self, puzzle: AnswerPuzzle) -> str:
        return f"At most {puzzle.wanted}"

    def starter_head(self, puzzles: Sequence[AnswerPuzzle]) -> str:
        return "import math\n"

    def signature(self, slug: str) -> str:
        return f"def {slug}(n)"


class Answers(Track[AnswerPuzzle]):
    """Functions that return a number."""

    name = "answers"
    title = "Answers"
    idea = "one function of a number"

    def __init__(self) -> None:
        self.judge, self.words, self.show = AnswerJudge(self), AnswerWords(self), Show(self)

    @property
    def groups(self) -> Sequence[PuzzleGroup]:
        return [PuzzleGroup(self.name, self.title, self.idea, ("answer",))]

    def puzzle(self, slug: str) -> AnswerPuzzle:
        return {"answer": ANSWER}[slug]


def score(puzzle: AnswerPuzzle, row: Row, n: int) -> Score | Failure:
    """Too much is over target; too little is wrong."""
    returned = row.get("answer")
    if not isinstance(returned, int) or returned < n * puzzle.wanted:
        return Failure("rule", f"it returned {returned}")
    missed = (f"it returned {returned}",) if returned > n * puzzle.wanted else ()
    return Score({"returned": returned}, missed, 1 if missed else 3)


RIGHT, LARGE, BY_HEART = ("def answer(n):\n    return " + body + "\n" for body in ("42 * n", "99 * n", "42"))
SILENT = "def answer(n):\n    return\n"
WRONG = "def answer(n):\n    print('hm')\n    return n // 0\n"


@pytest.fixture
def fourth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The fourth track, in an empty folder; its stage is found as if it were an installed package."""
    installed = str(Path(__file__).parents[1] / "support")
    monkeypatch.syspath_prepend(installed)
    monkeypatch.setattr("puzzles.judge.session.SITE_PACKAGES", installed)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    track = Answers()
    register(track)
    yield tmp_path / "mine.py"
    unregister(track)


def graded(mine: Path, source: str, code: int = 0, *command: object) -> Any:
    mine.write_text(source)
    out = said(*(command or ("grade",)), "--json", "--puzzle", "answer", str(mine), code=code)
    (result,) = json.loads(out)["files"][0]["results"]
    return result


def test_it_is_there_only_while_it_is_registered() -> None:
    track = Answers()
    register(track)
    assert (find("answer"), find("answers:answer"), ALL["answer"]) == (ANSWER, ANSWER, track)
    with pytest.raises(ValueError, match="named 'answer"):
        register(track)
    unregister(track)
    assert "answer" not in ALL
    assert "answers" not in TRACKS


def test_the_catalog_commands_know_it(fourth: Path) -> None:
    assert "0 of 3" in said("list")
    assert "42" in said("list", "answers")
    assert "42" in said("show", "answer")
    assert "2 `return 42" in said("hint", "answer", "-n", "2")
    assert "Multiplication." in said("show", "answer", "--about")
    assert "Wrote my_answer.py" in said("start", "answer")
    assert graded(fourth, Path("my_answer.py").read_text(), 1)["status"] == "not_attempted"


def test_a_file_of_all_default_puzzles_has_the_imports_of_each_track(
    fourth: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Answers, "is_default", lambda track, slug: True)
    said("start")
    text = Path("my_solutions.py").read_text()
    assert ("WeightGrad\nimport math\n" in text, "def answer(n):" in text) == (True, True)


@pytest.mark.sandboxed
def test_it_is_graded_in_a_worker(fourth: Path) -> None:
    assert graded(fourth, RIGHT) == {
        "puzzle": "answer",
        "status": "passed",
        "reason": None,
        "stars": 3,
        "shown_size_only": False,
        "track": "answers",
        "figures": {"returned": 42},
        "target": {"returned": 42},
        "limits": {"returned": {"at_most": 42}},
        "message": "",
        "notes": [],
    }
    over = graded(fourth, LARGE, 1)
    assert (over["status"], over["stars"], "99" in over["message"]) == ("over_target", 1, True)
    wrong = graded(fourth, WRONG, 1)
    assert wrong["message"].startswith("line 3: ZeroDivisionError: ")
    silent = graded(fourth, SILENT, 1)
    assert (silent["reason"], silent["message"][:8]) == ("silence", "line 1: ")
    special = graded(fourth, BY_HEART)
    note = SAYS("shown size only", shown="n = 1", size="n = 2", why="it returned 42")
    assert (special["stars"], special["notes"]) == (2, [note])
    assert graded(fourth, BY_HEART, 1, "class", rules(fourth.parent, "strict = true\n"))["status"] == "failed"


def test_reports_and_progress_know_it(fourth: Path) -> None:
    fourth.write_text(RIGHT)
    progress.add_own_file(fourth)
    names = ("json", "csv", "html")
    options = [word for name in names for word in ("-o", f"out.{name}")]
    page = said("grade", "--traces", "traces", *options, str(fourth))
    assert "42 of 42" in page
    texts = {name: Path(f"out.{name}").read_text(encoding="utf-8") for name in names}
    assert "42 of 42" in texts["html"]
    assert "too many files" not in texts["html"], "this track has no pictures"
    assert "answer: The answer" in texts["json"]
    assert "answers,returned=42" in texts["csv"]
    assert not Path("traces").exists()
    assert progress.load()["answer"].stars == 3
    assert "1 0 of 2" in said("status")


def test_draw_run_verify_and_watch_know_it(fourth: Path) -> None:
    fourth.write_text(RIGHT)
    assert "'puzzles grade'" in said("draw", "mine.py", "answer", code=2)
    assert "42 of 42" in said("run", "mine.py", "answer")
    Path("begun.py").write_text(ANSWER.starter)
    Path("empty.py").write_text("")
    assert "begun.py" in said("run", "begun.py", "answer", code=1)
    assert "'def answer(n):'" in said("run", "empty.py", "answer", code=1)
    said("run", "mine.py", "answer", "-o", "x.svg", code=2)
    said("verify", "mine.py", "--puzzle", "answers:answer", code=2)
    screen = io.StringIO()
    game = WatchState("mine.py", Limits(), Console(file=screen, width=100))
    game.saved()
    game.current = "answer"
    game.screen()
    assert "42 of 42" in screen.getvalue()
    game.open()
    assert "no pictures" in screen.getvalue()


def play_source(path: Path, source: str, *call: Any) -> Any:
    """The result of a definition, which has to be in a file so that its lines are found."""
    path.write_text(source)
    names: dict[str, Any] = {}
    exec(compile(source, str(path), "exec"), names)
    return play(*call, names["answer"])


def test_play_knows_it(fourth: Path) -> None:
    result = play_source(fourth, RIGHT)
    assert repr(result) == "<answer: passed, ★★★>"
    assert result.text().startswith("★★★ answer: Solved! 42 of 42 returned")
    assert "show basic" in result.next_step
    assert (result.trace, result.report, result.picture) == (None, None, "")
    assert result.as_dict() == graded(fourth, RIGHT)
    wrong = play_source(fourth, WRONG, "answer")
    assert (wrong.reason, wrong.message.startswith("ZeroDivisionError: "), wrong.place.line) == ("crash", True, 3)
    assert "-&gt;" not in wrong.page()
    assert "3" in wrong.text().replace("    return", "return")
    assert play_source(fourth, ANSWER.starter).status == "not_attempted"
    assert "play('answer', answer)" in play("answer", 5).message


def test_play_and_grade_say_the_same_of_it(fourth: Path) -> None:
    for source in (RIGHT, LARGE, BY_HEART):
        told = graded(fourth, source, 1 if source == LARGE else 0)
        assert play_source(fourth, source).as_dict() == told
    told, silent = graded(fourth, SILENT, 1), play_source(fourth, SILENT)
    assert (silent.reason, f"line {silent.place.line}: {silent.message}") == (told["reason"], told["message"])


async def test_it_is_played_on_a_running_loop(fourth: Path) -> None:
    before = asyncio.all_tasks()
    assert (await play_source(fourth, RIGHT)).stars == 3
    endless = "def answer(n):\n    while True: pass\n"
    fourth.write_text(endless)
    names: dict[str, Any] = {}
    exec(compile(endless, str(fourth), "exec"), names)
    stuck = await play("answer", names["answer"], seconds=0.05)
    assert (stuck.reason, stuck.place.line) == ("timeout", 2)
    assert asyncio.all_tasks() == before
