"""What a player reads on the terminal after grading."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from os.path import commonpath, dirname, relpath, sep

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .afterwards import record, story
from .catalog import PUZZLES
from .inside.failure import plain
from .sandbox import Tier
from .verdict import Graded, Verdict

COLOURS = {"passed": "green", "over_target": "yellow", "failed": "red", "not_attempted": "dim"}
WIDEST = 100

MOST_EXPLAINED = 40
"""Files whose messages fit on a terminal."""


def report(console: Console, files: Sequence[Graded], tier: Tier) -> None:
    """A table, then what there is to say about single puzzles, then what to do next."""
    several, is_class = len(files) > 1, any(len(graded.attempted) > 1 for graded in files)
    if len(files) == 1:
        console.print(Text(plain(files[0].path), style="bold"))
        console.print(_table(console, files[0]))
    else:
        console.print(standings(console, files) if is_class else _folder_table(console, files))
    for graded in files if len(files) <= MOST_EXPLAINED else ():
        for verdict in _distinct(graded.verdicts):
            _explain(console, verdict, f"{plain(graded.path)}, " if several else "")
            _show_printed(console, verdict)
    if not tier.is_sandbox:
        console.print()
        console.print(
            Text(f"Run without a sandbox: {tier.why_not}. 'puzzles doctor' tells what that means.", style="dim")
        )
    console.print()
    for line in _summary(files) if several or not files else _next(files[0]):
        console.print(Text(line), width=min(console.width, WIDEST))


def standings(console: Console, files: Sequence[Graded]) -> Table:
    """A class: a row for each submission, a column for each puzzle, with stars or the reason of a failure."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    shared = commonpath([dirname(graded.path) for graded in files])
    table.add_column(Text(f"in {plain(shared)}/" if shared else "submission"), overflow="fold")
    for verdict in files[0].verdicts:
        table.add_column(verdict.puzzle.replace("_", " "))
    table.add_column("stars", justify="right", no_wrap=True)
    for graded in files:
        cells = [
            Text(stars_text(console, v.stars) if v.stars else v.reason or "", style=COLOURS[v.status])
            for v in graded.verdicts
        ]
        name = plain(relpath(graded.path, shared) if shared else graded.path)
        table.add_row(Text(name), *cells, str(sum(v.stars for v in graded.verdicts)))
    return table


def stars_text(console: Console, stars: int) -> str:
    """Two of three stars as '★★☆', or as '**-' where those cannot be written."""
    full, empty = ("*", "-") if console.options.ascii_only else ("★", "☆")
    return full * stars + empty * (3 - stars)


def _table(console: Console, graded: Graded) -> Table:
    """Every puzzle asked for, attempted or not, with figures beside their targets."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("puzzle", "stars", "timesteps", "peak memory", "verdict"):
        figures = heading in ("timesteps", "peak memory")
        table.add_column(heading, justify="right" if figures else "left", no_wrap=heading != "verdict")
    for v in graded.verdicts:
        table.add_row(
            Text(v.puzzle, style="" if v.attempted else "dim"),
            stars_text(console, v.stars) if v.attempted else "",
            Text.assemble(_steps(v), (f" of {v.target_time}", "dim")),
            Text.assemble(_memory(v), (f" of {v.target_memory:,}", "dim")),
            _status(v),
        )
    return table


def _folder_table(console: Console, files: Sequence[Graded]) -> Table:
    """What was attempted in several files; a file is named once, below the folder that they share."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("puzzle", "stars", "steps", "peak memory", "verdict"):
        table.add_column(heading, justify="right" if heading in ("steps", "peak memory") else "left", no_wrap=True)
    shared = commonpath([dirname(graded.path) for graded in files]) if files else ""
    table.add_column(Text(f"file in {plain(shared)}/" if shared else "file"), overflow="fold")
    for graded in _in_order(files):
        name = plain(relpath(graded.path, shared) if shared else graded.path)
        for v in graded.attempted:
            stars = stars_text(console, v.stars)
            table.add_row(v.puzzle, stars, _steps(v), _memory(v), _status(v), Text(name, style="dim"))
            name = ""
    return table


def _in_order(files: Sequence[Graded]) -> Sequence[Graded]:
    """Files of one puzzle each in the order of the catalog, nearest folder first; others as they were given."""
    if any(len(graded.attempted) > 1 for graded in files):
        return files
    attempted = [graded for graded in files if graded.attempted]
    return sorted(attempted, key=lambda g: (PUZZLES[g.attempted[0].puzzle].number, g.path.count(sep), g.path))


def _steps(verdict: Verdict) -> str:
    return "-" if verdict.timesteps is None else f"{verdict.timesteps:g}"


def _memory(verdict: Verdict) -> str:
    return "-" if verdict.peak_memory is None else f"{verdict.peak_memory:,}"


def _status(verdict: Verdict) -> Text:
    text = verdict.status.replace("_", " ")
    return Text(f"{text}: {verdict.reason}" if verdict.reason else text, style=COLOURS[verdict.status])


def _distinct(verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    """Those with something to say. What a file that cannot be read says of every puzzle is said once."""
    said = set()
    for verdict in verdicts:
        words = (verdict.message, verdict.notes)
        if (verdict.message or verdict.notes) and (verdict.attempted or words not in said):
            said.add(words)
            yield verdict


def explain(console: Console, verdict: Verdict) -> None:
    """One verdict by itself: status, figures, what there is to say, and the story after a pass."""
    console.print()
    figures = f"{_steps(verdict)} of {verdict.target_time} timesteps, {_memory(verdict)} of {verdict.target_memory:,}"
    console.print(Text.assemble(_status(verdict), f"  {stars_text(console, verdict.stars)}  {figures}"))
    _explain(console, verdict, "")
    _show_printed(console, verdict)
    if verdict.status == "passed":
        for line in story(verdict, PUZZLES[verdict.puzzle]):
            console.print(Text(line), width=min(console.width, WIDEST))


def _explain(console: Console, verdict: Verdict, where: str) -> None:
    console.print()
    width = min(console.width, WIDEST)
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
    """What the player's code printed, marked as such."""
    if verdict.printed:
        console.print(Text(f"{verdict.puzzle} printed:", style="dim"))
        for line in verdict.printed:
            console.print(Text(f"    | {line}", style="dim"), no_wrap=True, overflow="ellipsis", width=WIDEST)


def _next(graded: Graded) -> Iterator[str]:
    """Encouragement, and the next move, for one file."""
    attempted = graded.attempted
    if not attempted:
        first = graded.verdicts[0].puzzle
        yield "Nothing attempted yet: a puzzle counts once a function of its name does something."
        yield f"Read one with 'puzzles show {first}'; get a file to write in with 'puzzles start'."
        return
    for verdict in attempted:
        if verdict.status == "passed":
            puzzle = PUZZLES[verdict.puzzle]
            said = story(verdict, puzzle) if len(attempted) == 1 else [record(verdict, puzzle)]
            yield f"{verdict.puzzle}: {' '.join(said)}"
    open_ones = [verdict for verdict in attempted if verdict.status != "passed"]
    if open_ones:
        slug = open_ones[0].puzzle
        yield f"Stuck? 'puzzles hint {slug}' gives a hint, and 'puzzles draw {plain(graded.path)} {slug}' a picture."
        return
    done = {verdict.puzzle for verdict in attempted}
    to_do = [puzzle for puzzle in PUZZLES.values() if puzzle.slug not in done]
    last = max(PUZZLES[slug].number for slug in done)
    following = next((puzzle for puzzle in to_do if puzzle.number > last), to_do[0] if to_do else None)
    if following is not None:
        yield f"Next is puzzle {following.number}, {following.title}: 'puzzles show {following.slug}'."
    else:
        yield "That is every puzzle of the catalog. Well played!"


def _summary(files: Sequence[Graded]) -> Iterator[str]:
    attempted = [verdict for graded in files for verdict in graded.attempted]
    passed = sum(verdict.status == "passed" for verdict in attempted)
    if not files:
        yield "There are no Python files here."
    elif not attempted:
        yield f"Nothing attempted in {len(files)} files."
    else:
        yield f"{len(files)} files, {len(attempted)} puzzles attempted, {passed} passed."
        if len(files) > MOST_EXPLAINED:
            yield "Messages of so many are not shown here; write them down with --html, --csv, --junit or --json."
