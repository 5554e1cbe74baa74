"""Client for systems that cannot fork: instead of a server, it starts a process for each survey and each run."""

import os
import subprocess
import tempfile
import threading
from contextlib import suppress
from time import monotonic
from typing import IO, Any

from puzzles.sandbox.worker.output import MAX_SHOWN_OUTPUT

from . import protocol
from .start import ONESHOT_PROGRAM, START_SECONDS, command, environment
from .visible_files import hidden_paths

MAX_SURVEY = 64 << 20
"""Bytes."""


class OneshotClient:
    """Same interface as `SandboxClient`."""

    def __init__(self) -> None:
        self._given: dict[str, Any] = {}

    def open(self, given: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Opens a submission and lets a process read it: how that ended, with the survey of its definitions."""
        self._given = {**given, "hidden": hidden_paths()}
        return self._text(self._run(None, seconds, MAX_SURVEY))

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Runs one definition: how that ended, and what it sent and printed."""
        return self._text(self._run(request, min(seconds, request["left"] + START_SECONDS / 10), request["longest"]))

    def _text(self, answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "result": answer.pop("raw").decode(errors="replace")}

    def done(self) -> None:
        """Does nothing: no process outlives its run."""

    def close(self) -> int:
        """Does nothing, as above; the exit code means success."""
        return 0

    def _run(self, request: dict[str, Any] | None, seconds: float, longest: int) -> dict[str, Any]:
        """Starts a process for one request, waits for it for `seconds`, and reports its end.

        A run's seconds begin when the process reports that it has started, for without compiled modules that is slow.
        """
        with tempfile.TemporaryDirectory(prefix="puzzles-", ignore_cleanup_errors=True) as folder:
            process = self._start(folder)
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            result = PipeReader(process.stdout, longest, longest, process)
            most = self._given["limits"]["output"]
            output = PipeReader(process.stderr, most, MAX_SHOWN_OUTPUT, process)
            with suppress(OSError):
                protocol.send(process.stdin, {**self._given, "request": request})
            if request is not None:
                result.begun.wait(START_SECONDS)
            begin = monotonic()
            ended, code = "exit", 0
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                ended = "time"
            end_tree(process)
            with suppress(OSError):
                process.stdin.close()
            for reader in (result, output):
                reader.join(START_SECONDS)
        if result.flooded or output.flooded:
            ended, code = ("result", longest) if result.flooded else ("output", most)
        elif code < 0 and ended == "exit":
            ended, code = "signal", -code
        took = monotonic() - begin
        text = output.kept.decode(errors="replace")
        return {"ended": ended, "code": code, "took": took, "printed": output.read, "output": text, "raw": result.kept}

    def _start(self, folder: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command(ONESHOT_PROGRAM),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=environment(folder),
            start_new_session=True,
        )


class PipeReader(threading.Thread):
    """Reads a pipe to its end, keeps the beginning, and ends the process when there is too much."""

    def __init__(self, pipe: IO[bytes], most: int, keep: int, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self.pipe = pipe
        self.most = most
        self.keep = keep
        self.process = process
        self.kept = b""
        self.read = 0
        self.begun = threading.Event()
        """Set with the first bytes, or at the end."""
        self.start()

    @property
    def flooded(self) -> bool:
        return self.read > self.most

    def run(self) -> None:
        with self.pipe, suppress(OSError, ValueError):
            while data := os.read(self.pipe.fileno(), 1 << 16):
                self.begun.set()
                self.read += len(data)
                self.kept = (self.kept + data)[: self.keep]
                if self.flooded:
                    end_tree(self.process)
                    break
        self.begun.set()


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
