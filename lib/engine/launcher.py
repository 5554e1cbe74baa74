"""Runs a player's class on several devices: `with launch(DataParallel, num_devices=4, ...) as run:`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence, Set
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from lib.engine.collectives import device_numbers, whole_number
from lib.engine.devices import NO_ARGUMENT, Executor, InProcessExecutor, LaunchOptions
from lib.engine.engine import ShardedEngine
from lib.engine.metering import Reading
from lib.engine.words import SAYS
from lib.errors import PuzzleError, RuleError, install_command, refuse_masked
from lib.ledger.algebra import counted

TRANSPORTS = ("inprocess", "mpi", "torch")

WORLD_SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS")
"""Environment variables in which the process managers of Open MPI, MPICH and Slurm give the number of processes."""


class Run:
    """A model that is running on its devices. An input is a list with one item per device, or one item for all. Results
    are lists in device order, and copies."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._ended = ""
        self._failed = False
        self._stream: Generator[Any, None, None] | None = None

    @property
    def num_devices(self) -> int:
        return self._executor.size

    @property
    def meters(self) -> tuple[Reading, ...]:
        """The reading of each device's meter so far; on MPI, up to the last call that has returned.

        Raises:
            RuleError: the run is not metered.
        """
        if not self._executor.metered:
            raise RuleError("this run is not metered; launch it with metered=True")
        return self._executor.readings()

    def load_checkpoint(self, params: Mapping[str, Any]) -> None:
        """Lends every device the model's full parameters, to copy its part; parameters are charged only if a device
        keeps them."""
        self._call("load_checkpoint", [params] * self.num_devices, lent=True)

    def forward(self, x: Any) -> list[Any]:
        """Every device's output, for one input per device or one for all."""
        return self._call("forward", self._each(x))

    def backward(self, grads: Any) -> list[Any]:
        """Every device's result of backward, for one output gradient per device or one for all."""
        return self._call("backward", self._each(grads))

    def call(self, method: str, *argument: Any) -> list[Any]:
        """Every device's result of another method of the class. Its argument is as for `forward`, or none."""
        if len(argument) > 1:
            raise RuleError(f"{method} takes at most one argument; put several into a dictionary")
        return self._call(method, self._each(argument[0]) if argument else [NO_ARGUMENT] * self.num_devices)

    def inference_loop(self, stream: Iterable[Any]) -> Iterator[Any]:
        """Yields the outputs for a stream of inputs, in order. If one device writes an output for an input, yields that
        output; if several do, a list with one per device. The outputs of a device that reads no inputs come one by one.
        In process outputs come as they are written, and the stream may be endless. On processes all inputs are read
        before the first output comes; on MPI every process reads the stream and gets all outputs."""
        self._unless_ended()
        self._stream = outputs = self._executor.stream(stream)
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
                SAYS(
                    "other number of inputs",
                    inputs=counted(len(x), "input"),
                    devices=counted(self.num_devices, "device"),
                )
            )
        return list(x)

    def _call(self, method: str, arguments: Sequence[Any], lent: bool = False) -> list[Any]:
        self._unless_ended()
        refuse_masked(arguments, f"the input of {method}")
        try:
            return self._executor.call(method, arguments, lent)
        except BaseException as why:
            self._fail(why)
            raise

    def _fail(self, why: BaseException) -> None:
        self._ended = f"of {type(why).__name__}: {why}"
        self._failed = True

    def _unless_ended(self) -> None:
        if self._ended:
            raise RuleError(SAYS("run has ended", because=self._ended))
        if self._stream is not None:
            raise RuleError("a stream of this run is still open; take all its outputs first")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()
        self._ended = self._ended or "it was closed"
        self._executor.close(failed=kind is not None or self._failed)


def launch(
    cls: type,
    num_devices: int = 1,
    *args: Any,
    on: str | None = None,
    metered: bool = True,
    patience: float = 10.0,
    late_puts: Collection[int] | None = None,
    byte_time: Mapping[str, int] | None = None,
    device: str = "cpu",
    time_limit: float | None = None,
    **kwargs: Any,
) -> Run:
    """Creates `cls(*args, **kwargs)` on each of `num_devices` devices; the run calls it.

    `on` is "inprocess"; "mpi" in a program that mpiexec started; or "torch": tensors of torch on `device` ("cpu" or
    "cuda") over torch.distributed, in a program that torchrun started, else in processes that this call starts. None
    chooses what started the program, otherwise in-process.
    Metering costs a few microseconds per numpy call; `metered=False` turns it off. `patience` is how long a process
    waits, in seconds, before it asks the others whether there is a deadlock; in process, a deadlock is detected
    immediately. `byte_time` is the time, in flops of the clock, to transfer a byte from or to a slower memory, as in
    {"host": 8, "disk": 64}; the default is 0. `time_limit` ends the processes that this call starts after so many
    seconds.

    `late_puts` is a schedule for tests: puts of these devices arrive at the barrier, which is also the default, and
    puts of all others arrive immediately. A program that reads its buffers only after the barrier sees no difference.
    Schedules are for in-process runs; elsewhere, all puts arrive at the barrier.

    Raises:
        PuzzleError: MismatchError, DeadlockError and others, raised by the call in which they happen.
        Exception: raised by a device, with a note that says which one.
    """
    if not (isinstance(cls, type) and issubclass(cls, ShardedEngine)):
        raise RuleError(SAYS("no engine class", got=cls))
    size = whole_number(num_devices, "num_devices")
    if size < 1:
        raise RuleError(SAYS("no devices", size=size))
    late_puts, byte_time = _checked_late_puts(late_puts, size), _checked_byte_time(byte_time)
    if on is None:
        on = "torch" if started_by_torchrun() else "mpi" if started_by_mpiexec() and size > 1 else "inprocess"
    if on not in TRANSPORTS:
        raise RuleError(SAYS("no such transport", transport=on, known=", ".join(TRANSPORTS)))
    if device != "cpu" and on != "torch":
        raise RuleError(f"device={device!r} is for on='torch'; arrays of numpy are in the processor's memory")
    asked = LaunchOptions(cls, size, args, kwargs, metered, patience, byte_time, late_puts, time_limit)
    if on == "inprocess":
        return Run(InProcessExecutor(asked))
    if on == "torch":
        return Run(_on_torch(asked, device))
    from lib.engine.mpi import MpiCarrier  # only here, because mpi4py is optional
    from lib.engine.process_devices import ProcessExecutor  # only here, because a browser has no processes

    return Run(ProcessExecutor(asked, MpiCarrier(size)))


def _checked_late_puts(late_puts: Collection[int] | None, size: int) -> tuple[int, ...] | None:
    if late_puts is None:
        return None
    devices = device_numbers([*late_puts] if isinstance(late_puts, Set) else late_puts)  # their order does not count
    for device in devices:
        if not 0 <= device < size:
            raise RuleError(SAYS("no device for late_puts", device=device, size=size, last=size - 1))
    return devices


def _checked_byte_time(byte_time: Mapping[str, int] | None) -> dict[str, int]:
    checked = dict(byte_time or {})
    for memory, flops in checked.items():
        if memory not in ("host", "disk") or not isinstance(flops, int) or flops < 0:
            raise RuleError(SAYS("no byte_time", got=checked))
    return checked


def _on_torch(asked: LaunchOptions, device: str) -> Executor:
    """This process's executor if torchrun started it, else an executor that starts one process for each device."""
    try:
        from lib.engine.torch import TorchCarrier, require_device  # here: torch is optional
    except ImportError as why:
        raise RuleError(f"this needs PyTorch: {install_command('torch')}") from why

    from lib.engine.process_devices import ProcessExecutor, SpawnedExecutor  # as above

    if started_by_torchrun():
        return ProcessExecutor(asked, TorchCarrier(asked.size, device))
    require_device(device)
    return SpawnedExecutor(asked, device)


def started_by_torchrun() -> bool:
    """True if this program is one of the processes that torchrun started; does not load torch."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def started_by_mpiexec() -> bool:
    """True if this program is one of several processes started by mpiexec; does not load MPI."""
    return any(os.environ.get(name, "1") not in ("", "0", "1") for name in WORLD_SIZE_VARIABLES)


# --- Starts processes under mpiexec from a normal program, and returns their answer ---

ROOT = str(Path(__file__).resolve().parents[2])
"""The folder that contains this `lib`."""

START = f"""
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
spec = PathFinder.find_spec("lib", [{ROOT!r}])
sys.modules["lib"] = module_from_spec(spec)
spec.loader.exec_module(sys.modules["lib"])
sys.path.append({ROOT!r})
from {__name__} import main
main(*sys.argv[1:])
"""
"""The program of each process. Its `lib` comes from ROOT; other modules are looked up there last, because in a clone
ROOT may be the player's folder."""


def mpiexec() -> list[str]:
    """The mpiexec command of the MPI installed with this Python, else the first on the path."""
    beside = Path(sys.executable).parent / "mpiexec"
    command = str(beside) if beside.exists() else shutil.which("mpiexec")
    if command is None:
        raise RuleError(f"there is no mpiexec; install an MPI: {install_command('mpi')}")
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=False).stdout
    return [command, "--oversubscribe"] if "Open MPI" in version or "OpenRTE" in version else [command]


def by_mpiexec(processes: int, module: str, request: str) -> str:
    """Calls `module.answer(request)` in several processes, and returns the answer of the first."""
    with TemporaryDirectory() as folder:
        asked, answered = Path(folder, "request"), Path(folder, "answer")
        asked.write_text(request, encoding="utf-8")
        program = [sys.executable, "-P", "-c", START, module, str(asked), str(answered)]
        command = [*mpiexec(), "-n", str(processes), *program]
        one_thread = dict.fromkeys(
            ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"
        )  # unless the variables say otherwise
        ended = subprocess.run(command, env={**one_thread, **os.environ}, capture_output=True, text=True, check=False)
        if answered.exists():
            kind, _, text = answered.read_text(encoding="utf-8").partition("\n")
            if kind == "answer":
                return text
            raise PuzzleError(text)
        raise RuleError(
            f"the processes under mpiexec ended with code {ended.returncode}: {ended.stderr.strip()[-2000:]}"
        )


def main(module: str, asked: str, answered: str) -> None:
    """Runs in each process. Only the first reads the request and writes the answer, because others may be on other
    hosts."""
    from mpi4py import MPI

    first = MPI.COMM_WORLD.rank == 0
    request = MPI.COMM_WORLD.bcast(Path(asked).read_text(encoding="utf-8") if first else None)
    try:
        report = "answer\n" + import_module(module).answer(request)
    except PuzzleError as why:
        report = f"refused\n{why}"
    if first:
        Path(answered).write_text(report, encoding="utf-8")
