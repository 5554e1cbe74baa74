"""Gives a track the sandbox and the terminal, for `draw` and `run`."""

import webbrowser
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from lib import PuzzleError
from puzzles.failure import Failure, of_source
from puzzles.judge.discover import submissions
from puzzles.judge.grader import grade_puzzle
from puzzles.judge.session import Session, run_in
from puzzles.judge.submission import Submission
from puzzles.sandbox.limits import Limits
from puzzles.screens.screen import next_command
from puzzles.screens.terminal import report_on
from puzzles.tracks import ALL, Track, track_of
from puzzles.tracks.outcomes import RunOutcome, RunRequest

from .params import terminal


class CommandWorkbench:
    """The workbench for one definition and one file or folder of a player."""

    def __init__(self, path: str, track: Track[Any], slug: str, seconds: float, opens: bool = False) -> None:
        self.path = path
        self.opens = opens
        self.track = track
        self.slug = slug
        self.limits = Limits(seconds=seconds)
        self.console: Console = terminal()
        self._submissions: dict[str, Submission] = {}

    def _submission(self, path: str = "") -> Submission:
        """A file (default: the player's), read once: runs and messages use the same cells of a notebook."""
        path = path or self.path
        if path not in self._submissions:
            self._submissions[path] = Submission.read(Path(path))
        return self._submissions[path]

    def run(self, request: RunRequest, path: str = "") -> RunOutcome:
        submission = self._submission(path)
        if submission.failure is not None:
            return RunOutcome(failure=submission.failure)
        with Session(submission, self.limits, names=(self.slug,)) as session:
            return run_in(session, self.track, self.slug, request.data, self.limits.seconds)

    def absent(self, path: str = "") -> str:
        slug, track = self.slug, self.track
        start = f", or get a file to write in with '{next_command('start', slug)}'" if slug in ALL else ""
        advice = f"write '{track.words.signature(slug)}:'{start}"
        return f"{path or self.path} has no {track.words.noun} {slug}; {advice}"

    def message(self, failure: Failure, path: str = "") -> str:
        return self._submission(path).placed(failure.message)

    def refuse(self, why: str) -> bool:
        self.console.print(Text(f"{self.slug} {why}"), soft_wrap=True)
        return False

    def wrote(self, path: str) -> None:
        click.echo(f"Wrote {path}.")
        if self.opens and not webbrowser.open(Path(path).resolve().as_uri()):
            click.echo("There is no browser here to open it with.", err=True)

    def require_readable(self, path: str) -> None:
        problem = self._submission(path).problem
        if problem is not None:
            raise click.ClickException(f"{path}: {of_source(problem).message}")

    def files(self, path: str) -> list[str]:
        return [file.path for file in submissions([path]) if Submission.of(file).looks_defined(self.slug)]

    def grade(self, where: str = "inprocess") -> bool:
        slug, submission = self.slug, self._submission()
        with Session(submission, self.limits) as session:
            try:
                verdict = grade_puzzle(track_of(slug).puzzle(slug), session)
            except PuzzleError as why:
                return self.refuse(f"could not be run: {why}")
        if not verdict.attempted:
            begun = f"{slug} in {self.path} is still the starter; write your lines between the two marks"
            self.console.print(Text(begun if submission.looks_defined(slug) else self.absent()), soft_wrap=True)
            return False
        report_on(self.console, f"{self.path}, {where}", verdict)
        return verdict.status == "passed"
