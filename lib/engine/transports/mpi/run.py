"""A run on MPI: every process runs the same program, and is one device. All get the results and errors of all."""

from __future__ import annotations

import pickle
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

from greenlet import getcurrent, greenlet

from lib.engine.metering.meter import Meter, Reading, current
from lib.engine.metering.numpy_patch import watching
from lib.engine.runs.device import Device, argument_for, unread_text
from lib.engine.runs.streams import Inputs, Output, Outputs
from lib.engine.transports.inprocess import end_greenlet
from lib.errors import PuzzleError, RuleError

try:
    from mpi4py import MPI
except ImportError as why:
    raise RuleError("this needs mpi4py and an MPI: pip install 'training-puzzles[mpi]'") from why

from .control import Stopped, Wire
from .port import MpiPort

AHEAD = 4
"""How many outputs of a stream for each device, one may be ahead of the others: enough to fill a pipeline."""

CLOSED = "closed"
"""How a device ends the call that closes a run: a call like others, or who still makes one would wait for ever."""


class MpiRun:
    """This process's device, and what it knows of the others."""

    def __init__(
        self,
        cls: type,
        size: int,
        args: Sequence[Any],
        kwargs: Any,
        metered: bool,
        patience: float,
        byte_time: Mapping[str, int],
    ) -> None:
        if size != MPI.COMM_WORLD.size:
            raise RuleError(
                f"there are {MPI.COMM_WORLD.size} processes for {size} devices; start the program with "
                f"'mpiexec -n {size} python ...'"
            )
        sys.excepthook = _told_once
        self.cls = cls
        self.size = size
        self.metered = metered
        self.wire = Wire(patience)
        self.port = MpiPort(self.wire, Meter(byte_time) if metered else None)
        self.device = Device(cls, self.port)
        self.outcomes: list[Any] = []
        self.own: BaseException | None = None
        """What this device has raised in the last call."""
        self.loop: Any = None
        self._run("__init__", lambda: self.device.make(args, kwargs))

    def _run(self, method: str, work: Callable[[], Any]) -> list[Any]:
        """Does this device's part of a call; the results of all."""
        state, told = self._attempt(method, work)
        return self._settled(self.wire.end(self._outcome(state, told)))

    def _attempt(self, method: str, work: Callable[[], Any]) -> tuple[str, Any]:
        """How this device's work ended: "returned" with its result, "failed" with its error, or "stopped"."""
        try:
            with watching(self.cls, self.metered):
                current.meter = self.port.meter
                return "returned", work()
        except Stopped:
            return "stopped", None
        except BaseException as why:
            if not isinstance(why, PuzzleError):
                why.add_note(f"raised on device {self.port.device} of {self.size}, in {method}")
            return "failed", why
        finally:
            current.meter = None

    def _outcome(self, state: str, told: Any) -> tuple[str, Any]:
        """The same for all devices to know, with what this one has used."""
        self.own = told if state == "failed" else None
        meter = self.port.meter
        reading = meter.reading() if meter is not None else None
        return state, (told if self.own is None else _packed(told), reading)

    def _settled(self, outcomes: Sequence[tuple[str, Any]]) -> list[Any]:
        """The results of all; or the error of one, its own if this device has one."""
        for device, (how, news) in enumerate(outcomes):
            if how == "failed":
                error: Any = self.own if device == self.port.device and self.own is not None else pickle.loads(news[0])
                error._device = device
                _given_up[0] = self.wire.given_up
                raise error
        closed = [how == CLOSED for how, _ in outcomes]
        if not any(closed):
            self.outcomes = [news[1] for _, news in outcomes]
        elif not all(closed):
            raise _of_all(
                RuleError(
                    f"device {closed.index(False)} calls this run, and device {closed.index(True)} closes it; "
                    "every process must make the same calls of a run"
                )
            )
        return [news[0] for _, news in outcomes]

    def call(self, method: str, arguments: Sequence[Any], lent: bool) -> list[Any]:
        box = [argument_for(arguments[self.port.device], lent, self.port.meter)]
        return self._run(method, lambda: self.device.call(method, box))

    def stream(self, inputs: Iterable[Any]) -> Generator[Any, None, None]:
        """Every process reads all inputs. This device's loop runs while somebody wants an output, from one input to
        the next; the outputs of the others come as news."""
        wire, sink = self.wire, Outputs(self.wire.stream(self.wire.number))
        self.loop = greenlet(lambda: self.device.loop(Inputs(inputs, 1), Output(wire.write)))
        self.port.hub = getcurrent()
        state, told = "returned", None
        while state == "returned" and not self.loop.dead:
            state, told = self._attempt("inference_loop", lambda: self._until_output(sink))
            yield from sink.take()
        wire.announce(self._outcome(state, told))
        while not wire.all_have_ended():
            wire.wait(lambda: wire.all_have_ended() or sink.is_ready(), "ended")
            yield from sink.take()
        self.port.hub = None
        self._settled(wire.outcomes())
        yield from sink.take(all_of_them=True)

    def _until_output(self, sink: Outputs) -> None:
        """Lets this device go on until an output is complete, or it has ended, or is far ahead of the others."""

        def comes() -> bool:
            self.wire.look("inference_loop")
            return sink.is_ready()

        while not self.loop.dead and not sink.is_ready():
            if len(sink.written[self.port.device]) < AHEAD * self.size:
                self.loop.switch()
            else:
                self.wire.wait(comes, "inference_loop")

    def readings(self) -> tuple[Reading, ...]:
        return tuple(self.outcomes)

    def close(self, failed: bool) -> None:
        if failed:
            return
        left = self.port.hub is not None
        if left:
            end_greenlet(self.loop)
            if not self.wire.ending:
                self.wire.announce(("left", None))
            self.wire.wait(self.wire.all_have_ended, "ended")
            self.port.hub = None
        else:
            self._settled(self.wire.end((CLOSED, (None, None))))
        unread = self.port.close()
        if unread and not left:
            raise _of_all(RuleError(unread_text(unread)))


def _of_all(error: Any) -> Any:
    """An error that every process has found; the first one prints it."""
    error._device = 0
    return error


_given_up = [False]
"""Whether a device did not end in time after another had failed."""


def _packed(error: BaseException) -> bytes:
    """An exception for the other devices, with the traceback as a note; one that cannot travel as its text."""
    where = "".join(traceback.format_exception(error))
    try:
        packed = pickle.dumps(error)
        copy = pickle.loads(packed)
    except Exception:
        copy = RuntimeError(f"{type(error).__name__}: {error}")
    for note in getattr(error, "__notes__", []):
        if note not in getattr(copy, "__notes__", []):
            copy.add_note(note)
    if not isinstance(error, PuzzleError):
        copy.add_note(where)
    return pickle.dumps(copy)


def _told_once(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Prints an error that ends the program: one that all devices have, on the device that raised it only.

    If the others have to be ended by force, whoever is first to do so prints it before: nobody else may get to.
    """
    device = getattr(error, "_device", None)
    if device in (None, MPI.COMM_WORLD.rank) or _given_up[0]:
        traceback.print_exception(kind, error, trace)
        sys.stderr.flush()
    if device is None or _given_up[0]:
        MPI.COMM_WORLD.Abort(1)  # the others do not know, or cannot hear
