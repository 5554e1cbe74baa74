"""Picture of a collective: each rank's value before and after, computed by the runtime's own rule."""

from base64 import b64encode

from lib import Value, Weight, WeightGrad
from lib.rules.collectives import COLLECTIVE_RULES

RANKS = 4
BOX, GAP, DOT = 44, 12, 8
BEFORE, AFTER = 70, 250
INK, SOFT, WIRE, FULL, BARE = "#1f2933", "#5a6675", "#44546a", "#2a788e", "#f5f7f9"

TITLES = {
    "allreduce": "all-reduce: every rank gets the sum of all batches' gradients",
    "allgather": "all-gather: every rank gets all shards, joined",
    "scatterreduce": "reduce-scatter: every rank gets one shard of the summed gradient",
}


def brought(name: str) -> list[Value]:
    """Each rank's value before the collective: a shard of a weight, or the full gradient of one batch."""
    if name == "allgather":
        return [Weight(0, 1, 0, frozenset({rank}), RANKS) for rank in range(RANKS)]
    return [WeightGrad(0, 1, frozenset({rank}), RANKS) for rank in range(RANKS)]


def collective_svg(name: str) -> str:
    """The picture as SVG: the filled part of a box is the share of the weight that is held; dots are batches."""
    before = brought(name)
    after = COLLECTIVE_RULES[name](before, None, ())
    height = 34 + RANKS * (BOX + GAP)
    parts = [_text(BEFORE + BOX / 2, 16, "contributes", SOFT), _text(AFTER + BOX / 2, 16, "gets", SOFT)]
    for rank in range(RANKS):
        y = 30 + rank * (BOX + GAP)
        parts += [_text(56, y + BOX / 2, f"rank {rank}", INK, "end"), _value(before[rank], BEFORE, y)]
        parts.append(_value(after[rank], AFTER, y))
    first, last = 30 + BOX / 2, height - 4 - GAP - BOX / 2
    middle = (BEFORE + AFTER + BOX) / 2 + DOT
    for rank in range(RANKS):
        centre = 30 + rank * (BOX + GAP) + BOX / 2
        parts.append(_line(f"M{BEFORE + BOX + 20} {centre:g}H{middle:g}"))
        parts.append(_line(f"M{middle:g} {centre:g}H{AFTER - 8}m-5 -4l5 4l-5 4"))
    parts.append(_line(f"M{middle:g} {first:g}V{last:g}", width=5))
    title = TITLES[name]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="340" height="{height}" role="img" aria-label="{title}" '
        f"font-family=\"'Helvetica Neue',Helvetica,Arial,sans-serif\"><title>{title}</title>"
        f'<rect width="100%" height="100%" rx="6" fill="#fff"/>{"".join(parts)}</svg>'
    )


def collective_markdown(name: str) -> str:
    data = b64encode(collective_svg(name).encode()).decode()
    return f"![{TITLES[name]}](data:image/svg+xml;base64,{data})"


def _value(value: Value, x: float, y: float) -> str:
    assert isinstance(value, Weight | WeightGrad)
    strip = BOX / value.total
    shards = "".join(
        f'<rect x="{x}" y="{y + shard * strip:g}" width="{BOX}" height="{strip:g}" fill="{FULL}"/>'
        for shard in sorted(value.shards)
    )
    frame = f'<rect x="{x}" y="{y}" width="{BOX}" height="{BOX}" fill="none" stroke="{WIRE}"/>'
    ground = f'<rect x="{x}" y="{y}" width="{BOX}" height="{BOX}" fill="{BARE}"/>'
    return ground + shards + frame + _batches(value, x + BOX + 5, y)


def _batches(value: Value, x: float, y: float) -> str:
    """A dot for each batch of the step, filled if the gradient includes it; none for a weight."""
    if not isinstance(value, WeightGrad):
        return ""
    step = BOX / RANKS
    return "".join(
        f'<circle cx="{x + DOT / 2:g}" cy="{y + (batch + 0.5) * step:g}" r="3.5" stroke="{INK}" '
        f'fill="{INK if batch in value.batches else "none"}"/>'
        for batch in range(RANKS)
    )


def _line(path: str, width: float = 1.5) -> str:
    return f'<path d="{path}" fill="none" stroke="{WIRE}" stroke-width="{width:g}" stroke-linecap="round"/>'


def _text(x: float, y: float, text: str, colour: str, anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y + 4:g}" font-size="11" fill="{colour}" text-anchor="{anchor}">{text}</text>'
