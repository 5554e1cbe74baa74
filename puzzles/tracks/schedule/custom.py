"""A teacher's schedule puzzle: read from the fields of a file; the targets that a run meets; rows on its reference."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lib import Goal, Model, PuzzleError, Record, Setting, Size
from lib.game.goal import MEMORY_PRECISION, figures_text
from lib.game.setting import FIELDS as SETTING_FIELDS
from lib.game.setting_notation import setting_from_json
from lib.judging.family import FAMILIES
from lib.trace.ops import FORMS
from puzzles.catalog.fields import NO_LIMIT, Fields, OwnPuzzleError, rules_of, texts_of
from puzzles.catalog.schedule import SchedulePuzzle
from puzzles.catalog.schedule.reference_figures import ReferenceAt
from puzzles.catalog.schedule.size_text import size_text
from puzzles.tracks.open_track import ReferenceRow

from .calls import EXTENDED

MODEL_CALLS = tuple(name for name in dir(Model) if not name.startswith("_"))
RULED_CALLS = tuple(name for name in MODEL_CALLS if name in FORMS)
"""The calls that can be forbidden: those that leave a trace."""

COUNTED = {"memory": "peak_memory", "host": "host_memory", "traffic": "traffic"}
"""The targets in elements, and the figures that they are for."""


def tightest(figures: Mapping[str, float]) -> dict[str, int]:
    """The lowest targets that these figures meet."""
    counted = {name: figures[figure] for name, figure in COUNTED.items() if figures.get(figure)}
    return {"time": max(int(figures["timesteps"]), 1)} | {
        name: max(int(value) // MEMORY_PRECISION * MEMORY_PRECISION, 1) for name, value in counted.items()
    }


def read_puzzle(slug: str, fields: Fields) -> SchedulePuzzle:
    targets = fields.table("targets", {"time": NO_LIMIT, "memory": NO_LIMIT})
    calls = fields.texts("calls", MODEL_CALLS)
    setting = _setting(fields)
    goal = Goal(
        slug,
        _size(fields.table("size")),
        _time(targets),
        targets.number("memory"),
        tuple(_record(row) for row in fields.tables("records")),
        setting,
        host=_limit(targets, "host"),
        family=fields.one_of("family", FAMILIES, ""),
        traffic=_limit(targets, "traffic"),
        drift=_limit(targets, "drift"),
        steady=fields.flag("steady") or fields.flag("loads_once"),
    )
    targets.done()
    return SchedulePuzzle(
        goal=goal,
        other_sizes=tuple(map(_size, fields.tables("other_sizes"))),
        reference_at=_elsewhere(fields),
        calls=calls,
        parameters=fields.texts("parameters", EXTENDED),
        **rules_of(fields, RULED_CALLS),
        **texts_of(fields),
    )


def _limit(fields: Fields, name: str) -> int | None:
    """A target that a puzzle may leave out."""
    return fields.number(name) if name in fields else None


def _setting(fields: Fields) -> Setting:
    table = fields.table("setting", {})
    given = {"costs": "classic", **table.rest()}
    if unknown := set(given) - set(SETTING_FIELDS):
        fields_text = ", ".join(SETTING_FIELDS)
        raise OwnPuzzleError(f"{table.where}: there is no field '{min(unknown)}'; the fields are {fields_text}")
    try:
        return setting_from_json(given)
    except PuzzleError as why:
        raise OwnPuzzleError(f"{table.where}: {str(why).replace('this trace has ', '')}") from None


def _time(targets: Fields) -> float:
    """The target in steps: a whole number, or a number with one decimal, such as 5.5."""

    def is_time(given: Any) -> bool:
        if type(given) is float:
            return 0 < given < NO_LIMIT and given == round(given, 1)
        return type(given) is int and given >= 1

    wanted = "a number of steps: whole (5 is met below 6), or in tenths (5.5 is met below 5.6)"
    content: float = targets.take("time", wanted, is_time)
    return content


def _size(fields: Fields) -> Size:
    size = Size(*(fields.number(name) for name in Size._fields))
    fields.done()
    return size


def _record(fields: Fields) -> Record:
    record = Record(
        _timesteps(fields),
        fields.number("peak_memory"),
        fields.text("by", ""),
        fields.one_of("family", FAMILIES, ""),
        _limit(fields, "traffic"),
    )
    fields.done()
    return record


def _elsewhere(fields: Fields) -> tuple[ReferenceAt, ...]:
    """What the reference scores at other sizes, each of which is there once."""
    found: dict[Size, ReferenceAt] = {}
    for row in fields.tables("reference_at"):
        size = _size(row.table("size"))
        if size in found:
            raise OwnPuzzleError(f"{row.where}: there is already a row with {size_text(size)}; keep one of them")
        found[size] = ReferenceAt(size, _timesteps(row), row.number("peak_memory"), _limit(row, "traffic"))
        row.done()
    return tuple(found.values())


def _timesteps(fields: Fields) -> float:
    def is_time(given: Any) -> bool:
        return type(given) in (int, float) and given >= 0

    return float(fields.take("timesteps", "a number of steps", is_time))


def games(puzzle: SchedulePuzzle) -> list[SchedulePuzzle]:
    """The puzzle at each of its sizes, the shown one first, without targets."""
    return [
        replace(puzzle, goal=replace(puzzle.goal, size=size, time=NO_LIMIT, memory=NO_LIMIT), other_sizes=())
        for size in dict.fromkeys((puzzle.goal.size, *puzzle.other_sizes))
    ]


def measured(
    game: SchedulePuzzle, puzzle: SchedulePuzzle, file: str, figures: Mapping[str, float], family: str
) -> ReferenceRow:
    """The row on the reference in `file`, from its figures in a game. At the shown size it is a record: the first that
    a better schedule has to beat."""
    timesteps, memory = float(figures["timesteps"]), int(figures["peak_memory"])
    traffic = int(figures["traffic"]) if "traffic" in figures else None
    if game.goal.size == puzzle.goal.size:
        return _record_row(Record(timesteps, memory, file, family, traffic))
    return _elsewhere_row(ReferenceAt(game.goal.size, timesteps, memory, traffic))


def stated(puzzle: SchedulePuzzle, file: str) -> Sequence[ReferenceRow]:
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
    return {name: content for name, content in row._asdict().items() if content is not None}


def _traffic(row: Record | ReferenceAt) -> str:
    return "" if row.traffic is None else f", traffic={row.traffic:_}"
