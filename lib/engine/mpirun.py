"""A run on MPI: every process runs the same program, and is one device. All get the results and errors of all."""

from __future__ import annotations

import pickle
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import PuzzleError, RuleError
from .device import Device, argument_for, unread_text
from .meter import Meter, Reading, current
from .streams import Inputs, Outputs
from .watching import watching

try:
    from mpi4py import MPI
except ImportError as why:
    raise RuleError("this needs mpi4py and an MPI: pip install 'training-puzzles[mpi]'") from why

from .mpi import MpiPort
from .wire import Stopped, Wire


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
        self._run("__init__", lambda: self.device.make(args, kwargs))

    def _run(self, method: str, work: Any) -> list[Any]:
        """Does this device's part of a call; the results of all."""
        meter = self.port.meter
        own: BaseException | None = None
        result: Any = None
        try:
            with watching(self.cls, self.metered):
                current.meter = meter
                result = work()
            state = "returned"
        except Stopped:
            state = "stopped"
        except BaseException as why:
            state, own = "failed", why
            if not isinstance(why, PuzzleError):
                why.add_note(f"raised on device {self.port.device} of {self.size}, in {method}")
        finally:
            current.meter = None
        told = _packed(own) if own is not None else result
        outcomes = self.wire.end((state, (told, meter.reading() if meter is not None else None)))
        for device, (how, news) in enumerate(outcomes):
            if how == "failed":
                error: Any = own if device == self.port.device and own is not None else pickle.loads(news[0])
                error._device = device
                _given_up[0] = self.wire.given_up
                raise error
        self.outcomes = [news[1] for _, news in outcomes]
        return [news[0] for _, news in outcomes]

    def call(self, method: str, arguments: Sequence[Any], lent: bool) -> list[Any]:
        box = [argument_for(arguments[self.port.device], lent, self.port.meter)]
        return self._run(method, lambda: self.device.call(method, box))

    def stream(self, inputs: Iterable[Any]) -> Iterator[Any]:
        """The outputs come when the stream has ended: every process reads all of it."""
        sink = Outputs(self.size)

        def work() -> list[Any]:
            self.device.loop(Inputs(inputs, 1), sink)
            return sink.written[self.port.device]

        sink.written = self._run("inference_loop", work)
        yield from sink.take(all_of_them=True)

    def readings(self) -> tuple[Reading, ...]:
        return tuple(self.outcomes)

    def close(self, failed: bool) -> None:
        if failed:
            return
        unread = self.port.close()
        if unread:
            raise RuleError(unread_text(unread))


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
