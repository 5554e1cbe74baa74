"""What came of a play: figures, words, the place in the player's code, and the run itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lib import Report, Trace
from puzzles.catalog.schedule import PUZZLES, Puzzle

from .source_lines import NOWHERE, Place

HEADLINES = {
    "passed": "Solved!",
    "over_target": "Correct, but over target",
    "failed": "Not yet",
    "not_attempted": "Not attempted",
}


@dataclass(frozen=True, repr=False)
class Result:
    """One play of one puzzle: `status` is passed, over_target, failed or not_attempted, as in the grader.

    `trace` goes as far as the run went, `report` is there if it went to its end.
    """

    puzzle: Puzzle
    status: str
    stars: int = 0
    reason: str = ""
    message: str = ""
    notes: tuple[str, ...] = ()
    place: Place = NOWHERE
    report: Report | None = None
    trace: Trace | None = None

    @property
    def headline(self) -> str:
        return HEADLINES[self.status]

    @property
    def stars_text(self) -> str:
        return "★" * self.stars + "☆" * (3 - self.stars)

    @property
    def figures(self) -> str:
        """Timesteps and peak memory beside their targets, if the schedule is correct."""
        if self.report is None or self.report.error is not None:
            return ""
        goal, peak = self.puzzle.goal, self.report.peak.memory
        return (
            f"{self.report.timesteps:g} steps (target {goal.time}), {peak:,} elements on one rank "
            f"(target {goal.memory:,})"
        )

    @property
    def next_step(self) -> str:
        """What to try now."""
        slug, report = self.puzzle.slug, self.report
        match self.status:
            case "not_attempted":
                return f"Write your lines between the two marks in {slug}, run that cell, then this one again."
            case "failed":
                return (
                    f"Mend it, and play again. There are hints below the puzzle; `puzzles hint {slug}` gives them too."
                )
            case "over_target":
                assert report is not None
                if not report.meets_memory:
                    peak = report.peak
                    return (
                        f"Rank {peak.rank} holds most at t={peak.time:g}. What is stored there that no operation "
                        "will read again? 'del' it as soon as that is so."
                    )
                return "Look for empty stretches in the picture: there a rank waits. What could it do meanwhile?"
        return f"{self._third_star()}{self._following()}"

    def _third_star(self) -> str:
        if self.stars == 3 or self.report is None:
            return ""
        steps, memory = self.report.timesteps, self.report.peak.memory
        better = next((r for r in self.puzzle.goal.records if r.dominates(steps, memory)), None)
        if better is None:
            return "For the third star, see the note. "
        known = f"a schedule of {better.timesteps:g} steps and {better.peak_memory:,} elements is known"
        return f"For the third star: {known}. "

    def _following(self) -> str:
        after = [puzzle for puzzle in PUZZLES.values() if puzzle.number == self.puzzle.number + 1]
        if after:
            return f"On to puzzle {after[0].number}, {after[0].title}."
        return "That was the last puzzle. Well played!"

    def __repr__(self) -> str:
        return f"<{self.puzzle.slug}: {self.status.replace('_', ' ')}, {self.stars_text}>"

    def show(self) -> None:
        """Shows it again."""
        from .display import show

        show(self)

    def _ipython_display_(self) -> None:
        """Asked for by name, it shows itself; in the cell that played it has done so already."""
        from .display import shown_in_this_cell

        if not shown_in_this_cell(self):
            self.show()

    def text(self) -> str:
        """The result in plain text."""
        lines = [f"{self.stars_text} Puzzle {self.puzzle.number}, {self.puzzle.slug}: {self.headline} {self.figures}"]
        lines += [self.message] if self.message else []
        lines += [f"{'->' if n == self.place.line else '  '} {n:>4} {code}" for n, code in self.place.excerpt()]
        lines += [f"Note: {note}" for note in self.notes]
        return "\n".join(line.rstrip() for line in [*lines, self.next_step])

    def as_dict(self) -> dict[str, Any]:
        """The figures by name, for programs."""
        report = self.report
        correct = report is not None and report.error is None
        return {
            "puzzle": self.puzzle.slug,
            "status": self.status,
            "reason": self.reason or None,
            "stars": self.stars,
            "timesteps": report.timesteps if report is not None and correct else None,
            "peak_memory": report.peak.memory if report is not None and correct else None,
            "message": self.message,
            "notes": list(self.notes),
        }
