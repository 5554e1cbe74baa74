"""Picture of a redistribution: for each step a grid of senders and receivers with the bytes between them."""

from chalk.types import Diagram

from drawing.number_text import short_text
from drawing.palette import EMPTY, GRID, INK, PAPER, SOFT, layer_colour, mix, text_on
from drawing.pen import box, label, panel, style, tooltip
from drawing.picture import Picture
from lib.layout import LayoutError, Redistribution, Step

CELL = 30.0
LEFT, HEAD, FOOT = 24.0, 94.0, 40.0
MAX_DEVICES = 64


def draw_redistribution(plan: Redistribution, title: str = "Redistribution") -> Picture:
    """Rows send, columns receive; darker means more bytes. The margins show how much each device sends and receives."""
    devices = plan.source.devices
    if devices > MAX_DEVICES:
        raise LayoutError(f"a picture of a redistribution shows at most {MAX_DEVICES} devices; this one has {devices}")
    cell = CELL if devices <= 16 else 480.0 / devices
    width = LEFT + devices * cell + 90.0
    height = HEAD + devices * cell + FOOT
    words = f"{plan.source} to {plan.target}: {', '.join(plan.names) or 'nothing moves'}, {plan.bytes:,} bytes"
    how = "Rows send, columns receive" if plan.named_steps else ""
    parts: list[Diagram] = [label(0, 10, title, 15, INK, "start", bold=True), label(0, 28, words, 11, SOFT, "start")]
    parts.append(label(0, 43, how, 11, SOFT, "start"))
    for i, step in enumerate(plan.named_steps):
        parts += _step(step, plan.itemsize, i * width, cell)
    content = panel(max(width * max(len(plan.named_steps), 1), 6.0 * len(words)), height, parts)
    return Picture(content, title, words)


def _step(step: Step, itemsize: int, left: float, cell: float) -> list[Diagram]:
    table = step.traffic() * itemsize
    most = max(int(table.max()), 1)
    x0, y0, small = left + LEFT, HEAD, cell < 24
    found: list[Diagram] = [label(x0, y0 - 22, step.name, 12, INK, "start", bold=True)]
    darkest = layer_colour(0, 4)
    for sender, row in enumerate(table.tolist()):
        y = y0 + sender * cell
        if not small:
            found.append(label(x0 - 6, y + cell / 2, str(sender), 10, INK, "end"))
            found.append(label(x0 + sender * cell + cell / 2, y0 - 8, str(sender), 10, INK))
        for receiver, sent in enumerate(row):
            x = x0 + receiver * cell
            fill = mix(darkest, PAPER, 0.85 * (1 - sent / most)) if sent else EMPTY
            square = box(x, y, x + cell, y + cell, style(fill, GRID, 0.5))
            found.append(
                tooltip(square, f"device {sender} sends {sent:,} bytes to device {receiver}") if sent else square
            )
            if sent and not small:
                found.append(label(x + cell / 2, y + cell / 2, short_text(sent), 8, text_on(fill)))
        if not small:
            side = x0 + len(table) * cell + 6
            found.append(label(side, y + cell / 2, f"{sum(row):,}", 9, SOFT, "start"))
    below = y0 + len(table) * cell
    received = table.sum(axis=0)
    found.append(label(x0, below + 14, f"each receives at most {int(received.max()):,} bytes", 10, SOFT, "start"))
    found.append(label(x0, below + 28, f"each sends at most {int(table.sum(axis=1).max()):,} bytes", 10, SOFT, "start"))
    return found
