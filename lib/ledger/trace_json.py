"""Writes a trace as JSON and reads it back. Reading is strict: the result is a well-formed trace, or a refusal.

A trace comes from a player's process, so nothing in it is trusted: not a type, a count or a name. Pickle would run what
it reads, and a shorter text form would need a parser that is as strict as this one.

This module decides which rows are well-formed. Whether a well-formed trace is legal is decided by `recomputation`, and
the fields of a setting are read by `setting`.
"""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from lib.errors import PuzzleError, RuleError, Sentences, TraceError
from lib.ledger.algebra import counted
from lib.ledger.collectives import COLLECTIVES
from lib.ledger.setting import Game, Setting, Size, setting_from_json, setting_to_json
from lib.ledger.values import KINDS, Value

from .trace import FORMS, NO_BATCHES, Form, Op, Trace, no_collection, shortest

FORMAT = "training-puzzles trace"
VERSION = 1

MAX_COUNT = 10_000
"""Most layers, batches, ranks and shards of a trace: what a head or a value names must not cost more to judge than the
trace is long."""

MAX_NUMBER = 10**12
"""The largest tick, line or number of a value."""

COLUMNS = ("layer", "batches", "uses", "makes", "line")
"""The columns of a row besides `op`, `at` and the operation's own arguments; left out where empty."""

KNOWN = {name: frozenset({"op", "at", *COLUMNS, *form.args, *form.optional}) for name, form in FORMS.items()}
"""By operation, all that a row of it may hold."""


def trace_to_json(trace: Trace) -> str:
    """The trace as one JSON object: its size, and per rank a list of rows. Times are in ticks."""
    written = setting_to_json(trace.setting)
    head = {"format": FORMAT, "version": VERSION, "costs": written.pop("costs"), **trace.size._asdict(), **written}
    with no_collection():
        rows = [[_row(op) for op in ops] for ops in trace.ranks]
        return json.dumps({**head, "operations": rows}, separators=(",", ":"))


def trace_from_json(text: str) -> Trace:
    """The trace that `trace_to_json` wrote.

    Raises:
        TraceError: naming what is wrong, in which rank and row.
    """
    try:
        data = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as why:
        raise TraceError(SAYS("no JSON", why=why)) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise TraceError(SAYS("no trace", form=FORMAT))
    if data.get("version") != VERSION:
        raise TraceError(SAYS("other version", version=data.get("version"), read=VERSION))
    return _trace(_size(data), setting_from_json(data), data.get("operations"))


def _row(op: Op) -> dict[str, Any]:
    row: dict[str, Any] = {"op": op.name, "at": [op.start, op.end]}
    if op.layer is not None:
        row["layer"] = op.layer
    form = FORMS[op.name]
    for name, arg in zip(form.args + form.optional, op.args):
        if arg is not None or name not in form.optional:
            row[name] = [type(arg).__name__, *map(_plain, arg.label())] if isinstance(arg, Value) else arg
    columns = (sorted(op.batches), list(op.inputs), list(op.outputs), op.line)
    row.update((name, content) for name, content in zip(COLUMNS[1:], columns) if content)
    return row


def _plain(field: Any) -> Any:
    """A field of a label as JSON holds it: sets and tuples are lists."""
    if isinstance(field, frozenset):
        return sorted(field)
    return [*map(_plain, field)] if isinstance(field, tuple) else field


def _size(head: Mapping[str, Any]) -> Size:
    counts = {name: head.get(name) for name in Size._fields}
    for name, count in counts.items():
        if type(count) is not int or not 1 <= count <= MAX_COUNT:
            raise TraceError(SAYS("impossible count", name=name, most=MAX_COUNT, got=count))
    return Size(**counts)  # type: ignore[arg-type]  # checked just above


def _trace(size: Size, setting: Setting, ranks: Any) -> Trace:
    try:
        Game.of(size, setting)
    except RuleError as why:
        raise TraceError(SAYS("impossible setting", why=why)) from None
    if not isinstance(ranks, list) or len(ranks) != size.ranks:
        count = len(ranks) if isinstance(ranks, list) else "none"
        raise TraceError(SAYS("ranks missing", ranks=counted(size.ranks, "rank"), count=count))
    read = []
    for rank, rows in enumerate(ranks):
        if not isinstance(rows, list):
            raise TraceError(SAYS("no operations", rank=rank, got=rows))
        read.append(_operations(rows, rank))
    return Trace(size, tuple(read), setting)


def _operations(rows: list[Any], rank: int) -> tuple[Op, ...]:
    read: list[Op] = []
    try:
        for row in rows:
            read.append(_op(row))  # their number says where the reason is
    except TraceError as why:
        raise TraceError(SAYS("unreadable operation", operation=len(read), rank=rank, why=why)) from None
    return tuple(read)


def _op(row: Any) -> Op:
    name = row.get("op") if type(row) is dict else None
    form = FORMS.get(name) if type(name) is str else None
    if name is None or form is None:
        raise TraceError(SAYS("no operation", name=name))
    if not row.keys() <= KNOWN[name]:
        raise TraceError(f"{name} has no {', '.join(sorted(map(str, row.keys() - KNOWN[name])))}")
    ticks = _numbers(row.get("at"), "at")
    if len(ticks) != 2:
        raise TraceError(SAYS("no ticks", got=ticks))
    layer, line = row.get("layer"), row.get("line", 0)
    least = -1 if name in COLLECTIVES else 0  # the gradient of the model's input is of layer -1
    for column, number, first in (("layer", 0 if layer is None else layer, least), ("line", line, 0)):
        if not _is_number(number, first):
            raise TraceError(SAYS("no number", column=column, first=first, got=number))
    batches = frozenset(_numbers(row["batches"], "batches")) if "batches" in row else NO_BATCHES
    if batches and len(batches) < len(row["batches"]):
        raise TraceError(SAYS("batch twice"))
    uses = _numbers(row["uses"], "uses") if "uses" in row else ()
    makes = _numbers(row["makes"], "makes") if "makes" in row else ()
    args = _arguments(form, row) if form.args or form.optional else ()
    return Op(name, ticks[0], ticks[1], layer, batches, uses, makes, args, line)


def _arguments(form: Form, row: dict[str, Any]) -> tuple[Any, ...]:
    if missing := [arg for arg in form.args if arg not in row]:
        raise TraceError(f"{row['op']} needs {', '.join(missing)}")
    args = [_argument(arg, row[arg]) for arg in form.args]
    if form.optional:
        args += shortest(*(_argument(arg, row[arg]) if arg in row else None for arg in form.optional))
    return tuple(args)


def _numbers(given: Any, column: str) -> tuple[int, ...]:
    if type(given) is list:
        for number in given:  # which is quicker than all() for a few
            if type(number) is not int or not 0 <= number <= MAX_NUMBER:
                break
        else:
            return tuple(given)
    raise TraceError(SAYS("no numbers", column=column, got=given))


def _is_number(given: Any, least: int = 0) -> bool:
    return type(given) is int and least <= given <= MAX_NUMBER


def _argument(name: str, given: Any) -> Any:
    if name == "key":
        return _key(given)
    if name in ("where", "tier"):
        if isinstance(given, str):
            return given
    elif name == "value":
        return _value(given)
    elif name == "group":
        return _numbers(given, name)
    elif name == "shares":
        if isinstance(given, list) and given == sorted(set(given := [*_numbers(given, name)])):
            return tuple(given)
    elif name == "label":
        if all(type(label) is int for label in (given if isinstance(given, list) else [given])):
            return tuple(given) if isinstance(given, list) else given
    elif _is_number(given) and (name != "total" or given <= MAX_COUNT):
        return given
    raise TraceError(f"{name} cannot be {given!r:.60}")


def _value(given: Any) -> Value:
    match given:
        case [str(kind), *label] if kind in KINDS:
            for field in label:
                if (len(field) if isinstance(field, list) else field if type(field) is int else 0) > MAX_COUNT:
                    raise TraceError(SAYS("too many", most=MAX_COUNT, got=field))
            try:
                return KINDS[kind](*label)
            except (PuzzleError, TypeError) as why:
                raise TraceError(str(why)) from None
    raise TraceError(SAYS("no value", got=given))


def _key(given: Any) -> Any:
    if isinstance(given, list):
        return tuple(map(_key, given))
    if isinstance(given, dict):
        raise TraceError(SAYS("no key"))
    return given


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number here")


SAYS = Sentences(
    {
        "no JSON": "this is not a trace in JSON: {why}",
        "no trace": 'this is not a trace: it must be an object with "format": "{form}"',
        "other version": "this trace is of version {version!r}; this program reads version {read}",
        "impossible count": "{name} of a trace must be a whole number from 1 to {most:,}; got {got!r:.60}",
        "ranks missing": "a trace of {ranks} holds a list of operations for each; found {count}",
        "no operations": "the operations of rank {rank} must be a list; got {got!r:.60}",
        "impossible setting": "this trace has an impossible setting: {why}",
        "unreadable operation": "operation {operation} of rank {rank}: {why}",
        "no operation": "there is no operation {name!r}",
        "no ticks": "'at' must be the start and the end in ticks; got {got!r:.60}",
        "no number": "{column} must be a whole number from {first}; got {got!r:.60}",
        "batch twice": "a batch is listed twice",
        "no numbers": "{column} must be a list of whole numbers from 0; got {got!r:.60}",
        "too many": "a value has at most {most:,} of anything; got {got!r:.60}",
        "no value": "value must be a kind and its fields; got {got!r:.60}",
        "no key": "a key must be a number, a string or a tuple of these; got an object",
    }
)
