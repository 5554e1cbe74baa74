"""A draft as a run: what can be computed of a timetable that is not complete yet."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from lib import Model
from lib.errors import RuleError

from .cells import Dependencies
from .draft import Draft
from .feasibility import DryRun, by_message, by_stream, untagged
from .timetable import Timetable
from .timetable_rank import TimetableRank


@dataclass(frozen=True)
class BegunTable(Timetable):
    """The cells of a draft whose inputs are made by other cells of it, in the order of their rows."""

    count: int = 1
    has_tags: bool = False

    @classmethod
    def of_draft(cls, draft: Draft, has_tags: bool) -> BegunTable:
        """All that can be computed."""
        rows = tuple(tuple((cell,) for cell in row) for row in draft.computable())
        return cls(rows, count=draft.stages, has_tags=has_tags)

    def __post_init__(self) -> None:
        needs = Dependencies(self.rows, self.count)
        tags = (untagged, by_stream, by_message(self.count)) if self.has_tags else (untagged,)
        tag = next((tag for tag in tags if not DryRun(self.rows, tag, needs).stuck), None)
        if tag is None:
            raise RuleError("in this order messages between two ranks would change places, which needs tags")
        object.__setattr__(self, "needs", needs)
        object.__setattr__(self, "tag", tag)

    @property
    def stages(self) -> int:
        return self.count


def begun(table: BegunTable) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """The schedule that computes these cells, and updates the layers whose gradients are complete."""

    async def schedule(model: Model) -> None:
        await _BegunRank(model, table, recompute=False, sharded=False, buffered=False).train()

    return schedule


class _BegunRank(TimetableRank):
    """One rank, which may end early."""

    async def update(self, layer: int) -> None:
        grad = self.model.grad_weights.get(layer)
        if grad is not None and len(grad.batches) == self.model.BATCHES:
            await super().update(layer)
