"""A device's own meter: it tells the judge what took time, and never learns what time it is on other devices."""

from __future__ import annotations

from lib.engine.metering.meter import Meter

COMPUTE, WAIT = "compute", "wait"


class DeviceMeter(Meter):
    """Its clock is that of a device that waits for nobody. The judge repeats the steps on a clock of its own."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[str, int]] = []
        """Since the last message: flops computed, bytes of a transfer, or the number of a transfer to wait for."""

    def taken(self) -> list[tuple[str, int]]:
        """The steps since the last message."""
        steps, self.steps = self.steps, []
        return steps

    def compute(self, flops: int) -> None:
        super().compute(flops)
        before = self.steps.pop()[1] if self.steps and self.steps[-1][0] == COMPUTE else 0
        self.steps.append((COMPUTE, before + flops))

    def transfer(self, memory: str, nbytes: int) -> int:
        self.steps.append((memory, nbytes))
        return super().transfer(memory, nbytes)

    def wait_for(self, transfer: int) -> None:
        self.steps.append((WAIT, transfer))
        super().wait_for(transfer)


def repeat(steps: object, meter: Meter) -> None:
    """Repeats a device's steps on the judge's meter.

    Raises:
        ValueError: a device's meter writes no such steps.
    """
    for step in steps if isinstance(steps, list) else [steps]:
        match step:
            case ("compute", int(flops)) if flops >= 0:
                meter.compute(flops)
            case ("host" | "disk" as memory, int(nbytes)) if nbytes >= 0:
                meter.transfer(memory, nbytes)
            case ("wait", int(number)) if 0 <= number < len(meter.ends):
                meter.wait_for(number)
            case _:
                raise ValueError("its steps are not those of a meter")
        if meter.clock >= MAX_CLOCK:
            raise ValueError("its clock is not a number")


MAX_CLOCK = 1 << 62
