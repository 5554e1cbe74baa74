"""Client of a sandbox server: starts it on the first request, sends requests with deadlines, replaces it when lost.

One server handles many submissions, one after the other, because starting Python costs more than most runs. The
trade-off: a server that is killed takes at most the submission it was working on with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol
from uuid import uuid4

from . import protocol
from .limits import Limits
from .tiers import START_SECONDS, Tier, command, environment
from .visible_files import read_rules

MAX_ANSWER = 64 << 20
"""Bytes: a result of the greatest size, escaped twice."""

WORKER_UIDS = range(61_184, 65_520)
"""User ids that belong to nobody: systemd gives them to services without a user of their own. Each server has its
own, because the system counts processes by user."""

MARK = "TRAINING_PUZZLES_RUN"
"""Environment variable by which the processes of a killed server are found."""


class WorkerLostError(Exception):
    """The server, or the worker that it runs, has ended or did not answer in time."""


class Client(Protocol):
    """Interface of both clients: opens one submission at a time and asks about it."""

    def open(self, given: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Opens a submission and returns the survey of its definitions."""

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Runs one definition of the open submission and returns how that ended."""

    def done(self) -> None:
        """Closes the submission."""

    def close(self) -> int:
        """Ends all processes and returns the exit code of the server."""


class SandboxClient:
    """Client of one server, which is started with the first submission."""

    def __init__(self, tier: Tier, limits: Limits) -> None:
        self.tier = tier
        self.limits = limits
        number = uuid4().int
        self.uid = WORKER_UIDS[number % len(WORKER_UIDS)]
        self._mark = f"{os.getpid()}-{number:x}"
        self._server: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._finalizer: weakref.finalize[[subprocess.Popen[bytes]], Any] | None = None

    def open(self, given: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Opens a submission and returns the survey of its definitions.

        Raises:
            WorkerLostError: Python itself broke on the file, or took too long.
        """
        if self._server is None:
            self._start()
        rules = {"readable": [], "hidden": []} if self.tier.is_sandbox else read_rules()
        return self.ask({**given, "uid": self.uid, "sandboxed": self.tier.is_sandbox, **rules}, seconds)

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Answers a request about the open submission.

        Raises:
            WorkerLostError: no answer came within `seconds`; the submission has to be opened again.
        """
        answer = self._exchange(request, seconds)
        if answer is None:
            raise WorkerLostError(end_words(self.close()))
        if "left" in answer:  # the supervisor of this submission has ended; the server can take the next
            raise WorkerLostError(end_words(int(answer["left"])))
        return answer

    def done(self) -> None:
        """Closes the submission; the server keeps nothing of it."""
        if self._server is not None and (self._exchange({"done": True}, START_SECONDS) or {}).get("left") != 0:
            self.close()

    def close(self) -> int:
        """Ends the server with all that it still runs, removes its folder and returns its exit code."""
        server, self._server = self._server, None
        if self._finalizer is not None:
            self._finalizer.detach()
        code = 0 if server is None else _end(server)
        if code != 0 and not self.tier.is_sandbox:
            _end_marked(f"{MARK}={self._mark}")
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        return code

    def _start(self) -> None:
        if not self.tier.is_sandbox:
            self._folder = tempfile.TemporaryDirectory(prefix="puzzles-", ignore_cleanup_errors=True)
        folder = self._folder.name if self._folder else "/"
        self._server = subprocess.Popen(
            command(self.tier, self.limits),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={**environment(folder), MARK: self._mark},
            start_new_session=True,
        )
        self._finalizer = weakref.finalize(self, _end, self._server)

    def _exchange(self, request: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        server = self._server
        if server is None:
            return None
        assert server.stdin is not None
        assert server.stdout is not None
        alarm = threading.Timer(seconds, server.kill)
        alarm.daemon = True
        alarm.start()
        try:
            protocol.send(server.stdin, request)
            return protocol.receive(server.stdout, MAX_ANSWER)
        except (OSError, ValueError, RecursionError):
            return None
        finally:
            alarm.cancel()


def _end(server: subprocess.Popen[bytes]) -> int:
    assert server.stdin is not None
    assert server.stdout is not None
    with suppress(OSError):
        server.stdin.close()  # on which the server ends all runs, then itself
    code = _wait(server.wait, 5.0)
    if code is None:
        server.kill()
        code = server.wait()
    server.stdout.close()
    return code


def _wait(wait: Callable[..., int], seconds: float) -> int | None:
    try:
        return wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None


def end_words(code: int) -> str:
    """Describes the exit code of a process, as `subprocess` reports it."""
    if code < 0:
        try:
            return f"ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"ended by signal {-code}"
    return f"ended with code {code}"


def _end_marked(mark: str) -> None:
    """Kills what a killed server left behind, as far as it still carries the server's environment."""
    if not os.path.isdir("/proc/self"):
        return
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            with open(f"/proc/{pid}/environ", "rb") as file:
                marked = mark.encode() in file.read()
            if marked:
                os.kill(int(pid), signal.SIGKILL)
