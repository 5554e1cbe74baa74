"""`puzzles watch`: grades what changed on every save, and answers to single keys."""

from __future__ import annotations

import ast
import queue
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from puzzles.failure import UnreadableError, plain
from puzzles.grading.submission import Submission
from puzzles.grading.verdict import Graded, Verdict
from puzzles.sandbox.limits import Limits
from puzzles.sandbox.worker.notebook_cells import read_cells, without_magics
from puzzles.tracks import ALL, track_of

from .params import Bytes, Seconds, terminal

if TYPE_CHECKING:
    from rich.console import Console

KEYS = "h hint   n next   l list   o open the picture   q quit"
DEFAULT = Limits()


@click.command()
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--time-limit", type=Seconds(), default=DEFAULT.seconds, show_default=True, help="Seconds for each puzzle."
)
@click.option("--memory-limit", type=Bytes(), default="1024M", show_default=True, help="Memory of a process.")
def watch(path: str, time_limit: float, memory_limit: int) -> None:
    """Grade FILE again on every save; keys give hints, the next puzzle, the picture."""
    game = Game(path, Limits(seconds=time_limit, memory=memory_limit), terminal())
    game.saved()
    events: queue.Queue[str] = queue.Queue()
    stop = threading.Event()
    for source in (_saves(path, stop), _keys()):
        threading.Thread(target=_pour, args=(source, events), daemon=True).start()
    try:
        while game.handle(events.get()):
            pass
    except KeyboardInterrupt:
        pass
    finally:
        stop.set()


def _pour(source: Iterator[str], events: queue.Queue[str]) -> None:
    for event in source:
        events.put(event)


def _saves(path: str, stop: threading.Event) -> Iterator[str]:
    from watchfiles import watch as changes  # here, because it is slow to import

    file = Path(path).resolve()
    for changed in changes(file.parent, stop_event=stop, recursive=False, raise_interrupt=False):
        if any(Path(name).resolve() == file for _, name in changed):
            yield "saved"


def _keys() -> Iterator[str]:
    while True:
        try:
            key = click.getchar() if sys.stdin.isatty() else sys.stdin.read(1)
        except (EOFError, KeyboardInterrupt, OSError):
            key = ""
        yield key or "q"
        if key in ("", "q"):
            return


class Game:
    """State of the screen: one current puzzle, which only the player changes."""

    def __init__(
        self, path: str, limits: Limits, console: Console, grade: Callable[..., Graded] | None = None,
        show: Callable[[str], Any] = webbrowser.open,
    ) -> None:  # fmt: skip
        from puzzles.grading.grader import grade_file

        self.path = path
        self.limits = limits
        self.console = console
        self.grade = grade or grade_file
        self.show = show
        self.verdicts: dict[str, Verdict] = {}
        self.current = next(iter(ALL))
        self.hints: dict[str, int] = {}
        self._seen: dict[str, str] | None = None
        self._chosen = False

    def handle(self, event: str) -> bool:
        """Acts on a key or a save; returns False to quit."""
        actions = {"saved": self.saved, "h": self.hint, "n": self.next, "l": self.list, "o": self.open}
        if event == "q":
            return False
        if event in actions:
            actions[event]()
        return True

    def saved(self) -> None:
        """Grades the puzzles whose definitions changed; all of them if anything else did."""
        from puzzles.grading.progress import remember

        submission = Submission.read(Path(self.path))
        changed = self._changed(submission)
        if changed is None or changed:
            puzzles = None if changed is None else [track_of(slug).puzzle(slug) for slug in changed]
            graded = self.grade(self.path, puzzles, self.limits, keep=True)
            if changed is None:
                self.verdicts.clear()
            self.verdicts.update((v.puzzle, v) for v in graded.verdicts)
            remember(graded)
            if not self._chosen:
                self._chosen = True  # where the player left off; from here on only 'n' moves
                self.current = self._left_off()
        self.screen()

    def _left_off(self) -> str:
        """The first puzzle that the file has begun and not passed; if it has passed all, the one after the last."""
        slugs, passed = list(ALL), {slug for slug, v in self.verdicts.items() if v.status == "passed"}
        begun = [slug for slug in slugs if slug in (self._seen or {}) or self._is_attempted(slug)]
        after = slugs[slugs.index(begun[-1]) + 1 :] if begun else []
        return next((slug for slug in (*begun, *after, *slugs) if slug not in passed), self.current)

    def _is_attempted(self, slug: str) -> bool:
        return slug in self.verdicts and self.verdicts[slug].attempted

    def _changed(self, submission: Submission) -> list[str] | None:
        """The puzzles whose definitions are others than at the last save; None: whatever there is."""
        parts = fingerprints(submission)
        before, self._seen = self._seen, parts
        if before is None or parts.get("") != before.get(""):
            return None
        return [slug for slug in ALL if parts.get(slug) != before.get(slug)]

    def screen(self) -> None:
        """The current puzzle: its statement, the verdict, the picture, the keys."""
        from puzzles.reports.terminal import explain

        from .show import show_statement

        puzzle, verdict = track_of(self.current).puzzle(self.current), self.verdicts.get(self.current)
        self.console.clear()
        show_statement(self.console, puzzle)
        if verdict is not None:
            explain(self.console, verdict)
            self._picture(verdict)
        self.console.print(KEYS, style="dim")

    def _picture(self, verdict: Verdict) -> None:
        """The picture in text, if the track has one of the run."""
        if not verdict.trace:
            return
        track = track_of(verdict.puzzle)
        try:
            picture = track.picture_text(track.puzzle(verdict.puzzle), verdict.trace, self.console.width)
        except Exception:  # no such drawing here, or a run that cannot be drawn: the verdict stays without
            return
        self.console.print()
        for line in picture.splitlines():
            self.console.print(plain_line(line), no_wrap=True, overflow="crop", highlight=False, markup=False)

    def hint(self) -> None:
        """The next hint of the current puzzle."""
        from puzzles.grading.progress import remember_hint

        from .hint import show_hint

        puzzle = track_of(self.current).puzzle(self.current)
        number = min(self.hints.get(self.current, 0) + 1, len(puzzle.hints))
        self.hints[self.current] = number
        remember_hint(self.current, number)
        show_hint(self.console, puzzle, number)

    def next(self) -> None:
        """The puzzle after the current one; after the last comes the first."""
        slugs = list(ALL)
        self.current = slugs[(slugs.index(self.current) + 1) % len(slugs)]
        self._chosen = True
        self.screen()

    def list(self) -> None:
        """The puzzles of the current track, and what else the file attempts, with their verdicts."""
        from puzzles.reports.terminal import stars_text

        here = track_of(self.current)
        for slug, track in ALL.items():
            verdict = self.verdicts.get(slug)
            attempted = verdict is not None and verdict.attempted
            if track is here or attempted:
                said = stars_text(self.console, verdict.stars) if verdict is not None and attempted else ""
                status = verdict.status.replace("_", " ") if verdict is not None else "not attempted"
                self.console.print(f"{'>' if slug == self.current else ' '} {slug:<15} {said} {status}")

    def open(self) -> None:
        """Writes the picture of the current puzzle beside the file, and opens it."""
        from puzzles.reports.html import pictures

        verdict = self.verdicts.get(self.current)
        drawn = next(iter(pictures(verdict)), "") if verdict is not None else ""
        if not drawn:
            self.console.print(f"There is nothing to draw of {self.current} yet.")
            return
        target = Path(self.path).with_name(f"{self.current}.svg")
        target.write_text(drawn, encoding="utf-8")
        self.console.print(f"Wrote {plain(str(target))}.")
        self.show(target.resolve().as_uri())


def plain_line(line: str) -> str:
    """A line of a picture, without what moves a cursor; its spaces stay."""
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
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            found[""] += part.text
            continue
        for node in tree.body:
            name = getattr(node, "name", "")
            found[name if name in ALL else ""] = found.get(name if name in ALL else "", "") + ast.dump(node)
    return found
