"""Client of a sandbox server: starts it on the first request, sends requests with deadlines, replaces it when lost.

One server handles many submissions, one after the other, because starting Python costs more than most runs. A server
that is lost is not the player's failure: the request is repeated once, in a fresh one.
"""

import os
import signal
import subprocess
import tempfile
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol
from uuid import uuid4

from . import remove_tree
from .protocol import RUN_FOLDER, Channel
from .start import START_SECONDS, cache_bytecode, command, environment
from .visible_files import read_rules

MAX_ANSWER = 64 << 20
"""Bytes: a result of the greatest size, escaped twice."""

WORKER_UIDS = range(61_184, 65_520)
"""User ids that belong to nobody: systemd gives them to services without a user of their own. Each server has its
own, because the system counts processes by user."""

CONDITIONS = ("stages", "packages", "limits")
"""What the server has to know about a submission. Everything else goes to the supervisor only."""

SHARED_MEMORY = "/dev/shm"

MARK = "TRAINING_PUZZLES_RUN"
"""Environment variable by which the processes of a killed server are found."""


class SandboxLostError(Exception):
    """The server or the supervisor has ended twice in a row, for an unknown reason."""


class Client(Protocol):
    """Interface of both clients: opens one submission at a time and asks about it."""

    def open(self, given: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Opens a submission and lets a worker read it: how that ended, with the survey of its definitions."""

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Runs one definition of the open submission and returns how that ended."""

    def done(self) -> None:
        """Closes the submission."""

    def close(self) -> int:
        """Ends all processes and returns the exit code of the server."""


class _LostError(Exception):
    """The server or the supervisor has ended, or did not answer in time."""


class SandboxClient:
    """Client of one server, which is started with the first submission."""

    def __init__(self) -> None:
        number = uuid4().int
        self.uid = WORKER_UIDS[number % len(WORKER_UIDS)]
        self._mark = f"{os.getpid()}-{number:x}"
        self._server: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._folder = ""
        self._rules: dict[str, Any] = {}
        """What a run may read, as long as the server lives."""
        self._given: dict[str, Any] = {}
        self._seconds = 0.0
        self._is_open = False
        self._finalizer: weakref.finalize[[subprocess.Popen[bytes]], Any] | None = None

    def open(self, given: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Opens a submission and lets a worker read it: how that ended, with the survey of its definitions."""
        self._given, self._seconds = given, seconds
        return self._twice(self._open)

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Runs one definition of the open submission and returns how that ended."""

        def run() -> dict[str, Any]:
            if not self._is_open:
                self._open()
            return self._exchange([request], seconds)

        return self._twice(run)

    def done(self) -> None:
        """Closes the submission; the server keeps no part of it."""
        if self._is_open:
            with suppress(_LostError):
                self._exchange([{"done": True}], START_SECONDS, left=0)
        self._given, self._is_open = {}, False

    def _twice(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The answer; from a fresh server if the first one is lost."""
        try:
            return work()
        except _LostError:
            pass
        try:
            return work()
        except _LostError as why:
            raise SandboxLostError(str(why)) from None

    def _open(self) -> dict[str, Any]:
        if self._server is None:
            self._start()
        conditions = {name: self._given[name] for name in CONDITIONS}
        source = {name: value for name, value in self._given.items() if name not in CONDITIONS}
        conditions |= {"uid": self.uid, **self._rules}
        answer = self._exchange([conditions, source], self._seconds)
        self._is_open = self._server is not None
        return answer

    def close(self) -> int:
        """Ends the server with all that it still runs, removes its folder and returns its exit code."""
        server, self._server, self._is_open = self._server, None, False
        if self._finalizer is not None:
            self._finalizer.detach()
        code = 0 if server is None else _end(server)
        if code != 0:
            _end_marked(f"{MARK}={self._mark}")
        if self._folder:
            remove_tree.remove(self._folder)
            self._folder = ""
        return code

    def _start(self) -> None:
        cache_bytecode()
        self._rules = read_rules()
        self._folder = tempfile.mkdtemp(prefix=f"puzzles-{os.getpid()}-", dir=_quick_folder())
        if os.getuid() == 0:
            os.chmod(self._folder, 0o711)  # or the run's user could not pass through
        try:
            self._server = subprocess.Popen(
                command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=self._folder,
                env={**environment(os.path.join(self._folder, RUN_FOLDER)), MARK: self._mark},
                start_new_session=True,
            )
        except OSError as why:  # no further process: the next file may have one
            self.close()
            raise _LostError(f"not started ({why.strerror})") from None
        self._finalizer = weakref.finalize(self, _end, self._server)
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._channel = Channel(self._server.stdin, self._server.stdout)

    def _exchange(self, messages: Iterable[dict[str, Any]], seconds: float, left: int | None = None) -> dict[str, Any]:
        """The answer to some messages. With `left`, that is the exit code with which a supervisor has to end now."""
        answer = self._answer(messages, seconds)
        if answer is None:
            raise _LostError(_words(self.close()))
        if answer.get("left", left) != left:  # the supervisor is lost, and the server ends with it
            self.close()
            raise _LostError(_words(int(answer["left"])))
        if not answer.get("usable", True):
            self.close()
        return answer

    def _answer(self, messages: Iterable[dict[str, Any]], seconds: float) -> dict[str, Any] | None:
        if self._server is None or self._channel is None:
            return None
        try:
            return self._channel.exchange(messages, seconds, MAX_ANSWER)
        except TimeoutError:
            self._server.kill()
        except (OSError, ValueError, RecursionError):
            pass
        return None


def _quick_folder() -> str | None:
    """A folder in memory, so that no run slows down the disk for others; None if there is none."""
    return SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) else None


def _end(server: subprocess.Popen[bytes]) -> int:
    assert server.stdin is not None
    assert server.stdout is not None
    with suppress(OSError):
        server.stdin.close()  # on which the server ends all runs, then itself
    try:
        code = server.wait(5.0)
    except subprocess.TimeoutExpired:
        server.kill()
        code = server.wait()
    server.stdout.close()
    return code


def end_words(ended: str, code: int) -> str:
    """Describes the end of a process: "exit" with a code, or "signal" with a number."""
    if ended == "exit":
        return f"ended with code {code}"
    try:
        return f"ended by {signal.Signals(code).name}"
    except ValueError:
        return f"ended by signal {code}"


def _words(code: int) -> str:
    """The same for an exit code as `subprocess` reports it."""
    return end_words("signal", -code) if code < 0 else end_words("exit", code)


def _end_marked(mark: str) -> None:
    """Kills processes that a killed server left behind, if they still have the server's environment."""
    if not os.path.isdir("/proc/self"):
        return
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            with open(f"/proc/{pid}/environ", "rb") as file:
                marked = mark.encode() in file.read()
            if marked:
                os.kill(int(pid), signal.SIGKILL)
