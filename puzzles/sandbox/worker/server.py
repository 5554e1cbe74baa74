"""The sandbox server: forks a supervisor for each submission, which forks a worker for each run and ends what is left.

Only workers run a player's code. In a sandbox, the server is the first process. It lives as long as the grader wants,
so that Python and numpy are loaded once for many submissions; a forked worker starts in milliseconds with both.
"""

from __future__ import annotations

import asyncio  # noqa: F401  # so that no worker has to load it
import os
import signal
import sys
from contextlib import suppress
from time import monotonic
from typing import IO, Any, NoReturn

from puzzles.sandbox import protocol

from . import os_limits
from .output import WorkerMonitor
from .runner import DefinitionRun, stage_of
from .source import SubmissionCode

GRACE_SECONDS = 0.3
"""Seconds after the time limit in which a worker may still report the line that it was at."""

HIDDEN_MODULES = ("solutions", "tests", "notebooks", "puzzles.catalog.engine")
"""Modules that a submission cannot import: answers, and the trials of classes with their right results."""


def main() -> None:
    """Serves one grader, submission by submission, until it closes the pipe."""
    control = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    os_limits.protect_process()
    while (given := protocol.receive(control)) is not None:
        if "text" not in given:
            continue  # a request to a supervisor that has just ended, which the grader already knows
        _warm_up(given)
        os_limits.fresh_folder(os.getcwd())
        supervisor = os.fork()
        if supervisor == 0:
            _supervise(given, control, answers)
        _, status = os.waitpid(supervisor, 0)
        os_limits.end_all(supervisor, given["sandboxed"])
        if status != 0:
            _drain(control)
        protocol.send(answers, {"left": os.waitstatus_to_exitcode(status)})
    os._exit(0)


def _drain(control: IO[bytes]) -> None:
    """Discards what is left of a request that a supervisor had begun to read when it was ended."""
    os.set_blocking(control.fileno(), False)
    while control.read(1 << 16):
        pass
    os.set_blocking(control.fileno(), True)


def _warm_up(given: dict[str, Any]) -> None:
    """Imports what the workers will need: once, and only for tracks that are used, for numpy is slow to import."""
    for stage in given["stages"]:
        if given["packages"] and given["packages"] not in sys.path:
            sys.path.append(given["packages"])
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # threads would count as the player's
        with suppress(ImportError):  # which each worker then reports
            stage_of(stage)
        del os.environ["OPENBLAS_NUM_THREADS"]


def _supervise(given: dict[str, Any], control: IO[bytes], answers: IO[bytes]) -> NoReturn:
    """Runs in the forked supervisor: answers until the submission is done, or the grader has gone."""
    try:
        os_limits.protect_process()
        os_limits.prctl(os_limits.PDEATHSIG, signal.SIGKILL)
        supervisor = Supervisor(given, control)
        protocol.send(answers, supervisor.code.survey())
        while (request := protocol.receive(control)) and not request.get("done"):
            protocol.send(answers, supervisor.run(request))
        os._exit(0)
    finally:
        os._exit(70)


class Supervisor:
    """Runs the definitions of one submission on request, one after the other, each in a new worker."""

    def __init__(self, given: dict[str, Any], control: IO[bytes]) -> None:
        self.limits = given["limits"]
        self.uid = given["uid"]
        self.sandboxed = given["sandboxed"]
        self.packages = given["packages"]
        self.readable = given["readable"]
        self.hidden = given["hidden"]
        self.control = control
        os_limits.cap_memory(self.limits["memory"])
        self.code = SubmissionCode(given["name"], given["text"], given["slugs"])
        self.wake, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self.wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """One run, from an empty folder until the last of its processes is gone."""
        os_limits.fresh_folder(os.getcwd())
        result, result_end = os.pipe()
        output, output_end = os.pipe()
        begin = monotonic()
        pid = os.fork()
        if pid == 0:
            self._work(request, result_end, output_end)
        os.close(result_end)
        os.close(output_end)
        monitor = WorkerMonitor(pid, result, output, self.limits["output"], request["longest"])
        ended, code = monitor.wait(self.control.fileno(), self.wake, begin + request["left"] + GRACE_SECONDS)
        took = monotonic() - begin
        os_limits.end_all(pid, self.sandboxed)
        if ended == "hung up":
            os._exit(0)
        os.close(result)
        os.close(output)
        return {
            "ended": ended,
            "code": code,
            "took": took,
            "printed": monitor.printed,
            "output": monitor.kept[output].decode(errors="replace"),
            "result": monitor.kept[result].decode(errors="replace"),
        }

    def _work(self, request: dict[str, Any], result: int, output: int) -> NoReturn:
        """Runs in the forked worker, and never returns."""
        try:
            signal.set_wakeup_fd(-1)
            out = os.dup2(result, 3)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.closerange(4, os_limits.OPEN_FILES * 4)
            restricted = os_limits.confine(self.limits, self.uid, self.readable)
            set_up_interpreter(self.packages)
            if not (restricted or self.sandboxed):
                os_limits.deny_paths(self.hidden)
            DefinitionRun(self.code, request, self.limits["seconds"], out).run()
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        except BaseException as why:
            with suppress(BaseException):
                print(f"the run ended with {type(why).__name__}: {why}", file=sys.stderr, flush=True)
            os._exit(70)
        finally:
            os._exit(0)


def set_up_interpreter(packages: str) -> None:
    """Gives the interpreter what a player's code expects: third-party packages, `exit`, unbuffered streams; and hides
    modules with answers."""
    import _sitebuiltins
    import builtins

    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D"))
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115  # as long as the process
    for fd, name in ((1, "stdout"), (2, "stderr")):
        stream = open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if packages and packages not in sys.path:
        sys.path.append(packages)
    for name in HIDDEN_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # which makes an import of it fail
