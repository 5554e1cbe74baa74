"""Executors on processes: a program under mpiexec or torchrun, and processes that a launch starts for itself.

A program is SPMD, as in MPI: every process makes the same calls of a run and is one device. From a notebook, a launch
on torch starts a process for each device, which runs the same executor. They are no forks of the program, since CUDA
cannot be used in a fork of a process that has used it, and no new interpreters, which would each load torch for
seconds.

How processes agree on a call, and how a deadlock is found, is left to `processes`.
"""

import atexit
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections import ChainMap
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.machinery import PathFinder
from io import BytesIO
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.reduction import recv_handle, send_handle
from tempfile import TemporaryDirectory
from threading import Lock, get_ident
from time import monotonic
from traceback import StackSummary
from types import CodeType
from typing import Any

from lib.engine.devices import (
    Device,
    InputStream,
    LaunchOptions,
    OutputStream,
    OutputStreams,
    Written,
    argument_for,
    every_input,
    unread_text,
)
from lib.engine.metering import Meter, Reading, current, is_of_player, unmetered
from lib.engine.processes import GRACE_SECONDS, Carrier, ControlChannel, PeerFailedError, ProcessPort, SourceEndedError
from lib.errors import PuzzleError, RuleError, install_command

# --- The executor of processes: each runs the same program and is one device; all get all results and errors ---

_must_abort = [False]
"""True if a device did not end in time after another one had failed."""

TRACEBACK = "Its traceback, most recent call last:\n"


def packer() -> Any:
    """What pickles: cloudpickle where a run's class came by value, since exceptions and results may be of such classes
    too."""
    return sys.modules.get("cloudpickle", pickle)


def pickled(error: BaseException) -> bytes:
    """Pickles an exception for the other devices, with the player's lines of its traceback as a note. An exception that
    cannot be pickled is replaced by its text."""
    try:
        packed = packer().dumps(error)
        copy = pickle.loads(packed)
    except Exception:
        copy = RuntimeError(f"{type(error).__name__}: {error}")
    for note in _notes(error):
        if note not in _notes(copy):
            copy.add_note(note)
    if not isinstance(error, PuzzleError) and not any(note.startswith(TRACEBACK) for note in _notes(copy)):
        copy.add_note(_player_lines(error))
    packed = packer().dumps(copy)
    return bytes(packed)


def _notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


def _player_lines(error: BaseException) -> str:
    """The traceback on the device that raised an error, without the engine's frames."""
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if is_of_player(frame)]
    return "".join([TRACEBACK, *StackSummary.extract(frames).format()]).rstrip()


def marked(error: Any, device: int = 0, gave_up: bool = False) -> Any:
    """Marks an error that every process raises with the device that prints it. With `gave_up`, some process may never
    learn of the error, so the others have to abort it."""
    error._device = device
    _must_abort[0] = gave_up
    return error


def print_once_on(carrier: Carrier) -> Callable[[type[BaseException], BaseException, Any], None]:
    """A `sys.excepthook` for an error that ends the program. If all devices have the error, only its own device prints
    it.

    If the others have to be aborted, the first process to do so prints it, because no other may get the chance.
    """

    def print_once(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        device = getattr(error, "_device", None)
        if device in (None, carrier.data.rank) or _must_abort[0]:
            traceback.print_exception(kind, error, trace)
            sys.stderr.flush()
        if device is None or _must_abort[0]:
            carrier.abort()  # the others do not know about the error, or do not read their messages

    return print_once


CLOSED = "closed"
"""The state in which a device ends the call that closes a run. Closing is a call like any other, so that a process that
makes a different call at the same time does not wait forever."""


class ProcessExecutor:
    """The device of this process, and the outcomes of all devices."""

    def __init__(self, asked: LaunchOptions, carrier: Carrier, shares_results: bool = True) -> None:
        if shares_results:
            sys.excepthook = print_once_on(carrier)
        self.cls, self.size, self.metered = asked.cls, asked.size, asked.metered
        self.control = ControlChannel(asked.patience, carrier)
        self.port = ProcessPort(self.control, Meter(asked.byte_time) if asked.metered else None, carrier)
        self.device = Device(asked.cls, self.port)
        self._readings: list[Any] = []
        self.own_result: Any = None
        """The result or the error of this device in the last call. Others know a result only if it is shared."""
        self.shares_results = shares_results
        self._run("__init__", lambda: self.device.make(asked.args, asked.kwargs))

    def _run(self, method: str, work: Callable[[], Any]) -> list[Any]:
        """Runs this device's part of a call, and returns the results of all. To all devices it reports the state, the
        result or the pickled error, the meter's reading, and how many messages it has sent to each device."""
        state, self.own_result = self._run_here(method, work)
        meter = self.port.meter
        packed = pickled(self.own_result) if state == "failed" else self.own_result if self.shares_results else None
        report = packed, None if meter is None else meter.reading(), list(self.port.messages.sent)
        return self._results(self.control.finish_call((state, report)))

    def _run_here(self, method: str, work: Callable[[], Any]) -> tuple[str, Any]:
        """Runs this device's work. Returns "returned" with its result, "failed" with its error, or "stopped"."""
        state, result = "stopped", None
        try:
            with self.port.library.watched(self.cls, self.metered):
                current.run_here()
                self.port.thread = get_ident()
                current.meter = self.port.meter
                state, result = "returned", work()
        except PeerFailedError:
            pass
        except BaseException as why:
            if not isinstance(why, PuzzleError):
                why.add_note(f"raised on device {self.port.device} of {self.size}, in {method}")
            return "failed", why
        finally:
            current.meter = None
        return (state, result) if self.port.failure is None else ("failed", self.port.failure)

    def _results(self, outcomes: Sequence[tuple[str, Any]]) -> list[Any]:
        for device, (state, report) in enumerate(outcomes):
            if state == "failed":
                error = self.own_result if device == self.port.device else pickle.loads(report[0])
                raise marked(error, device, self.control.gave_up)
        closed = [state == CLOSED for state, _ in outcomes]
        if not any(closed):
            self._readings = [report[1] for _, report in outcomes]
        elif not all(closed):
            raise marked(
                RuleError(
                    f"device {closed.index(False)} calls this run, and device {closed.index(True)} closes it; "
                    "every process must make the same calls of a run"
                )
            )
        return [report[0] for _, report in outcomes]

    def call(self, method: str, arguments: Sequence[Any], lent: bool) -> list[Any]:
        box = [argument_for(arguments[self.port.device], lent, self.port)]
        return self._run(method, lambda: self.device.call(method, box))

    def stream(self, inputs: Iterable[Any]) -> Generator[Any, None, None]:
        yield from OutputStreams(self.loop(inputs)).take(all_of_them=True)

    def loop(self, inputs: Iterable[Any]) -> list[Written]:
        """Runs every device's inference loop to its end, in one call in which every process reads all inputs. Returns
        what each device has written."""
        asked = 0
        written: list[tuple[int, Any]] = []

        def asks() -> None:
            nonlocal asked
            asked += 1

        def keep(item: Any) -> None:
            self.port.yield_turn()
            written.append((asked, item))

        def work() -> Written:
            with unmetered():  # inputs are charged when the loop reads them
                source = InputStream(every_input(inputs), 1)
            with suppress(SourceEndedError):
                self.device.loop(source, asks, OutputStream(self.port, keep))
            return written

        self.port.ends_with_its_source = lambda: not asked
        try:
            return self._run("inference_loop", work)
        finally:
            self.port.ends_with_its_source = lambda: False

    def readings(self) -> tuple[Reading, ...]:
        return tuple(self._readings)

    def close(self, failed: bool) -> None:
        if failed:
            self.port.free()
            return
        self._results(self.control.finish_call((CLOSED, (None, None, ()))))
        unread = self.port.close()
        if unread:
            raise marked(RuleError(unread_text(unread)))


# --- Starts a process for each device of a run on torch, and passes every call of the run on to all of them ---
#
# Devices come from a nursery: a new Python process that loads torch once, never computes, and forks a device on
# request. So only the first launch of a program waits for torch to load. A device gets its class by value where it
# cannot import it, as from a notebook (cloudpickle).

TOP = __name__.partition(".")[0]
"""The package of this module, which a new process imports from the same place."""

CARRIER = "lib.engine.torch"
"""What the nursery loads for its devices."""


class Nursery:
    """The process from which devices are forked; there is one for each process that launches."""

    def __init__(self) -> None:
        self.parent, self.lock = os.getpid(), Lock()
        self.connection, theirs = Pipe()
        path = [os.path.abspath(place) for place in (import_module(TOP).__path__[0] + "/..", *sys.path)]
        code = f"import sys; sys.path[:] = {path!r}; from {__name__} import nurse; nurse({theirs.fileno()})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
        theirs.close()
        atexit.register(self.end)

    def ask(self, kind: str, content: Any, ends: Sequence[int] = ()) -> Any:
        """The answer to a request. A "fork" comes with the device's `ends`: its output, its errors and its parent."""
        with self.lock:
            try:
                self.connection.send((kind, content))
                for end in ends:
                    send_handle(self.connection, end, self.process.pid)
                return self.connection.recv()
            except (EOFError, OSError):
                raise RuleError("the process that starts devices has ended; launch again") from None

    def end(self) -> None:
        self.connection.close()
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


def nurse(number: int) -> None:
    """Runs in the nursery: forks devices, and says how they ended, until the program has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the program, which ends its devices
    ours = Connection(number)
    import_module(CARRIER)
    while True:
        try:
            kind, content = ours.recv()
        except (EOFError, OSError):
            return
        answer: Any = None
        match kind:
            case "load":
                import_module(content)
            case "fork":
                out, error, parent = ends = [recv_handle(ours) for _ in range(3)]
                answer = os.fork()
                if not answer:
                    ours.close()
                    _become_device(out, error, parent, *content)
                for end in ends:
                    os.close(end)
            case "ended":
                answer = os.waitstatus_to_exitcode(os.waitpid(content, 0)[1])
        ours.send(answer)


def _become_device(
    out: int, error: int, parent: int, environment: Mapping[str, str], folder: str, packed: bytes, store: str
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(out, 1)
    os.dup2(error, 2)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    _serve(Connection(parent), packed, store)


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
            process = self._nursery.ask("fork", start, [1, 2, theirs.fileno()])
            theirs.close()
            self._ends[ours] = number
            self._processes.append(process)
        self._answers("__init__")

    def call(self, method: str, arguments: Sequence[Any], lent: bool) -> list[Any]:
        return self._ask(method, [("call", method, [argument] * self.size, lent) for argument in arguments])

    def stream(self, inputs: Iterable[Any]) -> Generator[Any, None, None]:
        written = self._ask("inference_loop", [("loop", every_input(inputs))] * self.size)
        yield from OutputStreams(written).take(all_of_them=True)

    def readings(self) -> tuple[Reading, ...]:
        return self._readings

    def close(self, failed: bool) -> None:
        try:
            if not failed and self._ends:
                self._ask("close", [("close", False)] * self.size)
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


def _serve(parent: Connection, packed: bytes, store: str) -> None:
    """Runs in each process: makes the executor and answers the parent's requests until the parent has ended."""
    executor: Any = None
    asked, given = "make", list[Any]()
    try:
        while True:
            said: tuple[str, Any]
            try:
                if executor is None:
                    options, device = pickle.loads(packed)
                    carrier = import_module(CARRIER).TorchCarrier(options.size, device, store)
                    executor = ProcessExecutor(options, carrier, shares_results=False)
                else:
                    getattr(executor, asked)(*given)
                said = "returned", (None if asked == "close" else executor.own_result, executor.readings())
            except BaseException as why:
                said = "failed", pickled(why)
            parent.send_bytes(packer().dumps(said))
            asked, *given = pickle.loads(parent.recv_bytes())
    except (EOFError, OSError):
        pass  # the parent has gone
    finally:
        os._exit(0)
