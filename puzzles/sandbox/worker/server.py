"""The sandbox server: forks a supervisor for each submission, which forks a worker for each run and ends what is left.

Only workers read or run a player's code. The server lives as long as the grader wants, so that Python and numpy are
loaded once for many submissions; a forked worker starts in milliseconds with both. Whatever the server has in memory,
every later worker can read, so no submission ever passes through it: the supervisor receives it. The supervisor never
parses what a player wrote, nor what a worker sends. The first worker reads the submission and compiles it, and the
supervisor keeps the compiled bytes for the workers that run it.

What the kernel limits for each process only is added up here for a run: processes, memory, files, output. The kernel's
own limit on processes counts all of a user's, so runs at the same time would use up each other's; the supervisor is
asked about each new process instead (seccomp's user notification, see seccomp_unotify(2)). Processes that ask at the
same moment may exceed the limit, but not twice over.

Rejected: one process for server and supervisor, which would hold a submission where later ones are forked. Rejected for
the sums: cgroups, which need a right that a learner does not have.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from errno import EAGAIN
from fcntl import F_DUPFD, fcntl, ioctl
from struct import pack, unpack_from
from time import monotonic
from typing import IO, Any, NoReturn

from puzzles.sandbox import protocol, remove_tree
from puzzles.sandbox.limits import READING_PATIENCE, READING_SECONDS
from puzzles.sandbox.protocol import MAX_SHOWN_OUTPUT, RUN_FOLDER

from . import os_limits
from .reading import CompiledCode, SubmissionCode
from .runner import DefinitionRun, set_up_interpreter
from .stages import stage_of

# --- How many processes a run has ---


RECEIVE, SEND = 0xC0502100, 0xC0182101
"""SECCOMP_IOCTL_NOTIF_RECV and _SEND."""

QUESTION_BYTES = 80
CONTINUE = 1


class TaskLimit:
    """Both ends of one run: a worker hands over the listener of its filter, the supervisor answers."""

    def __init__(self, most: int, count: Callable[[], int]) -> None:
        """`count` returns how many tasks the run has."""
        self.most = most
        self._count = count
        self._here, self._there = socket.socketpair()
        self._listener = -1

    def hand_over(self, listener: int) -> None:
        """In the worker: sends the listener, if there is one."""
        if listener >= 0:
            socket.send_fds(self._there, [b"x"], [listener])

    def begin(self) -> int:
        """In the supervisor, when the worker has been forked: the file descriptor that becomes readable next."""
        self._there.close()
        return self._here.fileno()

    def accept(self) -> int:
        """Takes the listener: a file descriptor that becomes readable with each question; -1 if there is none."""
        _, received, _, _ = socket.recv_fds(self._here, 1, 1)
        self._listener = received[0] if received else -1
        return self._listener

    def answer(self) -> None:
        question = bytearray(QUESTION_BYTES)
        with suppress(OSError):  # who asked has ended, or was interrupted and asks again
            ioctl(self._listener, RECEIVE, question)
            (number,) = unpack_from("<Q", question)
            free = self._count() < self.most
            ioctl(self._listener, SEND, pack("<QqiI", number, 0, 0 if free else -EAGAIN, CONTINUE if free else 0))

    def close(self) -> None:
        self._here.close()
        if self._listener >= 0:
            socket.close(self._listener)


# --- What a worker sends and prints ---


LOOK_EVERY = 0.2
"""Seconds between two looks at what the kernel does not limit in sum: memory and files."""


class WorkerMonitor:
    """Collects the result and the output of one worker, by the file descriptors of their pipes."""

    def __init__(self, pid: int, result: int, output: int, most_output: int, longest_result: int) -> None:
        self.pid = pid
        self.result = result
        self.output = output
        self.most_output = most_output
        self.longest_result = longest_result
        self.printed = 0
        self.sent = 0
        self.kept = {result: bytearray(), output: bytearray()}

    def wait(
        self, control: int, wake: int, tasks: TaskLimit, deadline: float, look: Callable[[], tuple[str, int] | None]
    ) -> tuple[str, int]:
        """Reads until the worker has ended ("exit" or "signal", with a number) or has to be ended ("time"; "output" or
        "result", with the limit; what `look` finds, which is asked again and again; "hung up" if the grader has gone,
        which makes `control` readable).

        `wake` becomes readable when a process has ended. Questions about `tasks` are answered. `deadline` is a time of
        `time.monotonic`.
        """
        with selectors.DefaultSelector() as selector:
            for fd in (self.result, self.output):
                os.set_blocking(fd, False)
            handing_over, listener = tasks.begin(), -1
            for fd in (self.result, self.output, control, wake, handing_over):
                selector.register(fd, selectors.EVENT_READ)
            next_look = monotonic() + LOOK_EVERY
            while (left := deadline - monotonic()) > 0:
                ready = {key.fd for key, _ in selector.select(min(left, max(0.0, next_look - monotonic())))}
                if monotonic() >= next_look:
                    if found := look():
                        return found
                    next_look = monotonic() + LOOK_EVERY
                if control in ready:
                    return "hung up", 0
                if wake in ready:
                    os.read(wake, 4096)
                    status = self._status()
                    if status is not None:
                        return self._read_rest() or status
                if handing_over in ready:
                    selector.unregister(handing_over)
                    if (listener := tasks.accept()) >= 0:
                        selector.register(listener, selectors.EVENT_READ)
                if listener in ready:
                    tasks.answer()
                for fd in (self.result, self.output):
                    if fd in ready and not self._read(fd):
                        selector.unregister(fd)
                if flood := self._flood():
                    return flood
        return "time", 0

    def _status(self) -> tuple[str, int] | None:
        """The end of the worker, if it has ended. Waits for orphans that this process has adopted on the way."""
        while (found := os.waitpid(-1, os.WNOHANG))[0] not in (0, self.pid):
            pass
        pid, status = found
        if pid == 0:
            return None
        if os.WIFSIGNALED(status):
            return "signal", os.WTERMSIG(status)
        return "exit", os.WEXITSTATUS(status)

    def _read_rest(self) -> tuple[str, int] | None:
        """Empties the pipes of a worker that has ended; the limit that this exceeds, if any."""
        while self._read(self.output) or self._read(self.result):
            if self._flood():
                break
        return self._flood()

    def _flood(self) -> tuple[str, int] | None:
        if self.sent > self.longest_result:
            return "result", self.longest_result
        return ("output", self.most_output) if self.printed > self.most_output else None

    def _read(self, fd: int) -> bool:
        """Reads once; False when there is nothing, or never again."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return False
        if fd == self.result:
            self.sent += len(data)
            self.kept[fd] += data if self.sent <= self.longest_result else b""
        else:
            self.printed += len(data)
            self.kept[fd] += data[: MAX_SHOWN_OUTPUT - len(self.kept[fd])]
        return bool(data)


# --- The supervisor ---


GRACE_SECONDS = 0.3
"""Seconds after the time limit in which a worker may still report the line that it was at."""

MAX_COMPILED = 64 << 20
"""Bytes of a compiled submission, with its survey."""

MAX_LEFTOVERS = 10_000
"""Files and folders that are removed after a run. A server in whose folder there are more is replaced."""

LOST = 70
"""Exit code of a supervisor or worker that failed itself."""

Work = Callable[[int], None]
"""What a worker does: it sends its result to a file descriptor."""


def supervise(conditions: dict[str, Any], control: IO[bytes], answers: IO[bytes], server: int) -> NoReturn:
    """Runs in the forked supervisor: answers until the submission is done, or the grader or the server has gone."""
    try:
        os_limits.protect_process()
        signal.signal(signal.SIGHUP, _end_without_server)
        os_limits.end_with_parent(server, signal.SIGHUP)
        supervisor = Supervisor(conditions, control)
        source = protocol.receive_bytes(control)
        if source is not None:
            protocol.send(answers, supervisor.read(source))
        while (request := protocol.receive(control)) and not request.get("done"):
            protocol.send(answers, supervisor.run(request))
        os._exit(0)
    finally:
        os._exit(LOST)


def _end_without_server(*_: Any) -> NoReturn:
    """Ends what a run has started, which no server does then."""
    os_limits.end_all(0)
    os._exit(LOST)


class Supervisor:
    """Runs the definitions of one submission on request, one after the other, each in a new worker."""

    def __init__(self, conditions: dict[str, Any], control: IO[bytes]) -> None:
        self.limits = conditions["limits"]
        self.uid = conditions["uid"]
        self.packages = conditions["packages"]
        self.files = os_limits.visible_files(conditions["readable"])
        self.hidden = conditions["hidden"]
        self.control = control
        self.compiled = b""
        self.has_mount = False
        self.wake, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self.wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)

    def read(self, source: bytes) -> dict[str, Any]:
        """Lets a worker read and compile the submission. The result is the survey of its definitions."""

        def work(out: int) -> None:
            given = json.loads(source)
            code = SubmissionCode(given["name"], given["text"], given["slugs"])
            survey = json.dumps(code.survey()).encode() + b"\n"
            protocol.write_all(out, survey + code.compiled.dump())

        limits = {**self.limits, "processor": READING_SECONDS}
        answer = self._in_worker(work, READING_PATIENCE, MAX_COMPILED, limits)
        survey, _, self.compiled = answer["result"].partition(b"\n")
        return {**answer, "result": survey.decode(errors="replace")}

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Lets a worker run a definition."""

        def work(out: int) -> None:
            DefinitionRun(CompiledCode.load(self.compiled), request, self.limits["seconds"], out).run()

        answer = self._in_worker(work, request["left"], request["longest"], self.limits)
        return {**answer, "result": answer["result"].decode(errors="replace")}

    def _in_worker(self, work: Work, seconds: float, longest: int, limits: dict[str, Any]) -> dict[str, Any]:
        """One run, from an empty folder until the last of its processes is gone and the folder is empty again."""
        self._make_folder()
        result, result_end = os.pipe()
        output, output_end = os.pipe()
        tasks = TaskLimit(limits["processes"], os_limits.tasks_below)
        begin = monotonic()
        supervisor = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._be_worker(work, supervisor, (result_end, output_end), tasks, limits)
        for fd in (result_end, output_end):
            os.close(fd)
        monitor = WorkerMonitor(pid, result, output, self.limits["output"], longest)
        where = self.control.fileno(), self.wake, tasks, begin + seconds + GRACE_SECONDS
        ended, code = monitor.wait(*where, self._exceeded)
        took = monotonic() - begin
        os_limits.end_all(pid)
        if ended == "hung up":
            os._exit(0)
        tasks.close()
        os.close(result)
        os.close(output)
        if self.has_mount:
            os_limits.unmount_files(RUN_FOLDER)
        return {
            "ended": ended,
            "code": code,
            "took": took,
            "printed": monitor.printed,
            "output": monitor.kept[output].decode(errors="replace"),
            "result": bytes(monitor.kept[result]),
            "usable": remove_tree.empty(os.getcwd(), MAX_LEFTOVERS),
        }

    def _make_folder(self) -> None:
        os.mkdir(RUN_FOLDER, 0o700)
        if os.getuid() == 0:
            with suppress(OSError):  # a root without that power does not become another user either
                os.chown(RUN_FOLDER, self.uid, self.uid)
        self.has_mount = os_limits.mount_files(RUN_FOLDER, self.limits["files"], self.uid)

    def _exceeded(self) -> tuple[str, int] | None:
        """The limit that all processes of a run exceed together, where the kernel does not hold it."""
        memory, files = self.limits["memory"], self.limits["files"]
        if os_limits.memory_below() > memory:
            return "memory", memory
        if not self.has_mount and os_limits.file_bytes(RUN_FOLDER) > files:
            return "files", files
        return None

    def _be_worker(
        self, work: Work, supervisor: int, ends: tuple[int, int], tasks: TaskLimit, limits: dict[str, Any]
    ) -> NoReturn:
        """Runs in the forked worker. `ends` belong to its result and its output."""
        try:
            signal.set_wakeup_fd(-1)
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)  # its own: an open file has a state, which later runs would see
            os.chdir(RUN_FOLDER)
            restricted, listener = os_limits.confine(limits, self.uid, supervisor, self.files)
            tasks.hand_over(listener)
            result, output = [fcntl(fd, F_DUPFD, 4) for fd in ends]  # so that none is one of those that follow
            for fd in (1, 2):
                os.dup2(output, fd)
            out = os.dup2(result, 3)
            os.closerange(4, os_limits.MAX_OPEN_FILES * 4)
            set_up_interpreter(self.packages)
            if not restricted:
                os_limits.deny_paths(self.hidden)
            work(out)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        except BaseException as why:
            with suppress(BaseException):
                print(f"the run ended with {type(why).__name__}: {why}", file=sys.stderr, flush=True)
            os._exit(LOST)
        finally:
            os._exit(0)


# --- The server ---


def main() -> None:
    """Serves one grader, submission by submission, until it closes the pipe or a supervisor is lost."""
    control = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    os_limits.protect_process()
    _load_asyncio()
    lost = 0
    while not lost and (conditions := protocol.receive(control)) is not None:
        os_limits.prepare()
        _warm_up(conditions)
        gc.freeze()  # so that no worker looks for garbage here, which would copy the memory that it shares
        gc.enable()  # which is disabled at the start, because modules are no garbage
        server = os.getpid()
        supervisor = os.fork()
        if supervisor == 0:
            supervise(conditions, control, answers, server)
        _, status = os.waitpid(supervisor, 0)
        os_limits.end_all(supervisor)
        lost = os.waitstatus_to_exitcode(status)
        with suppress(OSError):  # the grader has gone
            protocol.send(answers, {"left": lost})
    # After a loss, the pipe may hold the rest of a submission. It must not be read here.
    remove_tree.remove(os.getcwd())
    os._exit(0)


def _load_asyncio() -> None:
    """Imports asyncio, so that no worker has to, without TLS. A run cannot open a socket that would need it, and to
    load it takes a tenth of the server's start."""
    sys.modules["ssl"] = None  # type: ignore[assignment]  # which asyncio can do without
    import asyncio  # noqa: F401

    del sys.modules["ssl"]


def _warm_up(conditions: dict[str, Any]) -> None:
    """Imports what the workers will need: once, and only for tracks that are used, because numpy is slow to import."""
    for stage in conditions["stages"]:
        if conditions["packages"] and conditions["packages"] not in sys.path:
            sys.path.append(conditions["packages"])
        with suppress(ImportError):  # which each worker then reports
            stage_of(stage)
