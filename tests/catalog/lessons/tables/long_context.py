"""Solutions that skip the lessons of the chapter Long context."""

from __future__ import annotations

from tests.catalog.lessons.families.context import ring
from tests.catalog.lessons.tables.common import Skips
from tests.support.mistakes import altered

CUT = "[[share] for share in range(model.SHARES)]"
AHEAD = "min(last - me + shares - 1, len(there))"

SWAPPED = (
    ('group="gpu"', 'group="machine"'),
    ('model.index("machine"), model.index("gpu")', 'model.index("gpu"), model.index("machine")'),
    ('model.axis("machine")', 'model.axis("gpu")'),
)
AT_ONCE = (
    (
        'sending = model.pass_to(peer, activations["keys", layer])',
        'await model.pass_to(peer, activations["keys", layer])',
    ),
    (
        'sending = model.pass_to(peer, grad_activations["there"])',
        'await model.pass_to(peer, grad_activations["there"])',
    ),
    ("        await sending\n", ""),
)
DEALT = "dealt(setting.lengths, setting.costs.ticks, model.RANKS)[model.rank]"

CONTIGUOUS, CONTIGUOUS_KEPT = ring(zigzag=False, kept=False), ring(zigzag=False, kept=True)
KEPT = ring(zigzag=True, kept=True)

SKIPS: Skips = {
    "seq_pipeline": {
        "whole sequences": (altered("seq_pipeline", ((CUT, "[[*range(8)]]"),)), {"time", "memory"}),
        "halves": (altered("seq_pipeline", ((CUT, "[[0, 1, 2, 3], [4, 5, 6, 7]]"),)), {"time", "memory"}),
        "quarters": (altered("seq_pipeline", ((CUT, "[[0, 1], [2, 3], [4, 5], [6, 7]]"),)), {"time", "memory"}),
        "gpipe": (altered("seq_pipeline", ((AHEAD, "len(there)"),)), {"memory"}),
        "two shares more ahead": (altered("seq_pipeline", ((AHEAD, AHEAD.replace("- 1", "+ 1")),)), {"memory"}),
    },
    "ring_context": {
        "contiguous tokens": (CONTIGUOUS, {"time", "memory"}),
        "contiguous tokens, blocks kept": (CONTIGUOUS_KEPT, {"time", "memory"}),
        "blocks kept": (KEPT, {"memory"}),
        "heads are exchanged": (altered("ulysses", ()), {"time", "traffic"}),
    },
    "ulysses": {
        "contiguous tokens": (CONTIGUOUS, {"time", "memory", "traffic"}),
        "contiguous tokens, blocks kept": (CONTIGUOUS_KEPT, {"time", "memory", "traffic"}),
        "blocks kept": (KEPT, {"memory", "traffic"}),
        "a ring in zigzag": (altered("ring_context", ()), {"memory", "traffic"}),
    },
    "two_dimensions": {
        "heads among all": (altered("ulysses", ()), {"time"}),
        "a ring in zigzag over all": (altered("ring_context", ()), {"time", "traffic"}),
        "heads between, blocks within": (altered("two_dimensions", SWAPPED), {"time"}),
        "messages do not overlap": (altered("two_dimensions", AT_ONCE), {"time"}),
    },
    "packing": {
        "in turn": (altered("packing", ((DEALT, "[*range(model.rank, 12, 3)]"),)), {"time"}),
        "equal tokens": (altered("packing", (('ticks["attend"] * lengths[batch] ** 2', "0"),)), {"time"}),
        "equal squares": (altered("packing", (('ticks["keys"] * lengths[batch] +', ""),)), {"time"}),
        "shortest first": (altered("packing", (("-lengths[batch])", "lengths[batch])"),)), {"time", "memory"}),
    },
}
