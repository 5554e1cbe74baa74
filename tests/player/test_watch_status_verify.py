"""`watch`, `status`, `verify` and `path`, and the core path as a player types it."""

import ast
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lib import run, trace_to_json
from puzzles import play
from puzzles.catalog.path import CORE, PATH
from puzzles.catalog.schedule import PUZZLES
from puzzles.cli import watch
from puzzles.cli.watch import WatchState
from puzzles.judge import progress
from puzzles.judge.grader import grade_file
from puzzles.judge.submission import Submission
from puzzles.sandbox.limits import Limits
from puzzles.tracks import ALL, TRACKS, reference_file, track_of
from tests.support import CLASSICS
from tests.support.commands import SOLUTIONS, as_line, puzzles, said, solution
from tests.support.fake_grading import real_verdict, stated_in, stating
from tests.support.solved import reference_of

pytestmark = pytest.mark.usefixtures("in_an_empty_folder", "in_this_process")

# --- The commands watch, status, reset and verify, and the words after a pass ---


# --- Watch ---


BASIC, DDP = stating(real_verdict("basic")), stating(real_verdict("ddp"))
FAILED_DDP = stating(real_verdict("ddp", "failed", 0, reason="deadlock"))


class Watched:
    """A game on a file, with what it grades and shows. The verdicts are those that the file states, or with `is_run`
    those on its runs."""

    def __init__(self, text: str, is_run: bool = False) -> None:
        self.is_run = is_run
        self.path = Path("mine.py")
        self.path.write_text(text)
        self.screen = io.StringIO()
        self.graded: list[list[str] | None] = []
        self.opened: list[str] = []
        console = Console(file=self.screen, width=100, highlight=False, markup=False)
        self.game = WatchState("mine.py", Limits(), console)
        self.game.grade, self.game.show = self.grade, self.opened.append
        self.game.begin()

    def grade(self, path: str, wanted: list[Any] | None, limits: Limits, keep: bool) -> Any:
        self.graded.append(wanted and [puzzle.slug for puzzle in wanted])
        if self.is_run:
            return grade_file(path, wanted, limits, keep=keep)
        return stated_in(path, wanted, Submission.read(Path(path)))

    def press(self, key: str) -> str:
        self.screen.seek(0)
        self.screen.truncate()
        self.game.handle(key)
        return as_line(self.screen.getvalue())


def test_a_save_grades_only_what_changed():
    watched = Watched(BASIC + DDP)
    assert watched.graded == [None]
    watched.path.write_text(BASIC + "# a remark\n\n\n" + DDP)
    watched.press("saved")
    assert watched.graded[1:] == []
    watched.path.write_text(BASIC + FAILED_DDP)
    watched.press("saved")
    assert watched.graded[1:] == [["ddp"]]
    watched.path.write_text("import math\n" + watched.path.read_text())
    watched.press("saved")
    assert watched.graded[2:] == [None]
    watched.path.write_text("x = = 1")


def test_the_screen_shows_the_first_unsolved_puzzle_and_stays_there():
    watched = Watched(BASIC + PUZZLES["grad_accum"].starter)
    assert watched.game.current == "grad_accum"
    assert "grad_accum: " in watched.screen.getvalue()
    watched.path.write_text(stating(real_verdict("basic"), real_verdict("grad_accum")))
    page = watched.press("saved")
    assert watched.game.current == "grad_accum"
    assert "passed ★★" in page
    assert "'puzzles compare mine.py grad_accum'" in page
    assert "In practice: " not in page
    assert "2," in page
    assert "ddp: " in watched.press("n")


def test_n_adds_the_next_starter_below_its_statement_and_never_overwrites() -> None:
    with_import = f"from lib import Model\n\n\n{BASIC}"
    watched = Watched(with_import)
    page = watched.press("n")
    assert page.startswith("Grading mine.py ... grad_accum: Gradient accumulation")
    assert "mine.py." in page
    text = watched.path.read_text()
    assert text.startswith(with_import)
    assert text.endswith(PUZZLES["grad_accum"].starter)
    assert "def grad_accum" in text
    assert watched.graded == [None, ["grad_accum"]]
    again = watched.press("saved")
    assert again.startswith("grad_accum: Gradient accumulation")
    assert "mine.py." in again
    assert watched.graded == [None, ["grad_accum"]], "the save was ours"
    watched.game.current = "basic"
    assert "Its starter is now" not in watched.press("n"), "the file has it"
    assert watched.path.read_text() == text


def test_n_says_why_a_starter_cannot_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(BASIC)

    def refuse(*_: Any) -> list[str]:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr("puzzles.cli.watch.add_starters", refuse)
        assert "mine.py" in watched.press("n")
    watched.game.path = "mine.ipynb"
    Path("mine.ipynb").write_text("{}")
    watched.game.current = "basic"
    assert "Python files" in watched.press("n")


def test_a_save_shows_the_verdict_on_what_was_edited() -> None:
    watched = Watched(BASIC + FAILED_DDP)
    assert watched.game.current == "ddp"
    assert as_line(PUZZLES["ddp"].statement) in as_line(watched.screen.getvalue()), "the statement comes first"
    other_ddp = stating(real_verdict("ddp", "failed", 0, reason="incomplete"))
    watched.path.write_text(stating(real_verdict("basic", "failed", 0, reason="crash")) + other_ddp)
    page = watched.press("saved")
    assert watched.game.current == "ddp", "which was edited as well"
    assert "failed" in page
    assert as_line(PUZZLES["ddp"].statement) not in page
    watched.path.write_text(BASIC + other_ddp)
    assert "basic: Standard training" in watched.press("saved")
    assert watched.game.current == "basic", "where the player is now"
    assert as_line(PUZZLES["basic"].statement) in watched.press("s")


@pytest.mark.parametrize("text", ["async def fsdp(model):\n    model.storage()\n", PUZZLES["fsdp"].starter])
def test_the_screen_shows_what_the_file_has_begun(text: str):
    watched = Watched(DDP + "\n\n" + text)
    assert watched.game.current == "fsdp"
    assert Watched(DDP).game.current == "ddp", "it is passed, and shown as passed"


def test_keys_give_hints_the_list_and_the_end():
    watched = Watched(BASIC + PUZZLES["grad_accum"].starter)
    hints = PUZZLES["grad_accum"].hints
    assert as_line(hints[0]) in watched.press("h")
    assert as_line(hints[1]) in watched.press("h")
    for _ in hints:
        last = watched.press("h")
    assert as_line(hints[-1]) in last
    assert progress.load()["grad_accum"].hints == len(hints)
    assert "> grad_accum not attempted" in watched.press("l")
    assert "basic ★★" in watched.press("l")
    assert "q quit" in watched.press("x")
    assert watched.game.handle("l") is True
    assert watched.game.handle("q") is False


@pytest.mark.sandboxed
@pytest.mark.slow
def test_classes_and_layouts_are_watched_like_schedules():
    watched = Watched((SOLUTIONS / "layout" / "ffn.py").read_text() + solution("engine/fsdp"), is_run=True)
    assert watched.game.current == "ffn", "all that is begun is passed: the last of them"
    assert "FSDP ★★☆ passed" in watched.press("l")
    assert "ffn ★★★ passed" in watched.press("l")
    watched.game.current = "mesh_2x3"
    assert "mesh_2x3" in watched.press("o")
    watched.game.current = "FSDP"
    assert all("no pictures" in watched.press(key) for key in "op")
    watched.game.current = "ffn"
    assert watched.press("o") == "Wrote ffn.svg."
    watched.path.write_text(watched.path.read_text() + "\n\nclass Helper:\n    pass\n")
    page = watched.press("saved")
    assert "12,288 of 12,288" in page
    assert "matmul2: matmul ((8,1),(1,1))" in page
    assert "In practice: " not in page


def test_a_file_that_cannot_be_read_says_so_at_any_puzzle() -> None:
    watched = Watched(BASIC + PUZZLES["grad_accum"].starter)
    assert watched.game.current == "grad_accum"
    watched.path.write_text("x = = 1\n")
    assert "line 1: " in watched.press("saved")
    watched.path.unlink()
    assert "cannot be read" in watched.press("saved")
    watched.path.write_text(BASIC)
    assert "basic: Standard training" in watched.press("saved"), "what has a verdict again"


def test_the_picture_is_written_and_opened():
    watched = Watched(solution("basic") + PUZZLES["grad_accum"].starter, is_run=True)
    assert "grad_accum" in watched.press("o")
    watched.game.current = "basic"
    assert watched.press("o") == "Wrote basic.svg."
    assert Path("basic.svg").read_text().startswith("<")
    assert watched.opened == [Path("basic.svg").resolve().as_uri()]
    assert "memory of each rank" in watched.press("p")


def test_control_characters_never_reach_the_screen():
    watched = Watched(
        "def basic(model):\n    print('\\x1b[2J')\n    raise ValueError('\\x1b]0;title\\x07')\n", is_run=True
    )
    assert "\x1b]0" not in watched.screen.getvalue()
    assert "\\x1b]0;title\\x07" in watched.screen.getvalue()


@pytest.mark.usefixtures("stated_verdicts")
def test_the_command_reads_keys_until_the_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watch, "_saves", lambda *_: iter(()))
    Path("mine.py").write_text(BASIC)
    result = puzzles("watch", "mine.py", input="lq", code=0)
    assert "> basic" in result.stdout


def test_a_save_of_another_file_is_ignored(monkeypatch: pytest.MonkeyPatch):
    changes = [{(1, str(Path("other.py").resolve()))}, {(1, str(Path("mine.py").resolve()))}]
    monkeypatch.setattr("watchfiles.watch", lambda *_, **__: iter(changes))
    assert list(watch._saves("mine.py", watch.threading.Event())) == ["saved"]


# --- Progress ---


@pytest.mark.usefixtures("stated_verdicts")
def test_status_counts_attempts_stars_and_hints():
    assert f"0 of {3 * len(TRACKS['layout'].slugs)} stars." in puzzles("status").stdout
    figures = {"timesteps": 16.5, "makespan": 17, "peak_memory": 2_621_440}
    Path("mine.py").write_text(stating(real_verdict("basic", figures=figures)) + FAILED_DDP)
    progress.add_own_file("mine.py")
    puzzles("grade", "mine.py")
    puzzles("grade", "mine.py", "--puzzle", "ddp")
    puzzles("hint", "ddp", "-n", "2")
    rows = {row.split()[0]: row.split()[1:] for row in puzzles("status").stdout.splitlines() if row.strip()}
    assert rows["basic"][1:9] == ["1", "0", "of", "4", "16.5", "timesteps,", "2,621,440", "elements"]
    assert rows["ddp"] == ["☆☆☆", "2", "2", "of", "4"]
    assert "show ddp" in puzzles("status").stdout, "which was tried and is not solved"


def test_when_everything_is_solved_status_names_what_is_left(monkeypatch: pytest.MonkeyPatch):
    for stars, told in ((2, "For a third star, try basic"), (3, "beat a record")):
        progress.save({slug: progress.PuzzleProgress(1, stars) for slug in ALL})
        assert told in puzzles("status").stdout


def test_reset_asks_first():
    progress.save({slug: progress.PuzzleProgress(attempts=5) for slug in PUZZLES})
    puzzles("reset", input="n\n", code=1)
    assert progress.load()["basic"].attempts == 5
    puzzles("reset", "basic", input="y\n", code=0)
    assert [progress.load()[slug].attempts for slug in ("basic", "ddp")] == [0, 5]
    assert "Forgot all your progress." in puzzles("reset", "--yes").stdout
    assert progress.load()["ddp"].attempts == 0


@pytest.mark.usefixtures("stated_verdicts")
def test_where_nothing_can_be_written_the_game_continues(monkeypatch: pytest.MonkeyPatch):
    Path("file").write_text("")
    monkeypatch.setenv(progress.HOME, "file/below")
    Path("mine.py").write_text(BASIC)
    puzzles("grade", "mine.py", code=0)
    Path("more.py").write_text(DDP)
    puzzles("grade", "mine.py", "more.py", code=0)


def test_the_platform_says_where_progress_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(progress.HOME)
    assert progress.data_folder().name == "training-puzzles"


# --- After a pass ---


def test_why_a_pass_compares_calls_with_the_reference():
    other = (SOLUTIONS / "records" / "fsdp_layer_by_layer.py").read_text()
    summed = other.replace(
        "await reduce(grad_weights[layer], layer)",
        "(await reduce(grad_weights[layer], layer)).shard(model.rank, model.RANKS)",
    )
    gathered_once = summed.replace("else model.scatterreduce", "else model.allreduce").partition("ddp = wsdp")[0]
    gathered_once = gathered_once.replace("async def fsdp", "async def wsdp") + "FULL = 6\n"
    Path("other.py").write_text(gathered_once)
    page = as_line(puzzles("grade", "other.py", "--why").stdout)
    assert "48 times (you: 24)" in page
    assert "19.9 timesteps, 2,752,512" in page


@pytest.mark.slow
def test_compare_shows_the_differing_lines_and_both_runs():
    mine = solution("ddp").replace("model.loss(", "  model.loss(  ").replace("async def ddp", "# mine\nasync def ddp")
    Path("mine.py").write_text(mine)
    same = puzzles("compare", "mine.py", "ddp")
    assert same.stdout.splitlines()[1:] == ["Wrote ddp_against.svg."]
    assert Path("ddp_against.svg").read_text().startswith("<")
    Path("mine.py").write_text(solution("fsdp").replace("async def fsdp", "async def ddp"))
    lines = puzzles("compare", "mine.py", "ddp").stdout.splitlines()
    assert lines[0] == "- yours, + reference"
    assert any(line.startswith("- ") and "scatterreduce" in line for line in lines)
    assert any(line.startswith("+ ") and "allreduce" in line for line in lines)


def test_compare_refuses_what_it_cannot_show():
    Path("mine.py").write_text(solution("engine/fsdp"))
    puzzles("compare", "mine.py", "FSDP", code=0)
    assert "--open" in puzzles("compare", "mine.py", "FSDP", "--open").stderr
    assert "mine.py" in puzzles("compare", "mine.py", "ddp").stderr


# --- Verify ---


def test_a_saved_trace_is_judged_again_with_the_same_result():
    goal = PUZZLES["fsdp"].goal
    Path("traces").mkdir()
    Path("traces/fsdp.json").write_text(
        trace_to_json(run(reference_of("fsdp"), *goal.size, setting=goal.setting).trace)
    )
    told = puzzles("verify", "traces/fsdp.json", "--puzzle", "fsdp", code=0)
    assert as_line(told.stdout).startswith("passed, ")
    answer = json.loads(puzzles("verify", "traces/fsdp.json", "--puzzle", "fsdp", "--json").stdout)
    assert (answer["status"], answer["timesteps"], answer["peak_memory"]) == ("passed", 19.9, 2359296)
    puzzles("verify", "traces/fsdp.json", "--puzzle", "gpipe", code=1)


BAD_TRACES = [
    ("", "this is not a trace in JSON"),
    ("[" * 100_000, "this is not a trace in JSON"),
    ("{}", "this is not a trace"),
    ("\udcff", "'utf-8' codec can't decode"),
]


@pytest.mark.parametrize(("text", "message"), BAD_TRACES, ids=["empty", "deep", "object", "bytes"])
def test_what_is_not_a_trace_does_not_pass(text: str, message: str):
    Path("trace.json").write_text(text, errors="surrogateescape")
    result = puzzles("verify", "trace.json", "--puzzle", "basic", code=1)
    assert "cannot be judged: " in result.stdout
    assert message in result.stdout
    assert json.loads(puzzles("verify", "trace.json", "--puzzle", "basic", "--json").stdout)["status"] == "failed"


def test_a_trace_of_another_size_or_edited_does_not_pass():
    basic = CLASSICS[0].solution
    Path("small.json").write_text(trace_to_json(run(basic, 1, 1, 1).trace))
    assert "Not correct. " in puzzles("verify", "small.json", "--puzzle", "basic").stdout
    right = trace_to_json(run(basic, 2, 4, 1).trace)
    Path("edited.json").write_text(right.replace('"op":"update"', '"op":"loss"', 1))
    puzzles("verify", "edited.json", "--puzzle", "basic", code=1)
    rows = json.loads(right)
    rows["operations"][0] *= 200
    Path("long.json").write_text(json.dumps(rows))
    assert "2,000" in puzzles("verify", "long.json", "--puzzle", "basic").stdout
    Path("large.json").write_bytes(b" " * ((16 << 20) + 1))
    assert "16,777,216" in puzzles("verify", "large.json", "--puzzle", "basic").stdout


# --- The commands next and path: from an empty folder along the core path, with what was solved anywhere ---


def lines(*arguments: str) -> list[str]:
    result = puzzles(*arguments, code=0)
    return result.output.splitlines()


def solve(*slugs: str) -> None:
    entries = progress.load()
    for turn, slug in enumerate(slugs, 1):
        entries[slug] = progress.PuzzleProgress(attempts=1, stars=2, turn=turn)
    progress.save(entries)


def test_next_adds_one_starter_after_another_to_one_file() -> None:
    page = said("next")
    assert page.startswith("basic: Standard training ")
    assert "Core 1 of 25." in page
    assert "'puzzles watch my_solutions.py'" in page
    assert "my_solutions.py" in said("next")
    solve("basic", "grad_accum", "ddp")
    assert said("next").startswith("DataParallel: ")
    text = Path("my_solutions.py").read_text()
    assert text.count("def basic(") == text.count("class DataParallel(") == 1
    assert progress.is_own_file("my_solutions.py")


def test_next_goes_on_in_the_latest_file_if_the_usual_one_was_renamed() -> None:
    said("next")
    Path("my_solutions.py").rename("renamed.py")
    progress.add_own_file("renamed.py")
    solve("basic")
    said("next")
    assert not Path("my_solutions.py").exists()
    assert "def grad_accum(" in Path("renamed.py").read_text()


def test_the_map_fits_a_screen_and_shows_what_is_done() -> None:
    for stars in (0, 3):
        progress.save({slug: progress.PuzzleProgress(bool(stars), stars) for slug in ALL})
        page = lines("path")
        assert len(page) < 24
        assert all(len(line) <= 80 for line in page)
        assert all(step.title in "\n".join(page) for step in PATH)
        assert all(slug in "\n".join(page).split() for slug in CORE)


def test_what_comes_before_a_solved_puzzle_counts_as_known() -> None:
    assert "0 of 25" in said("path")
    solve("gpipe")
    page = said("path")
    assert "5 of 25" in page
    assert "basic (known) grad_accum (known)" in page
    assert "gpipe ★★☆" in page
    assert "'puzzles show one_f_one_b'" in page


def test_a_play_in_a_notebook_or_a_script_counts() -> None:
    source = (SOLUTIONS / "basic.py").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    exec(compile(source, "basic.py", "exec"), names)
    assert play("basic", names["basic"]).status == "passed"
    assert progress.load()["basic"].attempts == 1
    assert said("next").startswith("grad_accum: Gradient accumulation")


def test_at_the_end_of_the_path_next_goes_on_with_extra_puzzles_until_there_are_none() -> None:
    solve(*CORE)
    assert "25 of 25" in said("path")
    assert said("next").split(":")[0] in TRACKS["plan"].slugs
    solve(*ALL)
    assert "puzzles show" not in said("next")


# --- The core path is played from an empty folder with `next` and `watch` only, in a terminal of 80 x 24 ---


WIDTH, ROWS = 80, 24
FILE = Path("my_solutions.py")
CLEAR = "\x1b[2J\x1b[H"


class Player:
    """A player who types what the screens say, and knows the references."""

    def __init__(self) -> None:
        self.screen = io.StringIO()
        console = Console(
            file=self.screen, width=WIDTH, height=ROWS, highlight=False, markup=False, force_terminal=True,
            color_system=None,
        )  # fmt: skip
        self.game = WatchState(str(FILE), Limits(), console)
        self.game.begin()

    def shown(self) -> list[str]:
        """The last screen."""
        text = self.screen.getvalue().rpartition(CLEAR)[2] or self.screen.getvalue()
        self.screen.seek(0)
        self.screen.truncate()
        return text.splitlines()

    def press(self, key: str) -> list[str]:
        self.game.handle(key)
        return self.shown()

    def solve(self, slug: str) -> list[str]:
        """Writes the reference in place of the starter's definition, below the imports that the file has."""
        starter, source = track_of(slug).puzzle(slug).starter, reference_file(slug)
        assert source is not None
        text, file = source.read_text(encoding="utf-8"), FILE.read_text(encoding="utf-8")
        lines = text.splitlines(keepends=True)
        pieces = ["".join(lines[node.lineno - 1 : node.end_lineno]) for node in ast.parse(text).body[1:]]
        body = "\n\n".join(piece for piece in pieces if piece not in file)
        assert starter in file, "the file has the starter"
        FILE.write_text(file.replace(starter, body), encoding="utf-8")
        return self.press("saved")


def fits(lines: list[str]) -> bool:
    """True if a screen has room for it, with a row for the cursor."""
    return len(lines) < ROWS and all(len(line) <= WIDTH for line in lines)


def play_along(slugs: tuple[str, ...]) -> None:
    """From `next` in an empty folder to the last of these puzzles, along what the screens offer."""
    opened = puzzles("next").output
    assert "'puzzles watch my_solutions.py'" in " ".join(opened.split())
    assert fits(opened.splitlines()), opened
    player = Player()
    assert "\n".join(player.shown()[:2]) in opened
    for slug, following in zip(slugs, (*CORE[1:], ""), strict=False):
        assert player.game.current == slug
        passed = player.solve(slug)
        assert any(line.startswith("passed  ★★") for line in passed), "\n".join(passed)
        assert fits(passed), "\n".join(passed)
        words = " ".join(" ".join(passed).split())
        assert f"'puzzles compare my_solutions.py {slug}' shows" in words
        assert "Press n for" in words, "there are extra puzzles after the last core one"
        if following:
            statement = player.press("n")
            assert fits(statement), "\n".join(statement)
            assert "my_solutions.py" in " ".join(statement)
            assert player.game.current == following
            for key in "hls":
                page = player.press(key)
                assert fits(page), "\n".join(page)
    assert {slug for slug, entry in progress.load().items() if entry.stars >= 2} >= set(slugs)


def test_the_first_step_of_the_path_is_played() -> None:
    play_along(CORE[:3])


@pytest.mark.slow
def test_the_core_path_is_played_to_its_end() -> None:
    play_along(CORE)
