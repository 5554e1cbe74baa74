"""Outlines of the operations: the corners of each shape within its frame."""

from __future__ import annotations

from typing import NamedTuple

from drawing.pen import Point, corners


class Frame(NamedTuple):
    """The box of an operation, in pixels. `toward` is -1 if its partner's lane is above, 1 if below."""

    x0: float
    y0: float
    x1: float
    y1: float
    toward: int = 1
    slant: float = 1.0
    """How far a collective's shape narrows: less in a low row, so that its letters keep their room."""

    @property
    def width(self) -> float:
        return self.x1 - self.x0

    @property
    def height(self) -> float:
        return self.y1 - self.y0

    @property
    def middle(self) -> Point:
        return (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2


def forward_outline(f: Frame) -> list[Point]:
    n, (_, y) = min(5.0, f.width / 4), f.middle
    return [(f.x0, f.y0), (f.x1 - n, f.y0), (f.x1, y), (f.x1 - n, f.y1), (f.x0, f.y1), (f.x0 + n, y)]


def backward_outline(f: Frame) -> list[Point]:
    n, (_, y) = min(5.0, f.width / 4), f.middle
    return [(f.x0 + n, f.y0), (f.x1, f.y0), (f.x1 - n, y), (f.x1, f.y1), (f.x0 + n, f.y1), (f.x0, y)]


def backward_input_outline(f: Frame) -> list[Point]:
    n, (_, y) = min(5.0, f.width / 4), f.middle
    return [(f.x0 + n, f.y0), (f.x1, f.y0), (f.x1, f.y1), (f.x0 + n, f.y1), (f.x0, y)]


def pair_outline(f: Frame) -> list[Point]:
    """The outline of a forward above a backward."""
    y = f.middle[1]
    upper, lower = f._replace(y1=y), f._replace(y0=y)
    return [*forward_outline(upper), *backward_outline(lower)]


def update_outline(f: Frame) -> list[Point]:
    return corners(f.x0 + 0.8, f.y0 + 0.8, max(f.x0 + 1.2, f.x1 - 0.8), f.y1 - 0.8)


def loss_outline(f: Frame) -> list[Point]:
    """A tag on a pin: it takes no time, so it is on the border between its neighbors."""
    (x, _), w = f.middle, max(f.width, min(11.0, f.height * 0.42)) / 2
    top, bottom = loss_tag(f)
    tip, pin = min(bottom + w * 0.7, f.y1), 0.8
    return [
        (x - w, top), (x + w, top), (x + w, bottom), (x + pin, tip), (x + pin, f.y1 + 2),
        (x - pin, f.y1 + 2), (x - pin, tip), (x - w, bottom)
    ]  # fmt: skip


def loss_tag(f: Frame) -> tuple[float, float]:
    """Top and bottom of the tag."""
    top = f.y0 - min(7.0, f.height * 0.2)
    return top, top + min(11.0, f.height * 0.5)


def gather_outline(f: Frame) -> list[Point]:
    d = f.height * 0.32 * f.slant
    return [(f.x0, f.y0 + d), (f.x1, f.y0), (f.x1, f.y1), (f.x0, f.y1 - d)]


def scatter_outline(f: Frame) -> list[Point]:
    d = f.height * 0.32 * f.slant
    return [(f.x0, f.y0), (f.x1, f.y0 + d), (f.x1, f.y1 - d), (f.x0, f.y1)]


def allreduce_outline(f: Frame) -> list[Point]:
    (x, _), d = f.middle, f.height * 0.26 * f.slant
    return [(f.x0, f.y0), (x, f.y0 + d), (f.x1, f.y0), (f.x1, f.y1), (x, f.y1 - d), (f.x0, f.y1)]


def lozenge_outline(f: Frame) -> list[Point]:
    n, (_, y) = min(5.0, f.width / 2), f.middle
    return [(f.x0 + n, f.y0), (f.x1 - n, f.y0), (f.x1, y), (f.x1 - n, f.y1), (f.x0 + n, f.y1), (f.x0, y)]


def waisted_outline(f: Frame) -> list[Point]:
    n, (_, y) = min(5.0, f.width / 4), f.middle
    return [(f.x0, f.y0), (f.x1, f.y0), (f.x1 - n, y), (f.x1, f.y1), (f.x0, f.y1), (f.x0 + n, y)]


def down_outline(f: Frame) -> list[Point]:
    (x, _), y = f.middle, f.y1 - f.height * 0.3
    return [(f.x0, f.y0), (f.x1, f.y0), (f.x1, y), (x, f.y1), (f.x0, y)]


def up_outline(f: Frame) -> list[Point]:
    (x, _), y = f.middle, f.y0 + f.height * 0.3
    return [(f.x0, y), (x, f.y0), (f.x1, y), (f.x1, f.y1), (f.x0, f.y1)]


def send_outline(f: Frame) -> list[Point]:
    near, far = (f.y0, f.y1) if f.toward > 0 else (f.y1, f.y0)
    return [(f.x0, near), (f.x1, near), (f.x1, far)]


def receive_outline(f: Frame) -> list[Point]:
    near, far = (f.y0, f.y1) if f.toward < 0 else (f.y1, f.y0)
    return [(f.x0, near), (f.x1, far), (f.x0, far)]


def box_outline(f: Frame) -> list[Point]:
    return corners(f.x0, f.y0, f.x1, f.y1)


def keys_outline(f: Frame) -> list[Point]:
    n, (_, y) = min(5.0, f.width / 4), f.middle
    return [(f.x0, f.y0), (f.x1 - n, f.y0), (f.x1, y), (f.x1 - n, f.y1), (f.x0, f.y1)]


def keys_backward_outline(f: Frame) -> list[Point]:
    n = min(5.0, f.width / 4)
    return [(f.x0 + n, f.y0), (f.x1, f.y0), (f.x1, f.y1), (f.x0 + n, f.y1), (f.x0, f.y1 - n), (f.x0, f.y0 + n)]


def attend_outline(f: Frame) -> list[Point]:
    n, (_, y) = min(9.0, f.width / 3), f.middle
    return [(f.x0, f.y0), (f.x1 - n, f.y0), (f.x1, y), (f.x1 - n, f.y1), (f.x0, f.y1), (f.x0 + n, y)]


def attend_backward_outline(f: Frame) -> list[Point]:
    n, (_, y) = min(9.0, f.width / 3), f.middle
    return [(f.x0 + n, f.y0), (f.x1, f.y0), (f.x1 - n, y), (f.x1, f.y1), (f.x0 + n, f.y1), (f.x0, y)]


def heads_outline(f: Frame) -> list[Point]:
    n = min(5.0, f.width / 4)
    return [(f.x0 + n, f.y0), (f.x1, f.y0), (f.x1 - n, f.y1), (f.x0, f.y1)]


def tokens_outline(f: Frame) -> list[Point]:
    n = min(5.0, f.width / 4)
    return [(f.x0, f.y0), (f.x1 - n, f.y0), (f.x1, f.y1), (f.x0 + n, f.y1)]
