"""The grader: the verdict on a player's file, notebook or script, whatever it contains."""

import ast
import json
import os
import signal
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import nbformat
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
from puzzles.sandbox.worker.reading import FAILED, KeptStatements
from puzzles.tracks import TRACKS, find
from tests.support import CLASSICS, Classic, course
from tests.support.commands import SOLUTIONS, puzzles, solution
from tests.support.solved import SOME_PUZZLES

pytestmark = pytest.mark.usefixtures("in_this_process")

# --- The grader: the verdict on a player's file, whatever it contains ---


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


# --- A table of what players of the original puzzles write: each habit works, or the message says what to write
# instead ---
#
# Every case is a notebook of a few cells, the puzzle, its status, and facts that the message and the notes must hold.


class Habit(NamedTuple):
    """Cells of code, and the verdict on them."""

    cells: tuple[str, ...]
    puzzle: str
    status: str
    says: tuple[str, ...] = ()


def solved(slug: str, *changes: tuple[str, str], name: str = "") -> str:
    """The reference with some texts replaced, each of which must be there; `name` is another name for the function."""
    source = (SOLUTIONS / f"{slug}.py").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return source.replace(f"def {slug}(", f"def {name or slug}(")


def unsolved(line: str) -> str:
    """A starter as the original has them: the beginning and the end, and `line` between."""
    return f"""\
from lib import Model
def basic(model: Model) -> Model:
    # Where everything is kept.
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    for l in range(model.LAYERS):
        weights[l], opt_states[l] = model.load_weights(l)
    mine = list([l + 1 for l in range(model.LAYERS)])
    {line}
    for l in mine:
        model.set_final_weight(l, weights[l])
    return model"""


def in_ddp(line: str) -> str:
    """A function ddp that begins as the reference does, and then has one line of its own, its eighth."""
    return f"""\
async def ddp(model):
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    activations[0] = model.get_activation([model.rank])
    for l in range(model.LAYERS):
        weights[l], opt_states[l] = model.load_weights(l)
        activations[l + 1] = model.forward(l, activations[l], weights[l])
    grad_activations[2] = model.loss(activations[2])
    {line}"""


SETUP = "import asyncio\nimport chalk\nfrom lib import Dist, Model\nchalk.set_svg_height(400)"
MY_BASIC = solved("basic", name="my_basic")
ASKS_ORDER = "def basic(model):\n    assert ORDER[-1] == model.BATCHES - 1\n    return my_basic(model)"
PRINTS_ORDER = "def basic(model):\n    print(ORDER)"
BACK = "1, activations[1], grad_activations[2], weights[1]"

HABITS: dict[str, Habit] = {
    # Untouched starters
    "asserts_false": Habit((SETUP, unsolved('assert False, "TODO: Implement me"')), "basic", "not_attempted"),
    "asserts_false_in_short": Habit((unsolved("assert False"),), "basic", "not_attempted"),
    "raises_not_implemented": Habit((unsolved("raise NotImplementedError('me')"),), "basic", "not_attempted"),
    "begun_below_the_assertion": Habit(
        (unsolved("assert False, 'TODO'\n    model.forward(0, activations[0], weights[0])"),),
        "basic",
        "failed",
        ("cell 1, line 8", "AssertionError: TODO"),
    ),
    # Top-level assignments
    "a_list_of_numbers": Habit((MY_BASIC, "N = 4\nORDER = list(range(N))", ASKS_ORDER), "basic", "passed"),
    "a_table": Habit((MY_BASIC, "ORDER = {}\nORDER[-1] = max([1, 3], key=abs)", ASKS_ORDER), "basic", "passed"),
    "another_name": Habit((MY_BASIC, "basic = my_basic"), "basic", "passed"),
    "a_partial": Habit((MY_BASIC, "from functools import partial\nbasic = partial(my_basic)"), "basic", "passed"),
    "a_lambda": Habit((MY_BASIC, "basic = lambda model: my_basic(model)"), "basic", "passed"),
    "another_name_of_a_starter": Habit(
        (unsolved("assert False").replace("basic", "my_basic"), "basic = my_basic"), "basic", "not_attempted"
    ),
    "a_starter_then_a_solution": Habit((unsolved("assert False"), MY_BASIC, "basic = my_basic"), "basic", "passed"),
    "without_its_import": Habit(
        ("async def basic(model) -> Model:\n    pass",),
        "basic",
        "failed",
        ("NameError: name 'Model' is not defined; begin the file with 'from lib import Model'",),
    ),
    "left_out": Habit(
        (SETUP, "ORDER = Dist(4)", PRINTS_ORDER),
        "basic",
        "failed",
        ("cell 3, line 2", "NameError", "cell 2, line 1 defines ORDER", "left out", "calls Dist", "inside a function"),
    ),
    "left_out_with_another": Habit(
        (SETUP, "out = Dist(4)\nORDER = [out]", PRINTS_ORDER),
        "basic",
        "failed",
        ("cell 2, line 2 defines ORDER", "uses out, which was left out too"),
    ),
    "left_out_in_a_loop": Habit(
        ("for i in range(4):\n    ORDER = i", PRINTS_ORDER), "basic", "failed", ("defines ORDER", "'for' statement")
    ),
    "fails_when_loaded": Habit(
        ("ORDER = [1][4]", PRINTS_ORDER), "basic", "failed", ("cell 1, line 1 defines ORDER", "IndexError")
    ),
    "fails_when_loaded_elsewhere": Habit(("ORDER = [1][4]", solved("basic")), "basic", "passed"),
    "results_of_a_run": Habit(
        (SETUP, solved("basic"), "out = basic(Model(2, 4))\nfsdp = await asyncio.gather(*out)"), "fsdp", "not_attempted"
    ),
    # Callable objects
    "an_object": Habit(
        (MY_BASIC, "class Train:\n    def __call__(self, m): return my_basic(m)\nbasic = Train()"), "basic", "passed"
    ),
    "a_wrapper": Habit(
        (
            "import functools\ndef traced(f):\n    @functools.wraps(f)\n    def inner(*args):\n"
            "        return f(*args, name='me')\n    return inner",
            MY_BASIC,
            "@traced\ndef basic(model, name): return my_basic(model)",
        ),
        "basic",
        "passed",
    ),
    "a_function_that_makes_it": Habit((MY_BASIC, "def make(n): return my_basic\nbasic = make(2)"), "basic", "passed"),
    "made_by_something_else": Habit(
        (SETUP, "basic = Model()"), "basic", "failed", ("cell 2, line 1", "defines basic", "calls Model")
    ),
    # async
    "async_is_missing": Habit(
        (solved("basic"), solved("ddp", ("async def", "def"))), "ddp", "failed", ("cell 2, line 6", "'async def ddp'")
    ),
    "async_is_missing_elsewhere": Habit((solved("basic"), solved("ddp", ("async def", "def"))), "basic", "passed"),
    "async_is_missing_in_a_helper": Habit(
        ("def reduce(model, v, l): return await model.allreduce(v, l)", in_ddp("reduce(model, weights[0], 0)")),
        "ddp",
        "failed",
        ("cell 2, line 8", "cell 1, line 1 defines reduce", "'async def reduce'", "await its calls"),
    ),
    "async_is_added_later": Habit((solved("ddp", ("async def", "def")), solved("ddp")), "ddp", "passed"),
    "broken_after_a_solution": Habit(
        (solved("ddp"), "async def ddp(model):\n    x = = 1"), "ddp", "failed", ("cell 2, line 2", "not valid Python")
    ),
    # Calls
    "update_with_a_shard": Habit((solved("ddp", ("opt_states[layer])", "opt_states[layer], 0)")),), "ddp", "passed"),
    "a_label_that_differs": Habit(
        (solved("wsdp", ("(weights[layer], layer)", "(weights[layer], 0)")),),
        "wsdp",
        "passed",
        ("called allgather(layer=1)", "with layer 0", "pass the layer of the value"),
    ),
    "sum": Habit(
        (
            solved(
                "ddp", ("= await", "= sum([await"), ("(grad_weights[layer], layer)", "(grad_weights[layer], layer)])")
            ),
        ),
        "ddp",
        "passed",
    ),
    "all_gather": Habit(
        (in_ddp("await model.all_reduce(weights[0], 0)"),),
        "ddp",
        "failed",
        ("cell 1, line 8", "model.allreduce(v, layer)"),
    ),
    "send": Habit((in_ddp("await model.send(1, weights[0])"),), "ddp", "failed", ("await model.pass_to(rank, v)",)),
    "recv": Habit((in_ddp("await model.recv(0)"),), "ddp", "failed", ("await model.receive(",)),
    "arguments_of_backward": Habit(
        (in_ddp("model.backward(1, grad_activations[2], activations[1], weights[1])"),),
        "ddp",
        "failed",
        ("wrong order", "inp is the activation gradient", "backward(layer, inp, grad, weight)"),
    ),
    "results_of_backward": Habit(
        (in_ddp(f"grad_activations[1], grad_weights[1] = model.backward({BACK})"),),
        "ddp",
        "failed",
        ("got the weight gradient of layer 1", "store it in grad_weights", "returns the weight gradient first"),
    ),
    "a_gradient_of_one_batch": Habit(
        (in_ddp(f"model.update(1, model.backward({BACK})[0], weights[1], opt_states[1])"),),
        "ddp",
        "failed",
        ("rank 0, t=3, update(layer=1)", "covers only batch 0 of 4", "first add batches 1-3", "all-reduce"),
    ),
    "a_value_for_a_number": Habit(
        (in_ddp("model.load_weights(activations[0])"),),
        "ddp",
        "failed",
        ("got the input activation of layer 0, batch 0",),
    ),
    "a_value_for_a_key": Habit(
        (in_ddp("{}[weights[0]]"),), "ddp", "failed", ("KeyError: the weight of layer 0, unsharded",)
    ),
    "a_shard_without_a_total": Habit(
        (in_ddp("model.load_weights(0, model.rank)"),), "ddp", "failed", ("rank 1", "total is 1", "total=")
    ),
    "a_name_that_lib_does_not_have": Habit(
        ("from lib import Modle, Model\ndef basic(model: Modle): pass",),
        "basic",
        "failed",
        ("cell 1, line 1", "no 'Modle' in lib", "did you mean 'Model'?"),
    ),
}


def notebook(folder: Path, *cells: str) -> str:
    path = folder / "mine.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells]), path)
    return str(path)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", HABITS)
def test_a_habit_works_or_is_answered(name: str, tmp_path: Path) -> None:
    cells, slug, status, says = HABITS[name]
    (verdict,) = grade_file(notebook(tmp_path, *cells), [find(slug)]).verdicts
    assert verdict.status == status, verdict.message
    text = " ".join((verdict.message, *verdict.notes))
    assert [fact for fact in says if fact not in text] == [], text
    assert "frozenset" not in text
    assert "{" not in text


# --- The commands name cell and line too ---


@pytest.mark.parametrize("name", ["draw", "run"])
def test_commands_on_a_notebook_name_cell_and_line(name: str, in_an_empty_folder: Path, tmp_path: Path) -> None:
    path = notebook(tmp_path, SETUP, in_ddp("await model.receive()"))
    done = puzzles(name, path, "ddp", code=1)
    assert "cell 2, line 8:" in done.output
    assert "2, line 8" in done.output


def test_a_layout_in_a_notebook_names_cell_and_line_too(in_an_empty_folder: Path, tmp_path: Path) -> None:
    path = notebook(tmp_path, "x = 1", "def ffn(graph):\n    graph.nothing()")
    for name in ("draw", "run"):
        assert "cell 2, line 2: " in puzzles(name, path, "ffn").output


# --- What is not a notebook's: scripts ---


def test_a_missing_async_is_reported_once_and_the_rest_is_graded(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("\n".join([solved("basic"), solved("ddp", ("async def", "def")), solved("fsdp")]))
    found: dict[str, Verdict] = {verdict.puzzle: verdict for verdict in grade_file(str(path)).verdicts}
    assert [slug for slug, verdict in found.items() if verdict.status == "passed"] == ["basic", "fsdp"]
    assert [slug for slug, verdict in found.items() if "async def" in verdict.message] == ["ddp"]
    assert found["ddp"].reason == "syntax"


def test_an_import_that_fails_shows_no_path_of_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    messages: list[str] = []
    for line in ("from lib import Gradient", "from lib.engine import Engine", "from json import lodas"):
        path.write_text(f"{line}\n{line.split()[-1]}\ndef basic(model): pass\n")
        (verdict,) = grade_file(str(path), [find("basic")]).verdicts
        messages.append(verdict.message)
    assert [message for message in messages if "/" in message or "site-packages" in message] == []
    assert "'Gradient' in lib" in messages[0]
    assert "did you mean 'ShardedEngine'?" in messages[1]
    assert "lodas" in messages[2]


# --- Notebooks and jupytext scripts: definitions are kept, everything else is left out ---


def notebook_with_text(folder: Path, *cells: str) -> Path:
    path = folder / "mine.ipynb"
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    made.cells.insert(0, nbformat.v4.new_markdown_cell("# def basic(model): nothing"))
    nbformat.write(made, path)
    return path


def verdicts(path: Path, *slugs: str) -> list[Verdict]:
    return list(grade_file(str(path), [PUZZLES[slug] for slug in slugs]).verdicts)


ORIGINAL_SETUP = """\
!pip install -q some-package
%matplotlib inline
from typing import List
from lib import Model, Dist, WeightGrad
from drawing import draw, draw_group
from chalk import vcat
import asyncio
import chalk
import no_such_package
chalk.set_svg_height(5)
"""

RUN = """\
ranks = 4
dist = Dist(ranks)
out = await asyncio.gather(*[ddp(Model(layers=2, batches=4, rank=i, dist=dist)) for i in range(ranks)])
draw(out)
raise RuntimeError("nobody runs this")
"""

CONSTANT = "STEP = 1\nNAMES = {'a': (1, -2)}\n"


def test_a_notebook_of_the_original_puzzles_grades_as_it_is(tmp_path: Path):
    cells = [
        ORIGINAL_SETUP,
        CONSTANT,
        solution("basic"),
        "out = basic(Model(2, 4, 0, Dist(1)))",
        solution("ddp"),
        RUN,
        "Model.check(out)",
    ]
    found = verdicts(notebook_with_text(tmp_path, *cells), "basic", "ddp", "fsdp")
    assert [(v.status, v.timesteps) for v in found] == [("passed", 16.5), ("passed", 5.1), ("not_attempted", None)]


def test_the_last_definition_of_a_name_wins(tmp_path: Path):
    wrong = "def basic(model):\n    raise ValueError"
    assert verdicts(notebook_with_text(tmp_path, wrong, solution("basic")), "basic")[0].status == "passed"
    assert verdicts(notebook_with_text(tmp_path, solution("basic"), wrong), "basic")[0].reason == "crash"


def test_a_broken_cell_harms_only_its_own_puzzle(tmp_path: Path):
    scratch, broken = "this is = no python", "def ddp(model):\n    x = = 1\n"
    found = verdicts(notebook_with_text(tmp_path, scratch, solution("basic"), broken), "basic", "ddp", "fsdp")
    assert [v.status for v in found] == ["passed", "failed", "not_attempted"]
    assert found[1].message.startswith("cell 4, line 2: ")
    assert found[1].source == "x = = 1"


def test_other_languages_in_a_cell_are_skipped(tmp_path: Path):
    cells = [
        "%%bash\nrm -rf nothing",
        "%%time\nx = 1",
        "%%writefile basic.py\ndef basic(model): pass",
        solution("basic"),
    ]
    assert verdicts(notebook_with_text(tmp_path, *cells), "basic")[0].status == "passed"


@pytest.mark.parametrize("text", ["", "{}", "[" * 5000, '{"cells": 5, "nbformat": 4}', "no json"])
def test_what_is_not_a_notebook_is_reported(tmp_path: Path, text: str):
    path = tmp_path / "mine.ipynb"
    path.write_text(text)
    (found,) = verdicts(path, "basic")
    assert found.status == "not_attempted"
    assert "as a notebook" in found.message or found.message == ""


PERCENT = """\
# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown]
# # My solutions

# %%
# %matplotlib inline
# !pip install x
import asyncio
from lib import Dist, Model

# %%
{solution}

# %%
out = await asyncio.gather(basic(Model()))
"""


def test_a_percent_script_is_a_notebook_with_the_lines_of_its_file(tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_text(PERCENT.format(solution=solution("basic")))
    assert verdicts(path, "basic")[0].status == "passed"
    path.write_text(PERCENT.format(solution="def basic(model):\n    1 / 0"))
    (found,) = verdicts(path, "basic")
    line = path.read_text().splitlines().index("    1 / 0") + 1
    assert found.message.startswith(f"line {line}: rank 0, t=0: ZeroDivisionError")
    assert found.source == "1 / 0"


def test_a_light_script_is_a_notebook_too(tmp_path: Path):
    path = tmp_path / "mine.py"
    head = "# ---\n# jupyter:\n#   jupytext:\n#     text_representation:\n#       format_name: light\n# ---\n\n"
    path.write_text(
        head
        + "# # Title\n\n# %%capture\n# !pip install x\nimport asyncio\n\n# +\n"
        + solution("basic")
        + "# -\n\nout = await basic(5)\n"
    )
    assert verdicts(path, "basic")[0].status == "passed"


def test_messages_inside_a_message_name_cells_too(tmp_path: Path):
    body = "async def ddp(model):\n    await model.receive()"
    (found,) = verdicts(notebook_with_text(tmp_path, "x = 1\ny = 2", body), "ddp")
    assert "3, line 2" in found.message


def test_advice_names_a_line_by_its_cell(tmp_path: Path):
    """Each rank of the pipeline sends its gradient back after its update."""
    send = "    if not first:\n        await model.pass_to(model.rank - 1, grad_activations[stage[0]])\n"
    before, found, after = solution("pipeline").partition(send)
    assert found
    late = before + after.replace("    return model", f"{send}    return model")
    (verdict,) = verdicts(notebook_with_text(tmp_path, "x = 1\ny = 2", late), "pipeline")
    assert "Cell 3, line " in verdict.advice


def test_a_notebook_whose_cells_have_no_ids_is_read_without_a_warning(tmp_path: Path) -> None:
    """The tests turn warnings into errors: a warning would be reported as a notebook that cannot be read."""
    cell = {"cell_type": "code", "metadata": {}, "source": solution("ddp"), "outputs": [], "execution_count": None}
    path = tmp_path / "mine.ipynb"
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}))
    assert [verdict.status for verdict in verdicts(path, "ddp")] == ["passed"]


# --- Which assignments are pure ---

PREAMBLE = """
import functools, math, random
from itertools import product as pairs
from functools import partial
from lib import Model
N = 4
TABLE = {}
def mine(x): return x
def max(*x): return x
"""

PURE = [
    "X = list(range(N))", "X, *Y = 1, 2, 3", "X: int = -N", "N += 1", "TABLE['a'] = N",
    "X = [i * j for i, j in pairs((1, 2), repeat=2)]",
    "X = {i: mine for i in range(N) if i}", "X = sorted('ba', key=lambda c: ord(c) if False else c)",
    "X = sorted([N], key=abs)", "X = mine", "X = partial(mine, N)", "X = functools.partial(mine, x=N)", "X = math.pi",
    "X = math.ceil(N / 3)", "X = lambda model: model.LAYERS", "X = f'{N:>4}'", "X = 'a b'.split()",
    "X = TABLE.get(1, N)", "X = N if N > 3 else not N", "X = list(map(str, [N]))", "solution = mine(3)",
]  # fmt: skip

IMPURE = {
    "X = mine(3)": "calls mine",
    "X = max(3)": "calls max",
    "X = print(3)": "calls print",
    "X = random.random()": "calls random.random",
    "X = Model()": "calls Model",
    "X = [mine(i) for i in range(N)]": "calls mine",
    "X = list(map(mine, [N]))": "calls mine",
    "X = sorted([N], key=mine)": "calls mine",
    "X = sorted([N], key=lambda n: print(n))": "calls print",
    "X = partial(mine, 1)(2)": "calls partial(mine, 1)",
    "X = mine.x": "reads mine.x",
    "X = TABLE.pop(1)": "calls TABLE.pop",
    "mine.x = 1": "",
    "X = await mine(3)": "not a plain value",
    "X = (Y := 3)": "not a plain value",
    "X = open('x').read()": "calls open",
    "for X in range(N): pass": "'for' statement",
    "with mine(3) as X: pass": "'with' statement",
    "solution = Model()": "calls Model",
}


def kept(statement: str) -> KeptStatements:
    found = KeptStatements(["solution"])
    for node in ast.parse(PREAMBLE + statement).body:
        found.see(node)
    return found


@pytest.mark.parametrize("statement", PURE)
def test_a_pure_assignment_is_kept(statement: str) -> None:
    found = kept(statement)
    assert len(found.kept) == len(ast.parse(PREAMBLE).body) + 1
    assert found.left_out == {}
    names: dict[str, object] = {}
    exec(compile(ast.Module(found.kept, []), "mine", "exec"), names)
    assert FAILED not in names


@pytest.mark.parametrize("statement", IMPURE)
def test_an_assignment_that_is_not_pure_is_left_out_with_a_reason(statement: str) -> None:
    found = kept(statement)
    assert len(found.kept) == len(ast.parse(PREAMBLE).body)
    assert IMPURE[statement] in "".join(left.why for left in found.left_out.values())


def test_an_assignment_that_fails_is_noted_and_harms_nobody_else() -> None:
    names: dict[str, dict[str, Exception]] = {}
    exec(compile(ast.Module(kept("X = N / 0").kept, []), "mine", "exec"), names)
    assert isinstance(names[FAILED]["X"], ZeroDivisionError)
