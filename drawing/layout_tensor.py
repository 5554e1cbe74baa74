"""Pictures of layouts: a tensor's pieces with the devices that hold them; each device's contents; and the steps of a
redistribution, each a grid of senders and receivers. And the words about a plan that pages and terminals share.

A piece has one colour, wherever it is drawn, so copies are seen by their colour; a piece that is a summand is hatched,
and padding is grey. A picture has two dimensions, so of a tensor the first two that are split are drawn, and all others
are in the text. More devices or pieces than can be read are refused. Which layout is good is not decided here.
"""

from math import inf, prod

from chalk.types import Diagram

from drawing import palette
from drawing.pen import box, clip, hatch, label, lines, panel, short_text, style, text_width, tooltip
from drawing.picture import Picture
from lib.layout import Edge, GraphPlan, LayoutError, Redistribution, Step, TensorLayout


def limits_text(plan: GraphPlan, target: float = inf, cap: float = inf) -> tuple[str, str]:
    """What moves and what each device holds, each with its limit, if any."""
    most = f" (target: {target:,})" if target < inf else ""
    room = f" (cap: {cap:,})" if cap < inf else ""
    return f"{plan.bytes:,} bytes moved{most}", f"{plan.memory:,} bytes on each of {plan.graph.devices} devices{room}"


def held_text(plan: GraphPlan, tensor: str) -> str:
    """The bytes of a tensor on each device, its padding, and whether the bytes count."""
    layout = plan.layout(tensor)
    padded = f", padded to {'x'.join(map(str, layout.padded_shape))}" if layout.uneven else ""
    counted = "" if is_counted(plan, tensor) else ", not counted"
    return f"{layout.elements * plan.graph.itemsize:,} bytes{padded}{counted}"


def held_number(plan: GraphPlan, tensor: str) -> str:
    """`held_text` for a column of numbers: numbers that do not count are in brackets."""
    held = f"{plan.layout(tensor).elements * plan.graph.itemsize:,}"
    return held if is_counted(plan, tensor) else f"({held})"


def memory_text(plan: GraphPlan, cap: float = inf) -> str:
    words = f"{plan.memory:,} bytes on each device" + (f" of at most {cap:,}" if cap < inf else "")
    counted = all(is_counted(plan, tensor) for tensor in (*plan.storage_layouts, *plan.operators))
    return words if counted else f"{words}; those in brackets are not counted"


def is_counted(plan: GraphPlan, tensor: str) -> bool:
    """True if a plan's memory counts this tensor."""
    return tensor in plan.storage_layouts or plan.graph.keeps(tensor)


def move_text(plan: GraphPlan, edge: Edge) -> str:
    """What it takes to move a tensor to an operator: collectives and bytes."""
    if edge.moved_for:
        return f"{edge.tensor}: as moved for {edge.moved_for}"
    source = f" from the copy of {edge.copied_from}" if edge.copied_from else ""
    steps = ", ".join(plan.redistribution(edge).names)
    return f"{edge.tensor}: {steps}{source}, {edge.bytes:,} bytes" if steps else f"{edge.tensor}: as it is"


def piece_text(layout: TensorLayout, device: int) -> str:
    """The piece of a device: the number of its part along each split dimension; 'all' if none is split."""
    parts = [str(i) for i, n in zip(layout.part(device), layout.splits) if n > 1]
    return ",".join(parts) or "all"


# --- A tensor's pieces ---

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
    heading = [label(0, 10, title, 15, palette.INK, "start", bold=True), label(0, 28, words, 11, palette.SOFT, "start")]
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
    return palette.layer_tint(number, max(prod(layout.splits), 2))


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
            found.append(box(x, y, right, bottom, style(palette.IDLE, palette.PAPER, 1)))
            right, bottom = (SIDE * side for side in real_part(layout, devices[0])[2:])
            bottom += HEAD
        cell = box(x, y, right, bottom, style(piece_colour(layout, devices[0]), palette.PAPER, 1))
        found.append(tooltip(cell, f"part {row}, {column}: on {names}"))
        if layout.partial:
            found.append(lines(hatch(x, y, x + wide, y + high, 9), style(stroke=palette.EDGE, width=0.7)))
        room = int(wide / 6.2)
        if high > 12 and room > 1:
            found.append(label(x + wide / 2, y + high / 2, clip(names, room), 11, palette.INK))
    below = HEAD + SIDE + 14
    found.append(label(SIDE / 2, below, "the tensor, and the devices that hold each piece", 10, palette.SOFT))
    return found


def _matrix(layout: TensorLayout, left: float) -> list[Diagram]:
    columns = layout.matrix.shape[-1] if layout.matrix.shape else 1
    found: list[Diagram] = []
    order = layout.matrix.devices or range(layout.devices)
    for place, device in enumerate(order):
        row, column = divmod(place, columns)
        x, y = left + column * CELL, HEAD + row * CELL
        cell = box(x, y, x + CELL, y + CELL, style(piece_colour(layout, device), palette.PAPER, 2))
        found.append(tooltip(cell, f"device {device} holds part {layout.part(device)}"))
        found.append(label(x + CELL / 2, y + CELL / 2, str(device), 11, palette.INK))
    below = HEAD + CELL * (layout.devices // columns) + 14
    found.append(label(left, below, f"the devices, {layout.matrix}", 10, palette.SOFT, "start"))
    return found


# --- The contents of each device ---

HOLDER_GAP, ROW = 6.0, 30.0
ROWS_TOP, SIZE = 78.0, 10.5
MAX_DEVICES = 64
LEGEND = (
    "A frame is the full tensor, its coloured part what the device holds, with its number along each split dimension."
)


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
    right = left + devices * (CELL + HOLDER_GAP) + 8
    legend = LEGEND + (" Grey is padding." if any(plan.layout(name).uneven for name in tensors) else "")
    parts: list[Diagram] = [
        label(0, 10, title, 15, palette.INK, "start", bold=True),
        label(0, 28, legend, 10, palette.SOFT, "start"),
    ]
    parts.append(label(left, ROWS_TOP - 28, "device", SIZE, palette.SOFT, "start"))
    parts.append(label(right + 90, ROWS_TOP - 12, "bytes on each", SIZE, palette.SOFT, "end"))
    parts += [
        label(left + (d + 0.5) * (CELL + HOLDER_GAP), ROWS_TOP - 12, str(d), SIZE, palette.INK) for d in range(devices)
    ]
    y = ROWS_TOP
    for name in tensors:
        if y > ROWS_TOP and name == next(iter(plan.operators), ""):
            parts.append(lines([[(0, y - 1), (right + 90, y - 1)]], style(stroke=palette.GRID, width=1)))
            y += 6
        middle = y + ROW / 2
        parts.append(label(0, middle, name, SIZE, palette.INK, "start", bold=True))
        parts.append(label(name_width, middle, notes[name], SIZE, palette.SOFT, "start"))
        for device in range(devices):
            parts += _cell(name, plan.layout(name), device, left + device * (CELL + HOLDER_GAP) + HOLDER_GAP / 2, y + 3)
        colour = palette.INK if is_counted(plan, name) else palette.SOFT
        parts.append(label(right + 90, middle, held_number(plan, name), SIZE, colour, "end"))
        y += ROW
    words = memory_text(plan, cap)
    parts.append(lines([[(0, y + 2), (right + 90, y + 2)]], style(stroke=palette.STROKE, width=1)))
    parts.append(
        label(right + 90, y + 14, words, 11, palette.ALARM if plan.memory > cap else palette.INK, "end", bold=True)
    )
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
    found = [box(x, y, x + wide, y + high, style(palette.PAPER, palette.EDGE, 0.7))]
    if layout.uneven:
        found.append(box(x0, y0, x1, y1, style(palette.IDLE, palette.EDGE, 0.5)))
        x1, y1 = (
            start + length * side for start, length, side in zip((x, y), (wide, high), real_part(layout, device)[2:])
        )
    held = box(x0, y0, x1, y1, style(piece_colour(layout, device), palette.EDGE, 0.5))
    found.append(tooltip(held, f"device {device}: {name}[{ranges}]"))
    if layout.partial:
        found.append(lines(hatch(x0, y0, x1, y1, 5), style(stroke=palette.EDGE, width=0.7)))
    if prod(layout.splits) > 1:
        found.append(label(x + wide / 2, y + high / 2, clip(number, 6), 9.5, palette.INK, halo=palette.PAPER))
    return found


# --- A redistribution ---

LEFT, MOVES_HEAD, FOOT = 24.0, 94.0, 40.0


def draw_redistribution(plan: Redistribution, title: str = "Redistribution") -> Picture:
    """Rows send, columns receive; darker means more bytes. The margins show how much each device sends and receives."""
    devices = plan.source.devices
    if devices > MAX_DEVICES:
        raise LayoutError(f"a picture of a redistribution shows at most {MAX_DEVICES} devices; this one has {devices}")
    cell = 30.0 if devices <= 16 else 480.0 / devices
    width = LEFT + devices * cell + 90.0
    height = MOVES_HEAD + devices * cell + FOOT
    words = f"{plan.source} to {plan.target}: {', '.join(plan.names) or 'nothing moves'}, {plan.bytes:,} bytes"
    how = "Rows send, columns receive" if plan.named_steps else ""
    parts: list[Diagram] = [
        label(0, 10, title, 15, palette.INK, "start", bold=True),
        label(0, 28, words, 11, palette.SOFT, "start"),
    ]
    parts.append(label(0, 43, how, 11, palette.SOFT, "start"))
    for i, step in enumerate(plan.named_steps):
        parts += _step(step, plan.itemsize, i * width, cell)
    content = panel(max(width * max(len(plan.named_steps), 1), 6.0 * len(words)), height, parts)
    return Picture(content, title, words)


def _step(step: Step, itemsize: int, left: float, cell: float) -> list[Diagram]:
    table = step.traffic() * itemsize
    most = max(int(table.max()), 1)
    x0, y0, small = left + LEFT, MOVES_HEAD, cell < 24
    found: list[Diagram] = [label(x0, y0 - 22, step.name, 12, palette.INK, "start", bold=True)]
    darkest = palette.layer_colour(0, 4)
    for sender, row in enumerate(table.tolist()):
        y = y0 + sender * cell
        if not small:
            found.append(label(x0 - 6, y + cell / 2, str(sender), 10, palette.INK, "end"))
            found.append(label(x0 + sender * cell + cell / 2, y0 - 8, str(sender), 10, palette.INK))
        for receiver, sent in enumerate(row):
            x = x0 + receiver * cell
            fill = palette.mix(darkest, palette.PAPER, 0.85 * (1 - sent / most)) if sent else palette.EMPTY
            square = box(x, y, x + cell, y + cell, style(fill, palette.GRID, 0.5))
            found.append(
                tooltip(square, f"device {sender} sends {sent:,} bytes to device {receiver}") if sent else square
            )
            if sent and not small:
                found.append(label(x + cell / 2, y + cell / 2, short_text(sent), 8, palette.text_on(fill)))
        if not small:
            side = x0 + len(table) * cell + 6
            found.append(label(side, y + cell / 2, f"{sum(row):,}", 9, palette.SOFT, "start"))
    below = y0 + len(table) * cell
    received = table.sum(axis=0)
    found.append(
        label(x0, below + 14, f"each receives at most {int(received.max()):,} bytes", 10, palette.SOFT, "start")
    )
    found.append(
        label(x0, below + 28, f"each sends at most {int(table.sum(axis=1).max()):,} bytes", 10, palette.SOFT, "start")
    )
    return found
