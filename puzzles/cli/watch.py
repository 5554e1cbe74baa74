"""`puzzles watch`: grades what changed on every save, shows one puzzle with its verdict, and responds to single keys.

The screen shows one puzzle that was edited. Only definitions that changed are graded, unless other code of the file
changed, of which any may depend. Keys arrive by a thread, saves by another, and one loop handles both, so a verdict is
never interrupted by a key. Only input is set to single keys: raw mode would break the ends of printed lines. Rejected:
a full-screen library, since everything that is shown is lines of text that also scroll.
"""

from __future__ import annotations

import os
import queue
import re
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lib.ledger.algebra import counted
from puzzles.catalog.path import CORE
from puzzles.failure import UnreadableError, sanitized
from puzzles.judge.progress import add_own_file, load, next_slug, remember, remember_hint
from puzzles.judge.starters import add_starters
from puzzles.judge.submission import Submission, fingerprints
from puzzles.judge.verdict import Graded, Verdict
from puzzles.sandbox.limits import Limits
from puzzles.text_lines import GLUE, ScreenPart, next_command, print_wrapped, show_fitted
from puzzles.tracks import ALL, chapter_of, track_of
from puzzles.tracks.outcomes import capitalized

from .params import bytes_text, colour_option, seconds_text, terminal
from .show import print_paragraphs, show_hint

if TYPE_CHECKING:
    from rich.console import Console


# --- The screen ---


KEYS = "h hint   s statement   p picture   o open picture   l list   n next   q quit"
BLANK = ScreenPart(lambda console: console.print(), optional=False)


class WatchState:
    """State of the screen: one current puzzle. The player changes it with 'n', or by editing another puzzle."""

    def __init__(self, path: str, limits: Limits, console: Console, colour: str = "layer") -> None:
        from puzzles.judge.grader import grade_file

        self.path, self.limits, self.console, self.colour = path, limits, console, colour
        self.grade: Callable[..., Graded] = grade_file
        self.show: Callable[[str], object] = webbrowser.open
        self.verdicts: dict[str, Verdict] = {}
        self.current = CORE[0]
        self.hints: dict[str, int] = {}
        self._added = ""
        """What 'n' has done, until the file changes again: the event of its own save shows it again."""
        self._seen: dict[str, str] | None = None

    def begin(self) -> None:
        """Grades the file and shows the puzzle where the player left off: its verdict if it passes, else its statement.
        The file counts as the player's own."""
        add_own_file(self.path)
        self._grade_changes()
        self.current = self._left_off()
        if self.current in self._passed():
            self.screen()
        else:
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
        elif event.isprintable() and event.strip():
            print_wrapped(self.console, f"'{event}' does nothing here. The keys are:")
            self._print_keys(self.console)
        return True

    def saved(self) -> None:
        """Grades the definitions that changed and shows a verdict: on the current puzzle, if it is one of them."""
        before = dict(self.verdicts)
        edited = self._grade_changes()
        other = [slug for slug, verdict in self.verdicts.items() if slug in edited or verdict != before.get(slug)]
        changed = [slug for slug in other if self._is_attempted(slug)]
        if changed and self.current not in changed:
            self.current = changed[0]
        self.screen()

    def _grade_changes(self) -> list[str]:
        """Grades the puzzles whose definitions changed and returns them. If other code changed, grades all puzzles and
        returns none."""
        changed = self._changed(Submission.read(Path(self.path)))
        if changed is None or changed:
            self._added = ""
            self.console.print(f"Grading {sanitized(self.path)} ...", style="dim")
            puzzles = None if changed is None else [track_of(slug).puzzle(slug) for slug in changed]
            graded = self.grade(self.path, puzzles, self.limits, keep=True)
            if changed is None:
                self.verdicts.clear()
            self.verdicts.update((v.puzzle, v) for v in graded.verdicts)
            remember(graded)
        return changed or []

    def _left_off(self) -> str:
        """The first puzzle in the file that does not pass; if all pass, the last one."""
        begun = [slug for slug in _play_order() if slug in (self._seen or {}) or self._is_attempted(slug)]
        unsolved = [slug for slug in begun if slug not in self._passed()]
        return next(iter([*unsolved, *begun[-1:]]), self.current)

    def _following(self, slug: str) -> str:
        """The puzzle to offer after a pass; the same one if there is no other."""
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
            return self.statement(self._added)
        self._show([*self._explanation(), ScreenPart(self._say_offer, optional=False), ScreenPart(self._print_picture)])

    def statement(self, said: str = "") -> None:
        """The current puzzle's statement, what was just done, and as much of the verdict as fits."""
        statement = track_of(self.current).puzzle(self.current).statement
        parts = [ScreenPart(lambda console: print_paragraphs(console, statement), optional=False)]
        if said:
            parts += [BLANK, ScreenPart(partial(print_wrapped, text=said, style="green"), optional=False)]
        elif self.current not in (self._seen or {}):
            parts.append(ScreenPart(self._say_absent))
        self._show([*parts, *(ScreenPart(part.show) for part in self._explanation())])

    def picture(self) -> None:
        self._show([ScreenPart(self._print_picture if self._picture_lines() else self._say_undrawn, optional=False)])

    def hint(self) -> None:
        puzzle = track_of(self.current).puzzle(self.current)
        number = min(self.hints.get(self.current, 0) + 1, len(puzzle.hints))
        self.hints[self.current] = number
        remember_hint(self.current, number)
        shown = partial(show_hint, puzzle=puzzle, number=number, again="Press h again.")
        self._show([BLANK, ScreenPart(shown, optional=False)])

    def next(self) -> None:
        """Goes to the next puzzle: after a pass, to the one on offer, whose starter is added to the file; otherwise to
        the next one in order of play."""
        self._added = ""
        if self.current in self._passed():
            self.current = self._following(self.current)
            self._added = self._add_starter()
        else:
            slugs = _play_order()
            self.current = slugs[(slugs.index(self.current) + 1) % len(slugs)]
        self.statement(self._added)

    def _add_starter(self) -> str:
        """Adds the current puzzle's starter to the file, unless it is defined there, and returns a sentence about it.
        The file is graded at once, so that the event of this save finds no change."""
        path = sanitized(self.path)
        try:
            if not add_starters([track_of(self.current).puzzle(self.current)], self.path):
                return ""
        except UnreadableError as why:
            return f"{capitalized(sanitized(str(why)))}."
        except OSError as why:
            return f"{path} cannot be written: {why.strerror}."
        self._grade_changes()
        return f"Its starter is now at the end of {path}."

    def list(self) -> None:
        """The puzzles of the current chapter with their verdicts, and as many other attempts in the file as fit."""
        here = chapter_of(self.current).slugs
        shown = [*here, *(slug for slug in ALL if slug not in here and self._is_attempted(slug))]
        rows = [ScreenPart(partial(self._print_row, slug), optional=slug not in here) for slug in shown]
        passed = (
            f"{counted(len(self._passed()), 'puzzle')} in this file passed. '{next_command('path')}' shows the path."
        )
        self._show([BLANK, *rows, BLANK, ScreenPart(partial(print_wrapped, text=passed, style="dim"), optional=False)])

    def open(self) -> None:
        """Writes the picture of the current puzzle next to the file, and opens it."""
        verdict, track = self.verdicts.get(self.current), track_of(self.current)
        kept = verdict.trace if verdict is not None else ""
        drawn = track.show.picture(track.puzzle(self.current), kept, colour=self.colour) if kept else ""
        if not drawn:
            return self._show([ScreenPart(self._say_undrawn, optional=False)])
        target = Path(self.path).with_name(f"{self.current}.svg")
        target.write_text(drawn, encoding="utf-8")
        self.console.print(f"Wrote {sanitized(str(target))}.")
        self.show(target.resolve().as_uri())

    def _show(self, parts: Sequence[ScreenPart]) -> None:
        self.console.clear()
        ends = (self._print_heading, self._print_keys)
        head, foot = (ScreenPart(show, optional=False) for show in ends)
        show_fitted(self.console, [head, *parts, foot])

    def _print_heading(self, console: Console) -> None:
        track = track_of(self.current)
        puzzle = track.puzzle(self.current)
        print_wrapped(console, track.words.heading(puzzle), "bold")
        print_wrapped(console, track.words.limits(puzzle), "dim")

    def _print_keys(self, console: Console) -> None:
        console.print()
        print_wrapped(console, KEYS.replace(" ", GLUE).replace(f"{GLUE}{GLUE}", f"{GLUE} "), "dim")

    def _verdict(self) -> Verdict | None:
        """The verdict on the current puzzle; if the file cannot be read, any verdict with the reason."""
        verdict = self.verdicts.get(self.current)
        if verdict is not None and verdict.attempted:
            return verdict
        return next((verdict for verdict in self.verdicts.values() if verdict.message and not verdict.attempted), None)

    def _explanation(self) -> Iterator[ScreenPart]:
        from puzzles.screens.terminal import explanation

        verdict = self._verdict()
        if verdict is not None:
            yield from explanation(verdict, self.path)

    def _say_absent(self, console: Console) -> None:
        track = track_of(self.current)
        console.print()
        path = sanitized(self.path)
        start = next_command("start", self.current, "-o", path)
        print_wrapped(console, f"{path} has no {track.words.noun} {self.current} yet; '{start}' adds its starter.")

    def _say_offer(self, console: Console) -> None:
        following = self._following(self.current)
        if self.current in self._passed() and following != self.current:
            track = track_of(following)
            console.print()
            offer = f"Press n for the next puzzle, {track.puzzle(following).title}. Its starter is added to the file."
            print_wrapped(console, offer, "green")

    def _print_picture(self, console: Console) -> None:
        lines = self._picture_lines()
        for line in ["", *lines] if lines else []:
            plain = "".join(c if c.isprintable() else "?" for c in line)  # with its spaces
            console.print(plain, no_wrap=True, overflow="crop", highlight=False, markup=False)

    def _say_undrawn(self, console: Console) -> None:
        console.print()
        has_pictures = track_of(self.current).show.has_pictures
        why = f"{self.current} has not run yet" if has_pictures else "Puzzles in this track have no pictures"
        print_wrapped(console, f"There is nothing to draw. {why}.")

    def _picture_lines(self) -> Sequence[str]:
        verdict, track = self.verdicts.get(self.current), track_of(self.current)
        if verdict is None or not verdict.trace:
            return []
        try:
            puzzle, width = track.puzzle(self.current), self.console.width
            return track.show.picture_text(puzzle, verdict.trace, width, self.colour).splitlines()
        except Exception as why:  # the verdict is still shown
            return [f"This run cannot be drawn: {type(why).__name__}: {why}"]

    def _print_row(self, slug: str, console: Console) -> None:
        from puzzles.screens.standings import stars_text

        verdict = self.verdicts.get(slug)
        stars = stars_text(console, verdict.stars) if self._is_attempted(slug) and verdict is not None else ""
        status = verdict.status.replace("_", " ") if verdict is not None else "not attempted"
        console.print(f"{'>' if slug == self.current else ' '} {slug:<18} {stars:<3} {status}")


def _play_order() -> list[str]:
    return [*CORE, *(slug for slug in ALL if slug not in CORE)]


# --- The command ---


SEQUENCE = re.compile(r"\x1b(\[[\d;]*[@-~]|O.|.|$)")
"""What arrows, function keys and Alt send; the letters in it were not pressed."""

MAX_BYTES = 64
"""Of one read."""


@contextmanager
def single_keys() -> Iterator[None]:
    """Within the block, keys arrive one by one, without Enter, and are not shown. Only input changes: raw mode, which
    `click.getchar` sets, would also break the ends of printed lines."""
    try:
        import termios
    except ImportError:  # Windows, where `getchar` changes nothing
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    mode = termios.tcgetattr(terminal)
    mode[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(terminal, termios.TCSADRAIN, mode)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def keys() -> Iterator[str]:
    """The keys as they are pressed, in lower case; 'q' at the end of the input, and then no more."""
    while True:
        for key in _pressed() or "q":
            yield key.lower()
            if key == "q":
                return


def _pressed() -> str:
    """At least one key; empty at the end of the input."""
    try:
        if not sys.stdin.isatty():
            return sys.stdin.read(1)
        if sys.platform == "win32":
            return click.getchar()
        while True:
            given = os.read(sys.stdin.fileno(), MAX_BYTES).decode(errors="replace")
            pressed = SEQUENCE.sub("", given)
            if pressed or not given:
                return pressed
    except (EOFError, KeyboardInterrupt, OSError):
        return ""


DEFAULT = Limits()


@click.command()
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("--time-limit", type=seconds_text, default=DEFAULT.seconds, show_default=True, help="Seconds per puzzle.")
@click.option("--memory-limit", type=bytes_text, default="1024M", show_default=True, help="Memory of a process.")
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
