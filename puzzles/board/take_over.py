"""Takes over an entry as a record of its puzzle, if no known record is as good: files the trace, and a row of it."""

from __future__ import annotations

import json
from pathlib import Path

from puzzles.catalog.found import INDEX, rows_of
from puzzles.own import home_of
from puzzles.own.loaded import RECORDS
from puzzles.tracks import track_of

from .entry import Entry, EntryError


def folder_for(entry: Entry) -> Path:
    """Where the records of its puzzle are kept: with the puzzle.

    Raises:
        EntryError: runs of its track are no records.
    """
    home, shipped = home_of(entry.puzzle.slug), track_of(entry.puzzle.slug).found_folder
    if shipped is None:
        raise EntryError(f"runs of {entry.puzzle.slug} cannot be taken over")
    return shipped if home is None else home.path / RECORDS


def take_over(entry: Entry) -> Path:
    """Files an entry as a record and returns the file of its trace.

    Raises:
        EntryError: a known record is as good.
        OSError: it cannot be written.
    """
    verdict = entry.verdict
    if known := track_of(entry.puzzle.slug).known_as_good(entry.puzzle, verdict.figures, verdict.family):
        raise EntryError(f"a known record is as good: {known}")
    folder = folder_for(entry)
    file = folder / f"{entry.puzzle.slug}-{entry.file}"
    row = {
        "puzzle": entry.puzzle.slug,
        "timesteps": verdict.timesteps,
        "peak_memory": verdict.peak_memory,
        "family": verdict.family,
        "name": entry.name,
        "file": file.name,
    }
    rows = sorted([*rows_of(folder), row], key=lambda one: (str(one["puzzle"]), str(one["file"])))
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(entry.text(), encoding="utf-8", newline="\n")
    (folder / INDEX).write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
    return file
