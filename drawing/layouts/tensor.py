"""Picture of a layout: a tensor's pieces with the devices that hold them, and the matrix in the pieces' colours."""

from math import prod

from chalk.types import Diagram

from drawing.palette import EDGE, IDLE, INK, PAPER, SOFT, layer_tint
from drawing.pen import box, clip, hatch, label, lines, panel, style, tooltip
from drawing.picture import Picture
from lib.layout import LayoutError, TensorLayout

SIDE = 240.0
CELL = 34.0
GAP = 48.0
HEAD = 44.0
MAX_PIECES = 4096


def draw_layout(layout: TensorLayout, title: str = "Tensor layout") -> Picture:
    """A tensor of any number of dimensions: the first two split dimensions are drawn, the others are only in the text.

    Copies share a colour; pieces that are summands are hatched; padding is grey.
    """
    if prod(layout.splits) > MAX_PIECES:
        raise LayoutError(f"a picture shows at most {MAX_PIECES:,} pieces; this layout has {prod(layout.splits):,}")
    parts = [*_tensor(layout), *_matrix(layout, SIDE + GAP)]
    columns = layout.matrix.shape[-1] if layout.matrix.shape else 1
    rows = layout.devices // columns
    width = SIDE + GAP + max(CELL * columns, 120.0)
    padded = f", padded to {layout.padded_shape}" if layout.uneven else ""
    words = f"{layout.shape} as {layout}: {layout.local_shape} on each of {layout.devices} devices{padded}"
    heading = [label(0, 10, title, 15, INK, "start", bold=True), label(0, 28, words, 11, SOFT, "start")]
    width = max(width, 6.0 * len(words))
    return Picture(panel(width, HEAD + max(SIDE, CELL * rows) + 24, [*heading, *parts]), title, words)


def shown_dims(layout: TensorLayout) -> tuple[int, int]:
    """The dimensions drawn down and across; -1 if there is none."""
    split = [dim for dim, n in enumerate(layout.splits) if n > 1]
    rest = [dim for dim in range(len(layout.shape)) if dim not in split]
    chosen = sorted((split + rest)[:2])
    if len(chosen) == 1:
        return -1, chosen[0]
    return (chosen[0], chosen[1]) if chosen else (-1, -1)


def held_part(layout: TensorLayout, device: int) -> tuple[float, float, float, float]:
    """The part of a tensor that a device holds, along the two drawn dimensions: left, top, right and bottom, each from
    0 to 1. It includes padding."""
    down, across = shown_dims(layout)
    part = layout.part(device)
    rows, columns = (layout.splits[dim] if dim >= 0 else 1 for dim in (down, across))
    row, column = (part[dim] if dim >= 0 else 0 for dim in (down, across))
    return column / columns, row / rows, (column + 1) / columns, (row + 1) / rows


def real_part(layout: TensorLayout, device: int) -> tuple[float, float, float, float]:
    """`held_part` without padding; empty if some dimension has only padding there."""
    left, top, right, bottom = held_part(layout, device)
    real = layout.real_shape(device)
    if 0 in real:
        return left, top, left, top
    down, across = (real[dim] / layout.local_shape[dim] if dim >= 0 else 1.0 for dim in shown_dims(layout))
    return left, top, left + (right - left) * across, top + (bottom - top) * down


def piece_colour(layout: TensorLayout, device: int) -> str:
    """The colour of a device's piece, by the number of the piece among all."""
    number = 0
    for part, n in zip(layout.part(device), layout.splits):
        number = number * n + part
    return layer_tint(number, max(prod(layout.splits), 2))


def _tensor(layout: TensorLayout) -> list[Diagram]:
    dims = shown_dims(layout)
    rows, columns = (layout.splits[dim] if dim >= 0 else 1 for dim in dims)
    holders: dict[tuple[int, ...], list[int]] = {}
    for device in range(layout.devices):
        part = layout.part(device)
        holders.setdefault(tuple(part[dim] if dim >= 0 else 0 for dim in dims), []).append(device)
    high, wide = SIDE / rows, SIDE / columns
    found: list[Diagram] = []
    for (row, column), devices in sorted(holders.items()):
        x, y = column * wide, HEAD + row * high
        names = ", ".join(map(str, devices))
        right, bottom = x + wide, y + high
        if layout.uneven:
            found.append(box(x, y, right, bottom, style(IDLE, PAPER, 1)))
            right, bottom = (SIDE * side for side in real_part(layout, devices[0])[2:])
            bottom += HEAD
        cell = box(x, y, right, bottom, style(piece_colour(layout, devices[0]), PAPER, 1))
        found.append(tooltip(cell, f"part {row}, {column}: on {names}"))
        if layout.partial:
            found.append(lines(hatch(x, y, x + wide, y + high, 9), style(stroke=EDGE, width=0.7)))
        room = int(wide / 6.2)
        if high > 12 and room > 1:
            found.append(label(x + wide / 2, y + high / 2, clip(names, room), 11, INK))
    below = HEAD + SIDE + 14
    found.append(label(SIDE / 2, below, "the tensor, and the devices that hold each piece", 10, SOFT))
    return found


def _matrix(layout: TensorLayout, left: float) -> list[Diagram]:
    columns = layout.matrix.shape[-1] if layout.matrix.shape else 1
    found: list[Diagram] = []
    order = layout.matrix.devices or range(layout.devices)
    for place, device in enumerate(order):
        row, column = divmod(place, columns)
        x, y = left + column * CELL, HEAD + row * CELL
        cell = box(x, y, x + CELL, y + CELL, style(piece_colour(layout, device), PAPER, 2))
        found.append(tooltip(cell, f"device {device} holds part {layout.part(device)}"))
        found.append(label(x + CELL / 2, y + CELL / 2, str(device), 11, INK))
    below = HEAD + CELL * (layout.devices // columns) + 14
    found.append(label(left, below, f"the devices, {layout.matrix}", 10, SOFT, "start"))
    return found
