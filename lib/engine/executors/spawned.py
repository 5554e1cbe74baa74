"""Starts a process for each device of a run on torch, and passes every call of the run on to all of them.

Each process runs the same executor as in a program started by torchrun. No process is a fork of the program, since CUDA
cannot be used in a fork of a process that has used it, as every notebook has. Devices come from a nursery: a new Python
process that loads torch once, never computes, and forks a device on request. So only the first launch of a program
waits for torch to load. A device gets its class by value where it cannot import it, as from a notebook (cloudpickle).
"""

import atexit
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections import ChainMap
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.machinery import PathFinder
from io import BytesIO
from multiprocessing.connection import Connection, Pipe, wait
from tempfile import TemporaryDirectory
from threading import Lock
from time import monotonic
from types import CodeType
from typing import Any

from lib.engine.metering.meter import Reading
from lib.engine.transports.processes.control import GRACE_SECONDS
from lib.errors import RuleError
from lib.extras import install_command

from .base import LaunchOptions
from .processes import ProcessExecutor, packer, pickled
from .streams import every_input, rows_of

TOP = __name__.partition(".")[0]
"""The package of this module, which a new process imports from the same place."""

CARRIER = "lib.engine.transports.distributed.carrier"
"""What the nursery loads for its devices."""


class Nursery:
    """The process from which devices are forked; there is one for each process that launches."""

    def __init__(self) -> None:
        self.parent, self.lock = os.getpid(), Lock()
        self.socket, theirs = socket.socketpair()
        path = [os.path.abspath(place) for place in (import_module(TOP).__path__[0] + "/..", *sys.path)]
        code = f"import sys; sys.path[:] = {path!r}; from {__name__} import nurse; nurse({theirs.fileno()})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
        theirs.close()
        atexit.register(self.end)

    def ask(self, kind: str, content: Any, ends: Sequence[int] = ()) -> Any:
        with self.lock:
            request = pickle.dumps((kind, content))
            socket.send_fds(self.socket, [len(request).to_bytes(8, "little")], [1, 2, *ends])
            self.socket.sendall(request)
            answer = _received(self.socket)
        if answer is None:
            raise RuleError("the process that starts devices has ended; launch again")
        return pickle.loads(answer)

    def end(self) -> None:
        self.socket.close()
        if self.parent == os.getpid():
            self.process.wait()


_nurseries: list[Nursery] = []


def nursery() -> Nursery:
    if not _nurseries or _nurseries[0].parent != os.getpid() or _nurseries[0].process.poll() is not None:
        _nurseries[:] = [Nursery()]
    return _nurseries[0]


def load_once(module: str) -> None:
    """Loads a module for all devices that are launched later, since this may take seconds."""
    nursery().ask("load", module)


def _received(end: socket.socket) -> bytes | None:
    """The next message of the nursery; None if there is none any more."""
    try:
        head = end.recv(8, socket.MSG_WAITALL)
        return end.recv(int.from_bytes(head, "little"), socket.MSG_WAITALL) if len(head) == 8 else None
    except OSError:
        return None


def nurse(number: int) -> None:
    """Runs in the nursery: forks devices, and says how they ended, until the program has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the program, which ends its devices
    ours = socket.socket(fileno=number)
    import_module(CARRIER)
    while True:
        head, ends, _, _ = socket.recv_fds(ours, 8, 3)
        if len(head) < 8:
            return
        kind, content = pickle.loads(ours.recv(int.from_bytes(head, "little"), socket.MSG_WAITALL))
        answer: Any = None
        match kind:
            case "load":
                import_module(content)
            case "fork":
                answer = os.fork()
                if not answer:
                    ours.close()
                    out, error, parent = ends
                    _become_device(out, error, parent, *content)
            case "ended":
                answer = os.waitstatus_to_exitcode(os.waitpid(content, 0)[1])
        for end in ends:
            os.close(end)
        packed = pickle.dumps(answer)
        ours.sendall(len(packed).to_bytes(8, "little") + packed)


def _become_device(
    out: int, error: int, parent: int, environment: Mapping[str, str], folder: str, packed: bytes, store: str
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(out, 1)
    os.dup2(error, 2)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    _Server(Connection(parent), packed, store).run()


def packed_run(asked: LaunchOptions, device: str) -> bytes:
    """A run for its devices: classes and functions by value if no new process could import them."""
    try:
        import cloudpickle  # here, because it is optional
    except ImportError as why:
        raise RuleError(f"this needs cloudpickle: {install_command('torch')}") from why

    module = sys.modules.get(asked.cls.__module__)
    hidden = [module] if module is not None and module.__name__ != "__main__" and not _is_found(module) else []
    for one in hidden:
        cloudpickle.register_pickle_by_value(one)
    try:
        table = cloudpickle.Pickler.dispatch_table
        named = ChainMap({CodeType: partial(_with_its_file, table[CodeType])}, table)
        buffer = BytesIO()
        type("Pickler", (cloudpickle.Pickler,), {"dispatch_table": named})(buffer).dump((asked, device))
        return buffer.getvalue()
    except Exception as why:
        raise RuleError(f"{asked.cls.__name__} cannot be sent to the processes of its devices: {why}") from why
    finally:
        for one in hidden:
            cloudpickle.unregister_pickle_by_value(one)


def _with_its_file(reduced: Callable[[CodeType], Any], code: CodeType) -> Any:
    """Code by value keeps the name of its file, which tracebacks and refusals show."""
    return _renamed, (reduced(code)[1], code.co_filename)


def _renamed(fields: Sequence[Any], file: str) -> CodeType:
    return CodeType(*fields).replace(co_filename=file)


def _is_found(module: Any) -> bool:
    """Whether a new process would import the same file under this name."""
    path: Any = None
    name = ""
    for part in module.__name__.split("."):
        name = f"{name}.{part}" if name else part
        spec = PathFinder.find_spec(name, path)
        if spec is None:
            return False
        path = spec.submodule_search_locations
    return spec is not None and spec.origin == getattr(module, "__file__", None)


class SpawnedExecutor:
    """The processes of a run, whose tensors are on `device` (cpu or cuda)."""

    def __init__(self, asked: LaunchOptions, device: str) -> None:
        if not hasattr(os, "fork"):
            raise RuleError("this system cannot fork processes, as Linux and macOS do; start the program with torchrun")
        self.size, self.metered = asked.size, asked.metered
        self._until = None if asked.time_limit is None else monotonic() + asked.time_limit
        self._time_limit = asked.time_limit
        self._readings: tuple[Reading, ...] = ()
        self._ends: dict[Connection, int] = {}
        """The device at the other end of each connection."""
        self._processes: list[int] = []
        packed, self._nursery = packed_run(asked, device), nursery()
        self._folder = TemporaryDirectory(prefix="engine-")
        sys.stdout.flush()
        sys.stderr.flush()
        for number in range(asked.size):
            ours, theirs = Pipe()
            names = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": asked.size, "LOCAL_WORLD_SIZE": asked.size}
            environment = {**os.environ, **{name: str(value) for name, value in names.items()}}
            start = environment, os.getcwd(), packed, f"{self._folder.name}/store"
            process = self._nursery.ask("fork", start, [theirs.fileno()])
            theirs.close()
            self._ends[ours] = number
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
                end.send_bytes(packer().dumps(requests[device]))
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
            how = how_it_ended(self._nursery.ask("ended", self._processes[device]))
            self._processes[device] = 0
            raise RuleError(f"device {device} of {self.size} has died in {method}: {how}") from None

    def _end(self) -> None:
        for end in self._ends:
            end.close()
        self._ends.clear()
        for process in filter(None, self._processes):
            os.kill(process, signal.SIGKILL)
            self._nursery.ask("ended", process)
        self._processes.clear()
        self._folder.cleanup()

    def __del__(self) -> None:
        if hasattr(self, "_folder"):  # otherwise it was refused before anything started
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

    def __init__(self, parent: Connection, packed: bytes, store: str) -> None:
        self.parent, self.packed, self.store = parent, packed, store
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
        self.parent.send_bytes(packer().dumps(said))

    def do_make(self) -> None:
        asked, device = pickle.loads(self.packed)
        carrier = import_module(CARRIER).TorchCarrier(asked.size, device, self.store)
        self.executor = ProcessExecutor(asked, carrier, shares_results=False)

    def do_call(self, method: str, argument: Any, lent: bool) -> Any:
        self.executor.call(method, [argument] * self.executor.size, lent)
        return self.executor.own_result

    def do_loop(self, inputs: Sequence[Any]) -> Any:
        self.executor.loop(inputs)
        return self.executor.own_result

    def do_close(self) -> None:
        self.executor.close(False)
