"""The line to a keeper: started when needed, asked with a deadline, started again if it was lost."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from .inside import frames
from .limits import Limits
from .sandbox import PACKAGES, PATIENCE, Tier, best, command, environment
from .submission import Submission

LONGEST_ANSWER = 32 << 20
"""Bytes: a result of the longest size, escaped twice."""

GUESTS = range(61_184, 65_520)
"""User ids that belong to nobody: what systemd gives to services without a user of their own. One for each session,
because the system counts processes by user."""

MARK = "TRAINING_PUZZLES_RUN"


class Lost(Exception):
    """The keeper has gone, or was too slow."""


class Session:
    """One submission and its keeper. To be used with `with`."""

    def __init__(self, submission: Submission, limits: Limits = Limits(), tier: Tier | None = None) -> None:  # noqa: B008  # frozen
        self.submission = submission
        self.limits = limits
        self.tier = tier or best()
        self.survey: dict[str, Any] | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._number = uuid4().int
        self._mark = f"{os.getpid()}-{self._number:x}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def read(self) -> dict[str, Any]:
        """What the submission defines, by the keeper's reading.

        Raises:
            Lost: Python itself broke on the file, or took too long.
        """
        if self.survey is None:
            self._start()
        assert self.survey is not None
        return self.survey

    def run(self, slug: str, size: tuple[int, int, int], left: float) -> dict[str, Any]:
        """How the run of one function at one size ended, and what it sent and printed.

        Raises:
            Lost: the keeper did not survive it.
        """
        self.read()
        if self._keeper is None:
            self._start()
        request = {"slug": slug, "size": list(size), "left": left, "packages": PACKAGES}
        return self._ask(request, left + PATIENCE)

    def _start(self) -> None:
        if self._folder is None and not self.tier.is_sandbox:
            self._folder = tempfile.TemporaryDirectory(prefix="puzzles-", ignore_cleanup_errors=True)
        folder = self._folder.name if self._folder else None
        self._keeper = subprocess.Popen(
            command(self.tier, self.limits),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder or "/",
            env={**environment(folder or "/"), MARK: self._mark},
            start_new_session=True,
        )
        guest = GUESTS[self._number % len(GUESTS)]
        given = {**self.submission.as_given(), "limits": self.limits._asdict(), "guest": guest}
        self.survey = self._ask(given, PATIENCE + self.limits.seconds)

    def _ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        keeper = self._keeper
        assert keeper is not None
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        bell = threading.Timer(seconds, keeper.kill)
        bell.daemon = True
        bell.start()
        try:
            frames.send(keeper.stdin, request)
            answer = frames.receive(keeper.stdout, LONGEST_ANSWER)
        except (OSError, ValueError, RecursionError):
            answer = None
        finally:
            bell.cancel()
        if answer is None:
            code = self._end()
            raise Lost(_how(code))
        return answer

    def close(self) -> None:
        """Ends the keeper, and with it whatever still runs; removes the folder."""
        self._end()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _end(self) -> int:
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return 0
        with suppress(OSError):
            keeper.stdin.close()  # type: ignore[union-attr]  # a pipe; its keeper ends all runs, then itself
        code = _wait(keeper.wait, 5.0)
        if code is None:
            keeper.kill()
            code = keeper.wait()
        keeper.stdout.close()  # type: ignore[union-attr]  # as above
        if code != 0 and not self.tier.is_sandbox:
            _end_marked(f"{MARK}={self._mark}")
        return code


def _wait(wait: Callable[..., int], seconds: float) -> int | None:
    try:
        return wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None


def _how(code: int) -> str:
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
