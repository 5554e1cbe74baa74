"""The executor of processes: each runs the same program and is one device; all get everyone's results and errors.

A program is SPMD, as in MPI: every process makes the same calls of a run, and no process is special.
"""

import pickle
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from threading import get_ident
from traceback import StackSummary
from typing import Any

from lib.engine.metering.meter import Meter, Reading, current, unmetered
from lib.engine.player_code import is_of_player
from lib.engine.transports.processes.carrier import Carrier
from lib.engine.transports.processes.control import ControlChannel, PeerFailedError, SourceEndedError
from lib.engine.transports.processes.port import ProcessPort
from lib.errors import PuzzleError, RuleError

from .base import Device, LaunchOptions, unread_text
from .copies import argument_for
from .streams import InputStream, OutputStream, Written, every_input, rows_of

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
        self.own_error: BaseException | None = None
        self.own_result: Any = None
        """The result of this device in the last call. The others have it only if it `shares_results`."""
        self.shares_results = shares_results
        self._run("__init__", lambda: self.device.make(asked.args, asked.kwargs))

    def _run(self, method: str, work: Callable[[], Any]) -> list[Any]:
        """Runs this device's part of a call, and returns the results of all."""
        return self._results(self.control.finish_call(self._outcome(*self._run_here(method, work))))

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

    def _outcome(self, state: str, result: Any) -> tuple[str, Any]:
        """The report to all devices: the state, the result or the pickled error, the meter's reading, and how many
        messages this device has sent to each device."""
        self.own_error = result if state == "failed" else None
        self.own_result = result if state == "returned" else None
        meter = self.port.meter
        reading = meter.reading() if meter is not None else None
        return state, (
            pickled(result) if self.own_error is not None else result if self.shares_results else None,
            reading,
            list(self.port.messages.sent),
        )

    def _results(self, outcomes: Sequence[tuple[str, Any]]) -> list[Any]:
        for device, (state, report) in enumerate(outcomes):
            if state == "failed":
                self._raise_error_of(device, report[0])
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

    def _raise_error_of(self, device: int, packed: bytes) -> None:
        is_own = device == self.port.device and self.own_error is not None
        error: Any = self.own_error if is_own else pickle.loads(packed)
        raise marked(error, device, self.control.gave_up)

    def call(self, method: str, arguments: Sequence[Any], lent: bool) -> list[Any]:
        box = [argument_for(arguments[self.port.device], lent, self.port)]
        return self._run(method, lambda: self.device.call(method, box))

    def stream(self, inputs: Iterable[Any]) -> Generator[Any, None, None]:
        yield from rows_of(self.loop(inputs))

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
