"""The grader: the verdict on a player's file, whatever it contains."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from puzzles.catalog.puzzle import GAP
from puzzles.catalog.schedule import PUZZLES, SchedulePuzzle
from puzzles.judge.grader import NOT_INSTALLED, grade_file, grade_puzzle
from puzzles.judge.session import Session, run_in
from puzzles.judge.submission import Submission
from puzzles.judge.verdict import Verdict
from puzzles.sandbox import limits
from puzzles.sandbox.client import SandboxClient
from puzzles.sandbox.limits import Limits
from puzzles.tracks import TRACKS, find
from tests.support import CLASSICS, Classic, course
from tests.support.commands import solution
from tests.support.solved import SOME_PUZZLES

pytestmark = pytest.mark.usefixtures("in_this_process")


def submit(source: str | bytes, name: str = "mine.py") -> Submission:
    return Submission(Path(name), dedent(source).encode() if isinstance(source, str) else source)


def grade(puzzle: SchedulePuzzle, submission: Submission, seconds: float = 10.0) -> Verdict:
    with Session(submission, Limits(seconds=seconds)) as session:
        return grade_puzzle(puzzle, session)


def verdict_on(slug: str, source: str | bytes, seconds: float = 10.0) -> Verdict:
    return grade(PUZZLES[slug], submit(source), seconds)


def failure(slug: str, source: str | bytes, seconds: float = 10.0) -> tuple[str | None, str]:
    verdict = verdict_on(slug, source, seconds)
    assert (verdict.status, verdict.stars, verdict.timesteps, verdict.peak_memory) == ("failed", 0, None, None)
    return verdict.reason, verdict.message


# --- What passes ---


@pytest.mark.sampled(1)
@pytest.mark.sandboxed
@pytest.mark.parametrize("classic", CLASSICS, ids=lambda classic: classic.slug)
def test_the_reference_solutions_score_the_table(classic: Classic):
    verdict = verdict_on(classic.slug, solution(classic.slug))
    assert (verdict.status, verdict.reason, verdict.message, verdict.notes) == ("passed", None, "", ())
    assert (verdict.timesteps, verdict.peak_memory) == (classic.timesteps, classic.peak_memory)
    assert verdict.makespan == classic.timesteps + 0.5
    assert verdict.stars >= 2


def test_a_schedule_for_the_shown_size_only_gets_a_note_and_two_stars():
    special = solution("basic").replace("model.BATCHES", "4")
    verdict = verdict_on("basic", special)
    assert (verdict.status, verdict.stars) == ("passed", 2)
    (note,) = verdict.notes
    facts = ("(2 layers, 4 batches,", "3 layers, 2 batches,", "line 11: rank 0,", "batch 2 ")
    assert [fact for fact in facts if fact not in note] == []


# --- What is not attempted ---


@pytest.mark.sampled(4)
@pytest.mark.parametrize("slug", SOME_PUZZLES)
def test_an_untouched_starter_is_not_attempted(slug: str):
    starter = "from lib import Model, WeightGrad\n\n\n# mine, later\n" + PUZZLES[slug].starter
    assert verdict_on(slug, starter).status == "not_attempted"
    assert verdict_on(slug, starter.replace(GAP, "pass")).status == "failed"


def test_files_without_a_puzzle_are_not_even_run():
    assert verdict_on("basic", "raise SystemExit('never executed')").status == "not_attempted"


def test_a_name_inside_a_function_or_a_class_is_no_attempt():
    source = "raise RuntimeError\ndef f():\n    basic = 1\nclass C:\n    def basic(self): pass\n"
    assert verdict_on("basic", source).status == "not_attempted"


def test_a_name_in_a_branch_that_was_not_taken_is_no_attempt():
    never = "if False:\n    def basic(model): pass\n"
    assert verdict_on("basic", never).status == "not_attempted"


@pytest.mark.sandboxed
def test_a_star_import_may_bring_a_solution():
    """Here from a module of the standard library: other files of the player are not there."""
    assert verdict_on("basic", "from this_and_that import *\n").message.endswith(ALONE)
    source = "import sys\nsys.modules['more'] = sys.modules[__name__]\n" + solution("basic") + "\nfrom more import *\n"
    assert verdict_on("basic", source).status == "passed"


# --- What fails: the rules of the game ---


def test_what_only_the_referee_refuses_is_a_failure_too():
    source = solution("ddp").replace(
        "await model.allreduce(grad_weights[layer], layer)", "model.fake_grad(layer, range(4))"
    )
    reason, message = failure("ddp", source)
    assert reason == "rule"
    assert "fake_grad(layer=0)" in message
    assert message.startswith("line 25: rank 0, t=4, ")


def test_a_forgotten_await_of_the_players_own_coroutine_is_reported():
    source = "async def basic(model):\n    train(model)\nasync def train(model): pass\n"
    reason, message = failure("basic", source)
    assert reason == "incomplete"
    assert message.endswith("so it did not run")


# --- What fails: the player's code ---

ALONE = "the file is run alone: put what it needs into it"

CRASHES = [
    # the body of basic, the message
    ("1 / 0", "line 2: rank 0, t=0: ZeroDivisionError: division by zero"),
    ("assert model is None", "line 2: rank 0, t=0: AssertionError"),
    ("exit(3)", "line 2: rank 0, t=0: this called exit; let the function return instead"),
    ("raise SystemExit", "line 2: rank 0, t=0: this called exit; let the function return instead"),
    ("raise GeneratorExit", "line 2: rank 0, t=0: GeneratorExit"),
    ("basic(model)", "line 2: rank 0, t=0: RecursionError: a function calls itself endlessly"),
    ("input()", "line 2: rank 0, t=0: EOFError: EOF when reading a line"),
    ("raise ValueError('a\\nb\\x1b[2J')", "line 2: rank 0, t=0: ValueError: a b\\x1b[2J"),
    ("import no_such_package", "line 2: rank 0, t=0: ModuleNotFoundError: No module named 'no_such_package'; " + ALONE),
    (
        "model.weights.no_such_call()",
        "line 2: rank 0, t=0: AttributeError: 'Storage' object has no attribute 'no_such_call'",
    ),
    ("yield", "line 1: there is a 'yield' in basic, so calling it runs none of its lines; take it out"),
]


@pytest.mark.sampled(3)
@pytest.mark.sandboxed
@pytest.mark.parametrize(("body", "message"), CRASHES)
def test_a_crash_is_reported_with_its_line(body: str, message: str):
    assert failure("basic", f"def basic(model):\n    {body}\n") == ("crash", message)


def test_a_long_message_is_cut():
    _, message = failure("basic", "def basic(model):\n    raise ValueError('x' * 10_000)\n")
    assert len(message) < 400
    assert message.endswith("xxx...")


def test_an_exception_that_cannot_be_shown_is_named():
    source = """\
        class Mute(Exception):
            def __str__(self): raise RuntimeError
        def basic(model):
            raise Mute
        """
    reason, message = failure("basic", source)
    assert reason == "crash"
    assert message.startswith("line 4: rank 0, t=0: ")


@pytest.mark.sandboxed
def test_no_memory_left():
    reason, message = failure("basic", "def basic(model):\n    bytearray(10**18)\n")
    assert reason == "memory"
    assert message.startswith("line 2: rank 0, t=0: ")


NO_FUNCTIONS = [
    ("basic = 5", "line 1: basic is of type int, not a function; write 'def basic(model):'"),
    ("import os as basic", "line 1: basic is of type module, not a function; write 'def basic(model):'"),
    ("class basic: pass", "line 1: basic is a class, not a function; write 'def basic(model):'"),
    ("def basic(): pass", "line 1: basic is called with one argument, the model; write 'def basic(model):'"),
    ("def basic(model, x): pass", "line 1: basic is called with one argument, the model; write 'def basic(model):'"),
    ("\nbasic = lambda: 1", "line 2: basic is called with one argument, the model; write 'def basic(model):'"),
    (
        "async def basic(m):\n    yield",
        "line 1: there is a 'yield' in basic, so calling it runs none of its lines; take it out",
    ),
]


@pytest.mark.parametrize(("source", "message"), NO_FUNCTIONS)
def test_what_cannot_be_called_with_a_model_is_reported(source: str, message: str):
    assert failure("basic", source) == ("crash", message)


# --- What fails: the file ---


def test_a_syntax_error_fails_what_the_file_seems_to_define():
    source = "def basic(model):\n    pass\n\nasync def ddp(model):\n    x = = 1\n"
    for slug in ("basic", "ddp"):
        reason, message = failure(slug, source)
        assert (reason, message.startswith("line 5: ")) == ("syntax", True)
    assert verdict_on("ddp", source).source == "x = = 1"
    other = verdict_on("fsdp", source)
    assert (other.status, other.reason) == ("not_attempted", None)
    assert other.message.startswith("line 5: ")


ODD_FILES = [
    ("empty", b"", "not_attempted", ""),
    ("nul", b"def basic(model): pass\n\0", "failed", "null byte"),
    ("latin", "def basic(model): pass\n# é\n".encode("latin-1"), "failed", "utf-8"),
    ("deep", b"basic = " + b"(" * 5000 + b")" * 5000, "failed", "too many nested parentheses"),
    ("utf16", "def basic(model): pass\n".encode("utf-16"), "failed", "UTF-16"),
    ("utf16_without_mark", "def basic(model): pass\n".encode("utf-16-be"), "failed", "UTF-16"),
    ("cookie", b"# coding: klingon\ndef basic(model): pass\n", "failed", "unknown encoding: klingon"),
    ("deeper", b"basic = " + b"-" * 100_000 + b"1", "failed", "too deep"),
]


@pytest.mark.sandboxed
@pytest.mark.parametrize(("source", "status", "message"), [pytest.param(*row, id=name) for name, *row in ODD_FILES])
def test_odd_files_have_verdicts_too(source: bytes, status: str, message: str):
    verdict = verdict_on("basic", source)
    assert verdict.status == status
    assert message in verdict.message


@pytest.mark.parametrize("encode", [
    pytest.param(lambda text: b"\xef\xbb\xbf" + text.encode(), id="BOM"),
    pytest.param(lambda text: text.replace("\n", "\r\n").encode(), id="CRLF"),
    pytest.param(lambda text: ("# -*- coding: latin-1 -*-\n# é\n" + text).encode("latin-1"), id="cookie"),
    pytest.param(lambda text: (text + "# " + "x" * 78 + "\n" + "#\n" * 1_500_000).encode(), id="3 MB"),
])  # fmt: skip
@pytest.mark.sampled(2)
def test_files_as_people_have_them_pass(encode):
    assert verdict_on("basic", encode(solution("basic"))).status == "passed"


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path):
    gone = grade_file(str(tmp_path / "gone.py")).verdicts
    assert {v.status for v in gone} == {"not_attempted"}
    assert gone[0].message


CRASHES_AT_IMPORT = [
    ("1 / 0", "line 2: while the file is loaded: ZeroDivisionError: division by zero"),
    ("exit()", "line 2: while the file is loaded: this called exit; let the function return instead"),
    (
        "import no_such_package; no_such_package",
        "line 2: while the file is loaded: ModuleNotFoundError: No module named 'no_such_package'; " + ALONE,
    ),
    ("from lib import Dist; Dist(0)", "line 2: Dist: ranks must be at least 1; got 0"),
]


@pytest.mark.sampled(2)
@pytest.mark.sandboxed
@pytest.mark.parametrize(("line", "message"), CRASHES_AT_IMPORT)
def test_a_crash_while_loading_fails_what_the_file_defines(line: str, message: str):
    source = f"def basic(model): pass\n{line}\n"
    reason = "rule" if "Dist" in line else "crash"
    assert failure("basic", source) == (reason, message)
    assert verdict_on("ddp", source).status == "not_attempted"


IDLE = "import no_such_package.inner as n, json\nfrom no_such_other import a, b\nimport torchvision, __main__\n"


def test_imports_that_are_missing_and_unused_are_left_out_with_a_note():
    passed = verdict_on("basic", IDLE + "import math, no_third\n" + solution("basic"))
    assert passed.status == "passed"
    missing = {"no_such_package": 1, "no_such_other": 2, "no_third": 4}
    if find_spec("torchvision") is None:
        missing["torchvision"] = 3
    assert {(name, f"line {line}") for name, line in missing.items()} == {
        (note.split()[2], note.partition(":")[0]) for note in passed.notes if note.endswith(NOT_INSTALLED)
    }
    two_stars = verdict_on("basic", IDLE + course.shown_size_only("basic"))
    assert two_stars.shown_size_only
    assert not two_stars.notes[-1].endswith(NOT_INSTALLED), "the reason of a missing star comes last"
    half = verdict_on("basic", "from no_such_package import used, unused\n" + solution("basic") + "\nused\n")
    assert half.reason == "crash", "what is used stays"


@pytest.mark.sandboxed
def test_code_under_main_is_not_run():
    source = solution("basic") + "\nif __name__ == '__main__':\n    raise SystemExit\n"
    assert verdict_on("basic", source).status == "passed"


# --- Time ---

ENDLESS = [
    ("def basic(model):\n    while True:\n        pass\n", (2, 3)),
    (
        "def basic(model):\n    while True:\n        try:\n            len('')\n        except Exception: pass\n",
        (2, 3, 4, 5),
    ),
    ("import time\ndef basic(model):\n    time.sleep(1000)\n", (3,)),
    ("import asyncio\nasync def basic(model):\n    await asyncio.sleep(1000)\n", (2,)),
    ("import asyncio\nasync def basic(model):\n    while True:\n        await asyncio.sleep(0)\n", (2, 3, 4)),
    ("def basic(model):\n    try:\n        while True: pass\n    except BaseException:\n        pass\n", (3,)),
]


@pytest.mark.sampled(2)
@pytest.mark.sandboxed
@pytest.mark.parametrize(("source", "lines"), ENDLESS)
def test_what_never_ends_is_stopped_and_reported(source: str, lines: tuple[int, ...]):
    reason, message = failure("basic", source, seconds=0.03)
    line, _, sentence = message.partition(": ")
    assert reason == "timeout"
    assert int(line.removeprefix("line ")) in lines
    place, _, rest = sentence.rpartition("time was up after 0.03 s; ")
    # Between the steps of a coroutine the event loop is at work, and no rank.
    assert place == "rank 0, t=0: " or (place == "" and "await asyncio.sleep" in source)
    assert "time limit" in rest


@pytest.mark.slow
@pytest.mark.sandboxed
def test_every_rank_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "REPEAT_SECONDS", 0.005)
    reason, _ = failure("pipeline_fsdp", "def pipeline_fsdp(model):\n    while True: pass\n", seconds=0.02)
    assert reason == "timeout"


@pytest.mark.sandboxed
def test_a_file_that_never_ends_loading_is_waited_for_once():
    stuck = submit("def basic(model): pass\ndef ddp(model): pass\nwhile True: pass\n")
    first, second = (grade(PUZZLES[slug], stuck, seconds=0.03) for slug in ("basic", "ddp"))
    assert first.message.startswith("line 3: ")
    assert (first.reason, second.reason, second.message) == ("timeout", "timeout", first.message)


def test_an_alarm_ends_with_the_work():
    bell = limits.Timer(0.001)
    with pytest.raises(limits.TimeLimitError):
        bell.run(lambda: [None for _ in iter(int, 1)])
    assert limits.Timer(5).run(lambda: "fine") == "fine"
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


# --- One puzzle never disturbs another ---


@pytest.mark.sandboxed
def test_every_run_starts_from_a_fresh_module():
    """A global of the file counts the runs; it is always at its first."""
    counting = "RUNS = []\n" + solution("basic").replace(
        "    return model", "    assert not RUNS\n    RUNS.append(1)\n    return model"
    )
    both = submit(
        counting + solution("grad_accum").replace("    return model", "    assert not RUNS\n    return model")
    )
    verdicts = [grade(PUZZLES[slug], both) for slug in ("basic", "grad_accum")]
    assert [(verdict.status, verdict.notes) for verdict in verdicts] == [("passed", ())] * 2


@pytest.mark.sandboxed
def test_files_next_to_a_submission_cannot_be_imported(tmp_path: Path):
    (tmp_path / "my_helpers.py").write_text("NAME = 5\n")
    (tmp_path / "mine.py").write_text("import my_helpers\nmy_helpers\n" + solution("basic"))
    (verdict,) = grade_file(str(tmp_path / "mine.py"), [find("basic")]).verdicts
    told = f"line 1: while the file is loaded: ModuleNotFoundError: No module named 'my_helpers'; {ALONE}"
    assert (verdict.reason, verdict.message) == ("crash", told)


@pytest.mark.sandboxed
def test_what_a_player_prints_is_shown_as_the_players(capsys: pytest.CaptureFixture[str]):
    noisy = "print('loading')\n" + solution("basic").replace(
        "    return model", "    print('\\x1b[2J')\n    return model"
    )
    verdict = verdict_on("basic", noisy)
    assert (verdict.status, verdict.printed) == ("passed", ("loading", "\\x1b[2J"))
    assert capsys.readouterr() == ("", "")


def test_a_refused_operation_that_is_caught_does_no_harm():
    careful = solution("basic").replace(
        "    return model",
        "    try:\n        model.loss(5)\n    except AssertionError:\n        pass\n    return model",
    )
    assert verdict_on("basic", careful).status == "passed"


# --- What becomes of the server ---

BASIC = {"size": [2, 4, 1]}


def children_of(process: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def kill_server(client: SandboxClient) -> None:
    assert client._server is not None
    client._server.kill()
    client._server.wait()


def kill_supervisor(client: SandboxClient) -> None:
    assert client._server is not None
    (supervisor,) = children_of(client._server.pid)
    os.kill(supervisor, signal.SIGKILL)


@pytest.mark.sandboxed
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds the supervisor in /proc")
@pytest.mark.parametrize("kill", [kill_server, kill_supervisor])
def test_a_lost_server_affects_no_verdict(kill: Callable[[SandboxClient], None]):
    client = SandboxClient()
    with Session(submit(solution("basic")), client=client) as session:
        session.read()
        kill(client)
        assert run_in(session, TRACKS["schedule"], "basic", BASIC, 10).failure is None
        assert client._server is not None
        server = client._server.pid
    with Session(submit(solution("ddp")), client=client) as session:
        assert run_in(session, TRACKS["schedule"], "ddp", {"size": [2, 4, 4]}, 10).failure is None
        assert client._server.pid == server, "one server takes submission after submission"
    assert client.close() == 0


@pytest.mark.sandboxed
@pytest.mark.slow
def test_a_server_that_is_lost_again_and_again_is_not_the_players_failure(monkeypatch: pytest.MonkeyPatch):
    client = SandboxClient()
    with Session(submit(solution("basic")), client=client) as session:
        session.read()
        answer, tries = client._answer, 0

        def after_a_kill(messages: list[dict[str, Any]], seconds: float) -> dict[str, Any] | None:
            nonlocal tries
            if "slug" in messages[0]:
                tries += 1
                kill_server(client)
            return answer(messages, seconds)

        monkeypatch.setattr(client, "_answer", after_a_kill)
        lost = run_in(session, TRACKS["schedule"], "basic", BASIC, 10).failure
        assert lost is not None
        assert (tries, lost.reason) == (2, "lost")
        assert "SIGKILL" in lost.sentence
        assert "grade it again" in lost.sentence
        monkeypatch.undo()
        assert run_in(session, TRACKS["schedule"], "basic", BASIC, 10).failure is None
    assert client.close() == 0
