"""Result of a play without targets, which shows itself in a notebook or a terminal: what the run took."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from lib import Report, Trace, peak_lines
from lib.judging.traffic import traffic_lines
from puzzles.failure import Failure
from puzzles.tracks.free_play import FreeGame, figures, picture, summary

from .display import Shown
from .html import excerpt, inline, lines_block, message, picture_frame
from .source_lines import SourceLine

COLOURS = {"correct": "#1a8754", "failed": "#c2410c"}


@dataclass(frozen=True, repr=False)
class FreeResult(Shown):
    """One play of a schedule at a size and in a setting: `status` is correct or failed."""

    game: FreeGame
    trace: Trace | None = None
    """The run, as far as it got."""
    report: Report | None = None
    """The referee's Report on a correct run; else None."""
    failure: Failure | None = None
    file: str = ""
    """The file or cell of the schedule."""
    explains: bool = False
    """True if the player asks for the explanation of the peak."""
    colour: str = "layer"
    """What the colours of operations show in its picture."""

    @property
    def status(self) -> str:
        return "failed" if self.failure else "correct"

    @property
    def reason(self) -> str:
        """The reason of a failure, in one word."""
        return self.failure.reason if self.failure else ""

    @property
    def message(self) -> str:
        return self.failure.sentence if self.failure else ""

    @property
    def values(self) -> Mapping[str, Any]:
        """What a correct run took, by name, as in `puzzles grade --json`."""
        return figures(self.report) if self.report is not None else {}

    @property
    def place(self) -> SourceLine:
        """The line that the message is about."""
        line = self.failure.line if self.failure else 0
        return SourceLine((self.failure and self.failure.file) or self.file, line)

    @property
    def why(self) -> Sequence[str]:
        """What the peak and the traffic of a correct run consist of, as lines."""
        return (*peak_lines(self.report.contents), *traffic_lines(self.report.sent)) if self.report is not None else ()

    def lines(self) -> Sequence[str]:
        """What a correct run took, in sentences."""
        found = summary(self.trace, self.report) if self.trace and self.report else ()
        return [*found, *filter(None, [self.game.stand_for, self.game.note])]

    def __repr__(self) -> str:
        if self.report is None:
            return f"<{self.game.slug}: failed>"
        return f"<{self.game.slug}: {self.report.timesteps:g} timesteps, {self.report.peak.memory:,} elements>"

    def text(self) -> str:
        lines = [self.game.title, *([self.message] if self.failure else [])]
        lines += [f"{'->' if n == self.place.line else '  '} {n:>4} {code}" for n, code in self.place.excerpt()]
        return "\n".join(line.rstrip() for line in [*lines, *self.lines(), *(self.why if self.explains else ())])

    def page(self) -> str:
        colour = COLOURS[self.status]
        parts = [
            f'<div style="font-size:19px;margin-bottom:4px"><b>{escape(self.game.slug)}</b> '
            f'<span style="opacity:.7">{escape(self.game.described)}</span></div>',
            message(self.message, colour),
            excerpt(self.place, colour),
            *(f'<p style="margin:4px 0;max-width:52em">{inline(line)}</p>' for line in self.lines()),
            lines_block(self.why if self.explains else ()),
            picture_frame(picture(self.game, self.trace, self.colour) if self.trace is not None else ""),
        ]
        frame = f"border-left:4px solid {colour};padding:6px 0 8px 14px;margin:4px 0"
        return f'<div class="training-puzzles" data-status="{self.status}" style="{frame}">{"".join(parts)}</div>'
