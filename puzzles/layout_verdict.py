"""The result of one layout puzzle in one file: the same four statuses as for schedules, measured in bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .verdict import VERSION


@dataclass(frozen=True)
class LayoutVerdict:
    """What the grader says of one layout puzzle: `status` is passed, over_target, failed or not_attempted.

    Bytes moved are of all devices together, memory is of each; None where there is no plan.
    """

    puzzle: str
    status: str
    target_bytes: int
    memory_cap: int
    reason: str | None = None
    stars: int = 0
    bytes_moved: int | None = None
    memory: int | None = None
    message: str = ""
    notes: tuple[str, ...] = ()
    source: str = ""
    """The line of the player's file that the message is about."""

    @property
    def attempted(self) -> bool:
        return self.status != "not_attempted"

    def as_json(self) -> dict[str, Any]:
        """The fields that the grade command's JSON promises, in its order."""
        return {
            "puzzle": self.puzzle,
            "status": self.status,
            "reason": self.reason,
            "stars": self.stars,
            "bytes_moved": self.bytes_moved,
            "memory": self.memory,
            "target": {"bytes": self.target_bytes, "memory": self.memory_cap},
            "message": self.message,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class LayoutGraded:
    """One file with its verdicts, in the order of the catalog."""

    path: str
    verdicts: tuple[LayoutVerdict, ...]

    @property
    def attempted(self) -> tuple[LayoutVerdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.attempted)


def as_json(files: Iterable[LayoutGraded]) -> dict[str, Any]:
    """The whole result as the grade command prints it."""
    return {
        "version": VERSION,
        "files": [{"path": f.path, "results": [v.as_json() for v in f.verdicts]} for f in files],
    }


def all_passed(files: Sequence[LayoutGraded]) -> bool:
    """Whether something was attempted, and all of that passed."""
    attempted = [verdict for graded in files for verdict in graded.attempted]
    return bool(attempted) and all(verdict.status == "passed" for verdict in attempted)
