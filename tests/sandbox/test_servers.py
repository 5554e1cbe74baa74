"""Servers and runs: channels, what a run sends back and leaves, how servers start, and how they end."""

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from errno import EAGAIN
from importlib.util import cache_from_source
from pathlib import Path
from struct import pack_into, unpack
from types import SimpleNamespace
from typing import IO, Any, NamedTuple

import pytest
from watchfiles import watch

from lib import Dist, Model
from lib.layout import Graph
from puzzles.failure import Failure, of_crash
from puzzles.judge.grader import grade_file
from puzzles.judge.progress import HOME
from puzzles.judge.session import MIN_SECONDS, SandboxRunner
from puzzles.judge.verdict import LOST
from puzzles.sandbox import client, protocol, remove_tree
from puzzles.sandbox.client import SHARED_MEMORY, SandboxLostError
from puzzles.sandbox.limits import Limits
from puzzles.sandbox.protocol import Channel
from puzzles.sandbox.worker import server
from puzzles.tracks import find
from puzzles.tracks.outcomes import RunOutcome, RunRequest
from tests.hostile.schedules import SOLVED
from tests.support.fake_track import RIGHT, Fakes
from tests.support.shared_sandbox_server import children

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems may have no server")
posix = pytest.mark.skipif(sys.platform == "win32", reason="workers are forked")

# --- The grader's ends of a server's pipes: an answer, an end, a limit of bytes, and a server that does not answer ---


LONGEST = 1 << 20
BIG = {"text": "x" * (1 << 20)}
"""More than a pipe holds."""


class Ends(NamedTuple):
    """A channel, and the server's ends of its pipes."""

    channel: Channel
    requests: IO[bytes]
    answers: IO[bytes]


@pytest.fixture
def ends() -> Iterator[Ends]:
    if os.name != "posix":
        pytest.skip("servers are forked")
    with ExitStack() as stack:
        requests, sending = (stack.enter_context(os.fdopen(fd, mode)) for fd, mode in zip(os.pipe(), ("rb", "wb")))
        receiving, answers = (stack.enter_context(os.fdopen(fd, mode)) for fd, mode in zip(os.pipe(), ("rb", "wb")))
        yield Ends(Channel(sending, receiving), requests, answers)


def test_all_messages_are_sent_and_the_answer_is_read(ends: Ends) -> None:
    protocol.send(ends.answers, {"ended": "exit"})
    assert ends.channel.exchange([{"one": 1}, {"two": "\u00fc"}], 10, LONGEST) == {"ended": "exit"}
    assert [protocol.receive(ends.requests) for _ in range(2)] == [{"one": 1}, {"two": "\u00fc"}]


@pytest.mark.parametrize("sent", [b"", b"0000", b"00000010{"])
def test_a_server_that_ends_gives_no_answer(ends: Ends, sent: bytes) -> None:
    ends.answers.write(sent)
    ends.answers.close()
    assert ends.channel.exchange([{}], 10, LONGEST) is None


def test_a_server_that_does_not_answer_is_not_waited_for_longer(ends: Ends) -> None:
    with pytest.raises(TimeoutError):
        ends.channel.exchange([{}], 0.001, LONGEST)
    ends.answers.write(b"00000010{")
    ends.answers.flush()
    with pytest.raises(TimeoutError):
        ends.channel.exchange([{}], 0.001, LONGEST)


def test_a_server_that_does_not_read_is_not_waited_for_either(ends: Ends) -> None:
    with pytest.raises(TimeoutError):
        ends.channel.exchange([BIG], 0.001, LONGEST)


def test_what_is_no_message_or_too_long_is_refused(ends: Ends) -> None:
    protocol.send(ends.answers, {"text": "xxx"})
    with pytest.raises(ValueError, match="too long"):
        ends.channel.exchange([], 10, 8)


@pytest.mark.parametrize("sent", [b"-0000001", b"no digit", b"00000002[]", b"00000002{]"])
def test_junk_is_refused(ends: Ends, sent: bytes) -> None:
    ends.answers.write(sent)
    ends.answers.flush()
    with pytest.raises(ValueError, match=r"too long|invalid literal|an object|Expecting"):
        ends.channel.exchange([], 10, LONGEST)


def test_nobody_to_read_is_an_error(ends: Ends) -> None:
    ends.requests.close()
    with pytest.raises(BrokenPipeError):
        ends.channel.exchange([{}], 10, LONGEST)


# --- Each rule of what a run may send back, print, start and leave, without a sandbox: pipes and answers are made
# here ---


# --- What a run sends back ---


class FakeSession:
    """A session whose runs end as they are written down; `asked` are the requests with the seconds that are left."""

    def __init__(self, *answers: dict[str, Any], seconds: float = 10, **survey: Any) -> None:
        self.answers: Iterator[dict[str, Any]] = iter(answers)
        self.limits = Limits(seconds=seconds)
        self.survey = {"problem": None, "broken": {}, **survey}
        self.asked: list[tuple[dict[str, Any], float]] = []

    def read(self) -> dict[str, Any]:
        return self.survey

    def run(self, request: dict[str, Any], left: float) -> dict[str, Any]:
        self.asked.append((request, left))
        answer = next(self.answers)
        if "lost" in answer:
            raise SandboxLostError(answer["lost"])
        return answer


def answer(row: Any = None, ended: str = "exit", code: int = 0, **more: Any) -> dict[str, Any]:
    result = row if isinstance(row, str) else json.dumps(row)
    return {"ended": ended, "code": code, "result": result, "output": "", "took": 1.0, **more}


REQUEST = RunRequest("n = 2", {"argument": 2}, lambda row: RIGHT)


def outcome(given: dict[str, Any], **survey: Any) -> RunOutcome:
    return SandboxRunner(FakeSession(given, **survey), Fakes(), "fake_a")(REQUEST)  # type: ignore[arg-type]


def test_the_runs_of_a_puzzle_share_its_time_limit() -> None:
    session = FakeSession(*(answer({}, took=took) for took in (4.0, 5.0, 3.0, 1.0)))
    runner = SandboxRunner(session, Fakes(), "fake_a")  # type: ignore[arg-type]
    for _ in range(4):
        runner(REQUEST)
    assert [left for _, left in session.asked] == [10, 6, 1, MIN_SECONDS]


def test_a_request_has_the_tracks_stage_and_limit_unless_it_sets_another() -> None:
    session, track = FakeSession(answer({}), answer({})), Fakes()
    runner = SandboxRunner(session, track, "fake_a")  # type: ignore[arg-type]
    runner(REQUEST)
    runner(RunRequest("n = 3", {"longest": 5}, lambda row: RIGHT))
    first, second = (request for request, _ in session.asked)
    assert first == {"argument": 2, "stage": track.judge.stage, "slug": "fake_a", "longest": track.judge.max_result}
    assert second["longest"] == 5


def test_the_last_row_counts_and_what_was_printed_is_kept() -> None:
    found = outcome(answer('{"a": 1}\n{"b": 2}\n', output="hm", took=2.5))
    assert (found.row, found.failure, found.printed, found.took) == ({"b": 2}, None, "hm", 2.5)


def test_without_a_definition_there_is_neither_a_row_nor_a_failure() -> None:
    assert outcome(answer({"defined": False})).is_absent


@pytest.mark.parametrize("reason", ["rule", "deadlock", "timeout", "layout"])
def test_a_run_states_the_reason_of_its_failure(reason: str) -> None:
    assert outcome(answer({"failure": [reason, "no\x1b", 3]})).failure == Failure(reason, "no\\x1b", 3)


@pytest.mark.parametrize("failure", [["praise", "no", 3], ["rule", 3, 3], ["rule", "no", "3"], "rule", 7, {"a": 1}])
def test_a_report_with_another_reason_or_another_form_is_a_crash(failure: Any) -> None:
    found = outcome(answer({"failure": failure})).failure
    assert found is not None
    assert (found.reason, found.line) == ("crash", 0)


@pytest.mark.parametrize("line", [-1, 10**7])
def test_a_line_that_no_file_has_is_unknown(line: int) -> None:
    assert outcome(answer({"failure": ["rule", "no", line]})).failure == Failure("rule", "no", 0)


@pytest.mark.parametrize("result", ["", "{", "[1]", "3", "[" * 10**5])
def test_what_is_no_row_is_a_run_that_ended_early(result: str) -> None:
    found = outcome(answer(result, code=7))
    assert found.row is None
    assert found.failure is not None
    assert found.failure.reason == "crash"


@pytest.mark.parametrize(
    ("ended", "code", "reason"),
    [
        ("time", 0, "timeout"), ("signal", 9, "memory"), ("signal", 11, "crash"), ("signal", 10**6, "crash"),
        ("exit", 3, "crash"), ("output", 16, "crash"), ("memory", 16, "memory"), ("files", 16, "crash"),
        ("result", 16, "crash"),
    ],
)  # fmt: skip
def test_a_run_that_was_ended_has_the_reason_and_no_row(ended: str, code: int, reason: str) -> None:
    found = outcome(answer({"a": 1}, ended, code))
    assert found.row is None
    assert found.failure is not None
    assert found.failure.reason == reason


def test_a_failure_that_was_reported_before_the_end_counts() -> None:
    assert outcome(answer({"failure": ["rule", "no", 3]}, "time")).failure == Failure("rule", "no", 3)


def test_a_coroutine_that_was_forgotten_explains_the_failure() -> None:
    found = outcome(answer({"failure": ["rule", "no", 3], "forgotten": "'send' was never awaited"})).failure
    assert found is not None
    assert found.sentence.startswith("no; 'send' was never awaited")


def test_a_file_that_cannot_be_read_runs_nothing() -> None:
    for survey in ({"problem": ["syntax", "no", 3]}, {"broken": {"fake_a": ["syntax", "no", 3]}}):
        session = FakeSession(**survey)
        runner = SandboxRunner(session, Fakes(), "fake_a")  # type: ignore[arg-type]
        assert runner(REQUEST).failure == Failure("syntax", "no", 3)
        assert session.asked == []


def test_a_sandbox_that_is_lost_is_not_the_players_failure() -> None:
    found = outcome({"lost": "ended"}).failure
    assert found is not None
    assert found.reason == LOST


# --- What a run prints, sends, starts and leaves ---


@posix
@pytest.mark.parametrize(
    ("sent", "printed", "flood"),
    [(8, 16, None), (9, 0, ("result", 8)), (0, 17, ("output", 16))],
)
def test_a_run_that_sends_or_prints_more_than_its_limit_is_ended(
    sent: int, printed: int, flood: tuple[str, int] | None
) -> None:
    from puzzles.sandbox.worker.server import WorkerMonitor

    (result, to_result), (output, to_output) = os.pipe(), os.pipe()
    for end, size in ((to_result, sent), (to_output, printed)):
        os.write(end, b"x" * size)
        os.close(end)
    monitor = WorkerMonitor(0, result, output, most_output=16, longest_result=8)
    assert monitor._read_rest() == flood
    assert len(monitor.kept[result]) == (sent if sent <= 8 else 0), "a longer result is not kept"
    for fd in (result, output):
        os.close(fd)


@posix
def test_of_what_is_printed_a_part_is_kept() -> None:
    from puzzles.sandbox.protocol import MAX_SHOWN_OUTPUT
    from puzzles.sandbox.worker.server import WorkerMonitor

    (result, to_result), (output, to_output) = os.pipe(), os.pipe()
    os.write(to_output, b"x" * (MAX_SHOWN_OUTPUT + 5))
    for end in (to_result, to_output):
        os.close(end)
    monitor = WorkerMonitor(0, result, output, most_output=1 << 20, longest_result=8)
    assert monitor._read_rest() is None
    assert (monitor.printed, len(monitor.kept[output])) == (MAX_SHOWN_OUTPUT + 5, MAX_SHOWN_OUTPUT)
    for fd in (result, output):
        os.close(fd)


@posix
@pytest.mark.parametrize(("tasks", "may"), [(1, True), (3, True), (4, False), (5, False)])
def test_a_run_may_start_processes_up_to_its_limit(tasks: int, may: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from puzzles.sandbox.worker import server

    answers: list[tuple[int, ...]] = []

    def ioctl(listener: int, request: int, data: Any) -> None:
        if request == server.RECEIVE:
            pack_into("<Q", data, 0, 77)
        else:
            answers.append(unpack("<QqiI", data))

    monkeypatch.setattr(server, "ioctl", ioctl)
    limit = server.TaskLimit(4, lambda: tasks)
    limit.answer()
    limit.begin()
    limit.close()
    assert answers == [(77, 0, 0, server.CONTINUE) if may else (77, 0, -EAGAIN, 0)]


@posix
def test_a_folder_with_more_entries_than_the_limit_is_not_emptied(tmp_path: Path) -> None:
    def fill() -> None:
        (tmp_path / "a" / "b").mkdir(parents=True)
        for name in ("c", "a/d", "a/b/e"):
            (tmp_path / name).write_text("")

    fill()
    assert remove_tree.empty(str(tmp_path), most=5)
    assert list(tmp_path.iterdir()) == []
    fill()
    assert not remove_tree.empty(str(tmp_path), most=4)
    assert remove_tree.empty(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@posix
def test_a_limit_that_all_processes_exceed_together_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from puzzles.sandbox.worker import os_limits
    from puzzles.sandbox.worker.server import Supervisor

    taken = {"memory": 0, "files": 0}
    monkeypatch.setattr(os_limits, "memory_below", lambda: taken["memory"])
    monkeypatch.setattr(os_limits, "file_bytes", lambda folder: taken["files"])
    supervisor: Any = SimpleNamespace(limits={"memory": 100, "files": 50}, has_mount=False)
    for memory, files, exceeded in ((100, 50, None), (101, 50, ("memory", 100)), (100, 51, ("files", 50))):
        taken.update(memory=memory, files=files)
        assert Supervisor._exceeded(supervisor) == exceeded
    supervisor.has_mount = True
    assert Supervisor._exceeded(supervisor) is None, "the kernel limits the files of a mount"


# --- What an exception says ---


class OfThePlayer:
    def method(self) -> None: ...


@pytest.mark.parametrize(
    ("call", "method", "counts"),
    [
        (lambda: Model(0, Dist(1), 2, 2).forward(1, 2, 3, 4), "model.forward", ["3", "4"]),
        (lambda: Model(0, Dist(1), 2, 2).finish(1), "model.finish", ["0", "1"]),
        (lambda: Graph(8).shard(1, 2, 3, 4), "Graph.shard", ["2", "3", "4"]),
        (lambda: OfThePlayer().method(1), "OfThePlayer.method", ["1", "2"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_too_many_arguments_of_the_game_s_methods_are_counted_without_self(
    call: Any, method: str, counts: list[str]
) -> None:
    with pytest.raises(TypeError) as why:
        call()
    said = of_crash(why.value, "mine.py").sentence
    assert f" {method}() " in said
    assert re.findall(r"\d+", said) == counts


# --- What a grader does once for its servers: it compiles their modules; and what it does if one cannot be started ---


BASIC = Path(__file__).parents[2] / "solutions" / "basic.py"


@on_linux
@pytest.mark.own_server
def test_a_server_that_cannot_be_started_loses_its_files_and_does_not_end_the_class(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("puzzles.sandbox.client.command", lambda: [str(tmp_path / "python")])
    (verdict,) = grade_file(str(BASIC), [find("basic")]).verdicts
    assert (verdict.status, verdict.reason) == ("failed", "lost")
    for fact in ("not started", "No such file or directory", "grade it again"):
        assert fact in verdict.message


@on_linux
@pytest.mark.parametrize("forbidden", [False, True])
def test_modules_of_servers_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forbidden: bool) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", forbidden)
    client.cache_bytecode()
    compiled = sorted(path.name for path in tmp_path.rglob("*.pyc"))
    assert bool(compiled) is not forbidden
    if compiled:
        at = Path(cache_from_source(server.__file__))
        before = at.stat().st_ino
        assert {name.partition(".")[0] for name in compiled} >= {"server", "reading", "functions"}
        client.cache_bytecode()
        assert at.stat().st_ino == before


# --- A class whose grader is ended leaves nothing running and nothing behind, and can be resumed ---


ENDS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)


def descendants(process: int) -> list[int]:
    return [found for child in children(process) for found in (child, *descendants(child))]


def wait_for_first_verdict(home: Path, grader: subprocess.Popen[bytes]) -> None:
    """Until the journal of the class has a line; the grader must not have ended before."""
    with closing(watch(home, debounce=50, step=10, yield_on_timeout=True, rust_timeout=5_000)) as changes:
        while not any(journal.stat().st_size for journal in home.rglob("*.jsonl")):
            assert grader.poll() is None, "it has ended"
            next(changes)


def folders_of(graders: list[int], *places: str | Path) -> list[str]:
    """Folders that servers of these processes have made."""
    starts = tuple(f"puzzles-{pid}-" for pid in graders)
    return [name for place in places if os.path.isdir(place) for name in os.listdir(place) if name.startswith(starts)]


def end_by_signals() -> None:
    """Undoes what `nohup` does to the tests."""
    for end in ENDS[1:]:
        signal.signal(end, signal.SIG_DFL)


@pytest.fixture
def grading(tmp_path: Path) -> list[str]:
    """The command that grades a class of two files: one that passes, and one that would take a minute."""
    folder = tmp_path / "class"
    folder.mkdir()
    (folder / "a.py").write_text(SOLVED)
    (folder / "b.py").write_text("import os, time\ndef basic(model):\n    os.fork()\n    while True: time.sleep(60)\n")
    words = ["grade", str(folder), "--puzzle", "basic", "--limit", "time=60s", "--jobs", "1"]
    return [sys.executable, "-m", "puzzles", *words]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for processes that are not its own")
@pytest.mark.parametrize("end", ENDS)
def test_nothing_outlives_a_grader_that_is_ended(
    grading: list[str], home_of_its_own: Path, tmp_path: Path, end: signal.Signals
) -> None:
    environment = {**os.environ, HOME: str(home_of_its_own), "TMPDIR": str(tmp_path)}
    main = subprocess.Popen(
        grading, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=end_by_signals,
    )  # fmt: skip
    wait_for_first_verdict(home_of_its_own, main)
    below = descendants(main.pid)
    started = [os.pidfd_open(pid) for pid in below]
    assert len(started) > 1, "the pool, and its server"
    assert folders_of(below, SHARED_MEMORY, tmp_path)
    main.send_signal(end)
    assert main.wait() == -end
    for process in started:
        assert select.select([process], [], [], 20)[0], "a process is still there"
        os.close(process)
    assert folders_of(below, SHARED_MEMORY, tmp_path) == []

    (tmp_path / "class" / "b.py").write_text(SOLVED)
    resumed = subprocess.run([*grading, "--resume"], env=environment, capture_output=True, text=True, check=False)
    assert (resumed.returncode, "2 passed" in resumed.stdout) == (0, True), resumed
