"""What a schedule puzzle's file states of its reference: records at the shown size, and figures at the others."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lib import Record
from lib.ledger.goal import figures_text
from puzzles.catalog.fields import NO_LIMIT
from puzzles.catalog.schedule import SchedulePuzzle
from puzzles.catalog.schedule.puzzle import ReferenceAt
from puzzles.catalog.schedule.setting_text import size_text
from puzzles.tracks import base
from puzzles.tracks.base import ReferenceRow


class References(base.References[SchedulePuzzle]):
    def games(self, puzzle: SchedulePuzzle) -> list[SchedulePuzzle]:
        """The puzzle at each of its sizes, the shown one first, without targets."""
        return [
            replace(puzzle, goal=replace(puzzle.goal, size=size, time=NO_LIMIT, memory=NO_LIMIT), other_sizes=())
            for size in dict.fromkeys((puzzle.goal.size, *puzzle.other_sizes))
        ]

    def row(
        self, game: SchedulePuzzle, puzzle: SchedulePuzzle, file: str, figures: Mapping[str, float], family: str
    ) -> ReferenceRow | None:
        """At the shown size the row is a record: the first that a better schedule has to beat; none if a record beats
        it."""
        timesteps, memory = float(figures["timesteps"]), int(figures["peak_memory"])
        traffic = int(figures.get("traffic", 0))
        if game.goal.size == puzzle.goal.size:
            ideas = next((one.ideas for one in puzzle.goal.records if one.by == file), ())
            record = Record(timesteps, memory, file, family, traffic, ideas)
            others = [one for one in puzzle.goal.records_to_beat(family) if one.by != file]
            return None if any(other.dominates(*record.figures) for other in others) else _record_row(record)
        return _elsewhere_row(ReferenceAt(game.goal.size, timesteps, memory, traffic))

    def stated(self, puzzle: SchedulePuzzle, file: str) -> Sequence[ReferenceRow]:
        """The rows on the reference in `file` that a puzzle has."""
        records = [_record_row(record) for record in puzzle.goal.records if record.by == file]
        return [*records, *map(_elsewhere_row, puzzle.reference_at)]


def _record_row(record: Record) -> ReferenceRow:
    python = f"Record({record.timesteps}, {record.peak_memory:_}, {record.by!r}, {record.family!r}{_traffic(record)})"
    words = f"{figures_text(*record.figures)} ({record.family or 'of no family'})"
    return ReferenceRow("records", _fields(record), "at the shown size", words, f"{python} in the goal's records")


def _elsewhere_row(row: ReferenceAt) -> ReferenceRow:
    python = f"ReferenceAt({row.size!r}, {row.timesteps}, {row.peak_memory:_}{_traffic(row)}) in reference_at"
    fields = {**_fields(row), "size": row.size._asdict()}
    words = figures_text(row.timesteps, row.peak_memory, row.traffic)
    return ReferenceRow("reference_at", fields, f"with {size_text(row.size)}", words, python)


def _fields(row: Record | ReferenceAt) -> dict[str, object]:
    """The fields of a row; on one rank there is no traffic."""
    given = {name: content for name, content in row._asdict().items() if content not in (None, ())}
    return given | ({"ideas": [*given["ideas"]]} if "ideas" in given else {})


def _traffic(row: Record | ReferenceAt) -> str:
    return "" if row.traffic is None else f", traffic={row.traffic:_}"
