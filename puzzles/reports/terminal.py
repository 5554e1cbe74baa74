"""Reports on the terminal after grading: tables, messages, and the next step."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os.path import commonpath, dirname, relpath, sep
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from puzzles.failure import plain
from puzzles.grading.verdict import Graded, Verdict
from puzzles.sandbox.protection import protection
from puzzles.sandbox.tiers import Tier
from puzzles.tracks import ALL, TRACKS, Track, groups, outcomes, track_of

COLOURS = {"passed": "green", "over_target": "yellow", "failed": "red", "not_attempted": "dim"}
MAX_WIDTH = 100
UNLIMITED_WIDTH = 10_000
"""Columns of a terminal on which every table fits."""

MAX_EXPLAINED = 40
"""Files whose messages fit on a terminal."""

MAX_COLUMNS = 10
"""Puzzles beside each other in the table of a class; of more, chapters are shown."""

BETWEEN_WORDS = re.compile("_|(?<=[a-z])(?=[A-Z][a-z])")
"""Places where a heading may be broken: 'grad accum', 'Data Parallel'."""


def report(console: Console, files: Sequence[Graded], tier: Tier) -> None:
    """A table, then what there is to say about single puzzles, then what to do next."""
    several, is_class = len(files) > 1, any(len(graded.attempted) > 1 for graded in files)
    if len(files) == 1:
        console.print(Text(plain(files[0].path), style="bold"))
        for track, verdicts in _by_track(files[0].verdicts):
            console.print(_table(console, track, verdicts))
    elif is_class:
        console.print(standings(console, files))
    else:
        for track in TRACKS.values():
            if any(v.track == track.name for graded in files for v in graded.attempted):
                console.print(_folder_table(console, track, files))
    for graded in files if len(files) <= MAX_EXPLAINED else ():
        for verdict in _distinct(graded.verdicts):
            _explain(console, verdict, f"{plain(graded.path)}, " if several else "")
            _show_printed(console, verdict)
    if not tier.is_sandbox:
        console.print()
        console.print(Text(protection(tier).summary(), style="dim"), width=min(console.width, MAX_WIDTH))
    console.print()
    for line in _summary(files) if several or not files else _next(files[0]):
        console.print(Text(line), width=min(console.width, MAX_WIDTH))


def report_on(console: Console, title: str, verdict: Verdict) -> None:
    """One verdict as a table, with what there is to say."""
    console.print(Text(plain(title), style="bold"))
    console.print(_table(console, track_of(verdict.puzzle), [verdict]))
    for one in _distinct([verdict]):
        _explain(console, one, "")


def standings(console: Console, files: Sequence[Graded]) -> Table:
    """A class: a row for each submission, a column for each puzzle, with stars or the reason of a failure; of many
    puzzles, or on a narrow terminal, a column for each chapter, with how many were solved."""
    for most, gap in ((MAX_COLUMNS, 1), (MAX_COLUMNS, 0), (0, 1)):
        table = _standings(console, files, columns_of(files, most), console.width // 3, gap)
        if console.measure(table, options=console.options.update(max_width=UNLIMITED_WIDTH)).minimum <= console.width:
            return table
    return _standings(console, files, columns_of(files, 0), 0, 0)


def _standings(
    console: Console, files: Sequence[Graded], columns: Mapping[str, tuple[str, ...]], name_width: int, gap: int
) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, gap, 0, 0))
    shared = _shared_folder(files)
    names = [plain(relpath(graded.path, shared) if shared else graded.path) for graded in files]
    widest = min(max(map(len, names)), name_width)
    table.add_column(Text(f"in {plain(shared)}/" if shared else "submission"), overflow="fold", min_width=widest)
    for heading in columns:
        table.add_column(BETWEEN_WORDS.sub(" ", heading))
    table.add_column("stars", justify="right", no_wrap=True)
    for name, graded in zip(names, files):
        cells = [_cell(console, slugs, [v for v in graded.verdicts if v.puzzle in slugs]) for slugs in columns.values()]
        table.add_row(Text(name), *cells, str(sum(v.stars for v in graded.verdicts)))
    return table


def columns_of(files: Sequence[Graded], most: int = MAX_COLUMNS) -> dict[str, tuple[str, ...]]:
    """Headings of the columns of a class, with the puzzles in each; of more than `most`, chapters."""
    slugs = slugs_of(files)
    if len(slugs) <= most:
        return {slug: (slug,) for slug in slugs}
    return {group.name: group.slugs for group in groups() if not set(slugs).isdisjoint(group.slugs)}


def slugs_of(files: Sequence[Graded]) -> list[str]:
    """The puzzles that somebody attempts; all that were asked for, if nobody does."""
    attempted = {v.puzzle for graded in files for v in graded.attempted}
    shown = attempted or {v.puzzle for graded in files for v in graded.verdicts}
    return [slug for slug in ALL if slug in shown]


def _cell(console: Console, slugs: Sequence[str], verdicts: Sequence[Verdict]) -> Text:
    attempted = [v for v in verdicts if v.attempted]
    if len(slugs) == len(verdicts) == 1:
        v = verdicts[0]
        return Text(stars_text(console, v.stars) if v.stars else v.reason or "", style=COLOURS[v.status])
    passed = sum(v.status == "passed" for v in attempted)
    colour = COLOURS["passed" if passed == len(attempted) else "over_target"]
    return Text(f"{passed} of {len(attempted)}" if attempted else "", style=colour)


def stars_text(console: Console, stars: int) -> str:
    """Two of three stars as '★★☆', or as '**-' where those cannot be written."""
    return outcomes.stars_text(stars, "*", "-") if console.options.ascii_only else outcomes.stars_text(stars)


def _by_track(verdicts: Sequence[Verdict]) -> Iterator[tuple[Track[Any], list[Verdict]]]:
    """Tracks with their verdicts, those in which something is attempted; of a file that attempts nothing, all."""
    for track in TRACKS.values():
        mine = [v for v in verdicts if v.track == track.name]
        if any(v.attempted for v in mine) or (mine and not any(v.attempted for v in verdicts)):
            yield track, mine


def _table(console: Console, track: Track[Any], verdicts: Sequence[Verdict]) -> Table:
    """Every puzzle asked for, attempted or not, with figures beside their targets."""
    table = _empty_table(track)
    if not track.columns:
        table.add_column("figures", ratio=1)
    for v in verdicts:
        stars = stars_text(console, v.stars) if v.attempted else ""
        figures = [Text.assemble(_figure(v, name), (f" of {v.targets[of]:,}", "dim")) for _, name, of in track.columns]
        if not figures:
            figures = [Text(track.figures_text(track.puzzle(v.puzzle), v.figures), style="" if v.figures else "dim")]
        cells = (*figures, _status(v)) if track.columns else (_status(v), *figures)
        table.add_row(Text(v.puzzle, style="" if v.attempted else "dim"), stars, *cells)
    return table


def _empty_table(track: Track[Any]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("puzzle", "stars"):
        table.add_column(heading, no_wrap=True)
    for heading, _, _ in track.columns:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict")
    return table


def _folder_table(console: Console, track: Track[Any], files: Sequence[Graded]) -> Table:
    """Attempts at a track in several files; a file is named once, below the folder that they share."""
    table = _empty_table(track)
    shared = _shared_folder(files)
    table.add_column(Text(f"file in {plain(shared)}/" if shared else "file"), overflow="fold")
    for graded in _in_order(files):
        name = plain(relpath(graded.path, shared) if shared else graded.path)
        for v in graded.attempted:
            if v.track != track.name:
                continue
            figures = [_figure(v, figure) for _, figure, _ in track.columns]
            table.add_row(v.puzzle, stars_text(console, v.stars), *figures, _status(v), Text(name, style="dim"))
            name = ""
    return table


def _shared_folder(files: Sequence[Graded]) -> str:
    """The folder below which all files lie; empty if there is none that all their paths name."""
    try:
        return commonpath([dirname(graded.path) for graded in files])
    except ValueError:  # relative and absolute paths, other drives, no files
        return ""


def _in_order(files: Sequence[Graded]) -> Sequence[Graded]:
    """Files of one puzzle each in the order of the catalogs, nearest folder first; others as they were given."""
    if any(len(graded.attempted) > 1 for graded in files):
        return files
    place = {slug: number for number, slug in enumerate(ALL)}
    attempted = [graded for graded in files if graded.attempted]
    return sorted(attempted, key=lambda g: (place[g.attempted[0].puzzle], g.path.count(sep), g.path))


def _figure(verdict: Verdict, name: str) -> str:
    value = verdict.figures.get(name)
    return "-" if value is None else outcomes.number_text(value)


def _status(verdict: Verdict) -> Text:
    text = verdict.status.replace("_", " ")
    return Text(f"{text}: {verdict.reason}" if verdict.reason else text, style=COLOURS[verdict.status])


def _distinct(verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    """Those with a message or a note. The message of a file that cannot be read, the same for every puzzle, is one."""
    verdicts = list(verdicts)
    said = {(verdict.message, verdict.notes) for verdict in verdicts if verdict.attempted}
    for verdict in verdicts:
        words = (verdict.message, verdict.notes)
        if (verdict.message or verdict.notes) and (verdict.attempted or words not in said):
            said.add(words)
            yield verdict


def explain(console: Console, verdict: Verdict) -> None:
    """One verdict by itself: status, figures, what there is to say, and the story after a pass."""
    from .feedback import story

    track = track_of(verdict.puzzle)
    console.print()
    figures = track.figures_text(track.puzzle(verdict.puzzle), verdict.figures)
    shown = f"  {stars_text(console, verdict.stars)}  {figures}" if verdict.attempted else ""
    console.print(Text.assemble(_status(verdict), shown))
    _explain(console, verdict, "")
    _show_printed(console, verdict)
    if verdict.status == "passed":
        for line in story(verdict):
            console.print(Text(line), width=min(console.width, MAX_WIDTH))


def _explain(console: Console, verdict: Verdict, where: str) -> None:
    console.print()
    width = min(console.width, MAX_WIDTH)
    name = f"{where}{verdict.puzzle}" if verdict.attempted else where.rstrip(", ")
    if verdict.message:
        said = Text.assemble((f"{name}: " if name else "", "bold"), verdict.message)
        console.print(said, width=width)
        if verdict.source:
            line = Text(f"    > {verdict.source}", style="cyan")
            console.print(line, width=width, no_wrap=True, overflow="ellipsis")
    for note in verdict.notes:
        console.print(Text.assemble((f"{name}: ", "bold"), f"note: {note}"), width=width)


def _show_printed(console: Console, verdict: Verdict) -> None:
    """The output of the player's code, marked as such."""
    if verdict.printed:
        console.print(Text(f"{verdict.puzzle} printed:", style="dim"))
        for line in verdict.printed:
            console.print(Text(f"    | {line}", style="dim"), no_wrap=True, overflow="ellipsis", width=MAX_WIDTH)


def _next(graded: Graded) -> Iterator[str]:
    """Encouragement, and the next move, for one file."""
    from .feedback import record, story  # here, because the reference is run for it

    attempted = graded.attempted
    if not attempted:
        first = graded.verdicts[0].puzzle if graded.verdicts else next(iter(ALL))
        yield "Nothing attempted yet: a puzzle counts once a function or class of its name does something."
        yield f"Read one with 'puzzles show {first}'; get a file to write in with 'puzzles start'."
        return
    for verdict in attempted:
        if verdict.status == "passed":
            said = story(verdict) if len(attempted) == 1 else [record(verdict)]
            yield f"{verdict.puzzle}: {' '.join(said)}"
    open_ones = [verdict for verdict in attempted if verdict.status != "passed"]
    if open_ones:
        yield _way_on(graded.path, open_ones[0])
        return
    yield _following(attempted)


def _way_on(path: str, verdict: Verdict) -> str:
    slug = verdict.puzzle
    picture = f", and 'puzzles draw {plain(path)} {slug}' a picture" if track_of(slug).has_pictures else ""
    return f"Stuck? 'puzzles hint {slug}' gives a hint{picture}."


def _following(attempted: Sequence[Verdict]) -> str:
    """The next puzzle of the track that the file is in."""
    track = track_of(attempted[-1].puzzle)
    done = {verdict.puzzle for verdict in attempted}
    slugs = track.slugs
    last = max(slugs.index(slug) for slug in done if slug in slugs)
    to_do = [slug for slug in (*slugs[last:], *slugs) if slug not in done]
    if not to_do:
        return f"That is every puzzle of the track '{track.title}'. Well played! 'puzzles list' has more."
    puzzle = track.puzzle(to_do[0])
    return f"Next is {track.mention(puzzle)}: 'puzzles show {puzzle.slug}'."


def _summary(files: Sequence[Graded]) -> Iterator[str]:
    attempted = [verdict for graded in files for verdict in graded.attempted]
    passed = sum(verdict.status == "passed" for verdict in attempted)
    if not files:
        yield "There are no Python files here."
    elif not attempted:
        yield f"Nothing attempted in {len(files)} files."
    else:
        yield f"{len(files)} files, {len(attempted)} puzzles attempted, {passed} passed."
        if len(files) > MAX_EXPLAINED:
            yield "Messages of so many are not shown here; write them down with --html, --csv, --junit or --json."
