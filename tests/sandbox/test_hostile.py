"""Hostile submissions get their verdicts; none passes, goes on running, or writes outside its folder."""

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from puzzles.catalog.engine import ENGINE_PUZZLES, trials_of
from puzzles.catalog.schedule import PUZZLES
from puzzles.judge.grader import grade_puzzle
from puzzles.judge.session import Session
from puzzles.judge.submission import Submission
from puzzles.judge.verdict import Verdict
from puzzles.sandbox.client import MARK, SandboxLostError
from puzzles.sandbox.limits import MIB, Limits
from puzzles.sandbox.plain_data import pack
from puzzles.sandbox.worker import seccomp
from puzzles.tracks import TRACKS, track_of
from tests.hostile import classes_and_layouts, schedules
from tests.support.selection import some_of_each
from tests.support.shared_sandbox_server import LENDER, children
from tests.support.verdicts import session_of, verdict_on

pytestmark = pytest.mark.skipif(os.name != "posix", reason="hostile code is ended by POSIX means")

ROOT = Path(__file__).parents[2]
QUICK = Limits(seconds=0.25, memory=512 * MIB, output=MIB, files=MIB)
SLOW = Limits(seconds=10, memory=512 * MIB, output=MIB, files=MIB)
"""For cases that need time to end, even on a busy machine."""


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Afterwards no file of the game has changed, and nothing is left running."""
    before = fingerprint()
    yield
    assert fingerprint() == before
    assert still_running() == []


def fingerprint() -> str:
    """Digests of the files that a submission might change."""
    hashed = hashlib.sha256()
    for folder in ("lib", "puzzles", "solutions", "tests"):
        for path, _, files in os.walk(ROOT / folder):
            for name in (name for name in files if name.endswith(".py")):
                found = os.stat(os.path.join(path, name))
                hashed.update(f"{path}/{name} {found.st_mtime_ns} {found.st_size}".encode())
    hashed.update(" ".join(sorted(os.listdir(ROOT))).encode())
    return hashed.hexdigest()


def still_running() -> list[str]:
    """Processes that a session of this one has started and not ended, except for the servers that are lent to tests."""
    servers = LENDER.processes()
    found = [f"{pid} under a server" for server in servers for pid in children(server) - servers]
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc/self") else []):
        try:
            environment = Path("/proc", pid, "environ").read_bytes()
        except OSError:
            continue
        if int(pid) not in servers and f"{MARK}={os.getpid()}-".encode() in environment:
            found.append(Path("/proc", pid, "cmdline").read_text(errors="replace"))
    return found


def verdict(source: str | bytes, limits: Limits = QUICK, slug: str = "basic") -> Verdict:
    return verdict_on(slug, source, limits)


def short(found: Verdict) -> str | None:
    """The verdict in a word: None if it passes."""
    if found.status == "passed":
        return "noted" if found.shown_size_only else None
    return {"over_target": "over", "not_attempted": "nothing"}.get(found.status) or found.reason


def expect(found: Verdict, allowed: tuple[Any, ...]) -> None:
    assert short(found) in allowed, found
    assert all(text.isprintable() for text in (found.message, found.source, *found.notes, *found.printed))
    if found.status == "failed":
        assert found.message
        assert found.stars == 0


BODIES = {**schedules.FORGING, **schedules.BREAKING, **schedules.RESOURCES}


@pytest.mark.sampled(4)
@some_of_each(schedules.FORGING, schedules.BREAKING, schedules.RESOURCES)
def test_a_hostile_body(name: str):
    body, *allowed = BODIES[name]
    limits = QUICK if "timeout" in allowed else SLOW
    expect(verdict(schedules.basic_with(body), limits), tuple(allowed))


@pytest.mark.sampled(2)
@some_of_each(schedules.WHOLE_FILES)
def test_an_odd_file(name: str):
    source, *allowed = schedules.WHOLE_FILES[name]
    expect(verdict(source, QUICK if "timeout" in allowed else SLOW), tuple(allowed))


@pytest.mark.sampled(1)
@some_of_each(schedules.CONTROLS)
def test_a_right_solution_passes_whatever_else_it_does(name: str):
    found = verdict(schedules.CONTROLS[name], SLOW)
    assert (found.status, found.notes) == ("passed", ())


@pytest.mark.sampled(1)
def test_talking_through_globals_is_refused():
    """Rank 0 leaves what the others need where Python lets them take it."""
    source = schedules.DDP.replace("async def ddp", "SEEN = {}\n\nasync def ddp").replace(
        "await model.allreduce(grad_weights[layer], layer)",
        "SEEN.setdefault(layer, grad_weights[layer]) if model.rank == 0 else SEEN[layer] + grad_weights[layer]",
    )
    assert verdict(source, SLOW, "ddp").reason == "rule"


@pytest.mark.sampled(1)
def test_talking_through_files_is_refused():
    source = "import pickle\n" + schedules.DDP.replace(
        "await model.allreduce(grad_weights[layer], layer)",
        "(pickle.dump(grad_weights[layer], open('g', 'wb')), pickle.load(open('g', 'rb')))[1]",
    )
    assert verdict(source, SLOW, "ddp").reason in ("rule", "crash")


def test_each_run_finds_an_empty_folder_and_a_fresh_process():
    check = "    import os, sys\n    assert os.listdir() == [] and not hasattr(sys, 'seen')\n"
    check += "    sys.seen = open('mark', 'w')\n"
    found = verdict(schedules.SOLVED.replace("    return model", check + "    return model"), SLOW)
    assert (found.status, found.notes) == ("passed", ())


def test_a_locked_folder_is_emptied_too():
    lock = "    import os\n    os.mkdir('a')\n    os.mkdir('a/b', 0)\n    try: os.chmod('a', 0)\n"
    lock += "    except PermissionError: pass\n    return model"  # a run changes no mode
    found = verdict(schedules.SOLVED.replace("    return model", lock), SLOW)
    assert (found.status, found.notes) == ("passed", ())


@pytest.mark.slow
@pytest.mark.own_server
def test_after_any_harm_the_next_puzzle_of_the_file_is_judged_as_ever():
    """Each harm ends by itself, so that the time limit can be long enough for a busy machine."""
    for name in ("kills_the_supervisor", "leaves_a_daemon", "segfault", "ignores_signals", "closes_file_descriptors"):
        body = BODIES[name][0].replace("while True: pass", "os._exit(0)")
        source = schedules.basic_with(body) + schedules.DDP
        with session_of(source, SLOW) as session:
            grade_puzzle(PUZZLES["basic"], session)
            assert grade_puzzle(PUZZLES["ddp"], session).status == "passed", name


@pytest.mark.slow
@pytest.mark.own_server
def test_a_server_that_is_killed_leaves_nothing_running():
    """The client kills a server that does not answer in time, here while a run has a child in a session of its own."""
    body = "if os.fork() == 0: os.setsid()\nwhile True: time.sleep(60)"
    with session_of(schedules.basic_with(body), SLOW) as session:
        session.read()
        request = {
            "slug": "basic",
            "stage": TRACKS["schedule"].judge.stage,
            "size": [2, 4, 1],
            "longest": MIB,
            "left": 60,
        }
        with pytest.raises(SandboxLostError, match="SIGKILL"):
            session._client.ask(request, 0.5)


@pytest.mark.sampled(1)
@pytest.mark.own_server
def test_the_environment_is_scrubbed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_PASSWORD", "x")
    body = "assert 'MY_PASSWORD' not in os.environ and not any('x=' in k for k in os.environ)\nsolved(model)"
    expect(verdict(schedules.basic_with(body), SLOW), (None,))


@pytest.mark.slow
def test_limits_can_be_set():
    small = SLOW._replace(output=1000)
    noisy = verdict("def basic(model):\n    while True: print('x' * 99)\n", small)
    assert ("1,000 bytes" in noisy.message, "--limit output=64M" in noisy.message) == (True, True)
    many = schedules.basic_with(
        "for _ in range(5):\n    if os.fork() == 0: time.sleep(.01) or os._exit(0)\nsolved(model)"
    )
    assert verdict(many, SLOW._replace(processes=20)).status == "passed"
    assert verdict(many, SLOW._replace(processes=2)).reason == "crash"


def test_the_grader_itself_runs_nothing_of_a_submission(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "submission", raising=False)  # of tests that run one here
    found = verdict("import os, lib\nlib.SEEN = True\nprint(os.getpid())\n" + schedules.SOLVED, SLOW)
    assert found.status == "passed"
    assert found.printed != (str(os.getpid()),)
    assert not hasattr(sys.modules["lib"], "SEEN")
    assert "submission" not in sys.modules


@pytest.mark.slow
@pytest.mark.own_server
def test_many_at_once_do_not_take_each_others_processes():
    """The system counts processes by user, so without a supervisor that counts each submission needs its own user."""
    if os.getuid() != 0 and not seccomp.can_ask():
        pytest.skip("only root can give each submission a user of its own")
    with ExitStack() as stack:
        submission = Submission(Path("theirs.py"), schedules.CONTROLS["uses_a_process"].encode())
        sessions = [stack.enter_context(Session(submission, SLOW)) for _ in range(6)]
        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(lambda session: grade_puzzle(PUZZLES["basic"], session), sessions))
    assert [(v.status, v.message) for v in found] == [("passed", "")] * 6


# --- Classes and layouts ---


def outcome_of(source: str, slug: str, allowed: tuple[str | None, ...]) -> Verdict:
    """The verdict on a class or a layout, with the memory that numpy needs.

    One thing is known to go undetected: a class that changes its meter, and shows flops or memory that some class could
    have. Results and bytes cannot be forged; flops and peaks are counted in the same process as the player's code.
    """
    limits = SLOW._replace(seconds=0.5 if "timeout" in allowed else 10, memory=1024 * MIB)
    return verdict_on(slug, source, limits)


@pytest.mark.sampled(1)
@some_of_each(classes_and_layouts.SOLVED)
def test_a_right_class_with_something_added(name: str) -> None:
    old, new, *allowed = classes_and_layouts.SOLVED[name]
    assert old in classes_and_layouts.PARALLEL
    source = classes_and_layouts.IMPORTS + classes_and_layouts.PARALLEL.replace(old, new, 1)
    expect(outcome_of(source, "DataParallel", tuple(allowed)), tuple(allowed))


@pytest.mark.sampled(1)
@some_of_each(classes_and_layouts.BODIES)
def test_a_class_that_computes_nothing(name: str) -> None:
    body, *allowed = classes_and_layouts.BODIES[name]
    source = classes_and_layouts.IMPORTS + classes_and_layouts.wrong(body)
    expect(outcome_of(source, "DataParallel", tuple(allowed)), tuple(allowed))


@pytest.mark.sampled(1)
@some_of_each(classes_and_layouts.RETURNS)
def test_a_class_that_returns_something_odd(name: str) -> None:
    value, *allowed = classes_and_layouts.RETURNS[name]
    source = classes_and_layouts.IMPORTS + classes_and_layouts.wrong("pass").replace("return x", f"return {value}")
    expect(outcome_of(source, "DataParallel", tuple(allowed)), tuple(allowed))


@pytest.mark.sampled(1)
@some_of_each(classes_and_layouts.LAYOUTS)
def test_a_layout(name: str) -> None:
    body, *allowed = classes_and_layouts.LAYOUTS[name]
    found = outcome_of(f"def ffn(graph):\n    {body}\n", "ffn", tuple(allowed))
    expect(found, tuple(allowed))


@pytest.mark.slow
def test_arrays_of_the_module_are_charged_to_every_device() -> None:
    source = (classes_and_layouts.SOLUTIONS / "engine" / "tensor_parallel.py").read_text(encoding="utf-8")
    spare = source.replace("def relu", "SPARE = np.zeros(1000)\n\n\ndef relu", 1)
    plain, found = (outcome_of(text, "TensorParallel", ()) for text in (source, spare))
    assert found.figures["weights"] == plain.figures["weights"] + 8000
    assert found.status == "over_target"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("slug", ENGINE_PUZZLES)
def test_what_a_class_is_asked_holds_nothing_of_what_is_expected(slug: str) -> None:
    """Every number that the worker gets is one of the inputs."""
    puzzle = ENGINE_PUZZLES[slug]
    for make, request in zip(trials_of(puzzle), track_of(puzzle.slug).judge.requests(puzzle), strict=True):
        trial, sent = make(), json.dumps(request.data)
        inputs = json.dumps(pack([trial.params, [c.arguments for c in trial.calls], trial.stream and trial.stream[0]]))
        for call in trial.calls:
            for right in call.wanted or ():
                for array in right.values() if isinstance(right, dict) else [right]:
                    text = json.dumps(pack(array))
                    assert text not in sent or text in inputs, call.method
