"""The figures of a record, or of a reference at another size, in words."""

from __future__ import annotations

from lib import Record
from puzzles.catalog.schedule.reference_figures import ReferenceAt


def record_text(row: Record | ReferenceAt) -> str:
    """'12.1 timesteps, 1,966,080 elements and 1,572,864 elements sent'; without what is not measured, or is 0."""
    traffic = getattr(row, "traffic", None)
    return figures_text(row.timesteps, row.peak_memory, traffic)


def figures_text(timesteps: float, memory: int, traffic: int | None = None) -> str:
    """The same of figures."""
    words = [f"{timesteps:g} timesteps", f"{memory:,} elements", *([f"{traffic:,} elements sent"] if traffic else [])]
    return f"{', '.join(words[:-1])} and {words[-1]}"
