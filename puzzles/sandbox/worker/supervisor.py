"""The supervisor of one submission: starts a worker for each run in a fresh folder, limits it and ends what is left.

It never parses what a player wrote, nor what a worker sends. The first worker reads the submission and compiles it;
the supervisor keeps the compiled bytes for the workers that run it.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from fcntl import F_DUPFD, fcntl
from time import monotonic
from typing import IO, Any, NoReturn

from puzzles.sandbox import protocol, remove_tree
from puzzles.sandbox.deadline import READING_PATIENCE, READING_SECONDS
from puzzles.sandbox.protocol import RUN_FOLDER

from . import os_limits
from .compiled import CompiledCode
from .output import WorkerMonitor
from .runner import DefinitionRun, set_up_interpreter
from .source import SubmissionCode
from .task_limit import TaskLimit

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
            _write(out, survey + code.compiled.dump())

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


def _write(out: int, data: bytes) -> None:
    while data:
        data = data[os.write(out, data) :]
