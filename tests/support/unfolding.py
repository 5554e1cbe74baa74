"""Runs of all ranks beside folded ones, and what each rank does according to a folded trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lib import (
    COLLECTIVES,
    Costs,
    Model,
    Op,
    Outcome,
    Setting,
    Trace,
    run,
)
from lib.game.named_costs import COSTS

Schedule = Callable[[Model], Any]


def both(
    schedule: Schedule, layers: int, each: int, replicas: int, costs: Costs = COSTS["classic"], **more: Any
) -> tuple[Outcome, Outcome]:
    """A run of all ranks and a folded one. `more` has the other axes, and other fields of the setting; `each` is the
    microbatches of a replica, and `axis` the name of the folded axis."""
    axis = more.pop("axis", "dp")
    axes = {name: more.pop(name) for name in ("pp", "tp", "shard") if name in more}
    ranks = replicas
    for length in axes.values():
        ranks *= length
    setting = Setting(costs, ((axis, replicas), *axes.items()), **more)
    size = layers, each * replicas, ranks
    whole, folded = run(schedule, *size, setting=setting), run(schedule, *size, setting=setting, fold=axis)
    assert whole.error is None
    assert folded.error is None
    return whole, folded


# --- Renaming: what replica d does, from what replica 0 does. It shares no code with the runtime. ---


def unfolded(trace: Trace) -> list[list[Op]]:
    """The operations of all ranks, from those of replica 0."""
    replicas = trace.setting.mesh[0][1]
    classes = trace.size.ranks // replicas
    assert len(trace.ranks) == classes
    own = trace.size.batches // replicas
    return [
        [renamed(op, d, replicas, classes, own) for op in trace.ranks[c]]
        for d in range(replicas)
        for c in range(classes)
    ]


def renamed(op: Op, d: int, replicas: int, classes: int, own: int) -> Op:
    args: tuple[Any, ...] = op.args
    if op.name in COLLECTIVES and args and args[0] is not None:
        group = args[0]
        if isinstance(group[0], str):
            ranks = [e * classes + rank for e in range(replicas) for rank in group[1:]]
        else:
            ranks = [d * classes + rank for rank in group]
        args = (tuple(ranks), *args[1:])
    elif op.name in ("pass_to", "receive"):
        args = (args[0] + d * classes, *args[1:])
    elif op.name in ("load_weights", "shard"):
        fixed = 3 if op.name == "load_weights" else 2
        if len(args) > fixed:
            args = (args[0] + d * args[fixed], *args[1:fixed])
        while args[-1] is None:
            args = args[:-1]
    batches = frozenset(b + d * own for b in op.batches)
    return op._replace(args=args, batches=batches)
