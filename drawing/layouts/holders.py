"""Picture of the devices' contents: a row for each tensor of a plan, a column for each device, the piece in colour."""

from math import inf, prod

from chalk.types import Diagram

from drawing.palette import ALARM, EDGE, GRID, IDLE, INK, PAPER, SOFT, STROKE
from drawing.pen import box, clip, hatch, label, lines, panel, style, text_width, tooltip
from drawing.picture import Picture
from lib.layout import GraphPlan, LayoutError, TensorLayout

from .captions import held_number, is_counted, memory_text, piece_text
from .tensor import held_part, piece_colour, real_part

CELL, GAP, ROW = 34.0, 6.0, 30.0
HEAD, SIZE = 78.0, 10.5
MAX_DEVICES = 64
LEGEND = (
    "A frame is the full tensor, its coloured part what the device holds, with its number along each split dimension."
)

PADDED = " Grey is padding."


def draw_holders(plan: GraphPlan, title: str = "Who holds what", dark: bool = False, cap: float = inf) -> Picture:
    """Every tensor of a plan on every device, sources first, with its bytes on each. Devices with copies of a piece
    have the same colour."""
    devices = plan.graph.devices
    if devices > MAX_DEVICES:
        raise LayoutError(f"a picture of who holds what shows at most {MAX_DEVICES} devices; this plan has {devices}")
    tensors = [*plan.storage_layouts, *plan.operators]
    notes = {name: str(plan.layout(name)) for name in tensors}
    name_width = max(text_width(name, SIZE, True) for name in tensors) + 14
    left = name_width + max(text_width(note, SIZE) for note in notes.values()) + 14
    right = left + devices * (CELL + GAP) + 8
    legend = LEGEND + (PADDED if any(plan.layout(name).uneven for name in tensors) else "")
    parts: list[Diagram] = [label(0, 10, title, 15, INK, "start", bold=True), label(0, 28, legend, 10, SOFT, "start")]
    parts.append(label(left, HEAD - 28, "device", SIZE, SOFT, "start"))
    parts.append(label(right + 90, HEAD - 12, "bytes on each", SIZE, SOFT, "end"))
    parts += [label(left + (d + 0.5) * (CELL + GAP), HEAD - 12, str(d), SIZE, INK) for d in range(devices)]
    y = HEAD
    for name in tensors:
        if y > HEAD and name == next(iter(plan.operators), ""):
            parts.append(lines([[(0, y - 1), (right + 90, y - 1)]], style(stroke=GRID, width=1)))
            y += 6
        middle = y + ROW / 2
        parts.append(label(0, middle, name, SIZE, INK, "start", bold=True))
        parts.append(label(name_width, middle, notes[name], SIZE, SOFT, "start"))
        for device in range(devices):
            parts += _cell(name, plan.layout(name), device, left + device * (CELL + GAP) + GAP / 2, y + 3)
        colour = INK if is_counted(plan, name) else SOFT
        parts.append(label(right + 90, middle, held_number(plan, name), SIZE, colour, "end"))
        y += ROW
    words = memory_text(plan, cap)
    parts.append(lines([[(0, y + 2), (right + 90, y + 2)]], style(stroke=STROKE, width=1)))
    parts.append(label(right + 90, y + 14, words, 11, ALARM if plan.memory > cap else INK, "end", bold=True))
    width = max(right + 90, text_width(legend, 10), text_width(words, 11, True))
    return Picture(panel(width, y + 24, parts), title, words, dark)


def _cell(name: str, layout: TensorLayout, device: int, x: float, y: float) -> list[Diagram]:
    """A frame for the full tensor, with the part of the first two split dimensions that the device holds; any padding
    is grey."""
    wide, high = CELL, ROW - 6
    left, top, right, bottom = held_part(layout, device)
    x0, y0, x1, y1 = x + wide * left, y + high * top, x + wide * right, y + high * bottom
    number = piece_text(layout, device)
    ranges = ", ".join(f"{s.start}:{s.stop}" for s in layout.box(device))
    found = [box(x, y, x + wide, y + high, style(PAPER, EDGE, 0.7))]
    if layout.uneven:
        found.append(box(x0, y0, x1, y1, style(IDLE, EDGE, 0.5)))
        x1, y1 = (
            start + length * side for start, length, side in zip((x, y), (wide, high), real_part(layout, device)[2:])
        )
    held = box(x0, y0, x1, y1, style(piece_colour(layout, device), EDGE, 0.5))
    found.append(tooltip(held, f"device {device}: {name}[{ranges}]"))
    if layout.partial:
        found.append(lines(hatch(x0, y0, x1, y1, 5), style(stroke=EDGE, width=0.7)))
    if prod(layout.splits) > 1:
        found.append(label(x + wide / 2, y + high / 2, clip(number, 6), 9.5, INK, halo=PAPER))
    return found
