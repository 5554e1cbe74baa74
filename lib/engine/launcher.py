"""Runs a player's class on several devices: `with launch(DataParallel, num_devices=4, ...) as run:`."""

from __future__ import annotations

import os
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

from lib.engine.metering.meter import Reading
from lib.engine.runs.device import NOTHING
from lib.engine.runs.local import LocalRun
from lib.errors import PuzzleError, RuleError

from .call import members_of, whole
from .engine import ShardedEngine

TRANSPORTS = ("inprocess", "mpi")

WORLD_SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS")
"""What the process managers of Open MPI, MPICH and Slurm tell their processes."""


class Runs(Protocol):
    """What a transport does for a run."""

    size: int
    metered: bool

    def call(self, method: str, arguments: Sequence[Any], lent: bool) -> list[Any]:
        """Calls a method on every device with its argument; the results, in the order of the devices."""
        ...

    def stream(self, inputs: Iterable[Any]) -> Generator[Any, None, None]: ...
    def readings(self) -> tuple[Reading, ...]: ...
    def close(self, failed: bool) -> None: ...


class Run:
    """A model that is running on its devices. Inputs are a list with one for each device, or one for all; results
    are lists in the order of the devices, copies of their own."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._ended = ""
        self._failed = False
        self._stream: Generator[Any, None, None] | None = None

    @property
    def num_devices(self) -> int:
        return self._runs.size

    @property
    def meters(self) -> tuple[Reading, ...]:
        """What each device has used so far; on MPI, up to the last call that has returned.

        Raises:
            RuleError: the run is not metered.
        """
        if not self._runs.metered:
            raise RuleError("this run is not metered; launch it with metered=True")
        return self._runs.readings()

    def load_checkpoint(self, params: Mapping[str, Any]) -> None:
        """Gives every device the whole model's parameters to copy its part from. Lent: not charged unless kept."""
        self._call("load_checkpoint", [params] * self.num_devices, lent=True)

    def forward(self, x: Any) -> list[Any]:
        """Every device's output, for an input of each or one for all."""
        return self._call("forward", self._each(x))

    def backward(self, grads: Any) -> list[Any]:
        """What every device's backward returns, for an output gradient of each or one for all."""
        return self._call("backward", self._each(grads))

    def call(self, method: str, *argument: Any) -> list[Any]:
        """What another method of the class returns on every device. Its argument as for `forward`; or none."""
        if len(argument) > 1:
            raise RuleError(f"{method} is called with one argument at most; put several into a dictionary")
        return self._call(method, self._each(argument[0]) if argument else [NOTHING] * self.num_devices)

    def inference_loop(self, stream: Iterable[Any]) -> Iterator[Any]:
        """The outputs for a stream of inputs, in its order, as they come: the stream may be endless. If one device
        writes an output, that; if several do, a list with one for each device. On MPI every process reads the stream
        and gets all outputs."""
        self._unless_ended()
        self._stream = outputs = self._runs.stream(stream)
        try:
            yield from outputs
        except GeneratorExit:
            self._ended = "its stream was left before the end"
            raise
        except BaseException as why:
            self._fail(why)
            raise
        finally:
            self._stream = None

    def _each(self, x: Any) -> list[Any]:
        if not isinstance(x, (list, tuple)):
            return [x] * self.num_devices
        if len(x) != self.num_devices:
            raise RuleError(
                f"there are {len(x)} inputs for {self.num_devices} devices; give a list with one for each, "
                "or one array for all"
            )
        return list(x)

    def _call(self, method: str, arguments: Sequence[Any], lent: bool = False) -> list[Any]:
        self._unless_ended()
        try:
            return self._runs.call(method, arguments, lent)
        except BaseException as why:
            self._fail(why)
            raise

    def _fail(self, why: BaseException) -> None:
        self._ended = f"of {type(why).__name__}: {why}"
        self._failed = True

    def _unless_ended(self) -> None:
        if self._ended:
            raise RuleError(f"this run has ended; launch a new one. It ended because {self._ended}")
        if self._stream is not None:
            raise RuleError("a stream of this run is still open; take all its outputs first")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()
        self._ended = self._ended or "it was closed"
        self._runs.close(failed=kind is not None or self._failed)


def launch(
    cls: type,
    num_devices: int = 1,
    *args: Any,
    on: str | None = None,
    metered: bool = True,
    patience: float = 10.0,
    late_puts: Collection[int] | None = None,
    byte_time: Mapping[str, int] | None = None,
    **kwargs: Any,
) -> Run:
    """A run of `cls(*args, **kwargs)` on each of `num_devices` devices.

    `on` is "inprocess", or "mpi" in a program that mpiexec started; None chooses MPI there, else in process.
    Metering costs some microseconds for each call of numpy; `metered=False` leaves it out. `patience` is how long
    a device waits on MPI, in seconds, before it asks the others whether this is a deadlock; in process one is seen
    at once. `byte_time` says how many flops of the clock a byte from or to a slower memory takes, as in
    {"host": 8, "disk": 64}; without it none.

    `late_puts` is a schedule for tests: what these devices put lands at the barrier, as everything does otherwise,
    and what all others put lands at once. A program that looks at a place only after the barrier cannot tell.
    Schedules are for runs in process; on MPI everything lands at the barrier.

    Raises:
        PuzzleError: MismatchError, Deadlock and others, from the call that they happen in.
        Exception: what a device has raised, with a note that says which.
    """
    if not (isinstance(cls, type) and issubclass(cls, ShardedEngine)):
        raise RuleError(f"launch runs a subclass of ShardedEngine; got {cls!r}")
    num_devices = whole(num_devices, "num_devices")
    if num_devices < 1:
        raise RuleError(f"num_devices is {num_devices}; a run needs one device at least")
    late_puts = None if late_puts is None else members_of(late_puts)
    strangers = [device for device in late_puts or () if not 0 <= device < num_devices]
    if strangers:
        raise RuleError(f"late_puts names device {strangers[0]}; there are {num_devices}, 0 to {num_devices - 1}")
    byte_time = dict(byte_time or {})
    for tier, flops in byte_time.items():
        if tier not in ("host", "disk") or not isinstance(flops, int) or flops < 0:
            raise RuleError(f"byte_time is {byte_time}; give whole numbers of flops, 0 or more, for 'host' and 'disk'")
    if on is None:
        on = "mpi" if started_by_mpiexec() and num_devices > 1 else "inprocess"
    if on == "mpi":
        from lib.engine.transports.mpi.run import MpiRun

        return Run(MpiRun(cls, num_devices, args, kwargs, metered, patience, byte_time))
    if on != "inprocess":
        raise RuleError(f"there is no transport {on!r}; there are {', '.join(TRANSPORTS)}")
    return Run(LocalRun(cls, num_devices, args, kwargs, metered, late_puts, byte_time))


def started_by_mpiexec() -> bool:
    """Whether this program is one of several processes of mpiexec; asked without loading an MPI."""
    return any(os.environ.get(name, "1") not in ("", "0", "1") for name in WORLD_SIZE_VARIABLES)


__all__ = ["PuzzleError", "Run", "launch"]
