"""Solutions that skip the lessons of the chapter Long context."""

from __future__ import annotations

from tests.catalog.lessons.families.context import ring
from tests.catalog.lessons.tables.common import Skips
from tests.support.mistakes import altered

CONTIGUOUS, CONTIGUOUS_KEPT = ring(zigzag=False, kept=False), ring(zigzag=False, kept=True)
KEPT = ring(zigzag=True, kept=True)

SKIPS: Skips = {
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
    },
}
