"""A digest that is the same for traces that differ in names only: of lines, values, keys, batches, shards, ranks."""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

PEERS = ("to", "source", "group")
"""The arguments of operations that name ranks."""

ROUNDS = 3
"""How often a rank is told apart by whom it meets: then also by whom those meet, as in colour refinement."""


def fingerprint(trace: str) -> str:
    """The digest of a trace as JSON. What a rank names is numbered in the order in which it appears there.

    A rank is named by what it does and whom it meets, and ranks count in any order.
    """
    given: dict[str, Any] = json.loads(trace)
    ranks = [_numbered(ops) for ops in given.pop("operations")]
    names = [""] * len(ranks)
    for _ in range(ROUNDS):
        names = [_digest([name, [_meeting(op, names) for op in ops]]) for name, ops in zip(names, ranks)]
    return _digest([given, sorted(names)])


def _digest(content: object) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _meeting(op: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """An operation with the names of the ranks that it meets."""
    met = {name: op[name] if isinstance(op[name], list) else [op[name]] for name in PEERS if name in op}
    return op | {name: sorted(names[rank] for rank in ranks) for name, ranks in met.items()}


def _numbered(ops: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The operations of a rank, with all but ranks numbered in the order in which they appear."""
    values: dict[str, int] = {}
    keys: dict[str, int] = {}
    batches: dict[int, int] = {}
    shards: dict[tuple[int, int], int] = {}
    found = []
    for op in ops:
        made = {name: value for name, value in op.items() if name != "line"}
        for name in {"uses", "makes"} & made.keys():
            made[name] = [values.setdefault(json.dumps(value), len(values)) for value in made[name]]
        if "batches" in made:
            made["batches"] = sorted(batches.setdefault(batch, len(batches)) for batch in made["batches"])
        if "shard" in made:
            made["shard"] = shards.setdefault((made["shard"], made["total"]), len(shards))
        if "key" in made:
            made["key"] = keys.setdefault(json.dumps([made["where"], made["key"]]), len(keys))
        found.append(made)
    return found
