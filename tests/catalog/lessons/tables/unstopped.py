"""Solutions that skip a lesson and that no target stops yet. A gap that is closed goes to its chapter's table."""

from __future__ import annotations

from tests.catalog.lessons.families.grid import grid
from tests.catalog.lessons.tables.common import Skips, two_by_two

UNSTOPPED: Skips = {
    "pipeline": {"two pipelines of two stages": (two_by_two(), set())},
    "gpipe": {"two pipelines of two stages": (two_by_two(), set())},
    "pipeline_fsdp": {"full weights of a stage on four replicas": (grid(4, 1, 4, in_messages=True), set())},
}
"""Each with three stars: a classic has two anyway, by the original's targets."""
