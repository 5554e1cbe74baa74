"""Starts a process for each device of a run, and passes every call of the run on to all of them.

Each process runs the same executor as in a program started by torchrun. Processes are forked, so that a class may be
defined anywhere, even in a notebook.
"""

import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from multiprocessing.connection import Connection, Pipe, wait
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from lib.engine.metering.meter import Reading
from lib.engine.transports.processes.control import GRACE_SECONDS
from lib.errors import RuleError

from .base import LaunchOptions
from .processes import ProcessExecutor, pickled
from .streams import every_input, rows_of


class ForkedExecutor:
    """The processes of a run. `make` makes a device's executor in its process, given the device's number and a shared
    folder."""

    def __init__(self, asked: LaunchOptions, make: Callable[[int, str], ProcessExecutor]) -> None:
        if not hasattr(os, "fork"):
            raise RuleError("this system cannot fork processes, as Linux and macOS do; start the program with torchrun")
        self.size, self.metered = asked.size, asked.metered
        self._until = None if asked.time_limit is None else monotonic() + asked.time_limit
        self._time_limit = asked.time_limit
        self._readings: tuple[Reading, ...] = ()
        self._ends: dict[Connection, int] = {}
        """The device at the other end of each connection."""
        self._processes: list[int] = []
        self._folder = TemporaryDirectory(prefix="engine-")
        sys.stdout.flush()
        sys.stderr.flush()
        for device in range(asked.size):
            ours, theirs = Pipe()
            with warnings.catch_warnings():  # about threads, which a child does not have: it uses none of this process
                warnings.simplefilter("ignore", DeprecationWarning)
                process = os.fork()
            if not process:
                for end in (ours, *self._ends):
                    end.close()
                _Server(theirs, partial(make, device, self._folder.name)).run()
            theirs.close()
            self._ends[ours] = device
            self._processes.append(process)
        self._answers("__init__")

    def call(self, method: str, arguments: Sequence[Any], lent: bool) -> list[Any]:
        return self._ask(method, [("call", method, argument, lent) for argument in arguments])

    def stream(self, inputs: Iterable[Any]) -> Generator[Any, None, None]:
        yield from rows_of(self._ask("inference_loop", [("loop", every_input(inputs))] * self.size))

    def readings(self) -> tuple[Reading, ...]:
        return self._readings

    def close(self, failed: bool) -> None:
        try:
            if not failed and self._ends:
                self._ask("close", [("close",)] * self.size)
        finally:
            self._end()

    def _ask(self, method: str, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
        try:
            for end, device in self._ends.items():
                end.send_bytes(pickle.dumps(requests[device]))
        except OSError:
            pass  # one has died, which is found out below
        return self._answers(method)

    def _answers(self, method: str) -> list[Any]:
        """The answers of all devices."""
        answers: dict[int, Any] = {}
        failures: dict[int, Any] = {}
        until = self._until
        try:
            while waiting := [end for end, device in self._ends.items() if device not in answers]:
                ready = wait(waiting, None if until is None else max(0.0, until - monotonic()))
                if not ready:
                    break
                for end in ready:
                    assert isinstance(end, Connection)
                    kind, content = self._heard(end, method)
                    answers[self._ends[end]] = content
                    if kind == "failed":
                        until = until if failures else monotonic() + 2 * GRACE_SECONDS
                        failures[self._ends[end]] = content
            if failures:
                raise pickle.loads(failures[min(failures)])
            if len(answers) < self.size:
                raise RuleError(
                    f"{method} did not end within {self._time_limit:g} seconds; allow more time with time_limit or "
                    "--time-limit"
                )
        except BaseException:
            self._end()
            raise
        self._readings = answers[0][1]
        return [answers[device][0] for device in range(self.size)]

    def _heard(self, end: Connection, method: str) -> tuple[str, Any]:
        try:
            heard: tuple[str, Any] = pickle.loads(end.recv_bytes())
            return heard
        except (EOFError, OSError):
            device = self._ends[end]
            _, status = os.waitpid(self._processes[device], 0)
            self._processes[device] = 0
            how = how_it_ended(os.waitstatus_to_exitcode(status))
            raise RuleError(f"device {device} of {self.size} has died in {method}: {how}") from None

    def _end(self) -> None:
        for end in self._ends:
            end.close()
        self._ends.clear()
        for process in filter(None, self._processes):
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        self._processes.clear()
        self._folder.cleanup()

    def __del__(self) -> None:
        self._end()


def how_it_ended(code: int) -> str:
    """Says how a process ended that sent no message, given its exit code."""
    name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
    how = f"{name} ended its process" if code < 0 else f"its process ended with exit code {code}"
    if -code == signal.SIGKILL:
        return f"{how}, as the system does when memory runs out; free some memory, or run fewer processes"
    return f"{how}, without a message; run it again"


class _Server:
    """Runs in each process: makes the executor and answers the parent's requests until the parent has ended."""

    def __init__(self, parent: Connection, make: Callable[[], ProcessExecutor]) -> None:
        self.parent, self.make = parent, make
        self.executor: Any = None

    def run(self) -> None:
        try:
            self.answer("make")
            while True:
                self.answer(*pickle.loads(self.parent.recv_bytes()))
        except (EOFError, OSError):
            pass  # the parent has gone
        finally:
            os._exit(0)

    def answer(self, asked: str, *given: Any) -> None:
        said: tuple[str, Any]
        try:
            result = getattr(self, f"do_{asked}")(*given)
            said = "returned", (result, self.executor.readings())
        except BaseException as why:
            said = "failed", pickled(why)
        self.parent.send_bytes(pickle.dumps(said))

    def do_make(self) -> None:
        self.executor = self.make()

    def do_call(self, method: str, argument: Any, lent: bool) -> Any:
        self.executor.call(method, [argument] * self.executor.size, lent)
        return self.executor.own_result

    def do_loop(self, inputs: Sequence[Any]) -> Any:
        self.executor.loop(inputs)
        return self.executor.own_result

    def do_close(self) -> None:
        self.executor.close(False)
