"""Lives of a device's blocks of memory: the lines that make them, and which are live at the peak and read after it.

Time is counted in blocks: it passes when one is made. Only what may be live at the peak is remembered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from lib.engine.player_code import running_line


class Life:
    """A block: its bytes, the line that made it, and when it was made and last read."""

    __slots__ = ("born", "line", "nbytes", "read")

    def __init__(self, nbytes: int, line: int, born: int) -> None:
        self.nbytes, self.line = nbytes, line
        self.born = self.read = born


class Lives:
    """All blocks of a device that are live, and those that were at the peak."""

    __slots__ = ("_ended", "_live", "_peak_time", "time")

    def __init__(self) -> None:
        self.time = 0
        self._peak_time = 0
        self._live: dict[int, Life] = {}
        self._ended: list[Life] = []

    def begin(self, nbytes: int) -> Life:
        self.time += 1
        life = Life(nbytes, running_line(), self.time)
        self._live[id(life)] = life
        return life

    def end(self, life: Life) -> None:
        del self._live[id(life)]
        if life.born <= self._peak_time:
            self._ended.append(life)

    def mark_peak(self) -> None:
        """The newest block makes the peak."""
        self._peak_time = self.time
        self._ended.clear()

    def at_peak(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """The bytes that are live at the peak, by the line that made them, and the bytes among them that no later
        operation reads. What the operation at the peak may read, and the block before, count as read."""
        held, idle = Counter[str](), Counter[str]()
        for life in (*self._ended, *self._live.values()):
            if life.born <= self._peak_time:
                held[str(life.line)] += life.nbytes
                if life.read < self._peak_time - 1:
                    idle[str(life.line)] += life.nbytes
        return dict(held), dict(idle)


__all__ = ["Life", "Lives"]
