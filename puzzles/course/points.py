"""What verdicts are worth in points."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import click

from puzzles.grading.verdict import Graded, Verdict
from puzzles.tracks import ALL, UnknownPuzzleError, find_group, find_several

from .lateness import Late


def parse_points(text: str) -> dict[str, float]:
    """'fsdp=10,engine=5' as points by puzzle; a track or chapter stands for each of its puzzles. All others have one.
    In any order, what names a puzzle counts, then what names the fewest puzzles.
    """
    found: dict[str, list[tuple[bool, int, float, str]]] = {}
    for pair in filter(None, text.split(",")):
        name, _, number = pair.partition("=")
        try:
            worth = float(number)
            if not 0 <= worth <= 10**6:
                raise ValueError
            is_group, slugs = find_group(name) is not None, find_several(name)
            for slug in slugs:
                found.setdefault(slug, []).append((is_group, len(slugs), worth, pair))
        except ValueError:
            raise click.UsageError(f"--points takes pairs like fsdp=10,gpipe=5; got '{pair}'") from None
        except UnknownPuzzleError as why:
            raise click.UsageError(f"--points: {why}") from None
    points = dict.fromkeys(ALL, 1.0)
    for slug, given in found.items():
        first = min(given, key=lambda one: one[:2])
        for other in given:
            if other[:2] == first[:2] and other[2] != first[2]:
                raise click.UsageError(f"--points says both {first[3]} and {other[3]} of {slug}; keep one of them")
        points[slug] = first[2]
    return points


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
    late: Late | None = None
    is_stated: bool = False
    """True if the teacher has said what anything is worth; then reports show points."""

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
        """The points for a submission."""
        return round(sum(self.score(graded, verdict) for verdict in graded.verdicts), 4)

    def days_late(self, graded: Graded) -> int:
        """How many days late a submission is."""
        return self.late.days(graded.student) if self.late else 0

    def facts(self, graded: Graded, verdict: Verdict | None = None) -> dict[str, float]:
        """What a report says of a verdict, or of a whole submission; nothing unless the teacher has said anything."""
        if not self.is_stated:
            return {}
        if verdict is not None:
            return {"points": self.score(graded, verdict), "max_points": self.most(verdict.puzzle)}
        return {"points": self.total(graded), **({"days_late": self.days_late(graded)} if self.late else {})}


NOTHING_STATED = Scoring()
"""A point for each puzzle, which reports do not mention."""
