"""The keeper of one submission: reads it once, forks a child for each run, ends what is left, and tells the grader.

It never runs a player's code. Where a sandbox is used, the keeper is its first process.
"""

from __future__ import annotations

import asyncio  # noqa: F401  # so that no child has to load it
import os
import selectors
import signal
import sys
from contextlib import suppress
from time import monotonic
from typing import Any, BinaryIO

from lib import Size

from . import frames, walls
from .perform import Performance
from .source import Source

GRACE = 0.3
"""Seconds after the time limit in which a child may tell by itself where it was."""

LONGEST_RESULT = 1 << 20
"""Bytes that one run may send back. The largest reference trace has a quarter of that."""

SHOWN = 4096
"""Bytes of a run's output that are kept to be shown."""

NOT_FOR_PLAYERS = ("solutions", "tests", "notebooks")
"""Folders beside ours that are no modules for a submission."""


def main() -> None:
    """Serves one grader, until it closes the line."""
    control = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    walls.shelter()
    given = frames.receive(control)
    if given is None:
        return
    keeper = Keeper(given, control, answers)
    frames.send(answers, keeper.source.survey())
    while (request := frames.receive(control)) is not None:
        frames.send(answers, keeper.run(request))


class Keeper:
    """Runs what it is asked to run, one after the other."""

    def __init__(self, given: dict[str, Any], control: BinaryIO, answers: BinaryIO) -> None:
        self.limits = given["limits"]
        self.guest = given["guest"]
        self.control = control
        self.answers = answers
        walls.cap_memory(self.limits["memory"])
        self.source = Source(given["name"], given["parts"], given["notebook"], given["starters"])
        self.wake, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self.wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """One run, from an empty folder to the last process gone."""
        walls.fresh_folder(os.getcwd())
        result, result_end = os.pipe()
        output, output_end = os.pipe()
        begin = monotonic()
        pid = os.fork()
        if pid == 0:
            self._child(request, result_end, output_end)
        os.close(result_end)
        os.close(output_end)
        watch = Watch(pid, result, output, self.limits["output"])
        ended, code = watch.until_the_end(self.control.fileno(), self.wake, begin + request["left"] + GRACE)
        took = monotonic() - begin
        walls.end_all(pid)
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
            os.closerange(4, walls.OPEN_FILES * 4)
            walls.confine(self.limits, self.guest)
            _furnish(request.get("packages", ""))
            size = Size(*request["size"])
            Performance(self.source, request["slug"], size, self.limits["seconds"], request["left"], out).run()
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        except BaseException as why:
            with suppress(BaseException):
                print(f"the run ended with {type(why).__name__}: {why}", file=sys.stderr, flush=True)
            os._exit(70)
        finally:
            os._exit(0)


def _furnish(packages: str) -> None:
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
    if packages:
        sys.path.append(packages)
    for name in NOT_FOR_PLAYERS:
        sys.modules[name] = None  # type: ignore[assignment]  # which makes an import of it fail


class Watch:
    """Reads what a child sends and prints, with limits, until it ends or has to be ended."""

    def __init__(self, pid: int, result: int, output: int, most_output: int) -> None:
        self.pid = pid
        self.result = result
        self.output = output
        self.most_output = most_output
        self.printed = 0
        self.sent = 0
        self.kept = {result: b"", output: b""}

    def until_the_end(self, control: int, wake: int, deadline: float) -> tuple[str, int]:
        """How the child ended: 'exit' or 'signal' with a number, or why it has to be: 'time', 'output', 'result'."""
        with selectors.DefaultSelector() as selector:
            for fd in (self.result, self.output):
                os.set_blocking(fd, False)
            for fd in (self.result, self.output, control, wake):
                selector.register(fd, selectors.EVENT_READ)
            while (left := deadline - monotonic()) > 0:
                ready = {key.fd for key, _ in selector.select(left)}
                if control in ready:
                    walls.end_all(self.pid)
                    os._exit(0)  # nobody listens any more
                if wake in ready:
                    os.read(wake, 4096)
                    status = self._status()
                    if status is not None:
                        while self._take(self.output) or self._take(self.result):
                            if self._flood():
                                break
                        return self._flood() or status
                for fd in (self.result, self.output):
                    if fd in ready and not self._take(fd):
                        selector.unregister(fd)
                if self._flood():
                    return self._flood()  # type: ignore[return-value]
        return "time", 0

    def _status(self) -> tuple[str, int] | None:
        """How the child has ended, if it has. Orphans that came to us are collected on the way."""
        while (found := os.waitpid(-1, os.WNOHANG))[0] not in (0, self.pid):
            pass
        pid, status = found
        if pid == 0:
            return None
        if os.WIFSIGNALED(status):
            return "signal", os.WTERMSIG(status)
        return "exit", os.WEXITSTATUS(status)

    def _flood(self) -> tuple[str, int] | None:
        if self.sent > LONGEST_RESULT:
            return "result", LONGEST_RESULT
        return ("output", self.most_output) if self.printed > self.most_output else None

    def _take(self, fd: int) -> bool:
        """Reads once; False when there is nothing, or never again."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return False
        if fd == self.result:
            self.sent += len(data)
            self.kept[fd] += data if self.sent <= LONGEST_RESULT else b""
        else:
            self.printed += len(data)
            self.kept[fd] = (self.kept[fd] + data)[:SHOWN]
        return bool(data)
