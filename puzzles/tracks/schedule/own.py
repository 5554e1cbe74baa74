"""Reads a schedule puzzle from the fields of a file, and finds the targets that a run meets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lib import Goal, Model, PuzzleError, Record, Setting, Size
from lib.goal import MEMORY_PRECISION
from lib.judging.family import FAMILIES
from lib.setting_notation import setting_from_json
from lib.trace import FORMS
from puzzles.catalog.fields import NO_LIMIT, Fields, OwnPuzzleError, rules_of, texts_of
from puzzles.catalog.schedule import SchedulePuzzle

from .calls import EXTENDED

MODEL_CALLS = tuple(name for name in dir(Model) if not name.startswith("_"))
RULED_CALLS = tuple(name for name in MODEL_CALLS if name in FORMS)
"""The calls that can be forbidden: those that leave a trace."""


def tightest(figures: Mapping[str, float]) -> dict[str, int]:
    """The lowest targets that these figures meet."""
    memory = {"memory": figures["peak_memory"]} | ({"host": h} if (h := figures.get("host_memory")) else {})
    return {"time": max(int(figures["timesteps"]), 1)} | {
        name: max(int(value) // MEMORY_PRECISION * MEMORY_PRECISION, 1) for name, value in memory.items()
    }


def read_puzzle(slug: str, fields: Fields) -> SchedulePuzzle:
    targets = fields.table("targets", {"time": NO_LIMIT, "memory": NO_LIMIT})
    calls = fields.texts("calls", MODEL_CALLS)
    setting = _setting(fields)
    goal = Goal(
        slug,
        _size(fields.table("size")),
        targets.number("time"),
        targets.number("memory"),
        tuple(_record(row) for row in fields.tables("records")),
        setting,
        targets.number("host") if "host" in targets else None,
        fields.one_of("family", FAMILIES, ""),
        fields.flag("loads_once"),
    )
    targets.done()
    return SchedulePuzzle(
        goal=goal,
        other_sizes=tuple(map(_size, fields.tables("other_sizes"))),
        calls=calls,
        parameters=fields.texts("parameters", EXTENDED),
        **rules_of(fields, RULED_CALLS),
        **texts_of(fields),
    )


def _setting(fields: Fields) -> Setting:
    table = fields.table("setting", {})
    given = {"costs": "classic", **table.rest()}
    if unknown := set(given) - {"costs", "mesh", "steps", "layer", "task"}:
        raise OwnPuzzleError(
            f"{table.where}: there is no field '{min(unknown)}'; there are costs, mesh, steps, layer, task"
        )
    try:
        return setting_from_json(given)
    except PuzzleError as why:
        raise OwnPuzzleError(f"{table.where}: {str(why).replace('this trace has ', '')}") from None


def _size(fields: Fields) -> Size:
    size = Size(*(fields.number(name) for name in Size._fields))
    fields.done()
    return size


def _record(fields: Fields) -> Record:
    def is_time(given: Any) -> bool:
        return type(given) in (int, float) and given >= 0

    steps = float(fields.take("timesteps", "a number of steps", is_time))
    record = Record(steps, fields.number("peak_memory"), fields.text("by", ""), fields.one_of("family", FAMILIES, ""))
    fields.done()
    return record
