"""A plan as text for a terminal: its operators and moves, each device's contents, and the steps of the propagation.

Lines are at most `width` columns wide, and nothing is cut: longer lines continue, indented, on the next. The texts have
colours for a terminal; `.plain` has none.
"""

from collections.abc import Collection
from math import inf, prod
from textwrap import wrap

from rich.style import Style
from rich.text import Text

from drawing.layout_graph import StepTexts
from drawing.layout_tensor import held_number, limits_text, memory_text, piece_colour, piece_text
from drawing.palette import ALARM, INK, STEP_EDGE
from lib.layout import GraphPlan, strategy_text

INDENT = "    "
MOVES = Style(color=ALARM)
CONFIGURED = Style(color=STEP_EDGE, bold=True)


def explained(plan: GraphPlan, width: int) -> Text:
    """The lines of `explain`, wrapped to a screen of that width."""
    found = Text()
    for line in plan.explain().splitlines():
        _add(found, line, width)
    return found


def plan_text(plan: GraphPlan, width: int, target: float = inf, cap: float = inf, given: Collection[str] = ()) -> Text:
    """The plan as `explain` has it, with the reason of each layout, and the limits."""
    found = Text()
    for line in plan.explain().splitlines()[:-1]:
        name = line.partition(":")[0]
        if line.startswith("  "):
            _add(found, line, width, None if line.endswith(" 0 bytes") else MOVES)
        elif name not in plan.operators:
            _add(found, line, width)
        else:
            _add(found, line, width, CONFIGURED if name in plan.graph.strategies else None)
            if why := "configured by the puzzle" if name in given else plan.reason(name):
                _add(found, f"{INDENT}{why}", width)
    moved, held = limits_text(plan, target, cap)
    sent = f"{moved}, at most {int(plan.sent.max()):,} by a device"
    _add(found, sent, width, MOVES if plan.bytes > target else None)
    _add(found, held, width, MOVES if plan.memory > cap else None)
    return found


def holders_text(plan: GraphPlan, width: int) -> Text:
    """A row for each tensor: the bytes on each device, and the piece of every device in its colour.

    A piece is the number of its part along each split dimension. If the devices do not fit side by side, they are in
    several blocks, without the layouts.
    """
    layouts, devices = (
        {name: plan.layout(name) for name in (*plan.storage_layouts, *plan.operators)},
        plan.graph.devices,
    )
    names = {name: f"{name} {layout}" for name, layout in layouts.items()}
    held = {name: held_number(plan, name) for name in layouts}
    cells = {name: [piece_text(layout, device) for device in range(devices)] for name, layout in layouts.items()}
    wide = max(map(len, [str(devices - 1), *(text for row in cells.values() for text in row)])) + 2
    sizes = max(map(len, [*held.values(), "bytes"]))
    left = max(map(len, names.values()))
    if left + 3 + sizes + devices * wide > width:
        names = {name: name for name in layouts}
        left = max(map(len, names))
    room = max((width - left - sizes - 3) // wide, 1)
    found = Text()
    for first in range(0, devices, room):
        shown = range(first, min(first + room, devices))
        head = f"{'device':<{left}}  {'bytes':>{sizes}} " + "".join(f"{device:>{wide}}" for device in shown)
        found.append(head.rstrip() + "\n", Style(bold=True))
        for name, layout in layouts.items():
            found.append(f"{names[name]:<{left}}  {held[name]:>{sizes}} ")
            for device in shown:
                found.append(" ")
                whole = prod(layout.splits) == 1
                style = Style() if whole else Style(color=INK, bgcolor=piece_colour(layout, device))
                found.append(f"{cells[name][device]:>{wide - 1}}", style)
            found.append("\n")
        if shown.stop < devices:
            found.append("\n")
    _add(found, memory_text(plan), width)
    return found


def propagation_text(plan: GraphPlan, width: int) -> Text:
    """The steps in which the breadth-first rule settled the operators, each with its cheapest candidates."""
    found = Text()
    for number, decision in enumerate(plan.decisions.values(), start=1):
        step = StepTexts(plan, decision, number)
        _add(found, f"{step.heading}: {step.at}", width, Style(bold=True) if decision.reached else CONFIGURED)
        if step.known:
            _add(found, f"{INDENT}{step.known}", width)
        shown = step.found[:4]
        wide = max((len(strategy_text(each.choice.strategy)) for each in shown), default=0)
        for each in shown:
            mine = step.is_chosen(each)
            text = f"{strategy_text(each.choice.strategy):<{wide}} {each.edges.communication:>11,.0f} sent"
            _add(found, f"  {'>' if mine else ' '} {text}{'  chosen' if mine else ''}", width, Style(bold=mine))
        if len(step.found) > len(shown):
            _add(found, f"{INDENT}and {len(step.found) - len(shown)} more", width)
    return found


def _add(found: Text, line: str, width: int, style: Style | None = None) -> None:
    start = line[: len(line) - len(line.lstrip())]
    for one in wrap(line, width, subsequent_indent=start + INDENT, break_on_hyphens=False):
        found.append(one + "\n", style)
