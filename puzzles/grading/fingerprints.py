"""Fingerprints of a file's definitions: what a save has changed."""

import ast

from puzzles.failure import UNPARSABLE, UnreadableError
from puzzles.sandbox.worker.notebook_cells import read_cells, without_magics
from puzzles.tracks import ALL

from .submission import Submission


def source_of(submission: Submission) -> str:
    """The Python of a file, or of all cells of a notebook; empty if it cannot be read."""
    try:
        cells = read_cells(submission.path.name, submission.text)
    except (ValueError, UnreadableError):
        return ""
    return "\n".join(without_magics(cell.text) for cell in cells)


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
