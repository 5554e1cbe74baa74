"""Reports on the terminal after grading: tables with a row for each verdict, messages, and the next step.

One file, a folder with one attempt in each file, and a class have different tables, because people read them for
different things: figures, comparison, and who is where. What is said of a verdict comes from the verdict and from
`feedback`; here is decided what is said, in which order, and how often: a message that a whole file has is said once.
Of a large class only the table fits, and the messages are left to files. The last lines say what to do next.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from os.path import sep
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lib.errors import meant
from lib.ledger.algebra import counted
from puzzles.custom import folders
from puzzles.failure import sanitized
from puzzles.judge.grader import NOT_INSTALLED
from puzzles.judge.judge import UNGRADABLE
from puzzles.judge.submission import Submission
from puzzles.judge.verdict import NOTHING_STATED, Graded, Scoring, Verdict
from puzzles.sandbox.client import protection
from puzzles.screens.feedback import achieved, details, offers, story, what_next
from puzzles.text_lines import GLUE, MAX_WIDTH, ScreenPart, full_width, next_command, print_table, print_wrapped
from puzzles.tracks import ALL, TRACKS, Track, track_of
from puzzles.tracks.outcomes import number_text

from .standings import (
    COLOURS,
    SHOWN_SIZE,
    NamedRows,
    folder_of,
    name_in,
    name_width,
    points_text,
    shown_size_mark,
    standings,
    stars_text,
)

MAX_EXPLAINED = 40
"""Files whose messages fit on a terminal."""


def report(
    console: Console,
    files: Sequence[Graded],
    why: bool = False,
    scoring: Scoring = NOTHING_STATED,
) -> None:
    """A table, then messages on single puzzles, then what to do next. `why` explains their peaks."""
    several, is_class = len(files) > 1, any(len(graded.attempted) > 1 for graded in files)
    if len(files) == 1:
        console.print(Text(sanitized(files[0].path), style="bold"))
        for track in TRACKS.values():
            if verdicts := [v for v in files[0].attempted if v.track == track.name]:
                points = [scoring.facts(files[0], v) for v in verdicts]
                print_table(console, verdict_table(console, track, verdicts, points))
        if scoring.is_stated:
            console.print(Text(points_text(files[0], scoring)))
    elif is_class:
        console.print(standings(console, files, scoring), crop=False)
    else:
        shared = folder_of(files)
        console.print(Text(f"{sanitized(shared)}/" if shared else "", style="bold"))
        for track in TRACKS.values():
            if any(v.track == track.name for graded in files for v in graded.attempted):
                console.print(_folder_table(console, track, files, scoring), crop=False)
    if any(v.shown_size_only for graded in files for v in graded.verdicts):
        print_wrapped(console, f"{SHOWN_SIZE} works only at the shown size.", "dim")
    for graded in files if len(files) <= MAX_EXPLAINED else ():
        for verdict in _distinct(graded.verdicts):
            _explain(console, verdict, _place(graded, verdict, several), why)
            _show_printed(console, verdict)
        for verdict in graded.attempted:
            if verdict.why and (why or (verdict.why_matters and not several)):
                _show_why(console, verdict, _place(graded, verdict, several))
    if why and not any(verdict.why for graded in files for verdict in graded.verdicts):
        console.print()
        console.print(Text("--why explains the peak and the traffic of a correct schedule, and there is none here."))
    if missing := protection().warning():
        console.print()
        print_wrapped(console, missing, "dim")
    console.print()
    for line in _summary(files) if several or not files else _next(files[0], why):
        print_wrapped(console, line)


def _place(graded: Graded, verdict: Verdict, several: bool) -> str:
    """Whose a verdict is, where that can be in doubt: of which file of several, or in which submission."""
    path = verdict.found_in or graded.path
    return f"{sanitized(path)}, " if several or verdict.found_in else ""


def report_on(console: Console, title: str, verdict: Verdict) -> None:
    """One verdict as a table, with its message and notes."""
    console.print(Text(sanitized(title), style="bold"))
    print_table(console, verdict_table(console, track_of(verdict.puzzle), [verdict]))
    for one in _distinct([verdict]):
        _explain(console, one, "")


def _folder_table(console: Console, track: Track[Any], files: Sequence[Graded], scoring: Scoring) -> NamedRows:
    """Attempts at a track in several files; a file is named once, by its path in the folder that they share."""
    shared = folder_of(files)
    names: list[str] = []
    table = empty_table(track, scoring.is_stated)
    table.add_column("file", no_wrap=True)
    for graded in _in_order(files):
        name = name_in(graded, shared)
        for v in graded.attempted:
            if v.track != track.name:
                continue
            figures = [figure_text(v, figure) for _, figure in track.words.columns]
            points = points_cells(scoring.facts(graded, v))
            stars = stars_text(console, v.stars) + shown_size_mark(v)
            table.add_row(v.puzzle, stars, *points, *figures, status_text(v), Text(name, style="dim"))
            names.append(name)
            name = ""
    table.columns[-1].min_width = name_width(names)
    return NamedRows(table, names, column=-1)


def _in_order(files: Sequence[Graded]) -> Sequence[Graded]:
    """Files of one puzzle each in the order of the catalogs, nearest folder first; others as they were given."""
    if any(len(graded.attempted) > 1 for graded in files):
        return files
    place = {slug: number for number, slug in enumerate(ALL)}
    attempted = [graded for graded in files if graded.attempted]
    return sorted(attempted, key=lambda g: (place[g.attempted[0].puzzle], g.path.count(sep), g.path))


def _distinct(verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    """Those with a message or a note. A file that cannot be read has the same one for all puzzles, kept once."""
    verdicts = list(verdicts)
    said = {(verdict.message, verdict.notes) for verdict in verdicts if verdict.attempted}
    for verdict in verdicts:
        words = (verdict.message, verdict.notes)
        if (verdict.message or verdict.notes) and (verdict.attempted or words not in said):
            said.add(words)
            yield verdict


def explanation(verdict: Verdict, path: str) -> Iterator[ScreenPart]:
    """The verdict on a file by itself: status and figures, the message, notes or feedback, and what was printed."""
    yield ScreenPart(lambda console: _show_status(console, verdict), optional=False)
    if verdict.message:
        yield ScreenPart(lambda console: _show_message(console, verdict, ""), optional=False)
    if verdict.why_matters:
        yield ScreenPart(lambda console: _show_why(console, verdict, ""))
    passed = verdict.status == "passed"
    told = [*(f"Note: {note}" for note in verdict.notes), verdict.advice]
    for words in filter(None, [*story(verdict), offers(path, verdict.puzzle)] if passed else told):
        yield ScreenPart(partial(print_wrapped, text=words))
    if verdict.printed:
        yield ScreenPart(lambda console: _show_printed(console, verdict))


def _show_status(console: Console, verdict: Verdict) -> None:
    track = track_of(verdict.puzzle)
    figures = track.words.figures_text(track.puzzle(verdict.puzzle), verdict.figures) if verdict.figures else ""
    stars = f"{GLUE} {stars_text(console, verdict.stars)}{GLUE} {figures}" if verdict.attempted else ""
    status = status_text(verdict)
    console.print()
    print_wrapped(console, stars, lead=status.plain, lead_style=str(status.style))


def _explain(console: Console, verdict: Verdict, where: str, why: bool = False) -> None:
    """Message and notes. The notes on a pass are for `--why`, but for imports that were left out; the one that costs
    the third star follows below."""
    shown = why or verdict.status != "passed"
    notes = [note for note in verdict.notes if shown or note.endswith(NOT_INSTALLED)]
    if not (verdict.message or notes):
        return
    console.print()
    name = f"{where}{verdict.puzzle}" if verdict.attempted else where.rstrip(", ")
    if verdict.message:
        _show_message(console, verdict, f"{name}: " if name else "")
    for note in notes:
        print_wrapped(console, f"note: {note}", lead=f"{name}: ")


def _show_message(console: Console, verdict: Verdict, lead: str) -> None:
    print_wrapped(console, verdict.message, lead=lead)
    if verdict.source:
        console.print(Text(f"    > {verdict.source}", style="cyan"), soft_wrap=True)


def _show_why(console: Console, verdict: Verdict, where: str) -> None:
    console.print()
    console.print(
        Text(f"{where}{verdict.puzzle}, {track_of(verdict.puzzle).words.why_title}:", style="bold"),
        width=min(console.width, MAX_WIDTH),
    )
    for line in verdict.why:
        indent = len(line) - len(line.lstrip())
        console.print(
            Padding(Text(line.lstrip()), (0, 0, 0, indent), expand=False), width=min(console.width, MAX_WIDTH)
        )


def _show_printed(console: Console, verdict: Verdict) -> None:
    if verdict.printed:
        console.print(Text(f"{verdict.puzzle} printed:", style="dim"))
        for line in verdict.printed:
            console.print(Text(f"    | {line}", style="dim"), no_wrap=True, overflow="ellipsis", width=MAX_WIDTH)


def _next(graded: Graded, why: bool = False) -> Iterator[str]:
    """Encouragement, and the next move, for one file."""
    attempted = graded.attempted
    if not attempted:
        first = graded.verdicts[0].puzzle if graded.verdicts else next(iter(ALL))
        names = Submission.read(Path(graded.path)).names
        if names & {verdict.puzzle for verdict in graded.verdicts}:
            yield "Nothing attempted yet. Write your code between the two marks of a starter, then grade again."
        else:
            renamed = [(name, near) for name in sorted(names) if (near := meant(name, ALL))]
            told = f" Did you mean '{renamed[0][1]}' instead of '{renamed[0][0]}'?" if renamed else _teachers()
            yield f"Nothing attempted yet: this file defines no puzzle of this game.{told}"
            first = renamed[0][1] if renamed else first
        show, start = next_command("show", first), next_command("start", first)
        yield f"'{show}' shows the puzzle, '{start}' writes its starter to a file."
        return
    for verdict in attempted:
        if verdict.status == "passed":
            said = story(verdict) if len(attempted) == 1 else [achieved(verdict)]
            said += details(verdict) if why and len(attempted) == 1 else []
            yield from (f"{verdict.puzzle}: {said[0]}", *said[1:])
    open_ones = [verdict for verdict in attempted if verdict.status != "passed" and verdict.reason != UNGRADABLE]
    if open_ones:
        slug, advice = open_ones[0].puzzle, open_ones[0].advice
        draw, hint = next_command("draw", sanitized(graded.path), slug, "--open"), next_command("hint", slug)
        picture = f", and '{draw}' draws the run" if track_of(slug).show.has_pictures else ""
        yield f"{advice or 'Stuck?'} '{hint}' gives a hint{picture}."
        return
    if len(attempted) == 1 and (offer := offers(sanitized(graded.path), attempted[0].puzzle)):
        yield offer
    yield what_next(attempted[-1].puzzle, [verdict.puzzle for verdict in attempted])


def _teachers() -> str:
    """What may be missing, if no folder of puzzles has been added."""
    return "" if folders() else " A teacher's puzzles need --puzzles FOLDER."


def _summary(files: Sequence[Graded]) -> Iterator[str]:
    attempted = [verdict for graded in files for verdict in graded.attempted]
    passed = sum(verdict.status == "passed" for verdict in attempted)
    if not files:
        yield "There are no Python files or notebooks here."
    elif not attempted:
        yield f"Nothing attempted in {counted(len(files), 'file')}.{_teachers()}"
    else:
        solutions, puzzles = counted(len(attempted), "solution"), counted(len({v.puzzle for v in attempted}), "puzzle")
        place = "submission" if any(verdict.found_in for verdict in attempted) else "file"
        yield f"{solutions} of {puzzles} in {counted(len(files), place)}: {passed} passed."
        if len(files) > MAX_EXPLAINED:
            yield "Messages are left out for so many files; -o out/, -o table.csv and --json have them."


# --- Tables ---


def verdict_table(
    console: Console, track: Track[Any], verdicts: Sequence[Verdict], points: Sequence[Mapping[str, float]] = ()
) -> Table:
    """A row for each verdict, with figures and targets; on a narrow terminal each target is below its figure. What only
    some puzzles measure is in the sentences below."""
    wide = _verdict_rows(console, track, verdicts, points, " ")
    fits = full_width(console, wide) <= console.width
    return wide if fits else _verdict_rows(console, track, verdicts, points, "\n")


def _verdict_rows(
    console: Console,
    track: Track[Any],
    verdicts: Sequence[Verdict],
    points: Sequence[Mapping[str, float]],
    before_target: str,
) -> Table:
    table = empty_table(track, any(points))
    if not track.words.columns:
        table.add_column("figures", ratio=1)
    for v, worth in zip(verdicts, points or repeat(dict[str, float]())):
        stars = stars_text(console, v.stars) + shown_size_mark(v) if v.attempted else ""
        measures = {measure.figure: measure for measure in track.words.measures(track.puzzle(v.puzzle), v.figures)}
        figures = [
            Text.assemble(measures[name].value_text, before_target, (measures[name].target_cell, "dim"))
            if name in measures
            else Text(figure_text(v, name))
            for _, name in track.words.columns
        ]
        if not figures:
            figures = [
                Text(track.words.figures_text(track.puzzle(v.puzzle), v.figures), style="" if v.figures else "dim")
            ]
        cells = (*figures, status_text(v)) if track.words.columns else (status_text(v), *figures)
        table.add_row(Text(v.puzzle, style="" if v.attempted else "dim"), stars, *points_cells(worth), *cells)
    return table


def points_cells(worth: Mapping[str, float]) -> list[Text]:
    return [Text.assemble(f"{worth['points']:g}", (f" of {worth['max_points']:g}", "dim"))] if worth else []


def empty_table(track: Track[Any], is_scored: bool) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("puzzle", "stars", *(["points"] if is_scored else [])):
        table.add_column(heading, no_wrap=True)
    for heading, _ in track.words.columns:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    return table


def figure_text(verdict: Verdict, name: str) -> str:
    """A figure without its target; '-' where it was not measured."""
    value = verdict.figures.get(name)
    return "-" if value is None else number_text(value)


def status_text(verdict: Verdict) -> Text:
    """'passed', 'failed: deadlock', in its colour."""
    text = verdict.status.replace("_", " ")
    return Text(f"{text}: {verdict.reason}" if verdict.reason else text, style=COLOURS[verdict.status])
