"""The line to a keeper: started when needed, asked with a deadline, given up when it is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

from . import protocol
from .limits import Limits
from .tiers import PATIENCE, Tier, command, environment, fences

LONGEST_ANSWER = 64 << 20
"""Bytes: a result of the longest size, escaped twice."""

GUESTS = range(61_184, 65_520)
"""User ids that belong to nobody: what systemd gives to services without a user of their own. One for each keeper,
because the system counts processes by user."""

MARK = "TRAINING_PUZZLES_RUN"


class Lost(Exception):
    """The keeper, or what it had at work, has gone or was too slow."""


class Line:
    """A keeper, which serves one submission after the other. It is started at the first question."""

    def __init__(self, tier: Tier, limits: Limits) -> None:
        self.tier = tier
        self.limits = limits
        number = uuid4().int
        self.guest = GUESTS[number % len(GUESTS)]
        self._mark = f"{os.getpid()}-{number:x}"
        self._keeper: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._at_the_end: weakref.finalize[[subprocess.Popen[bytes]], Any] | None = None

    def open(self, given: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Gives the keeper a submission; what it defines.

        Raises:
            Lost: Python itself broke on the file, or took too long.
        """
        if self._keeper is None:
            self._start()
        given = {**given, "guest": self.guest, "alone": self.tier.is_sandbox}
        return self.ask({**given, **({"readable": [], "hidden": []} if self.tier.is_sandbox else fences())}, seconds)

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The answer to a question about the submission that is open.

        Raises:
            Lost: there is none within so many seconds; the submission has to be opened again.
        """
        answer = self._exchange(request, seconds)
        if answer is None:
            raise Lost(how(self.close()))
        if "left" in answer:  # the warden of this submission has ended; the keeper can take the next
            raise Lost(how(int(answer["left"])))
        return answer

    def done(self) -> None:
        """The submission is done with: nothing of it is left."""
        if self._keeper is not None and (self._exchange({"done": True}, PATIENCE) or {}).get("left") != 0:
            self.close()

    def close(self) -> int:
        """Ends the keeper, and with it whatever still runs; removes the folder. The code that it ended with."""
        keeper, self._keeper = self._keeper, None
        if self._at_the_end is not None:
            self._at_the_end.detach()
        code = 0 if keeper is None else _end(keeper)
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
        self._keeper = subprocess.Popen(
            command(self.tier, self.limits),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={**environment(folder), MARK: self._mark},
            start_new_session=True,
        )
        self._at_the_end = weakref.finalize(self, _end, self._keeper)

    def _exchange(self, request: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        keeper = self._keeper
        if keeper is None:
            return None
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        bell = threading.Timer(seconds, keeper.kill)
        bell.daemon = True
        bell.start()
        try:
            protocol.send(keeper.stdin, request)
            return protocol.receive(keeper.stdout, LONGEST_ANSWER)
        except (OSError, ValueError, RecursionError):
            return None
        finally:
            bell.cancel()


def _end(keeper: subprocess.Popen[bytes]) -> int:
    with suppress(OSError):
        keeper.stdin.close()  # type: ignore[union-attr]  # a pipe; its keeper ends all runs, then itself
    code = _wait(keeper.wait, 5.0)
    if code is None:
        keeper.kill()
        code = keeper.wait()
    keeper.stdout.close()  # type: ignore[union-attr]  # as above
    return code


def _wait(wait: Callable[..., int], seconds: float) -> int | None:
    try:
        return wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None


def how(code: int) -> str:
    """How a process has ended, in words."""
    if code < 0:
        try:
            return f"ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"ended by signal {-code}"
    return f"ended with code {code}"


def _end_marked(mark: str) -> None:
    """Ends what a killed keeper left behind, as far as it still carries the keeper's environment."""
    if not os.path.isdir("/proc/self"):
        return
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            with open(f"/proc/{pid}/environ", "rb") as file:
                marked = mark.encode() in file.read()
            if marked:
                os.kill(int(pid), signal.SIGKILL)
