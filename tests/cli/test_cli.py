"""The command line: what it prints, what it writes, and with which exit code it ends."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from puzzles.catalog.schedule import CLASSICS, PUZZLES
from puzzles.cli.main import main
from puzzles.judge import progress
from puzzles.judge.verdict import Verdict
from puzzles.tracks import track_of
from puzzles.version import VERSION
from tests.support.commands import SOLUTIONS, as_line, puzzles, solution
from tests.support.fake_grading import real_verdict, write_verdicts

pytestmark = pytest.mark.usefixtures("in_an_empty_folder", "in_this_process")


def failed(slug: str, reason: str = "deadlock", **fields: Any) -> Verdict:
    return real_verdict(slug, "failed", 0, reason=reason, **fields)


def refusal(*arguments: str) -> str:
    """The text of a usage error."""
    result = puzzles(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Traceback" not in result.stderr
    return as_line(result.stderr.partition("Error: ")[2])


def graded(*arguments: str) -> tuple[int, dict]:
    result = puzzles("grade", "--json", *arguments)
    return result.exit_code, json.loads(result.stdout)


# --- start ---


def test_start_writes_the_classics_and_nothing_is_attempted_yet():
    assert "puzzles grade my_solutions.py" in puzzles("start").stdout
    functions = [node.name for node in ast.parse(Path("my_solutions.py").read_text()).body if hasattr(node, "name")]
    assert functions == list(CLASSICS.slugs)
    code, result = graded("my_solutions.py")
    assert code == 1
    no_figures = {"status": "not_attempted", "reason": None, "stars": 0, "timesteps": None, "makespan": None,
                  "peak_memory": None, "message": "", "notes": [], "shown_size_only": False}  # fmt: skip
    assert all(entry.items() >= no_figures.items() for entry in result["files"][0]["results"])


def test_start_adds_to_a_file_and_never_overwrites_unless_forced():
    Path("mine.py").write_text("precious")
    assert "Added to mine.py. " in puzzles("start", "basic", "-o", "mine.py").stdout
    once = Path("mine.py").read_text()
    assert once.startswith("precious\n\n\nfrom lib import Model\n\n\n# basic: Standard training\n")
    assert "--force" in refusal("start", "basic", "-o", "mine.py")
    assert Path("mine.py").read_text() == once
    assert "Added to mine.py. " in puzzles("start", "-o", "mine.py").stdout
    text = Path("mine.py").read_text()
    assert text.startswith(once)
    assert text.count("def basic(") == text.count("def ddp(") == 1
    assert "mine.py" in refusal("start", "-o", "mine.py")
    puzzles("start", "-o", "mine.py", "--force", code=0)
    assert "precious" not in Path("mine.py").read_text()


def test_start_adds_to_python_files_in_utf_8_only():
    Path("mine.ipynb").write_text("{}")
    assert "mine.ipynb" in refusal("start", "basic", "-o", "mine.ipynb")
    Path("mine.py").write_bytes(b"# caf\xe9\n")
    assert "UTF-8" in refusal("start", "basic", "-o", "mine.py")
    assert Path("mine.py").read_bytes() == b"# caf\xe9\n"


def test_a_starter_is_added_with_the_line_ends_of_the_file_and_the_imports_that_are_missing():
    Path("mine.py").write_bytes(b"import numpy as np\r\n\r\n\r\nfrom lib import Model")
    puzzles("start", "basic", "-o", "mine.py")
    puzzles("start", "DataParallel", "-o", "mine.py")
    text = Path("mine.py").read_bytes()
    assert text.count(b"\n") == text.count(b"\r\n")
    assert [text.count(line) for line in (b"import numpy", b"from lib import Model", b"from lib.engine")] == [1, 1, 1]
    assert b"\r\n# Core 4 of 25; after: ddp; the same as a schedule: ddp.\r\n" in text


def test_start_where_nothing_can_be_written():
    assert "no/such/folder.py" in refusal("start", "-o", "no/such/folder.py")
    assert " .: " in refusal("start", "-o", ".", "--force")


# --- grade --json: the contract ---


def test_json_is_exactly_as_promised():
    Path("mine.py").write_text(solution("fsdp"))
    result = puzzles("grade", "mine.py", "--json", "--puzzle", "fsdp")
    answer = json.loads(result.stdout)
    (entry,) = answer["files"][0]["results"]
    stars, words = entry.pop("stars"), track_of("fsdp").words
    assert entry["target"].items() >= {"time": 20, "memory": 2300000}.items()
    assert result.exit_code == 0
    assert stars in (2, 3)
    assert answer == {
        "version": 1,
        "files": [
            {
                "path": "mine.py",
                "results": [
                    {
                        "puzzle": "fsdp",
                        "status": "passed",
                        "shown_size_only": False,
                        "reason": None,
                        "timesteps": 19.9,
                        "makespan": 20.4,
                        "peak_memory": 2359296,
                        "traffic": 3538944,
                        "target": words.targets(PUZZLES["fsdp"]),
                        "limits": words.limits_json(PUZZLES["fsdp"]),
                        "message": "",
                        "notes": [],
                    }
                ],
            }
        ],
    }
    assert '"timesteps": 19.9,' in result.stdout
    assert list(json.loads(result.stdout)["files"][0]["results"][0]) == [
        *("puzzle", "status", "reason", "stars", "shown_size_only"),
        *("timesteps", "makespan", "peak_memory", "traffic"),
        *("target", "limits", "message", "notes"),
    ]


@pytest.mark.usefixtures("stated_verdicts")
def test_a_folder_of_solutions():
    write_verdicts("anna/first.py", real_verdict("basic"))
    write_verdicts("anna/second.py", failed("fsdp", message="line 2: rank 0, t=0, receive(): nobody can move"))
    write_verdicts("ben/first.py", real_verdict("basic"))
    code, answer = graded("anna", "ben")
    assert code == 1
    assert [file["path"] for file in answer["files"]] == ["anna/first.py", "anna/second.py", "ben/first.py"]
    assert all(len(file["results"]) == 8 for file in answer["files"])
    page = puzzles("grade", ".", code=1).stdout
    assert "not attempted" not in page
    assert "2 submissions: 2" in page
    assert "./anna/second.py, fsdp: line 2:" in as_line(page)
    Path("empty").mkdir()
    assert puzzles("grade", "empty").exit_code == puzzles("grade", "empty", "--json").exit_code == 1


# --- grade for people ---


def test_a_reference_is_graded_and_no_player_is_told_to_watch_it():
    result = puzzles("grade", SOLUTIONS / "basic.py", code=0)
    assert "puzzles watch" not in result.stdout


def test_a_file_that_is_not_python_is_reported_even_if_it_names_no_puzzle():
    Path("mine.py").write_text("x = = 1\n")
    page = puzzles("grade", "mine.py").stdout
    assert page.count("line 1: ") == 1
    assert "= = 1" in page


@pytest.mark.usefixtures("stated_verdicts")
def test_the_end_of_a_chapter_is_applauded_and_the_next_one_begun():
    eight = [real_verdict(slug) for slug in CLASSICS.slugs]
    write_verdicts("seven.py", *eight[1:])
    assert "every puzzle of" not in puzzles("grade", "seven.py").stdout
    page = as_line(puzzles("grade", str(write_verdicts("eight.py", *eight))).stdout)
    assert ("'The classics'." in page, "show DataParallel'" in page) == (True, True)


def test_only_what_is_attempted_has_a_row():
    """Of a real file: its starter is no attempt."""
    Path("mine.py").write_text(solution("ddp") + PUZZLES["fsdp"].starter)
    page = puzzles("grade", "mine.py").stdout
    assert [line.split()[0] for line in page.splitlines() if line.split()[:1] and line.split()[0] in PUZZLES] == ["ddp"]
    assert "not attempted" not in page


@pytest.mark.usefixtures("stated_verdicts")
def test_grade_play_list_and_status_name_the_same_next_puzzle():
    write_verdicts("mine.py", real_verdict("wsdp"))
    progress.add_own_file("mine.py")
    said = {as_line(puzzles(*command).stdout).partition("'puzzles show ")[2].partition("'")[0]
            for command in (["grade", "mine.py"], ["list"], ["status"])}  # fmt: skip
    assert said == {"fsdp"}
    write_verdicts("mine.py", real_verdict("fsdp"), failed("gpipe"))
    puzzles("grade", "mine.py")
    assert "show gpipe" in puzzles("status").stdout, "the one that is not solved yet"


@pytest.mark.usefixtures("stated_verdicts")
def test_written_files_are_named():
    write_verdicts("mine.py", real_verdict("ddp", trace='{"not": "drawn"}'))
    page = as_line(puzzles("grade", "mine.py", "-o", "t.csv", "--traces", "kept").stdout)
    assert "Wrote t.csv." in page
    assert "1 trace to kept" in page
    write_verdicts("mine.py", real_verdict("ddp"))
    assert "Wrote r.html." in puzzles("grade", "mine.py", "-o", "r.html").stdout
    quiet = puzzles("grade", "mine.py", "--json", "-o", "r.html")
    assert (json.loads(quiet.stdout)["version"], quiet.stderr) == (1, "")


def test_the_version_is_that_of_the_package():
    assert puzzles("--version").stdout == f"Training Puzzles {VERSION}\n"


@pytest.mark.usefixtures("stated_verdicts")
def test_a_terminal_that_knows_no_stars_gets_asterisks():
    write_verdicts("mine.py", real_verdict("basic", stars=2))
    result = CliRunner(charset="ascii").invoke(main, ["grade", "mine.py"])
    assert result.exit_code == 0
    assert "**-" in result.stdout


def test_brackets_and_control_characters_of_a_player_are_only_shown():
    Path("mine.py").write_text("def basic(model):\n    raise ValueError('[red]x[/nope] \x1b[2J')\n")
    page = puzzles("grade", "mine.py").stdout
    assert "ValueError: [red]x[/nope] \\x1b[2J" in page
    assert "\x1b" not in page


# --- draw ---


def test_draw_shows_a_failure_as_far_as_it_went():
    Path("mine.py").write_text(
        solution("fsdp").replace("    del weights", "    await model.receive()\n        del weights")
    )
    result = puzzles("draw", "mine.py", "fsdp", code=1)
    assert "<svg" in Path("fsdp.svg").read_text()
    assert "fsdp failed: line 16:" in result.stderr


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "mine.py has no function fsdp; write 'def fsdp(model):'"),
        ("def fsdp(:\n", "fsdp failed: line 1: this is not valid Python: invalid syntax"),
        ("1 / 0\n", "fsdp failed: line 1: while the file is loaded: ZeroDivisionError: division by zero"),
    ],
)
def test_draw_without_a_schedule_draws_nothing(source: str, message: str):
    Path("mine.py").write_text(source)
    result = puzzles("draw", "mine.py", "fsdp")
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr
    assert not Path("fsdp.svg").exists()


# --- Usage errors ---

USAGE = [
    (["grad"], "there is no command 'grad'; did you mean 'grade'?"),
    (["torch", "mine.py", "gpipe"], "there is no command 'torch'; type 'puzzles run FILE NAME --on torch'"),
    (["lst"], "there is no command 'lst'; did you mean 'list'?"),
    (["fsdp"], "there is no command 'fsdp'; did you mean 'puzzles show fsdp'?"),
    (["zzz"], "there is no command 'zzz'; the commands are "),
    (["show", "ring"], "there is no puzzle 'ring'; did you mean 'ring_context', 'RingAllReduce' or 'RingAttention'?"),
    (["show", "zero"], "there is no puzzle 'zero'; did you mean 'zero1' or 'zero2'?"),
    (["list", "expert"], "there is no chapter 'expert'; did you mean 'experts'?"),
    (["list", "FSPD"], "there is no puzzle 'FSPD'; did you mean 'fsdp'?"),
    (["hint", "grad"], "there is no puzzle 'grad'; did you mean 'grad_accum'?"),
    (["start", "pipelin"], "there is no chapter 'pipelin'; did you mean 'pipelines'?"),
    (["grade", ".", "--puzzle", "gpip"], "there is no puzzle 'gpip'; did you mean 'gpipe'?"),
    (["hint", "fsdp", "-n", "0"], "fsdp has hints 1 to 4; there is no hint 0"),
    (["hint", "fsdp", "-n", "5"], "fsdp has hints 1 to 4; there is no hint 5"),
    (["hint", "fsdp", "-n", "two"], "'two' is not a valid integer"),
    (["show"], "Missing argument 'SLUG'. 'puzzles list' shows the names"),
    (["hint"], "Missing argument 'SLUG'. 'puzzles list' shows the names"),
    (["draw", "."], "Missing argument 'SLUG'. 'puzzles list' shows the names"),
    (["draw", __file__, "fsdp", "--text", "--open"], "--open needs a file"),
    (["grade"], "Missing argument 'PATH...'"),
    (["grade", "nope.py"], "Path 'nope.py' does not exist"),
    (["grade", ".", "--limit", "time=0"], "'0' is not a positive number of seconds"),
    (["grade", ".", "--limit", "time=nan"], "'nan' is not a positive number of seconds"),
    (["grade", ".", "--limit", "time=-1"], "'-1' is not a positive number of seconds"),
    (["grade", ".", "--limit", "time=soon"], "'soon' is not a positive number of seconds"),
    (["grade", ".", "--jsn"], "No such option"),
    (["draw", "nope.py", "fsdp"], "Path 'nope.py' does not exist"),
    (["draw", ".", "fsdp"], "'.' is a folder; only --pareto takes a folder"),
    (["draw", ".", "fsdp", "--pareto", "--text"], "choose one of --text, --against and --pareto"),
    (["draw", ".", "fsdp", "--pareto", "--against", "."], "choose one of --text, --against and --pareto"),
    (["draw", ".", "fsdp", "--pareto", "--width", "60"], "--width is for --text"),
    (
        ["draw", ".", "fsdp", "--pareto", "-o", "x.html"],
        "only the timeline of one run can be written as .html; use .svg",
    ),
]


@pytest.mark.sampled(17)
@pytest.mark.parametrize(("arguments", "message"), USAGE, ids=lambda x: " ".join(x) if isinstance(x, list) else "")
def test_usage_errors_say_what_would_be_right_and_exit_with_2(arguments: list[str], message: str):
    assert message in refusal(*arguments)
