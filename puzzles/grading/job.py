"""A grading job: the same work for each of many files, as plain data that any process can be given."""

import threading
from pathlib import Path
from typing import NamedTuple

from puzzles.custom import add_folder, folders
from puzzles.sandbox.client import Client
from puzzles.sandbox.limits import Limits
from puzzles.sandbox.tiers import IsolationTier
from puzzles.tracks import track_of

from .grader import grade_file
from .session import client_for
from .submission import Submission
from .verdict import Graded


class GradingJob(NamedTuple):
    """Puzzles to grade in each file, and the conditions. Without `slugs`: whatever a file attempts."""

    slugs: tuple[str, ...]
    limits: Limits
    tier: IsolationTier
    strict: bool = False
    keep: bool = False
    own: tuple[tuple[str, str], ...] = ()
    """Folders of own puzzles, each with the digest of its content."""
    compares: bool = False
    """True if verdicts have what is compared with other people's work."""

    def grade(self, path: str, source: bytes | OSError | None, client: Client | None = None) -> Graded:
        """Grades a file: `source` is its content, or why that could not be read; None reads it now."""
        there = {str(folder.path) for folder in folders()}
        for folder, _ in self.own:  # a process that was not forked does not have them
            if folder not in there:
                add_folder(folder)
        submission = _submission(path, source)
        puzzles = [track_of(slug).puzzle(slug) for slug in self.slugs] or None
        return grade_file(
            path, puzzles, self.limits, self.tier, self.strict, self.keep, submission, client, self.compares
        )

    def grade_with_kept_client(self, path: str, source: bytes | OSError | None) -> Graded:
        """Grades a file with the client of this thread, whose server stays for the next file."""
        clients = vars(_clients)
        key = repr((self.tier, self.limits))
        if key not in clients:
            clients.clear()
            clients[key] = client_for(self.tier, self.limits)
        return self.grade(path, source, clients[key])


def _submission(path: str, source: bytes | OSError | None) -> Submission:
    if source is None:
        return Submission.read(Path(path))
    return Submission(Path(path), source) if isinstance(source, bytes) else Submission.unreadable(path, source)


def close_kept_client() -> None:
    """Ends the server that this thread keeps, if any."""
    for client in vars(_clients).values():
        client.close()
    vars(_clients).clear()


_clients = threading.local()
"""The client of each thread. Its server ends when the client is forgotten, or its process ends."""
