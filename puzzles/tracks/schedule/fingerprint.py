"""A digest that is the same for traces that differ in names only: of lines, values, microbatches and keys."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any


def fingerprint(trace: str) -> str:
    """The digest of a trace as JSON, with values, microbatches and keys numbered in the order in which they appear."""
    given: dict[str, Any] = json.loads(trace)
    batches: dict[int, int] = {}
    rows = [[_renamed(op, {}, batches, {}) for op in ops] for ops in _numbered(given["operations"])]
    rest = {name: value for name, value in given.items() if name != "operations"}
    text = json.dumps([rest, rows], sort_keys=True)
    return sha256(text.encode()).hexdigest()[:16]


def _numbered(ranks: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """The operations with values and keys renamed rank by rank."""
    found = []
    for ops in ranks:
        values: dict[Any, int] = {}
        keys: dict[str, int] = {}
        found.append([_renamed(op, values, None, keys) for op in ops])
    return found


def _renamed(
    op: dict[str, Any], values: dict[Any, int], batches: dict[int, int] | None, keys: dict[str, int]
) -> dict[str, Any]:
    made = {name: value for name, value in op.items() if name != "line"}
    if batches is not None:
        if isinstance(made.get("batches"), list):
            made["batches"] = sorted(batches.setdefault(batch, len(batches)) for batch in made["batches"])
        return made
    for name in ("uses", "makes"):
        if isinstance(made.get(name), list):
            made[name] = [values.setdefault(json.dumps(value), len(values)) for value in made[name]]
    if "key" in made:
        made["key"] = keys.setdefault(json.dumps([made.get("where"), made["key"]]), len(keys))
    return made
