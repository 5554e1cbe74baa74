"""The keeper: for each submission it forks a warden, which reads it, forks a child for each run, and ends what is left.

Neither ever runs a player's code. Where a sandbox is used, the keeper is its first process. It lives as long as the
grader wants, so that Python starts once for many submissions; of one submission nothing is left for the next.
"""

from __future__ import annotations

import asyncio  # noqa: F401  # so that no child has to load it
import os
import signal
import sys
from contextlib import suppress
from time import monotonic
from typing import Any, BinaryIO, NoReturn

from puzzles.sandbox import protocol

from . import os_limits
from .output import Watch
from .runner import Performance, stage_of
from .source import Source

GRACE = 0.3
"""Seconds after the time limit in which a child may tell by itself where it was."""

NOT_FOR_PLAYERS = ("solutions", "tests", "notebooks", "puzzles.catalog.engine")
"""What stands beside our modules and is none for a submission: answers, and what classes are tried with."""


def main() -> None:
    """Serves one grader, submission by submission, until it closes the line."""
    control = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    os_limits.shelter()
    while (given := protocol.receive(control)) is not None:
        if "parts" not in given:
            continue  # asked of a warden that has just ended, which the grader is told already
        _warm_up(given)
        os_limits.fresh_folder(os.getcwd())
        warden = os.fork()
        if warden == 0:
            _serve(given, control, answers)
        _, status = os.waitpid(warden, 0)
        os_limits.end_all(warden, given["alone"])
        if status != 0:
            _drain(control)
        protocol.send(answers, {"left": os.waitstatus_to_exitcode(status)})
    os._exit(0)


def _drain(control: BinaryIO) -> None:
    """Throws away what is left of a question that a warden has begun to read when it was ended."""
    os.set_blocking(control.fileno(), False)
    while control.read(1 << 16):
        pass
    os.set_blocking(control.fileno(), True)


def _warm_up(given: dict[str, Any]) -> None:
    """Imports what the children will need: once, and only where somebody needs it, for numpy is slow to import."""
    for stage in given["stages"]:
        if given["packages"] and given["packages"] not in sys.path:
            sys.path.append(given["packages"])
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # threads would count as the player's
        with suppress(ImportError):  # which each child then tells
            stage_of(stage)
        del os.environ["OPENBLAS_NUM_THREADS"]


def _serve(given: dict[str, Any], control: BinaryIO, answers: BinaryIO) -> NoReturn:
    """What a warden does: it answers until the submission is done, or nobody listens any more."""
    try:
        os_limits.shelter()
        os_limits.prctl(os_limits.PDEATHSIG, signal.SIGKILL)
        warden = Warden(given, control)
        protocol.send(answers, warden.source.survey())
        while (request := protocol.receive(control)) and not request.get("done"):
            protocol.send(answers, warden.run(request))
        os._exit(0)
    finally:
        os._exit(70)


class Warden:
    """Runs what it is asked to run, one after the other."""

    def __init__(self, given: dict[str, Any], control: BinaryIO) -> None:
        self.limits = given["limits"]
        self.guest = given["guest"]
        self.alone = given["alone"]
        self.packages = given["packages"]
        self.readable = given["readable"]
        self.hidden = given["hidden"]
        self.control = control
        os_limits.cap_memory(self.limits["memory"])
        self.source = Source(given["name"], given["parts"], given["notebook"], given["slugs"])
        self.wake, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self.wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """One run, from an empty folder to the last process gone."""
        os_limits.fresh_folder(os.getcwd())
        result, result_end = os.pipe()
        output, output_end = os.pipe()
        begin = monotonic()
        pid = os.fork()
        if pid == 0:
            self._child(request, result_end, output_end)
        os.close(result_end)
        os.close(output_end)
        watch = Watch(pid, result, output, self.limits["output"], request["longest"])
        ended, code = watch.until_the_end(self.control.fileno(), self.wake, begin + request["left"] + GRACE)
        took = monotonic() - begin
        os_limits.end_all(pid, self.alone)
        if ended == "hung up":
            os._exit(0)
        os.close(result)
        os.close(output)
        return {
            "ended": ended,
            "code": code,
            "took": took,
            "printed": watch.printed,
            "output": watch.kept[output].decode(errors="replace"),
            "result": watch.kept[result].decode(errors="replace"),
        }

    def _child(self, request: dict[str, Any], result: int, output: int) -> None:
        """What the forked process does instead. It never returns."""
        try:
            signal.set_wakeup_fd(-1)
            out = os.dup2(result, 3)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.closerange(4, os_limits.OPEN_FILES * 4)
            shut_in = os_limits.confine(self.limits, self.guest, self.readable)
            furnish(self.packages)
            if not (shut_in or self.alone):
                os_limits.fence_off(self.hidden)
            Performance(self.source, request, self.limits["seconds"], out).run()
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        except BaseException as why:
            with suppress(BaseException):
                print(f"the run ended with {type(why).__name__}: {why}", file=sys.stderr, flush=True)
            os._exit(70)
        finally:
            os._exit(0)


def furnish(packages: str) -> None:
    """The world as a player's code expects it: where modules come from, `exit`, streams that write at once."""
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
    for name in NOT_FOR_PLAYERS:
        sys.modules[name] = None  # type: ignore[assignment]  # which makes an import of it fail
