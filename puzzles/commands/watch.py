"""`puzzles watch`: grades what changed on every save, and responds to single keys."""

from __future__ import annotations

import ast
import queue
import threading
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from puzzles.catalog.text_lines import GLUE
from puzzles.failure import UNPARSABLE, UnreadableError, sanitized
from puzzles.grading.submission import Submission
from puzzles.grading.verdict import Graded, Verdict
from puzzles.reports.next_command import next_command
from puzzles.reports.paragraphs import print_wrapped
from puzzles.reports.screen import ScreenPart, show_fitted
from puzzles.sandbox.limits import Limits
from puzzles.sandbox.worker.notebook_cells import read_cells, without_magics
from puzzles.tracks import ALL, chapter_of, track_of

from .shared.colour_option import colour_option
from .shared.keys import keys, single_keys
from .shared.params import Bytes, Seconds, terminal

if TYPE_CHECKING:
    from rich.console import Console

KEYS = "h hint   s statement   p picture   o open picture   l list   n next   q quit"
DEFAULT = Limits()
BLANK = ScreenPart(lambda console: console.print(), optional=False)


@click.command()
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("--time-limit", type=Seconds(), default=DEFAULT.seconds, show_default=True, help="Seconds per puzzle.")
@click.option("--memory-limit", type=Bytes(), default="1024M", show_default=True, help="Memory of a process.")
@colour_option
def watch(path: str, time_limit: float, memory_limit: int, colour: str | None) -> None:
    """Grade FILE again on every save.

    Single keys show hints, the statement, the picture and the next puzzle.
    """
    game = WatchState(path, Limits(seconds=time_limit, memory=memory_limit), terminal(), colour=colour or "layer")
    events: queue.Queue[str] = queue.Queue()
    stop = threading.Event()
    with single_keys():
        for source in (_saves(path, stop), keys()):
            threading.Thread(target=_forward_events, args=(source, events), daemon=True).start()
        try:
            game.begin()
            while game.handle(events.get()):
                pass
        except KeyboardInterrupt:
            pass
        finally:
            stop.set()


def _forward_events(source: Iterator[str], events: queue.Queue[str]) -> None:
    for event in source:
        events.put(event)


def _saves(path: str, stop: threading.Event) -> Iterator[str]:
    from watchfiles import watch as changes  # here, because it is slow to import

    file = Path(path).resolve()
    for changed in changes(file.parent, stop_event=stop, recursive=False, raise_interrupt=False):
        if any(Path(name).resolve() == file for _, name in changed):
            yield "saved"


class WatchState:
    """State of the screen: one current puzzle, which the player chooses with 'n', or by editing another one."""

    def __init__(
        self, path: str, limits: Limits, console: Console, grade: Callable[..., Graded] | None = None,
        show: Callable[[str], Any] = webbrowser.open, colour: str = "layer",
    ) -> None:  # fmt: skip
        from puzzles.grading.grader import grade_file

        self.path, self.limits, self.console = path, limits, console
        self.grade = grade or grade_file
        self.show, self.colour = show, colour
        self.verdicts: dict[str, Verdict] = {}
        self.current = next(iter(ALL))
        self.hints: dict[str, int] = {}
        self._seen: dict[str, str] | None = None

    def begin(self) -> None:
        """Grades the whole file, which counts as the player's own, and shows the puzzle where the player left off."""
        from puzzles.grading.progress import add_own_file

        add_own_file(self.path)
        self._grade_changes()
        self.current = self._left_off()
        self.statement()

    def handle(self, event: str) -> bool:
        """Acts on a key or a save; returns False to quit."""
        actions = {
            "saved": self.saved,
            "h": self.hint,
            "s": self.statement,
            "p": self.picture,
            "o": self.open,
            "l": self.list,
            "n": self.next,
        }
        if event == "q":
            return False
        if event in actions:
            actions[event]()
        return True

    def saved(self) -> None:
        """Grades what changed, and shows the verdict on it: on the current puzzle, if that changed too."""
        before = dict(self.verdicts)
        edited = self._grade_changes()
        other = [slug for slug, verdict in self.verdicts.items() if slug in edited or verdict != before.get(slug)]
        changed = [slug for slug in other if self._is_attempted(slug)]
        if changed and self.current not in changed:
            self.current = changed[0]
        self.screen()

    def _grade_changes(self) -> list[str]:
        """Grades the puzzles whose definitions changed, and returns them; if anything else changed, grades all of the
        file, and returns none."""
        from puzzles.grading.progress import remember

        changed = self._changed(Submission.read(Path(self.path)))
        if changed is None or changed:
            self.console.print(f"Grading {sanitized(self.path)} ...", style="dim")
            puzzles = None if changed is None else [track_of(slug).puzzle(slug) for slug in changed]
            graded = self.grade(self.path, puzzles, self.limits, keep=True)
            if changed is None:
                self.verdicts.clear()
            self.verdicts.update((v.puzzle, v) for v in graded.verdicts)
            remember(graded)
        return changed or []

    def _left_off(self) -> str:
        """The first puzzle that the file has begun and not passed; if it has passed all, the next one."""
        begun = [slug for slug in ALL if slug in (self._seen or {}) or self._is_attempted(slug)]
        unsolved = [slug for slug in begun if slug not in self._passed()]
        return next(iter(unsolved), self._following(begun[-1]) if begun else self.current)

    def _following(self, slug: str) -> str:
        """The puzzle to offer after a pass; the same one if there is no other."""
        from puzzles.grading.progress import load, next_slug

        return next_slug(load(), slug, self._passed()) or slug

    def _passed(self) -> list[str]:
        return [slug for slug, verdict in self.verdicts.items() if verdict.status == "passed"]

    def _is_attempted(self, slug: str) -> bool:
        return slug in self.verdicts and self.verdicts[slug].attempted

    def _changed(self, submission: Submission) -> list[str] | None:
        """The puzzles whose definitions changed since the last save; None for all of them."""
        parts = fingerprints(submission)
        before, self._seen = self._seen, parts
        if before is None or parts.get("") != before.get(""):
            return None
        return [slug for slug in ALL if parts.get(slug) != before.get(slug)]

    def screen(self) -> None:
        """The verdict on the current puzzle; its statement until there is one."""
        if self._verdict() is None:
            return self.statement()
        self._show([*self._explanation(), ScreenPart(self._say_offer, optional=False), ScreenPart(self._print_picture)])

    def statement(self) -> None:
        """The statement of the current puzzle, and the verdict as far as there is room for it."""
        from .show import print_paragraphs

        statement = track_of(self.current).puzzle(self.current).statement
        parts = [ScreenPart(lambda console: print_paragraphs(console, statement), optional=False)]
        if self.current not in (self._seen or {}):
            parts.append(ScreenPart(self._say_absent))
        self._show([*parts, *(ScreenPart(part.show) for part in self._explanation())])

    def picture(self) -> None:
        """The current puzzle's run as text."""
        self._show([ScreenPart(self._print_picture if self._picture_lines() else self._say_undrawn, optional=False)])

    def hint(self) -> None:
        """The next hint of the current puzzle."""
        from puzzles.grading.progress import remember_hint

        from .hint import show_hint

        puzzle = track_of(self.current).puzzle(self.current)
        number = min(self.hints.get(self.current, 0) + 1, len(puzzle.hints))
        self.hints[self.current] = number
        remember_hint(self.current, number)
        shown = partial(show_hint, puzzle=puzzle, number=number, again="Press h again.")
        self._show([BLANK, ScreenPart(shown, optional=False)])

    def next(self) -> None:
        """After a pass, the puzzle that is offered; otherwise the one after the current one, and at the end the
        first."""
        slugs = list(ALL)
        after = slugs[(slugs.index(self.current) + 1) % len(slugs)]
        self.current = self._following(self.current) if self.current in self._passed() else after
        self.statement()

    def list(self) -> None:
        """The puzzles of the current chapter, and others that the file attempts, with their verdicts."""
        here = chapter_of(self.current).slugs
        shown = [slug for slug in ALL if slug in here or self._is_attempted(slug)]
        self._show([BLANK, *(ScreenPart(partial(self._print_row, slug), optional=False) for slug in shown)])

    def open(self) -> None:
        """Writes the picture of the current puzzle next to the file, and opens it."""
        verdict, track = self.verdicts.get(self.current), track_of(self.current)
        kept = verdict.trace if verdict is not None else ""
        drawn = track.picture(track.puzzle(self.current), kept, **track.coloured(self.colour)) if kept else ""
        if not drawn:
            return self._show([ScreenPart(self._say_undrawn, optional=False)])
        target = Path(self.path).with_name(f"{self.current}.svg")
        target.write_text(drawn, encoding="utf-8")
        self.console.print(f"Wrote {sanitized(str(target))}.")
        self.show(target.resolve().as_uri())

    def _show(self, parts: Sequence[ScreenPart]) -> None:
        """A new screen: the puzzle's heading, the parts, the keys."""
        self.console.clear()
        ends = (self._print_heading, self._print_keys)
        head, foot = (ScreenPart(show, optional=False) for show in ends)
        show_fitted(self.console, [head, *parts, foot])

    def _print_heading(self, console: Console) -> None:
        track = track_of(self.current)
        puzzle = track.puzzle(self.current)
        print_wrapped(console, track.heading(puzzle), "bold")
        print_wrapped(console, track.limits(puzzle), "dim")

    def _print_keys(self, console: Console) -> None:
        console.print()
        print_wrapped(console, KEYS.replace(" ", GLUE).replace(f"{GLUE}{GLUE}", f"{GLUE} "), "dim")

    def _verdict(self) -> Verdict | None:
        """The verdict on the current puzzle; if the file cannot be read, any that says so."""
        verdict = self.verdicts.get(self.current)
        if verdict is not None and verdict.attempted:
            return verdict
        return next((verdict for verdict in self.verdicts.values() if verdict.message and not verdict.attempted), None)

    def _explanation(self) -> Iterator[ScreenPart]:
        from puzzles.reports.terminal import explanation

        verdict = self._verdict()
        if verdict is not None:
            yield from explanation(verdict)

    def _say_absent(self, console: Console) -> None:
        track = track_of(self.current)
        console.print()
        show, path = next_command("show", self.current), sanitized(self.path)
        print_wrapped(console, f"{path} has no {track.noun} {self.current} yet; '{show}' has a starter to copy.")

    def _say_offer(self, console: Console) -> None:
        """After a pass, the next puzzle, which comes only when the player asks for it."""
        following = self._following(self.current)
        if self.current in self._passed() and following != self.current:
            track = track_of(following)
            console.print()
            print_wrapped(console, f"Press n for the next one: {track.mention(track.puzzle(following))}.", "green")

    def _print_picture(self, console: Console) -> None:
        """The picture in text, if the track has one of the run."""
        lines = self._picture_lines()
        for line in ["", *lines] if lines else []:
            console.print(plain_line(line), no_wrap=True, overflow="crop", highlight=False, markup=False)

    def _say_undrawn(self, console: Console) -> None:
        console.print()
        has_pictures = track_of(self.current).has_pictures
        why = f"{self.current} has not run yet" if has_pictures else "Puzzles of this track have no pictures"
        print_wrapped(console, f"There is nothing to draw. {why}.")

    def _picture_lines(self) -> Sequence[str]:
        verdict, track = self.verdicts.get(self.current), track_of(self.current)
        if verdict is None or not verdict.trace:
            return []
        try:
            puzzle, width = track.puzzle(self.current), self.console.width
            return track.picture_text(puzzle, verdict.trace, width, **track.coloured(self.colour)).splitlines()
        except Exception as why:  # drawing is not installed, or fails; the verdict is still shown
            return [f"This run cannot be drawn: {type(why).__name__}: {why}"]

    def _print_row(self, slug: str, console: Console) -> None:
        from puzzles.reports.standings import stars_text

        verdict = self.verdicts.get(slug)
        stars = stars_text(console, verdict.stars) if self._is_attempted(slug) and verdict is not None else ""
        status = verdict.status.replace("_", " ") if verdict is not None else "not attempted"
        console.print(f"{'>' if slug == self.current else ' '} {slug:<18} {stars:<3} {status}")


def plain_line(line: str) -> str:
    """A line of a picture, with its spaces but without control characters."""
    return "".join(c if c.isprintable() else "?" for c in line)


def fingerprints(submission: Submission) -> dict[str, str]:
    """The source of each puzzle's function or class, and under '' everything else. Comments and lines do not count."""
    found: dict[str, str] = {"": ""}
    try:
        cells = read_cells(submission.path.name, submission.text)
    except (ValueError, UnreadableError):
        return {"": submission.text}
    for part in cells:
        try:
            tree = ast.parse(without_magics(part.text))
        except UNPARSABLE:
            found[""] += part.text
            continue
        for node in tree.body:
            name = getattr(node, "name", "")
            found[name if name in ALL else ""] = found.get(name if name in ALL else "", "") + ast.dump(node)
    return found
