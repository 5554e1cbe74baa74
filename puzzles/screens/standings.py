"""Tables of files: of a class, with stars by puzzle, chapter or track. Names are never cropped."""

import re
from collections.abc import Mapping, Sequence
from os.path import relpath

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from lib.ledger.algebra import counted
from puzzles.failure import sanitized
from puzzles.judge.submission import shared_folder
from puzzles.judge.verdict import NOTHING_STATED, Graded, Scoring, Verdict
from puzzles.text_lines import fitted, least_width, part_of
from puzzles.tracks import ALL, TRACKS, groups, outcomes

COLOURS = {"passed": "green", "over_target": "yellow", "failed": "red", "not_attempted": "dim"}

SHOWN_SIZE = "!"
"""Marks a solution that works only at the size that its puzzle shows."""


class NamedRows:
    """A table whose column of the number `column` has the `names` of its rows. An empty name means: of the same file as
    the row above.

    Where it does not fit, each name comes above its row, and the `heading` above the table. Its cells do not wrap.
    Print it with `crop=False`, because a name may be wider than the terminal.
    """

    def __init__(self, table: Table, names: Sequence[str], heading: str = "", column: int = 0) -> None:
        self.table, self.names, self.heading, self.column = table, names, heading, column
        others = list(table.columns)
        del others[column]
        self.without_names = part_of(table, others)

    def fits(self, console: Console) -> bool:
        """True if the table without its names fits."""
        return least_width(console, self.without_names) <= console.width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if least_width(console, self.table) <= console.width or not self.fits(console):
            yield from fitted(console, self.table, self.column)
            return
        lines = console.render_lines(self.without_names, options, pad=False)
        if self.heading:
            yield Text(self.heading, style="bold", no_wrap=True, overflow="ignore")
        blank = 1  # below a table is an empty line
        head = len(lines) - blank - len(self.names)
        for name, line in zip([""] * head + [*self.names, ""], lines):
            if name:
                yield Text(name, no_wrap=True, overflow="ignore")
            yield from line
            yield Segment.line()


def name_width(names: Sequence[str]) -> int:
    """The least width of a column in which none of its texts is folded at a space."""
    return max(map(cell_len, names), default=0)


def standings(console: Console, files: Sequence[Graded], scoring: Scoring = NOTHING_STATED) -> NamedRows:
    """A class: a row for each submission, a column for each puzzle, with stars or the reason of a failure; for many
    puzzles, or on a narrow terminal, a column for each chapter or each track, with how many were solved."""
    shared = folder_of(files)
    heading = f"in {sanitized(shared)}/" if shared else "submission"
    names, slugs = [name_in(graded, shared) for graded in files], {*slugs_of(files)}
    for columns, gap in (
        (columns_of(files), 1),
        (columns_of(files), 0),
        (columns_of(files, 0), 1),
        (columns_of(files, 0), 0),
        ({name: track.slugs for name, track in TRACKS.items() if not slugs.isdisjoint(track.slugs)}, 1),
    ):
        found = NamedRows(_standings(console, files, scoring, columns, gap, heading, names), names, heading)
        if found.fits(console):
            break
    return found


def _standings(
    console: Console,
    files: Sequence[Graded],
    scoring: Scoring,
    columns: Mapping[str, tuple[str, ...]],
    gap: int,
    heading: str,
    names: Sequence[str],
) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, gap, 0, 0))
    table.add_column(Text(heading), no_wrap=True, min_width=name_width([heading, *names]))
    rows = [
        [_cell(console, slugs, [v for v in graded.verdicts if v.puzzle in slugs]) for slugs in columns.values()]
        for graded in files
    ]
    for title, column in zip(columns, zip(*rows)):
        words = re.sub("_|(?<=[a-z])(?=[A-Z][a-z])", " ", title)  # 'grad accum', 'Data Parallel': may be broken
        table.add_column(words, min_width=name_width([cell.plain for cell in column]))
    for title in ("stars", *(["points"] if scoring.is_stated else []), *(["late"] if scoring.late else [])):
        table.add_column(title, justify="right", no_wrap=True)
    for name, graded, cells in zip(names, files, rows):
        totals = [f"{number:g}" for number in scoring.facts(graded).values()]
        table.add_row(Text(name), *cells, str(sum(v.stars for v in graded.verdicts)), *totals)
    return table


def columns_of(files: Sequence[Graded], most: int = 10) -> dict[str, tuple[str, ...]]:
    """Headings of the columns of a class, with the puzzles in each; chapters for more than `most`."""
    slugs = slugs_of(files)
    if len(slugs) <= most:
        return {slug: (slug,) for slug in slugs}
    return {group.name: group.slugs for group in groups() if not set(slugs).isdisjoint(group.slugs)}


def slugs_of(files: Sequence[Graded]) -> list[str]:
    """The puzzles that somebody attempts; if nobody does, all that were asked for."""
    attempted = {v.puzzle for graded in files for v in graded.attempted}
    shown = attempted or {v.puzzle for graded in files for v in graded.verdicts}
    return [slug for slug in ALL if slug in shown]


def _cell(console: Console, slugs: Sequence[str], verdicts: Sequence[Verdict]) -> Text:
    attempted = [v for v in verdicts if v.attempted]
    if len(slugs) == len(verdicts) == 1:
        v = verdicts[0]
        words = (stars_text(console, v.stars) if v.stars else v.reason or "") + shown_size_mark(v)
        return Text(words, style=COLOURS[v.status], no_wrap=True)
    passed = sum(v.status == "passed" for v in attempted)
    colour = COLOURS["passed" if passed == len(attempted) else "over_target"]
    mark = SHOWN_SIZE if any(v.shown_size_only for v in attempted) else ""
    return Text(f"{passed} of {len(attempted)}{mark}" if attempted else "", style=colour, no_wrap=True)


def shown_size_mark(verdict: Verdict) -> str:
    return SHOWN_SIZE if verdict.shown_size_only else ""


def points_text(graded: Graded, scoring: Scoring) -> str:
    """'7.5 of 15 points, 2 days late'."""
    most = sum(scoring.most(v.puzzle) for v in graded.verdicts)
    days = scoring.days_late(graded)
    late = f", {counted(days, 'day')} late" if days else ""
    return f"{scoring.total(graded):g} of {most:g} {'point' if most == 1 else 'points'}{late}"


def name_in(graded: Graded, shared: str) -> str:
    """What a submission is called, or its path in the folder that all share."""
    return graded.name or sanitized(relpath(graded.path, shared) if shared else graded.path)


def folder_of(files: Sequence[Graded]) -> str:
    """The folder that contains all submissions; empty if they have none in common."""
    return shared_folder([graded.path for graded in files])


def stars_text(console: Console, stars: int) -> str:
    """Two of three stars as '★★☆', or as '**-' where those cannot be written."""
    return outcomes.stars_text(stars, "*", "-") if console.options.ascii_only else outcomes.stars_text(stars)
