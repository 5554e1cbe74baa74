"""The result of one puzzle in one file, the same for all tracks; its JSON; and what it is worth in points.

A verdict is plain data: a status, a reason where it failed, stars, figures by name, and sentences. It says nothing of
how it was reached, so a checkpoint, a report and an autograder read it alike. It is frozen, and a row that comes back
from a checkpoint is checked field by field, because the file may have been edited. Points are not part of it: a course
gives them, and may change them after grading.

Rejected: a class of verdicts for each track, which every table and report would have to tell apart; figures have names
instead. Rejected: a JSON of the class's own fields, whose names could then never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Protocol

from puzzles.tracks import ALL, TRACKS


@dataclass(frozen=True, slots=True)
class Student:
    """A student, or a group with its members; unknown fields are empty."""

    name: str = ""
    id: str = ""
    email: str = ""
    section: str = ""
    group: str = ""
    others: tuple[str, ...] = ()
    """Further identifiers: a login, an id in another system."""
    members: tuple[Student, ...] = ()
    """Of a group."""
    submitted: float | None = None
    """Seconds since 1970; None if unknown."""

    @property
    def identifiers(self) -> tuple[str, ...]:
        """Identifiers that no other student has."""
        return tuple(filter(None, (self.id, self.email, *self.others)))

    @property
    def people(self) -> tuple[Student, ...]:
        """The members of a group, or the student."""
        return self.members or (self,)


LOST = "lost"
"""Reason if the grader itself or its sandbox failed; `--resume` grades the file again."""


STATUSES = ("passed", "over_target", "failed", "not_attempted")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one puzzle; `status` is one of `STATUSES`.

    `targets` and `figures` are by name: time in steps and memory in elements for a schedule, the puzzle's own figures
    for a class, bytes for a layout. Only a correct solution has figures.
    """

    puzzle: str
    track: str
    status: str
    targets: Mapping[str, float]
    reason: str | None = None
    stars: int = 0
    figures: Mapping[str, float] = field(default_factory=dict)
    message: str = ""
    notes: tuple[str, ...] = ()
    source: str = ""
    """Text of the line that the message is about."""
    line: int = 0
    """The line's number; 0 if there is none."""
    file: str = ""
    """The file or cell of that line, if it may differ from the submission."""
    advice: str = ""
    """A sentence on how to meet the missed targets, where the run itself shows one."""
    printed: tuple[str, ...] = ()
    """The first lines that the player's code printed at the shown size."""
    why: tuple[str, ...] = ()
    """Lines that explain a figure, such as a schedule's peak. Shown on request."""
    why_matters: bool = False
    """True if that figure misses a target; then the lines are always shown."""
    family: str = ""
    """The kind of solution in a phrase, such as 'a pipeline'."""
    second_step: str = ""
    """The higher peak of a schedule's second step, and its reason, if there is one."""
    shown_size_only: bool = False
    """True if it is correct at the shown size, and fails at another."""
    found_in: str = ""
    """The path of its file, if the submission has several."""
    trace: str = ""
    """The run at the shown size as JSON, if requested: a trace or strategies."""
    secret: str = field(default="", compare=False)
    """The grader's, from which the values of further runs follow: with it, the judge reproduces the verdict."""

    @property
    def attempted(self) -> bool:
        return self.status != "not_attempted"

    @property
    def timesteps(self) -> float | None:
        """Start of a schedule's last event."""
        return self.figures.get("timesteps")

    @property
    def makespan(self) -> float | None:
        """End of a schedule's last event."""
        return self.figures.get("makespan")

    @property
    def peak_memory(self) -> float | None:
        """Of a schedule, in elements."""
        return self.figures.get("peak_memory")

    @property
    def traffic(self) -> float | None:
        """The elements that a schedule's busiest rank sends."""
        return self.figures.get("traffic")

    def as_json(self, why: bool = False) -> dict[str, Any]:
        """The verdict in the JSON of `puzzles grade`, which `docs/teaching.md` explains; `why` adds its lines."""
        head = {"puzzle": self.puzzle, "status": self.status, "reason": self.reason, "stars": self.stars}
        head |= {"shown_size_only": self.shown_size_only}
        track = TRACKS[self.track]
        figures, limits = track.words.figures_json(self.figures), track.words.limits_json(track.puzzle(self.puzzle))
        compared = {"target": dict(self.targets), "limits": limits}
        row = {**head, **figures, **compared, "message": self.message, "notes": list(self.notes)}
        return {**row, "why": list(self.why)} if why else row


@dataclass(frozen=True, slots=True)
class Graded:
    """A submission of one or more files with its verdicts, in the order of the catalogs: on the puzzles that were asked
    for; or on every schedule, and on the classes and layouts that it attempts."""

    path: str
    verdicts: tuple[Verdict, ...]
    student: Student = Student()  # immutable
    name: str = ""
    """Its name in reports; empty to use the path."""
    unit: int = 0
    """Its place among the submissions of a run, which is its only key: two may have the same name and path."""

    @property
    def attempted(self) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.attempted)

    @property
    def is_lost(self) -> bool:
        return any(verdict.reason == LOST for verdict in self.verdicts)

    def row(self) -> dict[str, Any]:
        """The path and the verdicts as plain data, for the checkpoint."""
        return {"path": self.path, "verdicts": [asdict(verdict) for verdict in self.verdicts]}

    @classmethod
    def of_row(cls, row: dict[str, Any]) -> Graded:
        """The inverse of `row`.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it is not such a row.
        """
        if not isinstance(row["path"], str):
            raise ValueError("the path is not a text")
        return cls(row["path"], tuple(map(_verdict_of, row["verdicts"])))


def _verdict_of(row: dict[str, Any]) -> Verdict:
    """A verdict, if every field has the right type and the puzzle exists."""
    given: dict[str, Any] = {name: tuple(value) if type(value) is list else value for name, value in row.items()}
    verdict = Verdict(**given)
    blank = Verdict("", "", "", {}, reason=verdict.reason and "")
    names = (field.name for field in fields(verdict))
    alike = all(type(getattr(verdict, name)) is type(getattr(blank, name)) for name in names)
    numbers = (*verdict.targets.values(), *verdict.figures.values())
    if (
        not alike
        or not all(isinstance(number, int | float) for number in numbers)
        or not all(isinstance(line, str) for line in (*verdict.notes, *verdict.printed, *verdict.why))
        or ALL[verdict.puzzle].name != verdict.track
        or verdict.status not in STATUSES
    ):
        raise ValueError("this is not a verdict")
    return verdict


Facts = Callable[..., Mapping[str, float]]
"""Further numbers on a submission or on one verdict, such as points."""


def as_json(files: Iterable[Graded], why: bool = False, facts: Facts = lambda *_: {}) -> dict[str, Any]:
    """The JSON of `puzzles grade`."""
    rows = []
    for graded in files:
        fields = ("name", "id", "email", "section", "group") if graded.name else ()
        people = [{name: value for name in fields if (value := getattr(one, name))} for one in graded.student.people]
        students = {"students": people} if graded.name else {}
        results = [{**v.as_json(why), **facts(graded, v)} for v in graded.verdicts]
        rows.append({"path": graded.path, **students, **facts(graded), "results": results})
    return {"version": 1, "files": rows}  # the number increases when a field changes its meaning or disappears


class Shared:
    """Makes equal verdicts on puzzles that were not attempted one object, which saves 46 MiB in a class of 1,000."""

    def __init__(self) -> None:
        self._seen: dict[str, Verdict] = {}

    def __call__(self, graded: Graded) -> Graded:
        return replace(graded, verdicts=tuple(map(self._one, graded.verdicts)))

    def _one(self, verdict: Verdict) -> Verdict:
        seen = verdict if verdict.attempted else self._seen.setdefault(verdict.puzzle, verdict)
        return seen if seen == verdict else verdict


def all_passed(files: Iterable[Graded]) -> bool:
    """True if there are attempts, and all of them passed."""
    attempted = [verdict for graded in files for verdict in graded.attempted]
    return bool(attempted) and all(verdict.status == "passed" for verdict in attempted)


# --- What verdicts are worth in points ---


class Lateness(Protocol):
    """What a course takes off for handing in late."""

    def days(self, student: Student) -> int:
        """How many days late a student is."""

    def kept(self, student: Student) -> float:
        """The share of the points that a student keeps."""


@dataclass(frozen=True)
class Scoring:
    """What a course gives for verdicts."""

    points: Mapping[str, float] = field(default_factory=dict)
    """Of puzzles; others have one."""
    partial: float = 0.5
    """The share of the points for a correct solution that is over target."""
    third_star: float = 0.0
    """Points that a third star adds."""
    shown_size: float = 0.5
    """The share for a solution that works only at the size that the puzzle shows."""
    late: Lateness | None = None
    is_stated: bool = False
    """True if the teacher has set any points; then reports show points."""

    def most(self, slug: str) -> float:
        """The points of a puzzle, without those for a third star."""
        return self.points.get(slug, 1.0)

    def earned(self, verdict: Verdict) -> float:
        """The points for a verdict, whenever it was handed in."""
        share = {"passed": 1.0, "over_target": self.partial}.get(verdict.status, 0.0)
        size = self.shown_size if verdict.shown_size_only else 1.0
        return self.most(verdict.puzzle) * share * size + (self.third_star if verdict.stars == 3 else 0.0)

    def score(self, graded: Graded, verdict: Verdict) -> float:
        """The points for a verdict in a submission."""
        return round(self.earned(verdict) * (self.late.kept(graded.student) if self.late else 1.0), 4)

    def total(self, graded: Graded) -> float:
        return round(sum(self.score(graded, verdict) for verdict in graded.verdicts), 4)

    def days_late(self, graded: Graded) -> int:
        return self.late.days(graded.student) if self.late else 0

    def facts(self, graded: Graded, verdict: Verdict | None = None) -> dict[str, float]:
        """What a report says of a verdict, or of a whole submission; empty if the teacher has set no points."""
        if not self.is_stated:
            return {}
        if verdict is not None:
            return {"points": self.score(graded, verdict), "max_points": self.most(verdict.puzzle)}
        return {"points": self.total(graded), **({"days_late": self.days_late(graded)} if self.late else {})}


NOTHING_STATED = Scoring()
"""A point for each puzzle, which reports do not mention."""
