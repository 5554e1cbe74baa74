"""Refusals: registers schedules with the words of their refusal, checks the words, and forges records of a trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from lib import Op, PuzzleError, Setting, Trace

Edit = Callable[[list[Op]], list[Op]]


class Refusals(dict[str, tuple[Any, Setting, tuple[str, ...]]]):
    """By name: a schedule that must be refused, its setting, and what the message must say."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.setting = setting

    def __call__(self, *says: str, setting: Setting | None = None) -> Callable[[Any], Any]:
        """Registers a schedule that must be refused with a message that says all of `says`."""

        def register(schedule: Any) -> Any:
            assert schedule.__name__ not in self, "each schedule has its own name"
            self[schedule.__name__] = (schedule, setting or self.setting, says)
            return schedule

        return register


def require_refusal(error: Any, *says: str, kind: type[PuzzleError] = PuzzleError) -> None:
    """Requires an error of a kind that says all of `says`."""
    assert isinstance(error, kind), f"not refused: {error!r}"
    assert [part for part in says if part not in str(error)] == [], str(error)


def edited(trace: Trace, edit: Edit, rank: int | None = None) -> Trace:
    """The trace with the same edit of every rank's operations, or of one rank's."""
    ranks = (edit(list(ops)) if rank in (None, r) else ops for r, ops in enumerate(trace.ranks))
    return replace(trace, ranks=tuple(map(tuple, ranks)))


def nth(ops: Sequence[Op], name: str, n: int = 0) -> int:
    """The index of the n-th operation of a name."""
    return [i for i, op in enumerate(ops) if op.name == name][n]


def with_columns(name: str, n: int = 0, **columns: Any) -> Edit:
    """Changes columns of the n-th operation of a name."""

    def edit(ops: list[Op]) -> list[Op]:
        at = nth(ops, name, n)
        ops[at] = ops[at]._replace(**columns)
        return ops

    return edit
