"""One device: a process that loads the player's file and runs one instance of the class, command by command."""

import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import asdict
from dis import get_instructions
from importlib import import_module
from types import CodeType, ModuleType
from typing import Any, NoReturn

from greenlet import GreenletExit

from lib import PuzzleError
from lib.engine import ShardedEngine
from lib.engine.executors.base import Device
from lib.engine.executors.copies import NO_ARGUMENT, argument_for
from lib.engine.executors.streams import OutputStream
from lib.engine.metering.meter import current
from lib.engine.metering.numpy_patch import patched_numpy
from puzzles.failure import Failure, line_in, of_crash, of_refusal
from puzzles.sandbox.deadline import TimeLimitError, Timer
from puzzles.sandbox.worker import seccomp
from puzzles.sandbox.worker.compiled import CompiledCode
from puzzles.sandbox.worker.devices.integrity import EngineSnapshot
from puzzles.sandbox.worker.devices.unmetered import require_few_numbers, sizes_of_modules, while_loading
from puzzles.sandbox.worker.repeat import hooks
from puzzles.sandbox.worker.repeat.recorder import DeviceRecorder
from puzzles.sandbox.worker.repeat.traced_numbers import Recording
from puzzles.sandbox.worker.stages.engine_trial import require_engine
from puzzles.sandbox.worker.stages.stage import FailedError, UnplayableError
from puzzles.sandbox.worker.withheld import refusal_in_class, withhold

from .device_channel import DeviceChannel, WireError
from .device_port import DeviceMeter, DevicePort

MODULE_NAME = "submission"

hooks.install()

LATE_MODULES = ("numpy.fft", "numpy.ma", "lib.layout.planning.planned_device")
"""What numpy and the game import when it is first used."""


def imports_in(code: CodeType | None) -> set[str]:
    """The modules that some code may import by an absolute name, also in its functions: of `from a import b`, also
    a.b."""
    found, module = set[str](), ""
    for one in get_instructions(code) if code is not None else ():
        match one.opname:
            case "IMPORT_NAME":
                module = one.argval
                found.add(module)
            case "IMPORT_FROM":
                found.add(f"{module}.{one.argval}")
    inner = [part for part in code.co_consts if isinstance(part, CodeType)] if code is not None else []
    return found.union(*map(imports_in, inner)) - {""}


class Assignment:
    """What a device has to know before its first command: the file, the class's name, the device's number, the time
    limit, and how a failure of time is worded."""

    def __init__(self, code: CompiledCode, slug: str, device: int, size: int, seconds: float, left: float) -> None:
        self.code, self.slug, self.device, self.size = code, slug, device, size
        self.seconds, self.left = seconds, left
        self.start = code.lines.get(slug, 0)


class DeviceProcess:
    """Answers the commands of the judge, until the wire is closed."""

    def __init__(self, given: Assignment, channel: DeviceChannel, snapshot: EngineSnapshot) -> None:
        self.given = given
        self.channel = channel
        self.snapshot = snapshot
        self.meter = DeviceMeter()
        self.port = DevicePort(given.device, given.size, self.meter, channel)
        self.names: dict[str, Any] = {}
        self.cls: Any = ShardedEngine
        self.phase = "while the file is loaded, "
        self.method = ""
        self.warned: Sequence[Any] = ()
        self.timer = Timer(given.seconds, given.left, self._report_time)

    def serve(self) -> NoReturn:
        """Answers each command with its result, or with the failure that ends the run."""
        with warnings.catch_warnings(record=True) as self.warned:
            warnings.simplefilter("always")
            with suppress(WireError, OSError):
                while True:
                    command, puts, *given = self.channel.receive()
                    self.port.apply(puts)
                    try:
                        answer = self.timer.run(lambda: getattr(self, f"do_{command}")(*given))  # noqa: B023
                        self.channel.send("done", self.meter.taken(), answer)
                    except BaseException as why:
                        self._fail(self._failure(why))
        os._exit(0)

    # --- Commands ---

    def do_load(self, aloud: bool, byte_time: Mapping[str, int]) -> bool:
        """Loads the file; False if it has no definition of that name."""
        self.meter.byte_time = byte_time
        code, slug = self.given.code, self.given.slug
        module = sys.modules[MODULE_NAME] = ModuleType(MODULE_NAME)
        module.__file__ = code.name
        self.names = module.__dict__
        nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # closed with its own context
        self._seal()
        with nowhere, redirect_stdout(sys.stdout if aloud else nowhere), self._metered(), while_loading():
            exec(code.code, self.names)  # type: ignore[arg-type]  # checked when it was surveyed
        failure = code.failure_of(slug, self.names)
        if failure is not None:
            raise FailedError(failure)
        if slug not in self.names:
            return False
        self.cls = self.names[slug]
        require_engine(slug, self.cls)
        self.phase = ""
        self.before = sizes_of_modules()
        return True

    def do_make(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        self.method = "__init__"
        self.device = Device(self.cls, self.port)
        with self._recorded(), self._metered():
            self.device.make(args, kwargs)
        return asdict(self.meter.reading())

    def do_call(self, method: str, argument: Sequence[Any], lent: bool) -> list[Any]:
        """Calls a method; `argument` is empty if it takes none. Its result, and the meter."""
        self.method = method
        with self._recorded() as recorder:
            box: list[Any] = [argument_for(argument[0], lent, self.port) if argument else NO_ARGUMENT]
            if argument:
                recorder.given(box[0].tree if lent else box[0], lent)
            with self._metered():
                result = self.device.call(method, box)
            recorder.settle()
            recorder.returned(self.device.held)
        require_few_numbers(self.device.player, self.given.device, self.before)
        return [result, asdict(self.meter.reading())]

    def do_loop(self) -> dict[str, Any]:
        """Runs the inference loop on the streams that the judge keeps."""
        self.method = "inference_loop"
        with self._recorded(), self._metered(), suppress(GreenletExit):
            self.device.player.inference_loop(self.port.inputs(), OutputStream(self.port, self.port.output))
        return asdict(self.meter.reading())

    def do_recording(self) -> Any:
        """The steps of all commands so far; or the reason why there are none, as a text."""
        recorder = self.meter.recorder
        return recorder.broken or recorder.segments

    def do_end(self) -> str:
        """Python's remark on a coroutine that was never awaited, if there is one."""
        self._require_unchanged()
        forgotten = (str(w.message) for w in self.warned if str(w.message).endswith("was never awaited"))
        return next(forgotten, "")

    # --- Within ---

    def _seal(self) -> None:
        """Imports what the file and its functions import, then takes away all files, before any code of the player's
        could prevent it."""
        wanted = sorted(imports_in(self.given.code.code))
        late = [name for name in LATE_MODULES if name.rpartition(".")[0] in (*wanted, "numpy")]
        for name in [*wanted, *late]:
            with suppress(Exception):  # which the line that imports it reports
                import_module(name)
        seccomp.seal()
        withhold(refusal_in_class)

    @contextmanager
    def _recorded(self) -> Iterator[DeviceRecorder]:
        recorder = Recording.recorder = self.meter.recorder
        recorder.begin()
        try:
            yield recorder
        finally:
            Recording.recorder = None

    @contextmanager
    def _metered(self) -> Any:
        with patched_numpy(self.cls, True):
            current.run_here()
            current.meter = self.meter
            try:
                yield
            finally:
                current.meter = None

    def _require_unchanged(self) -> None:
        if changed := self.snapshot.changed() or ("" if self.port.meter is self.meter else "the meter"):
            raise FailedError(Failure("rule", f"{changed} was changed; leave the engine as it is", self.given.start))

    def _failure(self, why: BaseException) -> Failure:
        """What the player is told: that the engine was changed, or a refusal or a crash at the player's line."""
        given, file = self.given, self.given.code.name
        if not isinstance(why, FailedError | TimeLimitError):
            try:
                self._require_unchanged()
            except FailedError as changed:
                why = changed
        match why:
            case FailedError():
                failure = why.failure
            case TimeLimitError():
                failure = self._too_slow()
            case UnplayableError():
                failure = Failure("crash", str(why), given.start)
            case PuzzleError():
                failure = of_refusal(why, line_in(why.__traceback__, file) or given.start)
            case _ if self.phase:
                failure = of_crash(why, file, "while the file is loaded", 0)
            case _:
                place = f"raised on device {given.device} of {given.size}, in {self.method}"
                failure = of_crash(why, file, place, given.start)
        return given.code.explained(failure, self.names)

    def _fail(self, failure: Failure) -> None:
        if not self.channel.is_sending:
            self.channel.send("failed", self.meter.taken(), list(failure))

    def _report_time(self) -> None:
        """Reports from within code that may never end, which is where the alarm rings."""
        self._fail(self._too_slow())

    def _too_slow(self) -> Failure:
        from puzzles.sandbox.worker.runner import too_slow

        line = self.timer.line_in(self.given.code.name) or (0 if self.phase else self.given.start)
        return Failure("timeout", too_slow(self.timer.seconds, self.phase), line)
