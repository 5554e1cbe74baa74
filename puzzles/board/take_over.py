"""Takes over an entry as a record of its puzzle, if no known record is as good: files the trace, and a row of it."""

from __future__ import annotations

import json
from pathlib import Path

from lib import Goal
from puzzles.catalog.schedule.found import FOUND, INDEX, rows_of
from puzzles.own import home_of

from .entry import Entry, EntryError

RECORDS = "records"
"""The folder of records in a folder of own puzzles."""


def folder_for(entry: Entry) -> Path:
    """Where the records of its puzzle are kept: with the puzzle."""
    home = home_of(entry.puzzle.slug)
    return FOUND if home is None else home.path / RECORDS


def take_over(entry: Entry) -> Path:
    """Files an entry as a record and returns the file of its trace.

    Raises:
        EntryError: a known record is as good.
        OSError: it cannot be written.
    """
    goal: Goal = entry.puzzle.goal  # type: ignore[attr-defined]
    steps, memory = entry.verdict.figures["timesteps"], int(entry.verdict.figures["peak_memory"])
    for known in goal.rivals(entry.verdict.family):
        if known.timesteps <= steps and known.peak_memory <= memory:
            by = f" ({known.by})" if known.by else ""
            raise EntryError(
                f"a known record is as good: {known.timesteps:g} timesteps, {known.peak_memory:,} elements{by}"
            )
    folder = folder_for(entry)
    file = folder / f"{entry.puzzle.slug}-{entry.file}"
    row = {
        "puzzle": entry.puzzle.slug,
        "timesteps": steps,
        "peak_memory": memory,
        "family": entry.verdict.family,
        "name": entry.name,
        "file": file.name,
    }
    rows = sorted([*rows_of(folder), row], key=lambda one: (str(one["puzzle"]), str(one["file"])))
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(entry.text(), encoding="utf-8", newline="\n")
    (folder / INDEX).write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
    return file
