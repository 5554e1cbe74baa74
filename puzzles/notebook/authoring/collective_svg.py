"""Picture of a collective: each rank's value before and after, computed by the runtime's own rule."""

from base64 import b64encode

from lib import Value, Weight, WeightGrad
from lib.rules.collectives import COLLECTIVE_RULES
from puzzles.reports.html import rendered

RANKS = 4
INK, FULL = "#1f2933", "#2a788e"

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
    before = brought(name)
    rows = list(zip(before, COLLECTIVE_RULES[name](before, None, ())))
    has_batches = name != "allgather"
    return rendered("collective.svg", rows=rows, has_batches=has_batches, title=TITLES[name], ink=INK, full=FULL)


def collective_markdown(name: str) -> str:
    data = b64encode(collective_svg(name).encode()).decode()
    return f"![{TITLES[name]}](data:image/svg+xml;base64,{data})"
