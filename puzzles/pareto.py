"""The known schedules of a puzzle in the plane of time and memory, and the player's among them, as SVG."""

from __future__ import annotations

from xml.sax.saxutils import escape

from .catalog import Puzzle
from .verdict import Verdict

WIDTH, HEIGHT, MARGIN = 360, 200, 44


def pareto(puzzle: Puzzle, verdict: Verdict) -> str:
    """A dot for each record, a line at each target, a ring for the player. Only numbers and our own words."""
    goal = puzzle.goal
    mine = (verdict.timesteps or 0.0, float(verdict.peak_memory or 0))
    known = [(r.timesteps, float(r.peak_memory), r.by) for r in goal.records]
    points = [mine, (float(goal.time), float(goal.memory)), *((x, y) for x, y, _ in known)]
    right, top = (1.15 * max(values) for values in zip(*points))

    def place(x: float, y: float) -> tuple[float, float]:
        across = MARGIN + x / right * (WIDTH - MARGIN - 10)
        return round(across, 1), round(HEIGHT - 30 - y / top * (HEIGHT - 40), 1)

    (tx, ty), (mx, my), (x0, y0) = place(goal.time, goal.memory), place(*mine), place(0, 0)
    parts = [
        f'<path d="M{x0} 8V{y0}H{WIDTH - 8}" class="axis"/>',
        f'<path d="M{tx} 8V{y0}M{x0} {ty}H{WIDTH - 8}" class="target"/>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">timesteps (target {goal.time})</text>',
        f'<text x="12" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 12 {HEIGHT / 2})">memory</text>',
    ]
    for x, y, by in known:
        cx, cy = place(x, y)
        title = f"<title>{escape(by)}: {x:g} steps, {int(y):,} elements</title>"
        parts.append(f'<circle cx="{cx}" cy="{cy}" r="4" class="known">{title}</circle>')
    title = f"<title>yours: {mine[0]:g} steps, {int(mine[1]):,} elements</title>"
    parts.append(f'<circle cx="{mx}" cy="{my}" r="7" class="mine">{title}</circle>')
    label = f"known schedules of {puzzle.slug}, and yours"
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" class="pareto" role="img" aria-label="{label}">{"".join(parts)}</svg>'
