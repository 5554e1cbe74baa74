"""Puzzles of teachers: a new one is checked, measured, added, graded and hidden; every mistake in a folder is named."""

import io
import json
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from rich.console import Console

from lib.layout import propagate
from puzzles import play
from puzzles.cli.watch import WatchState
from puzzles.custom import (
    FOLDERS_VARIABLE,
    OwnPuzzleError,
    add_folder,
    add_installed,
    folder_added,
    folders,
    read_folder,
    remove_folder,
)
from puzzles.judge.checkpoint import GradingJob
from puzzles.judge.grader import grade_file
from puzzles.judge.verdict import Verdict
from puzzles.sandbox.limits import Limits
from puzzles.teaching.writing import begin
from puzzles.tracks import ALL, UnknownPuzzleError, find
from tests.support.commands import puzzles
from tests.support.relay import TARGETS, TRACKS, finished_folder, measured_rows

pytestmark = pytest.mark.usefixtures("in_this_process")

# --- Puzzles of teachers: a new one is checked, added, graded and hidden; every mistake in a folder is named ---


@pytest.fixture
def week(tmp_path: Path) -> Iterator[Path]:
    """A folder with a finished puzzle of each track: relay_schedule, relay_engine, relay_layout."""
    yield finished_folder(tmp_path / "week3")
    for one in folders():
        remove_folder(one.path)


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.slow
@pytest.mark.sandboxed
@pytest.mark.parametrize(
    ("track", "targets"),
    [
        ("schedule", "time = 5, memory = 1_800_000, traffic = 500_000"),  # of 5.1 steps and 1,835,008 elements
        pytest.param("engine", "sent = 6_144, peak = 9_216, weights = 0", marks=pytest.mark.slow),
        pytest.param("layout", "bytes = 0, memory = 9_280", marks=pytest.mark.slow),
        ("plan", "seconds = 0.985"),
    ],
)
def test_a_new_puzzle_is_ready_once_its_texts_are_written(track: str, targets: str, tmp_path: Path) -> None:
    folder, file = tmp_path / "own", tmp_path / "own" / "mine.toml"
    puzzles("new", "mine", "--track", track, "-o", folder, code=0)
    first = puzzles("check", folder, code=1)
    assert targets in first.output
    assert "over_target, as it should" not in first.output, "there is no target yet"
    change(file, "TODO: ", "Done. ")
    written = puzzles("check", folder, "--write", code=0)
    assert "over_target, as it should" in written.output
    assert "mine: ready" in written.output
    assert "[targets]\n" + targets.replace(", ", "\n") in file.read_text()
    assert TARGETS[track].replace(f"relay_{track}", "mine").partition("# Measured")[2] in file.read_text()
    assert "mine" not in ALL, "checking adds nothing"


@pytest.mark.slow
def test_own_puzzles_are_in_every_command(week: Path, in_an_empty_folder: Path) -> None:
    puzzles("show", "relay_layout", code=2)
    shown = puzzles("show", "relay_layout", "--puzzles", week)
    assert "matmul(x, w): (32, 64)" in shown.output
    assert "week3-engine" in puzzles("--puzzles", week, "list").output
    puzzles("start", "relay_engine", "--puzzles", week, code=0)
    assert "class relay_engine(ShardedEngine)" in Path("my_relay_engine.py").read_text()
    assert "Nothing attempted yet" in puzzles("grade", "my_relay_engine.py", "--puzzles", week).output
    graded = puzzles("grade", week / "solutions", "--puzzles", week, "--json")
    rows = [row for file in json.loads(graded.output)["files"] for row in file["results"] if row["stars"]]
    assert {(row["puzzle"], row["status"], row["stars"]) for row in rows} == {
        (f"relay_{track}", "passed", 3) for track in TRACKS
    }
    puzzles("notebook", "books", "--solved", "--puzzles", week, code=0)
    with folder_added(week):
        (verdict,) = grade_file("books/week3.ipynb", [find("relay_schedule")]).verdicts
    assert verdict.status == "passed", "the notebook of a folder can be submitted"


ADVICE = re.compile(r"'(puzzles (?!\w+ --help)[^']+)'")


def test_advice_after_grading_keeps_the_folder(week: Path, in_an_empty_folder: Path, tmp_path: Path) -> None:
    for name in ("relay_engine", "relay_layout"):
        (week / f"{name}.toml").unlink()
    folder = ("--puzzles", str(week))
    puzzles("start", "relay_schedule", "-o", "mine.py", *folder, code=0)
    (tmp_path / "empty.py").write_text("")
    said = {
        "nothing attempted": puzzles("grade", "mine.py", *folder),
        "an empty file": puzzles("grade", "empty.py", *folder),
        "a mistake": puzzles("grade", week / "wrong" / "relay_schedule_alone.py", *folder),
        "a pass": puzzles("grade", week / "solutions" / "relay_schedule.py", "--traces", "traces", *folder),
        "a definition that is not there": puzzles("draw", "empty.py", "relay_schedule", *folder),
        "a puzzle for a chapter": puzzles("list", "relay_schedule", *folder),
        "the folder before the command": puzzles("--puzzles", week, "grade", "mine.py"),
    }
    for name, result in said.items():
        advised = ADVICE.findall(" ".join(result.output.split()))
        assert advised, (name, result.output)
        for command in advised:
            assert f"--puzzles {week}" in command or "doctor" in command, (name, command)
    assert f"puzzles show relay_schedule --puzzles {week}" in " ".join(said["nothing attempted"].output.split())


def test_a_chapter_has_a_title_and_an_order(week: Path) -> None:
    for track in ("engine", "layout", "plan"):
        (week / f"relay_{track}.toml").unlink()
    begin("a_second", "schedule", week)
    (week / "a_second.toml").write_text(
        (week / "relay_schedule.toml").read_text().replace("relay_schedule", "a_second")
    )
    (week / "chapter.toml").write_text('title = "The third week"\nidea = "who waits?"\norder = ["relay_schedule"]\n')
    (chapter,) = add_folder(week).chapters.values()
    assert (chapter.name, chapter.title, chapter.slugs) == ("week3", "The third week", ("relay_schedule", "a_second"))


@pytest.mark.sandboxed
@pytest.mark.slow
@pytest.mark.own_server
def test_a_submission_cannot_read_the_folder(week: Path, tmp_path: Path) -> None:
    week.chmod(0o755)
    for parent in week.parents:
        if parent.is_relative_to(tmp_path.parents[1]):
            parent.chmod(0o755)  # so that only the sandbox is in the way
    with folder_added(week):
        thief = tmp_path / "thief.py"
        thief.write_text(
            f"from lib.layout import Graph\nexec(open({str(week / 'solutions' / 'relay_layout.py')!r}).read())\n"
            "def relay_layout(graph: Graph) -> None:\n    graph.shard('product', ((1, 1), (1, 4)))\n"
        )
        (verdict,) = grade_file(str(thief), [find("relay_layout")], Limits()).verdicts
        assert verdict.status == "failed"
        assert "Error" in verdict.message
        assert not verdict.figures
        honest = tmp_path / "honest.py"
        honest.write_text((week / "solutions" / "relay_layout.py").read_text())
        (verdict,) = grade_file(str(honest), [find("relay_layout")], Limits()).verdicts
        assert verdict.stars == 3


@pytest.mark.sandboxed
@pytest.mark.slow
def test_an_own_class_is_repeated_without_lower_bounds(week: Path) -> None:
    """Its figures are those of its operations on other values; or on the same, where its trial draws none."""
    summed = (week / "solutions" / "relay_engine.py").read_text()
    lied = week.parent / "lied.py"
    lied.write_text(summed.replace("return ", "made = ") + "        self._port.meter.peak -= 8\n        return made\n")
    with folder_added(week):
        (verdict,) = grade_file(str(lied), [find("relay_engine")]).verdicts
        assert (verdict.stars, verdict.figures["peak"]) == (3, 9_216)
        change(
            week / "trials" / "relay_engine.py", "np.random.default_rng(i)", "np.random.Generator(np.random.PCG64(i))"
        )
    with folder_added(week):
        (verdict,) = grade_file(str(week / "solutions" / "relay_engine.py"), [find("relay_engine")]).verdicts
    assert (verdict.stars, verdict.notes) == (3, ())


def test_calls_can_be_forbidden_and_allowed(week: Path) -> None:
    sums = week.parent / "sums.py"
    sums.write_text((week / "solutions" / "relay_engine.py").read_text().replace(
        "self.all_gather(self.reduce_scatter(x))", "self.all_reduce(x)"))  # fmt: skip
    with folder_added(week):
        (verdict,) = grade_file(str(sums), [find("relay_engine")]).verdicts
    assert (verdict.status, verdict.reason) == ("failed", "rule")
    assert "calls all_reduce" in verdict.message
    assert "forbids: all_reduce" in verdict.message
    change(
        week / "relay_schedule.toml", 'forbidden = ["pass_to", "receive"]', 'allowed = ["forward", "loss", "backward"]'
    )
    with folder_added(week):
        (verdict,) = grade_file(str(week / "solutions" / "relay_schedule.py"), [find("relay_schedule")]).verdicts
    assert (verdict.reason, verdict.line) == ("rule", 24)
    assert "rank 0 calls allreduce" in verdict.message
    assert "only forward, loss, backward" in verdict.message


PYTHON_PUZZLE = """
from lib import Goal, Record, Size
from puzzles.catalog.schedule import SchedulePuzzle
from puzzles.catalog.schedule import ReferenceAt

REFERENCE = "solutions/relay_schedule.py"
WRONG = {"wrong/relay_schedule_alone.py": "rule", "wrong/relay_schedule_twice.py": "over_target"}
PUZZLE = SchedulePuzzle(
    title="In Python",
    goal=Goal("relay_schedule", Size(2, 2, 2), time=5, memory=1_800_000, records=(
        Record(5.1, 1_835_008, 'solutions/relay_schedule.py', 'data parallelism'),
    )),
    other_sizes=(Size(3, 4, 4),), reference_at=(ReferenceAt(Size(layers=3, batches=4, ranks=4), 7.9, 2_621_440),),
    calls=("forward",), statement="Do it.", starter='''
async def relay_schedule(model: Model) -> Model:
    # ----- your code -----

    # ----- end of your code -----
    return model
''', hints=("One.", "Two."), concept="It.", in_practice="So.", sources=(),
)
"""


def test_a_puzzle_may_be_python(week: Path) -> None:
    (week / "relay_schedule.toml").unlink()
    (week / "relay_schedule.py").write_text(PYTHON_PUZZLE)
    checked = puzzles("check", week, "--only", "relay_schedule", code=0)
    assert "relay_schedule: ready" in checked.output


@pytest.mark.slow
def test_check_names_what_is_wrong(week: Path) -> None:
    file = week / "relay_schedule.toml"
    change(file, '"rule"', '"deadlock"')
    change(file, "# ----- end of your code -----", "# the end")
    change(file, '    "Done. a gentle nudge.",\n    "Done. the next step.",\n', "")
    change(file, 'reference = "solutions/relay_schedule.py"', 'reference = "wrong/relay_schedule_twice.py"')
    file.write_text(
        file.read_text() + '[[records]]\ntimesteps = 4\npeak_memory = 1\nby = "solutions/relay_schedule.py"\n'
    )
    checked = puzzles("check", week, "--only", "relay_schedule", code=1)
    for words in (
        "should get 'deadlock', but gets 'rule'",
        "'# ----- end of your code -----' is missing",
        "hints: write at least 2",
        "reference: over target",
        "should reach 4 timesteps and 1 elements: timesteps 5.1",
    ):
        assert words in checked.output, words
    change(file, "async def relay_schedule(", "async def relay(")
    assert "does not define relay_schedule" in puzzles("check", week, "--only", "relay_schedule").output
    (week / "wrong" / "relay_schedule_alone.py").unlink()
    assert "there is no file" in puzzles("check", week, "--only", "relay_schedule").output


def test_a_layout_may_allow_uneven_splits(week: Path):
    file = week / "relay_layout.toml"
    change(file, "devices = 4", "devices = 64\nuneven = true\nconfigured = { out = [[64, 1]] }")
    with folder_added(week):
        graph = find("relay_layout").graph()
    assert graph.uneven is True
    assert propagate(graph).operators["out"].output.padded_shape == (64, 64)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("time", "shown", "status"), [
    ("5", "< 6", "passed"),
    ("5.0", "< 5.1", "over_target"), ("5.1", "< 5.2", "passed"), ("4.9", "< 5.0", "over_target"),
])  # fmt: skip
def test_a_time_is_compared_at_the_precision_in_which_it_is_stated(week: Path, time: str, shown: str, status: str):
    """The reference takes 5.1 steps. Text and JSON of a verdict say the same limit."""
    change(week / "relay_schedule.toml", "time = 5\n", f"time = {time}\n")
    words = ("grade", week / "solutions" / "relay_schedule.py", "--puzzles", week, "--puzzle", "relay_schedule")
    assert f"5.1 ({shown})" in puzzles(*words).output
    (row,) = json.loads(puzzles(*words, "--json").output)["files"][0]["results"]
    assert (row["status"], row["target"]["time"], row["timesteps"]) == (status, float(time), 5.1)
    assert row["limits"]["timesteps"] == {"below": float(shown.removeprefix("< "))}


def _edited(name: str, old: str, new: str) -> Callable[[Path], object]:
    return lambda week: change(week / name, old, new)


MISTAKES: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "no TOML": (_edited("relay_layout.toml", "annotations = 1", "annotations 1"), ("relay_layout.toml", "line 4")),
    "unknown field": (_edited("relay_layout.toml", "annotations", "anotations"), ("'annotations' is missing",)),
    "misspelt field": (_edited("relay_layout.toml", "concept =", "concpt ="), ("'concpt'", "did you mean 'concept'")),
    "wrong type": (_edited("relay_layout.toml", "annotations = 1", "annotations = -1"), ("whole number", "got -1")),
    "unknown track": (_edited("relay_layout.toml", '"layout"', '"layuot"'), ("'layuot'", "did you mean 'layout'")),
    "no targets": (_edited("relay_layout.toml", "[targets]", "[wrong.x]"), ("[targets] is missing", "week3 --write")),
    "broken graph": (_edited("relay_layout.toml", '["product", "b"]', '["product", "c"]'), ("tensor named 'c'",)),
    "unequal parts": (_edited("relay_layout.toml", "devices = 4", "devices = 64\nconfigured = { out = [[64, 1]] }"),
                      ("'sum', of size 32, cannot be split into 64 equal parts", "pad it to 64")),
    "unknown call": (_edited("relay_schedule.toml", '"pass_to"', '"pas_to"'), ("'pas_to'", "did you mean 'pass_to'")),
    "unknown costs": (
        _edited("relay_schedule.toml", "[targets]", '[setting]\ncosts = "clasic"\n[targets]'), ("clasic", "classic")),
    "outer without rounds": (
        _edited("relay_schedule.toml", "[targets]", '[setting]\ntask = "outer"\n[targets]'), ("outer must be",)),
    "unknown field of a setting": (
        _edited("relay_schedule.toml", "[targets]", '[setting]\nmeshes = 2\n[targets]'),
        ("no field 'meshes'", "outer, late, mix, clip")),
    "both lists": (_edited("relay_schedule.toml", "forbidden", 'allowed = ["loss"]\nforbidden'), ("either",)),
    "unknown figure": (_edited("relay_engine.toml", "sent =", "sents ="), ("'sents'", "did you mean 'sent'")),
    **{
        f"time = {time}": (_edited("relay_schedule.toml", "time = 5", f"time = {time}"),
                           ("[targets]", "'time' is a number of steps", "5 is met below 6", "5.5 is met below 5.6"))
        for time in ("5.25", "0", "0.0", "-1", "true", '"5"', "nan", "inf", "1e300")
    },
    "no trials": (_edited("relay_engine.toml", "trials =", "# trials ="), ("'trials' is missing", "Python file that",
                  "TOML cannot state", "puzzles new NAME --track engine")),
    "trials in TOML": (_edited("relay_engine.toml", 'trials = "trials/relay_engine.py"', "trials = [{ seed = 1 }]"),
                       ("'trials' is the path of a Python file", "TOML cannot state", "got [{'seed': 1}]")),
    "taken": (lambda week: (week / "relay_layout.toml").rename(week / "ffn.toml"), ("'ffn'", "rename")),
    "no name": (lambda week: (week / "relay_layout.toml").rename(week / "a b.toml"), ("'a b'",)),
    "twice": (lambda week: (week / "relay_schedule.py").write_text(PYTHON_PUZZLE), ("'relay_schedule'", "twice")),
    "no puzzle": (lambda week: (week / "other.py").write_text("x = 1"), ("other.py", "no PUZZLE")),
    "solution": (lambda week: (week / "other.py").write_text("1 / 0"), ("no PUZZLE", "solutions in folders of their")),
    "another PUZZLE": (lambda week: (week / "other.py").write_text("PUZZLE = 1"), ("other.py", "is not a puzzle")),
    "crash": (lambda week: (week / "other.py").write_text("PUZZLE = 1 / 0"), ("other.py", "ZeroDivisionError")),
    "order": (lambda week: (week / "chapter.toml").write_text('order = ["nobody"]'), ("chapter.toml", "'nobody'")),
}  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", MISTAKES)
def test_a_folder_with_a_mistake_adds_nothing(name: str, week: Path) -> None:
    make, words = MISTAKES[name]
    make(week)
    before = tuple(ALL)
    with pytest.raises(OwnPuzzleError) as caught:
        add_folder(week)
    for word in words:
        assert word in str(caught.value)
    assert tuple(ALL) == before
    puzzles("list", "--puzzles", week, code=2)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    for folder, words in (
        (tmp_path / "no", "this folder does not exist"),
        (tmp_path, "no puzzle"),
        (Path(__file__).parents[2], "game"),
    ):
        with pytest.raises(OwnPuzzleError, match=words):
            add_folder(folder)
    for name in ("fsdp", "class", "a b", "print", "_x"):
        puzzles("new", name, "-o", tmp_path, code=2)
    puzzles("new", "mine", "-o", tmp_path, code=0)
    again = puzzles("new", "mine", "-o", tmp_path, code=2)
    assert "already exists" in again.output


def test_installed_packages_and_the_variable_add_folders(
    week: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    (site / "course").mkdir(parents=True)
    week = week.rename(site / "course" / "week3")
    (site / "course" / "__init__.py").touch()
    info = site / "course-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: course\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[training_puzzles.puzzles]\nthird = course.week3\nfourth = nowhere.week4\n")
    monkeypatch.syspath_prepend(str(site))
    (problem,) = add_installed()
    assert "fourth" in problem
    assert "relay_layout" in ALL
    remove_folder(week)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(site)])
    monkeypatch.setenv(FOLDERS_VARIABLE, f"{week}:{tmp_path / 'nothing'}")
    (problem,) = add_installed()
    assert "nothing" in problem
    assert "relay_layout" in ALL


def test_a_process_elsewhere_reads_the_folder_itself(week: Path) -> None:
    digest = read_folder(week).digest
    job: Any = GradingJob(("relay_layout",), Limits(), own=((str(week), digest),))
    solution = week / "solutions" / "relay_layout.py"
    assert job.grade(str(solution), solution.read_bytes()).verdicts[0].stars == 3


def test_on_windows_the_doctor_says_what_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "WSL" not in puzzles("doctor").output
    monkeypatch.setattr("platform.system", lambda: "Windows")
    assert "WSL 2" in puzzles("doctor").output


def test_a_draft_is_not_published(week: Path) -> None:
    from puzzles.page.build import SiteError, require_finished

    with folder_added(week):
        require_finished()
    change(week / "relay_schedule.toml", "Done. a title", "TODO: a title")
    with folder_added(week), pytest.raises(SiteError) as caught:
        require_finished()
    assert all(fact in str(caught.value) for fact in ("relay_schedule.toml", "title", "puzzles check"))


def test_a_name_that_the_site_has_given_away_is_refused(week: Path, tmp_path: Path) -> None:
    from puzzles.page.build import SiteError, require_finished

    with pytest.raises(OwnPuzzleError, match="'profile' cannot be"):
        begin("profile", "schedule", tmp_path)
    file = week / "relay_schedule.toml"
    change(file, "relay_schedule(", "profile(")
    file.rename(week / "profile.toml")
    assert "'profile'" in puzzles("check", week, "--only", "profile").output
    with folder_added(week), pytest.raises(SiteError, match="profile"):
        require_finished()


@pytest.mark.slow
def test_a_folder_goes_into_the_site_without_its_solutions_and_classes(
    week: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from puzzles.page.build import files
    from puzzles.page.in_browser import calls
    from puzzles.page.listing import listing

    assert calls.FILE not in dict(files())
    with folder_added(week):
        packed = dict(files())[calls.FILE]
        shown = listing()["puzzles"]
        assert shown["relay_schedule"]["title"] == "Done. a title"
        assert {slug: one["played"] for slug, one in shown.items() if slug.startswith("relay_")} == {
            "relay_schedule": True, "relay_plan": True, "relay_layout": True, "relay_engine": False
        }  # fmt: skip
    assert json.loads(packed).keys() == {"week3"}
    assert json.loads(packed)["week3"].keys() == {"relay_schedule.toml", "relay_plan.toml", "relay_layout.toml"}
    assert b"The gradients are summed" not in packed
    with monkeypatch.context() as before:
        before.setattr(calls, "find_spec", lambda name: None)
        calls.add(packed, tmp_path / "before_numpy")
    assert find("relay_schedule").title == "Done. a title"
    with pytest.raises(UnknownPuzzleError):
        find("relay_layout")
    remove_folder(tmp_path / "before_numpy" / "week3")
    calls.add(packed, tmp_path / "with_numpy")
    assert find("relay_layout").title == "Done. a title"


# --- A player's folder of own puzzles may lack any file that is not needed to read it: `grade`, `watch` and `play`
# judge what can be judged, and say of the rest why it cannot ---


OPTIONAL = ("solutions", "wrong", "trials", "records", "chapter.toml")
SHAPES = [gone for count in range(len(OPTIONAL) + 1) for gone in combinations(OPTIONAL, count)]

ENGINE_IN_PYTHON = """
from puzzles.catalog.engine import EnginePuzzle

PUZZLE = EnginePuzzle(
    slug="relay_engine", title="T", statement="S.", starter="class relay_engine(ShardedEngine):\\n    ...\\n",
    hints=(), concept="", in_practice="", sources=(), credit="", targets={"sent": 6_144, "peak": 9_216}, arithmetic="",
)
"""


@pytest.fixture
def whole_week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder has a whole folder of puzzles, week3, and mine.py, which solves all of them."""
    monkeypatch.chdir(tmp_path)
    folder = finished_folder(Path("week3"))
    (folder / "chapter.toml").write_text('title = "The third week"\n')
    (folder / "records").mkdir()
    solutions = [(folder / "solutions" / f"relay_{track}.py").read_text() for track in TRACKS]
    Path("mine.py").write_text("\n\n".join(solutions))
    return folder


def watched() -> list[Verdict]:
    game = WatchState("mine.py", Limits(), Console(file=io.StringIO(), width=100))
    game.begin()
    return list(game.verdicts.values())


def played() -> Iterator[Verdict]:
    names: dict[str, Any] = {}
    exec(compile(Path("mine.py").read_text(), "mine.py", "exec"), names)
    for track in TRACKS:
        yield play(f"relay_{track}", names[f"relay_{track}"]).verdict


@pytest.mark.sampled(1)
@pytest.mark.parametrize("gone", SHAPES, ids=lambda gone: "+".join(gone) or "nothing")
def test_a_folder_of_any_shape_can_be_played(gone: tuple[str, ...], whole_week: Path) -> None:
    for name in gone:
        shutil.rmtree(whole_week / name) if (whole_week / name).is_dir() else (whole_week / name).unlink()
    wanted = {"relay_schedule": "passed", "relay_layout": "passed", "relay_plan": "passed"}
    wanted["relay_engine"] = "failed" if "trials" in gone else "passed"
    with folder_added(whole_week):
        for verdicts in (grade_file("mine.py").verdicts, watched(), list(played())):
            attempted = {verdict.puzzle: verdict for verdict in verdicts if verdict.attempted}
            assert {slug: verdict.status for slug, verdict in attempted.items()} == wanted
            if "trials" in gone:
                failed = attempted["relay_engine"]
                assert failed.reason == "ungradable"
                assert "week3/trials/relay_engine.py:" in failed.message


@pytest.mark.sampled(1)
@pytest.mark.parametrize("trials", ["", "TRIALS = 5\n", "TRIALS = ()\n"])
def test_a_class_in_python_without_trials_fails_alone(trials: str, whole_week: Path) -> None:
    (whole_week / "relay_engine.toml").unlink()
    (whole_week / "relay_engine.py").write_text(ENGINE_IN_PYTHON + trials)
    with folder_added(whole_week):
        verdicts = {verdict.puzzle: verdict for verdict in grade_file("mine.py").verdicts if verdict.attempted}
    assert {slug for slug, verdict in verdicts.items() if verdict.status == "passed"} == {
        "relay_schedule", "relay_layout", "relay_plan"}  # fmt: skip
    assert "relay_engine.py:" in verdicts["relay_engine"].message


# --- What a teacher's file says of its reference: measured, written, compared, and held against solutions ---


ROWS = measured_rows("relay")


def check(folder: Path, *words: str, code: int | None = None) -> Result:
    return puzzles("check", folder, *words, code=code)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A puzzle that `check` has nothing to say on; its reference is data parallelism."""
    file, *_ = begin("relay", "schedule", tmp_path / "week3")
    file.write_text(f"{file.read_text().replace('TODO: ', '')}\n[targets]\ntime = 5\nmemory = 1_800_000\n{ROWS}")
    return file


ALL_ON_RANK_0 = """
    if model.rank == 0:
        for layer in range(model.LAYERS):
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
        model.activations[0] = model.get_activation(range(model.BATCHES))
        for layer in range(model.LAYERS):
            model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])
        grad = model.loss(model.activations[model.LAYERS])
        for layer in reversed(range(model.LAYERS)):
            made, grad = model.backward(layer, model.activations[layer], grad, model.weights[layer])
            model.weights[layer], model.opt_states[layer] = model.update(
                layer, made, model.weights[layer], model.opt_states[layer])
"""

FOR_SHOW = """
    else:
        weight, _ = model.load_weights(0)
        model.forward(0, model.get_activation([0]), weight)
"""


def solution(file: Path, elsewhere: str) -> Path:
    """The reference at the shown size, and something else at the other sizes."""
    reference = (file.parent / "solutions" / "relay.py").read_text().replace("async def relay(", "async def at_2(")
    path = file.parent.parent / "mine.py"
    path.write_text(f"""{reference}

async def relay(model: Model) -> Model:
    if model.LAYERS == 2:
        return await at_2(model)
{elsewhere.strip(chr(10))}
    for layer in model.weights:
        model.set_final_weight(layer, model.weights[layer])
    return model
""")
    return path


@pytest.mark.parametrize(
    ("elsewhere", "said"),
    [
        (ALL_ON_RANK_0, "with 3 layers, 4 batches, 4 ranks, one rank does all the work"),
        (
            ALL_ON_RANK_0.rstrip() + FOR_SHOW,
            "the reference takes 7.9 and 2,621,440, and sends 1,179,648, so",
        ),
    ],
)
def test_a_general_solution_in_which_rank_0_does_all_elsewhere_is_noted(elsewhere: str, said: str, file: Path) -> None:
    with folder_added(file.parent):
        (verdict,) = grade_file(str(solution(file, elsewhere)), [find("relay")]).verdicts
        (reference,) = grade_file(str(file.parent / "solutions" / "relay.py"), [find("relay")]).verdicts
    assert (verdict.status, verdict.stars) == ("passed", 2), verdict.message
    assert any(said in note for note in verdict.notes), verdict.notes
    assert (reference.stars, reference.notes) == (3, ())


def test_without_its_figures_only_one_working_rank_is_noted(file: Path) -> None:
    file.write_text(file.read_text().partition("[[reference_at]]")[0])
    with folder_added(file.parent):
        (verdict,) = grade_file(str(solution(file, ALL_ON_RANK_0.rstrip() + FOR_SHOW)), [find("relay")]).verdicts
    assert (verdict.stars, verdict.notes) == (3, ())


@pytest.mark.slow
def test_stale_figures_are_named_and_corrected_and_the_rest_of_the_file_stays(file: Path) -> None:
    text = file.read_text()
    check(file.parent, "--write", code=0)
    assert file.read_text() == text, "nothing is written that is there"
    file.write_text(
        text.replace("= 7.9", "= 8").replace("= 5.1", "= 5").replace("[[reference_at]]", "# Mine.\n[[reference_at]]")
    )
    stale = check(file.parent, code=1)
    assert "5 timesteps, 1,835,008 elements" in stale.output
    assert "takes 5.1 timesteps" in stale.output
    assert ("8 timesteps, 2,621,440") in stale.output
    written = check(file.parent, "--write", code=0)
    assert "Wrote the reference's figures" in written.output
    head, _, _ = text.partition("# Measured")
    assert file.read_text().startswith(head)
    assert file.read_text().count("# Mine.") == 1
    assert tomllib.loads(file.read_text()) == tomllib.loads(text)


@pytest.mark.slow
def test_a_row_that_was_written_before_traffic_was_measured_still_holds_and_is_completed(file: Path) -> None:
    whole = file.read_text()
    text = re.sub(r"(?m)^traffic = .*\n", "", whole)
    file.write_text(text)
    checked = check(file.parent, code=0)
    for words in ("records: the reference takes 5.1 timesteps", "1,179,648 elements sent with 3 layers, 4 batches"):
        assert words in checked.output
    assert checked.output.count("--write adds") == 2
    check(file.parent, "--write", code=0)
    assert file.read_text() == whole
    file.write_text(text.replace("peak_memory = 2_621_440", "peak_memory = 2_621_440\ntraffic = 3"))
    stale = check(file.parent)
    assert "7.9 timesteps, 2,621,440" in stale.output


@pytest.mark.slow
def test_a_size_that_is_no_more_and_one_that_is_new(file: Path) -> None:
    text = file.read_text()
    file.write_text(
        text.replace("[{ layers = 3, batches = 4, ranks = 4 }]", "[{ layers = 2, batches = 4, ranks = 4 }]")
    )
    found = check(file.parent)
    assert "takes 5.1 timesteps" in found.output, "a batch on each rank, as ever"
    assert "4 ranks; --write adds" in found.output
    assert "run with 3 layers," in found.output
    check(file.parent, "--write", code=0)
    (row,) = tomllib.loads(file.read_text())["reference_at"]
    assert row["size"] == {"layers": 2, "batches": 4, "ranks": 4}


@pytest.mark.slow
def test_a_puzzle_of_one_size_is_ready_and_told_what_that_means(file: Path) -> None:
    text = file.read_text().partition("\n[[reference_at]]")[0]
    file.write_text(re.sub(r"(?m)^other_sizes.*\n", "", text))
    checked = check(file.parent, code=0)
    assert "other_sizes:" in checked.output


@pytest.mark.slow
def test_line_ends_stay(file: Path) -> None:
    text = file.read_text()
    file.write_text(text.replace("= 7.9", "= 8"), newline="\r\n")
    check(file.parent, "--write", code=0)
    assert file.read_bytes() == text.encode().replace(b"\n", b"\r\n")


def test_a_file_that_cannot_be_written_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(file.read_text().replace("= 7.9", "= 8"))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "write_text", refuse)
    refused = check(file.parent, "--write", code=2)
    assert f"{file}: Read-only file system" in refused.output


@pytest.mark.slow
def test_records_of_others_stay_where_they_are(file: Path) -> None:
    other = '[[records]] # of last year\ntimesteps = 4\npeak_memory = 9_000_000\nby = "Ben \\\\ \\""\n'
    text = file.read_text().replace("# Measured", f"{other}\n# Measured").replace("= 7.9", "= 8")
    file.write_text(text)
    check(file.parent, "--write", code=0)
    assert other in file.read_text()
    assert [row["by"] for row in tomllib.loads(file.read_text())["records"]] == ['Ben \\ "', "solutions/relay.py"]


@pytest.mark.slow
def test_a_variant_of_a_file_is_checked_as_a_record(file: Path) -> None:
    """What the other variants fail with shows that their constants were set."""
    solutions = file.parent / "solutions"
    text = (solutions / "relay.py").read_text().replace("async def relay", "async def once")
    variants = 'TIMES = 1\nVARIANTS = {"once": {"TIMES": 1}, "twice": {"TIMES": 2}}\n'
    schedule = "async def relay(model):\n    return await once(model) if TIMES == 1 else model.no_such_call()\n"
    (solutions / "ways.py").write_text(f"{text}\n\n{variants}\n\n{schedule}")
    row = '[[records]]\ntimesteps = 5.1\npeak_memory = 1_835_008\nby = "solutions/ways.py: {}"\n\n'
    written = file.read_text()
    file.write_text(written.replace("# Measured", f"{row.format('once')}# Measured"))
    checked = check(file.parent, code=0)
    for variant, why in (("twice", "no_such_call"), ("thrice", "thrice")):
        file.write_text(written.replace("# Measured", f"{row.format(variant)}# Measured"))
        checked = check(file.parent, code=1)
        assert f"solutions/ways.py: {variant}" in checked.output
        assert why in checked.output.partition("1,835,008 elements: ")[2]


@pytest.mark.slow
def test_rows_that_are_one_field_stay_one(file: Path) -> None:
    text = file.read_text().partition("[[reference_at]]")[0]
    size = "{ layers = 3, batches = 4, ranks = 4 }"
    row = f"    {{ size = {size}, timesteps = 7.9, peak_memory = 2_621_440, traffic = 1_179_648 }}, # mine"
    text = text.replace("other_sizes", f"reference_at = [\n{row}\n]\nother_sizes", 1)
    file.write_text(text.replace("= 7.9", "= 8"))
    check(file.parent, "--write", code=0)
    assert file.read_text() == text


@pytest.mark.slow
def test_a_header_within_a_text_is_no_header(file: Path) -> None:
    text = file.read_text().replace('statement = """', 'statement = """\n[[reference_at]]\ntimesteps = 1\n')
    file.write_text(text.replace("= 7.9", "= 8"))
    check(file.parent, "--write", code=0)
    assert file.read_text() == text


def test_python_is_told_what_to_write(file: Path) -> None:
    file.unlink()
    (file.parent / "relay.py").write_text(
        "from lib import Goal, Size\nfrom puzzles.catalog.schedule import SchedulePuzzle\n"
        "REFERENCE = 'solutions/relay.py'\n"
        "PUZZLE = SchedulePuzzle(title='A', goal=Goal('relay', Size(2, 2, 2), time=5, memory=1_800_000),"
        " other_sizes=(Size(3, 4, 4),), calls=(), statement='B', starter='C', hints=(), concept='',"
        " in_practice='', sources=())\n"
    )
    found = check(file.parent, "--write")
    assert "Record(5.1, 1_835_008, 'solutions/relay.py'," in found.output
    added = "add ReferenceAt(Size(layers=3, batches=4, ranks=4), 7.9, 2_621_440, traffic=1_179_648) in reference_at"
    assert added in found.output
    assert "Wrote" not in found.output


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("timesteps = 7.9", "steps = 7.9", ("[[reference_at]] 1", "'timesteps' is missing")),
        ("timesteps = 7.9", "timesteps = -1", ("[[reference_at]] 1", "'timesteps' is a number of steps", "-1")),
        ("timesteps = 7.9", "timesteps = 7.9\nby = 'me'", ("[[reference_at]] 1", "no field 'by'")),
        ("size = { layers = 3,", "size = {", ("[size]", "'layers' is missing")),
    ],
)
def test_a_row_with_a_mistake_is_named(old: str, new: str, words: tuple[str, ...], file: Path) -> None:
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(OwnPuzzleError) as caught, folder_added(file.parent):
        pass
    for word in (str(file), *words):
        assert word in str(caught.value)


def test_a_size_has_one_row(file: Path) -> None:
    text = file.read_text()
    file.write_text(text + "\n[[reference_at]]" + text.partition("[[reference_at]]")[2])
    with pytest.raises(OwnPuzzleError, match="4 ranks; keep one"):
        folder_added(file.parent).__enter__()
