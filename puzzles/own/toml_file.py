"""Reads a puzzle from a TOML file; `docs/teaching.md` documents its fields."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lib import Goal, Model, PuzzleError, Record, Setting, Size
from lib.judging.family import FAMILIES
from lib.setting_notation import setting_from_json
from lib.trace import FORMS
from puzzles.catalog.engine import EnginePuzzle
from puzzles.catalog.engine.figures import FIGURES
from puzzles.catalog.engine.puzzle import COUNTED_CALLS
from puzzles.catalog.schedule import SchedulePuzzle
from puzzles.tracks.schedule.calls import EXTENDED

from .errors import OwnPuzzleError
from .fields import Fields
from .puzzle_file import OwnPuzzle, trials_at

MODEL_CALLS = tuple(name for name in dir(Model) if not name.startswith("_"))
RULED_CALLS = tuple(name for name in MODEL_CALLS if name in FORMS)
"""The calls that can be forbidden: those that leave a trace."""

DRAFT_FIGURES = ("sent", "peak", "weights")
"""What is measured of a class without targets."""

NO_LIMIT = 10**12
"""A draft's target, which everything meets."""


def from_toml(path: Path, draft: bool = False) -> OwnPuzzle:
    """The puzzle in a TOML file, whose name is the puzzle's; with `draft`, one without targets too.

    Raises:
        OwnPuzzleError: naming the file, the field and what to do.
    """
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as why:
        raise OwnPuzzleError(f"{path}: {why}") from None
    fields = Fields(str(path), given)
    track = fields.one_of("track", READERS)
    has_targets = "targets" in fields
    if not has_targets and not draft:
        raise OwnPuzzleError(f"{path}: [targets] is missing; 'puzzles check --write' finds them with the reference")
    reference = fields.text("reference", "")
    trials: Callable[[], tuple[Any, ...]] = tuple
    wrong = {
        name: Fields(f"{path}, [wrong]", {name: it}).text(name) for name, it in fields.table("wrong", {}).rest().items()
    }
    try:
        puzzle = READERS[track](path, fields)
        if track == "engine":
            file = path.parent / fields.text("trials")
            trials = partial(trials_at, file)
    except PuzzleError as why:
        raise OwnPuzzleError(f"{path}: {why}") from None
    fields.done()
    return OwnPuzzle(puzzle, track, path, reference, wrong, trials, has_targets)


def _texts(fields: Fields) -> dict[str, Any]:
    """The texts that puzzles of every track have."""
    return {
        "title": fields.text("title"),
        "statement": fields.text("statement").strip() + "\n",
        "starter": fields.text("starter").strip() + "\n",
        "hints": fields.texts("hints"),
        "concept": fields.text("concept", "").strip(),
        "in_practice": fields.text("in_practice", "").strip(),
        "sources": fields.texts("sources"),
        "credit": fields.text("credit", ""),
        "praise": fields.text("praise", "Good dogs, every one of them."),
    }


def _schedule(path: Path, fields: Fields) -> SchedulePuzzle:
    targets = fields.table("targets", {"time": NO_LIMIT, "memory": NO_LIMIT})
    calls = fields.texts("calls", MODEL_CALLS)
    setting = _setting(fields)
    goal = Goal(
        path.stem,
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
        **_rules(fields, RULED_CALLS),
        **_texts(fields),
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


def _rules(fields: Fields, known: tuple[str, ...]) -> dict[str, Any]:
    rules = {name: fields.texts(name, known) for name in ("allowed", "forbidden")}
    if rules["allowed"] and rules["forbidden"]:
        raise OwnPuzzleError(f"{fields.where}: give either the calls that are allowed, or those that are forbidden")
    return rules


def _engine(path: Path, fields: Fields) -> EnginePuzzle:
    targets = fields.table("targets", dict.fromkeys(DRAFT_FIGURES, NO_LIMIT))
    limits = {name: targets.number(name, least=0) for name in FIGURES if name in targets}
    for name in targets.rest():
        Fields(targets.where, {"figure": name}).one_of("figure", FIGURES)
    return EnginePuzzle(
        slug=path.stem,
        targets=limits,
        arithmetic=fields.text("arithmetic", "").strip(),
        devices=fields.number("devices", 4),
        imports=fields.texts("imports"),
        records=tuple({name: row.number(name, least=0) for name in limits} for row in fields.tables("records")),
        **_rules(fields, COUNTED_CALLS),
        **_texts(fields),
    )


def _layout(path: Path, fields: Fields) -> Any:
    from lib.layout.program.notation import graph_from_data
    from puzzles.catalog.layout.puzzle import LayoutPuzzle

    targets = fields.table("targets", {"bytes": NO_LIMIT, "memory": NO_LIMIT})
    moved = targets.number("bytes", least=0)
    data = fields.table("graph").rest()
    graph = graph_from_data(data)
    puzzle = LayoutPuzzle(
        slug=path.stem,
        build=lambda: graph_from_data({name: part for name, part in data.items() if name != "configured"}),
        given=dict(graph.strategies),
        annotations=fields.number("annotations"),
        memory_cap=targets.number("memory"),
        target=moved,
        best=targets.number("best", moved, least=0),
        may_change=fields.flag("may_change"),
        is_proven=False,
        **_texts(fields),
    )
    targets.done()
    return puzzle


READERS: Mapping[str, Callable[[Path, Fields], Any]] = {"schedule": _schedule, "engine": _engine, "layout": _layout}
"""By track."""
