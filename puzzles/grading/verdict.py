"""The result of one puzzle in one file, the same for all tracks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

VERSION = 1
"""Of the JSON form; it grows when a field changes its meaning or goes away."""

SCHEDULE_FIGURES = ("timesteps", "makespan", "peak_memory")
"""In JSON these stand by themselves, as they did when there were schedules only."""


@dataclass(frozen=True)
class Verdict:
    """What the grader says of one puzzle: `status` is passed, over_target, failed or not_attempted.

    `targets` and `figures` by name: of a schedule time in steps and memory in elements, of a class what its puzzle
    asks for, of a layout bytes. No figures where the puzzle was not solved correctly.
    """

    puzzle: str
    track: str
    status: str
    targets: Mapping[str, int]
    reason: str | None = None
    stars: int = 0
    figures: Mapping[str, float] = field(default_factory=dict)
    message: str = ""
    notes: tuple[str, ...] = ()
    source: str = ""
    """The line of the player's file that the message is about."""
    printed: tuple[str, ...] = ()
    """The first lines of what the player's code printed at the shown size."""
    trace: str = ""
    """What was judged at the shown size, as JSON, where it was asked for: a schedule's trace, a layout's strategies."""

    @property
    def attempted(self) -> bool:
        return self.status != "not_attempted"

    @property
    def timesteps(self) -> float | None:
        """Of a schedule: the start of its last event."""
        return self.figures.get("timesteps")

    @property
    def makespan(self) -> float | None:
        """Of a schedule: the end of its last event."""
        return self.figures.get("makespan")

    @property
    def peak_memory(self) -> float | None:
        """Of a schedule: in elements."""
        return self.figures.get("peak_memory")

    def as_json(self) -> dict[str, Any]:
        """The fields that the grade command's JSON promises, in its order."""
        told: dict[str, Any] = {"puzzle": self.puzzle, "status": self.status, "reason": self.reason}
        told["stars"] = self.stars
        if self.track == "schedule":
            told |= {name: self.figures.get(name) for name in SCHEDULE_FIGURES}
        else:
            told |= {"track": self.track, "figures": dict(self.figures)}
        return {**told, "target": dict(self.targets), "message": self.message, "notes": list(self.notes)}


@dataclass(frozen=True)
class Graded:
    """One file with its verdicts, in the order of the catalogs: the puzzles that were asked for; or every schedule,
    and the classes and layouts that the file attempts."""

    path: str
    verdicts: tuple[Verdict, ...]

    @property
    def attempted(self) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.attempted)

    def row(self) -> dict[str, Any]:
        """All of it as plain data, for the checkpoint."""
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
