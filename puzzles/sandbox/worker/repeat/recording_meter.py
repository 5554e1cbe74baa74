"""The meter of a device that records: it knows the recorder to which whatever the device does is told."""

from collections.abc import Mapping
from typing import Any, Protocol

from lib.engine.metering import Life, Meter, current


class LifeRecorder(Protocol):
    """What the meter needs of a `DeviceRecorder`."""

    segments: list[Any]

    def hold(self, life: Life) -> None: ...
    def release(self, life: Life) -> None: ...


class RecordingMeter(Meter):
    """Counts as every meter does, for the lines of code at a peak; figures are those of the second run."""

    __slots__ = ("recorder",)

    def __init__(self, recorder: LifeRecorder, byte_time: Mapping[str, int] | None = None) -> None:
        super().__init__(byte_time)
        self.recorder = recorder

    def hold(self, nbytes: int) -> Life:
        life = super().hold(nbytes)
        self.recorder.hold(life)
        return life

    def release(self, life: Life) -> None:
        super().release(life)
        self.recorder.release(life)

    def within_kernel(self) -> Meter:
        """Records, too, and counts as the second run does, which knows no kernels."""
        meter = RecordingMeter(self.recorder)
        meter.scales = self.scales
        return meter


def recorder_here() -> Any:
    """The recorder of the device whose code runs, if that has begun a command; else None."""
    meter = current.meter
    return meter.recorder if isinstance(meter, RecordingMeter) and meter.recorder.segments else None
