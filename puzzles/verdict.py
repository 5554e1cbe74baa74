"""The result of one puzzle in one file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

VERSION = 1
"""Of the JSON form; it grows when a field changes its meaning or goes away."""


@dataclass(frozen=True)
class Verdict:
    """What the grader says of one puzzle: `status` is passed, over_target, failed or not_attempted.

    Times in steps, memory in elements; None where the puzzle was not solved correctly.
    """

    puzzle: str
    status: str
    target_time: int
    target_memory: int
    reason: str | None = None
    stars: int = 0
    timesteps: float | None = None
    makespan: float | None = None
    peak_memory: int | None = None
    message: str = ""
    notes: tuple[str, ...] = ()
    source: str = ""
    """The line of the player's file that the message is about."""
    printed: tuple[str, ...] = ()
    """The first lines of what the player's code printed at the shown size."""
    trace: str = ""
    """The trace at the shown size as JSON, where it was asked for."""

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
            "timesteps": self.timesteps,
            "makespan": self.makespan,
            "peak_memory": self.peak_memory,
            "target": {"time": self.target_time, "memory": self.target_memory},
            "message": self.message,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Graded:
    """One file with its verdicts, in the order of the catalog."""

    path: str
    verdicts: tuple[Verdict, ...]

    @property
    def attempted(self) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.attempted)

    def row(self) -> dict[str, Any]:
        """All of it as plain data, for the journal."""
        return asdict(self)

    @classmethod
    def of_row(cls, row: dict[str, Any]) -> Graded:
        """What `row` told."""
        tuples = ("notes", "printed")
        verdicts = [{k: tuple(v) if k in tuples else v for k, v in given.items()} for given in row["verdicts"]]
        return cls(row["path"], tuple(Verdict(**given) for given in verdicts))


def as_json(files: Iterable[Graded]) -> dict[str, Any]:
    """The whole result as the grade command prints it."""
    return {
        "version": VERSION,
        "files": [{"path": f.path, "results": [v.as_json() for v in f.verdicts]} for f in files],
    }


def all_passed(files: Iterable[Graded]) -> bool:
    """Whether something was attempted, and all of that passed."""
    attempted = [verdict for graded in files for verdict in graded.attempted]
    return bool(attempted) and all(verdict.status == "passed" for verdict in attempted)
