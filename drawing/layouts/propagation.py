"""Picture of Sharding Propagation step by step: the candidates of each operator, what the edge costs, and the choice.

After the figure of "Sharding Propagation" in the documentation of MindSpore 2.1, with a panel for each step.
"""

from collections.abc import Mapping

from chalk.types import Diagram

from drawing.palette import ALARM, EDGE, EMPTY, GRID, INK, PAPER, SOFT, STEP, STEP_EDGE, STROKE, mix
from drawing.pen import box, label, lines, panel, stack, style, text_width, tooltip
from drawing.picture import Picture
from lib.layout import Candidate, Decision, GraphPlan, LayoutError, compared, strategy_text

from .graph import rows_of

LINE, SIZE, HEAD = 17.0, 10.5, 46.0
DOT_WIDTH, DOT_HEIGHT, DOT_DOWN = 15.0, 8.0, 15.0
BAR, TABLE = 110.0, 720.0
MAX_CANDIDATES, MAX_STEPS, MAX_ROWS = 6, 48, 40
SETTLED = mix(STROKE, PAPER, 0.55)


class StepTexts:
    """The texts of a step: its heading, the layout at the settled end, and the candidates, cheapest first."""

    def __init__(self, plan: GraphPlan, decision: Decision, number: int) -> None:
        self.decision = decision
        self.chosen = plan.operators[decision.operator]
        self.heading = f"{number}. {decision.operator}"
        self.at = f"{strategy_text(self.chosen.strategy)}, {decision.reason}"
        self.found: list[Candidate] = []
        known = []
        for edge in decision.reached:
            if edge.place is None:
                what = f"takes {edge.tensor} as"
            else:
                what = "is taken elsewhere as" if edge.neighbor in plan.storage_layouts else "leaves"
            known.append(f"{edge.neighbor} {what} {edge.known}")
        self.known = "; ".join(known)
        if decision.reached:
            options = compared(plan.graph, decision.operator, decision.reached, decision.full)
            self.found = sorted(options, key=lambda each: each.rank)

    @property
    def shown(self) -> list[Candidate]:
        return self.found[:MAX_CANDIDATES]

    @property
    def rest(self) -> str:
        """How many candidates are not shown, and their costs."""
        others = self.found[MAX_CANDIDATES:]
        if not others:
            return ""
        costs = [each.edges.communication for each in others]
        return f"and {len(others)} more, {min(costs):,.0f} to {max(costs):,.0f} sent"

    def is_chosen(self, candidate: Candidate) -> bool:
        return candidate.choice.inputs == self.chosen.inputs


def draw_propagation(plan: GraphPlan, title: str = "Sharding Propagation, step by step", dark: bool = False) -> Picture:
    """How the breadth-first rule completed a graph: a panel for each operator, in the order in which it was settled."""
    if not plan.decisions:
        raise LayoutError("only a plan that propagate made has steps; draw_plan shows any plan")
    steps = list(plan.decisions.values())
    words = f"{len(steps)} operators, settled one after the other along the edge that is cheapest"
    left = steps[MAX_STEPS:]
    if left:
        words += f"; the last {len(left)}, from '{left[0].operator}', are not shown"
    head = [label(0, 10, title, 15, INK, "start", bold=True), label(0, 28, words, 11, SOFT, "start")]
    note = "Left: the operators, those settled so far filled. Gold: chosen. "
    note += "A bar: bytes that the edge sends, as MindSpore counts them."
    head.append(label(0, 42, note, 10, SOFT, "start"))
    dots = _dots(plan)
    panels = [panel(max(TABLE, text_width(note, 10)), 58, head)]
    for i, decision in enumerate(steps[:MAX_STEPS]):
        settled = {each.operator for each in steps[:i]}
        panels.append(_panel(plan, StepTexts(plan, decision, i + 1), settled, dots))
    return Picture(stack(panels), title, words, dark)


def _dots(plan: GraphPlan) -> Mapping[str, tuple[float, float]]:
    """A place for each operator in the small map of the graph; none if there are too many rows."""
    rows = [[name for name in row if name in plan.operators] for row in rows_of(plan.graph)]
    rows = [row for row in rows if row]
    if len(rows) > MAX_ROWS:
        return {}
    across = DOT_WIDTH + 7
    places = [(name, column, row) for row, names in enumerate(rows) for column, name in enumerate(names)]
    return {name: (column * across, row * DOT_DOWN) for name, column, row in places}


def _panel(plan: GraphPlan, step: StepTexts, settled: set[str], dots: Mapping[str, tuple[float, float]]) -> Diagram:
    left = max((x for x, _ in dots.values()), default=-26.0) + DOT_WIDTH + 24
    parts = _map(plan, step.decision, settled, dots) if step.found else []
    parts.append(label(left, 16, step.heading, 12, INK, "start", bold=True))
    parts.append(label(left + text_width(step.heading, 12, True) + 12, 16, step.at, SIZE, SOFT, "start"))
    parts.append(label(left, 33, step.known, SIZE, SOFT, "start"))
    most = max((each.edges.communication for each in step.found), default=0) or 1
    y = HEAD
    for each in step.shown:
        mine = step.is_chosen(each)
        if mine:
            parts.append(box(left - 6, y - 1, left + TABLE, y + LINE - 2, style(STEP, STEP_EDGE, 1)))
        middle = y + LINE / 2 - 1
        parts.append(label(left, middle, strategy_text(each.choice.strategy), SIZE, INK, "start", bold=mine))
        bar = left + 210
        sent = each.edges.communication
        if sent:
            parts.append(box(bar, y + 3, bar + BAR * sent / most, y + LINE - 5, style(ALARM)))
        parts.append(label(bar + BAR + 86, middle, f"{sent:,.0f} sent", SIZE, ALARM if sent else INK, "end"))
        rest = f"{each.edges.computation:,.0f} copied, {each.own.computation:,.0f} read, "
        rest += f"{each.own.communication:,.0f} all-reduced"
        parts.append(label(left + TABLE - 6, middle, rest, SIZE - 0.5, SOFT, "end"))
        y += LINE
    if step.rest:
        parts.append(label(left, y + LINE / 2 - 1, step.rest, SIZE, SOFT, "start"))
        y += LINE
    lowest = max((top for _, top in dots.values()), default=0.0) + DOT_HEIGHT + 16
    height = max(y, lowest) + 10 if step.found else 30.0
    parts.append(lines([[(0, 1), (left + TABLE, 1)]], style(stroke=GRID, width=1)))
    return panel(left + TABLE + 4, height, parts)


def _map(
    plan: GraphPlan, decision: Decision, settled: set[str], dots: Mapping[str, tuple[float, float]]
) -> list[Diagram]:
    """The graph as small boxes: settled ones filled, the current one gold, its edge thick."""
    found: list[Diagram] = []
    top = 12.0
    for edge in plan.edges:
        if edge.tensor in dots and edge.operator in dots:
            (x0, y0), (x1, y1) = dots[edge.tensor], dots[edge.operator]
            line = [(x0 + DOT_WIDTH / 2, top + y0 + DOT_HEIGHT), (x1 + DOT_WIDTH / 2, top + y1)]
            mine = any({edge.tensor, edge.operator} == {each.neighbor, decision.operator} for each in decision.reached)
            found.append(lines([line], style(stroke=STEP_EDGE if mine else EDGE, width=2.2 if mine else 0.8)))
    for name, (x, y) in dots.items():
        dot = style(SETTLED if name in settled else EMPTY, EDGE, 0.8)
        if name == decision.operator:
            dot = style(STEP_EDGE, STEP_EDGE, 1.2)
        found.append(tooltip(box(x, top + y, x + DOT_WIDTH, top + y + DOT_HEIGHT, dot), name))
    return found
