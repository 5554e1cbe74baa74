"""The line of a system that cannot fork: no keeper, but a process for each survey and each run."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from contextlib import suppress
from io import BytesIO
from time import monotonic
from typing import Any, BinaryIO

from puzzles.sandbox.worker.output import SHOWN

from . import protocol
from .client import Lost, how
from .limits import Limits
from .tiers import PATIENCE, SINGLE, Tier, command, environment, hidden

SURVEY = 8 << 20
"""Bytes that a survey may have."""


class SingleLine:
    """To a session the same as `Line`."""

    def __init__(self, tier: Tier, limits: Limits) -> None:
        self.tier = tier
        self.limits = limits
        self._given: dict[str, Any] = {}

    def open(self, given: dict[str, Any], seconds: float) -> dict[str, Any]:
        """What a submission defines.

        Raises:
            Lost: Python itself broke on the file, or took too long.
        """
        self._given = {**given, "hidden": hidden()}
        done = self._run(None, seconds, SURVEY)
        with suppress(ValueError, RecursionError):
            survey = protocol.receive(BytesIO(done["raw"]))
            if survey is not None and done["ended"] == "exit":
                return survey
        raise Lost(how(done["code"]) if done["ended"] == "exit" else "too slow")

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """How one run ended, and what it sent and printed."""
        done = self._run(request, min(seconds, request["left"] + PATIENCE / 10), request["longest"])
        return {**done, "result": done.pop("raw").decode(errors="replace")}

    def done(self) -> None:
        """Nothing is kept between runs."""

    def close(self) -> int:
        return 0

    def _run(self, request: dict[str, Any] | None, seconds: float, longest: int) -> dict[str, Any]:
        begin = monotonic()
        with tempfile.TemporaryDirectory(prefix="puzzles-", ignore_cleanup_errors=True) as folder:
            process = subprocess.Popen(
                command(self.tier, self.limits, SINGLE),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                env=environment(folder),
                start_new_session=True,
            )
            assert process.stdin is not None
            result = Reader(process.stdout, longest, longest, process)  # type: ignore[arg-type]  # pipes, both
            output = Reader(process.stderr, self.limits.output, SHOWN, process)  # type: ignore[arg-type]
            with suppress(OSError):
                protocol.send(process.stdin, {**self._given, "request": request})  # type: ignore[arg-type]  # a pipe
            ended, code = "exit", 0
            try:
                code = process.wait(max(0.01, begin + seconds - monotonic()))
            except subprocess.TimeoutExpired:
                ended = "time"
            end_tree(process)
            with suppress(OSError):
                process.stdin.close()
            for reader in (result, output):
                reader.join(PATIENCE)
        if result.flooded or output.flooded:
            ended, code = ("result", longest) if result.flooded else ("output", self.limits.output)
        elif code < 0 and ended == "exit":
            ended, code = "signal", -code
        took = monotonic() - begin
        text = output.kept.decode(errors="replace")
        return {"ended": ended, "code": code, "took": took, "printed": output.read, "output": text, "raw": result.kept}


class Reader(threading.Thread):
    """Reads a pipe to its end, keeps the beginning, and ends the process when there is too much."""

    def __init__(self, pipe: BinaryIO, most: int, keep: int, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self.pipe = pipe
        self.most = most
        self.keep = keep
        self.process = process
        self.kept = b""
        self.read = 0
        self.start()

    @property
    def flooded(self) -> bool:
        return self.read > self.most

    def run(self) -> None:
        with self.pipe, suppress(OSError, ValueError):
            while data := os.read(self.pipe.fileno(), 1 << 16):
                self.read += len(data)
                self.kept = (self.kept + data)[: self.keep]
                if self.flooded:
                    end_tree(self.process)
                    return


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and, as far as the system knows them, those that it has started."""
    if os.name == "nt":
        words = ["taskkill", "/F", "/T", "/PID", str(process.pid)]
        subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    else:
        with suppress(OSError):
            os.killpg(process.pid, 9)
    with suppress(OSError):
        process.kill()
    process.wait()
