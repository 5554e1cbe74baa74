"""Folded runs: one replica is played for all, and every row and figure is as in a run of all ranks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from lib import COLLECTIVES, Costs, Model, Op, Outcome, Report, Setting, Trace, referee, run
from lib.named_costs import COSTS
from solutions.ddp import ddp
from solutions.fsdp import fsdp
from solutions.wsdp import wsdp
from tests.support.schedules.folded import Plan, trained
from tests.support.schedules.groups import hybrid_shard
from tests.support.schedules.overlapping import ddp_overlap, fsdp_prefetch
from tests.support.schedules.shards import local_sgd, zero1

Schedule = Callable[[Model], Any]

OVERLAP = COSTS["overlap"]


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
    assert whole.error is None and folded.error is None, (whole.error, folded.error)
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


def same_rows(whole: Outcome, folded: Outcome) -> None:
    expected = unfolded(folded.trace)
    assert len(expected) == len(whole.trace.ranks)
    for rank, (found, rows) in enumerate(zip(whole.trace.ranks, expected)):
        assert list(found) == rows, f"rank {rank}"


def same_figures(whole: Outcome, folded: Outcome) -> Report:
    one, other = referee(whole.trace), referee(folded.trace)
    assert one.error is None and other.error is None, (one.error, other.error)
    for name in ("timesteps", "makespan", "bubble", "span", "stars"):
        assert getattr(one, name) == pytest.approx(getattr(other, name)), name
    assert one.copies == pytest.approx(other.copies)
    classes = len(folded.trace.ranks)
    assert one.ranks[:classes] == other.ranks
    assert one.peak.memory - other.peak.memory in range(whole.trace.size.layers * 8)  # thirds of a weight are uneven
    assert star_notes(one) == star_notes(other)
    return other


def star_notes(report: Report) -> set[str]:
    """The notes that cost a star, without the ranks that they begin with."""
    return {re.sub("^ranks? [0-9, -]+ ", "", note.text) for note in report.notes if note.costs_a_star}


REPLICAS = (1, 2, 3, 4)

PROGRAMS: dict[str, tuple[Schedule, int, int, dict[str, Any]]] = {
    "ddp": (ddp, 2, 1, {}),
    "wsdp": (wsdp, 3, 1, {}),
    "fsdp": (fsdp, 3, 1, {}),
    "zero1": (zero1, 3, 1, {}),
    "zero 1, microbatches": (trained(Plan(1, late=True)), 2, 3, {}),
    "zero 2": (trained(Plan(2)), 2, 3, {}),
    "zero 3": (trained(Plan(3)), 2, 2, {}),
    "ddp in buckets": (ddp_overlap(1, 2), 3, 1, {"costs": COSTS["buckets"]}),
    "fsdp ahead": (fsdp_prefetch(), 4, 1, {"costs": OVERLAP}),
    "zero 2, overlap": (trained(Plan(2, lazy=True)), 2, 3, {"costs": OVERLAP}),
    "hybrid": (hybrid_shard, 3, 4, {"axis": "replica", "shard": 4, "costs": COSTS["islands"]}),
    "pipeline": (trained(Plan(0, late=True)), 4, 3, {"pp": 4}),
    "1F1B, zero 2": (trained(Plan(2, interleaved=True)), 4, 4, {"pp": 2}),
    "three axes": (trained(Plan(0, late=True)), 2, 2, {"pp": 2, "tp": 2, "layer": "block"}),
    "three axes, zero 3": (trained(Plan(3, interleaved=True)), 4, 2, {"pp": 2, "tp": 2, "layer": "block"}),
    "three axes, overlap": (trained(Plan(2, True, True)), 2, 2, {"pp": 2, "tp": 2, "layer": "block", "costs": OVERLAP}),
    "local": (local_sgd(2), 2, 1, {"steps": 4, "task": "local"}),
}


@pytest.mark.parametrize("replicas", REPLICAS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_folded_run_is_a_run_of_all_ranks(name: str, replicas: int) -> None:
    schedule, layers, each, more = PROGRAMS[name]
    if name == "local" and replicas == 1:
        pytest.skip("one replica alone has nobody to average with")
    whole, folded = both(schedule, layers, each, replicas, **more)
    same_rows(whole, folded)
    same_figures(whole, folded)
