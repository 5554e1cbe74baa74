"""Folded runs: one replica is played for all, and every row and figure is as in a run of all ranks."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import (
    Activation,
    ActivationGrad,
    Costs,
    IncompleteError,
    Model,
    OptState,
    Outcome,
    PuzzleError,
    Report,
    RuleError,
    Setting,
    Size,
    Value,
    Weight,
    WeightGrad,
    referee,
    run,
)
from lib.game.folding import replica_number, stride_of
from lib.game.named_costs import COSTS
from lib.game.setting import Game
from lib.judging.recompute import Recomputation
from lib.values import algebra
from lib.values.base import Sharded
from solutions.ddp import ddp
from solutions.fsdp import fsdp
from solutions.pipeline_fsdp import pipeline_fsdp
from solutions.wsdp import wsdp
from solutions.zero1 import zero1
from tests.support.examples import examples
from tests.support.schedules.folded import Plan, trained
from tests.support.schedules.groups import hybrid_shard
from tests.support.schedules.overlapping import ddp_overlap, fsdp_prefetch
from tests.support.schedules.shards import local_sgd
from tests.support.unfolding import Schedule, both, unfolded

OVERLAP = COSTS["overlap"]


def same_rows(whole: Outcome, folded: Outcome) -> None:
    expected = unfolded(folded.trace)
    assert len(expected) == len(whole.trace.ranks)
    for rank, (found, rows) in enumerate(zip(whole.trace.ranks, expected)):
        assert list(found) == rows, f"rank {rank}"


def same_figures(whole: Outcome, folded: Outcome) -> Report:
    one, other = referee(whole.trace), referee(folded.trace)
    assert one.error is None
    assert other.error is None
    for name in ("timesteps", "makespan", "bubble", "span", "stars", "family"):
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


plans = st.builds(Plan, st.integers(0, 3), st.booleans(), st.booleans(), st.booleans(), st.booleans())

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
    "pipeline_fsdp": (pipeline_fsdp, 4, 1, {"pp": 4}),
    "1F1B, zero 2": (trained(Plan(2, interleaved=True)), 4, 4, {"pp": 2}),
    "three axes": (trained(Plan(0, late=True)), 2, 2, {"pp": 2, "tp": 2, "layer": "block"}),
    "three axes, zero 3": (trained(Plan(3, interleaved=True)), 4, 2, {"pp": 2, "tp": 2, "layer": "block"}),
    "three axes, overlap": (trained(Plan(2, True, True)), 2, 2, {"pp": 2, "tp": 2, "layer": "block", "costs": OVERLAP}),
    "local": (local_sgd(2), 2, 1, {"steps": 4, "task": "local"}),
}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("replicas", REPLICAS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_folded_run_is_a_run_of_all_ranks(name: str, replicas: int) -> None:
    schedule, layers, each, more = PROGRAMS[name]
    if name == "local" and replicas == 1:
        pytest.skip("one replica alone has nobody to average with")
    whole, folded = both(schedule, layers, each, replicas, **more)
    same_rows(whole, folded)
    same_figures(whole, folded)


@examples(60)
@given(plans, st.sampled_from((2, 3, 4)), st.sampled_from((1, 2)), st.sampled_from((1, 2)), st.data())
def test_plans_can_be_folded(plan: Plan, replicas: int, pp: int, tp: int, data: st.DataObject) -> None:
    costs = data.draw(st.sampled_from([COSTS["classic"], COSTS["islands"], OVERLAP, replace(OVERLAP, lanes="group")]))
    plan = plan._replace(lazy=plan.lazy and costs.overlap)
    axes = {name: length for name, length in (("pp", pp), ("tp", tp)) if length > 1}
    layer = "block" if tp > 1 else "dense"
    whole, folded = both(trained(plan), 2, data.draw(st.integers(1, 3)), replicas, costs, layer=layer, **axes)
    same_rows(whole, folded)
    same_labels(whole, folded)
    same_figures(whole, folded)


# --- Machines ---


async def neighbours(model: Model) -> None:
    """All-reduces between each two ranks of a replica that follow each other."""
    first = model.rank - model.index("tp")
    for left in range(len(model.axis("tp")) - 1):
        if model.index("tp") in (left, left + 1):
            await model.allreduce(model.fake_grad(0, []), 0, group=[first + left, first + left + 1])


def replicas_take_the_same_time(replicas: int, ranks: int, islands: int) -> bool:
    """What a run of all ranks says of machines of so many ranks."""
    costs = replace(COSTS["islands"], islands=islands)
    setting = Setting(costs, (("dp", replicas), ("tp", ranks)))
    rows = run(neighbours, 1, replicas, replicas * ranks, setting=setting).trace.ranks
    times = [[(op.start, op.end) for op in row if op.name == "allreduce"] for row in rows]
    return all(times[rank] == times[rank % ranks] for rank in range(len(times)))


@pytest.mark.slow
def test_what_folds_is_where_all_replicas_take_the_same_time() -> None:
    refused = []
    for replicas, ranks, islands in product((2, 3, 4), range(1, 6), range(11)):
        setting = Setting(replace(COSTS["islands"], islands=islands), (("dp", replicas), ("tp", ranks)), fold="dp")
        size = Size(1, replicas, replicas * ranks)
        if replicas_take_the_same_time(replicas, ranks, islands):
            Game.of(size, setting)
            continue
        says = f"machines of {islands} ranks .* replicas of {ranks} .* divides {islands} or is a multiple"
        with pytest.raises(RuleError, match=says):
            Game.of(size, setting)
        refused.append((replicas, ranks, islands))
    assert {(2, 3, 4), (2, 2, 3), (3, 4, 10)} <= set(refused)
    assert (2, 4, 10) not in refused  # all ranks are in one machine


COMMUNICATION = ("allreduce", "allgather", "scatterreduce", "pass_to", "receive")


@st.composite
def machine_costs(draw: st.DrawFn) -> Costs:
    """Any prices of communication, by value and by size, on machines of any size."""
    ticks, between, calls, alpha = ({name: draw(st.integers(0, 30)) for name in COMMUNICATION} for _ in range(4))
    beta = {name: Fraction(draw(st.integers(0, 9)), 2**18) for name in COMMUNICATION}
    base = draw(st.sampled_from([COSTS["classic"], OVERLAP, replace(OVERLAP, lanes="group")]))
    return replace(
        base, ticks={**base.ticks, **ticks}, ticks_between=between, islands=draw(st.integers(0, 9)),
        calls=calls, alpha=alpha, beta=beta,
    )  # fmt: skip


@examples(60)
@given(plans, machine_costs(), st.sampled_from((2, 4)), st.integers(1, 3), st.integers(1, 2), st.integers(1, 2))
def test_a_fold_on_any_machines_is_refused_or_is_a_run_of_all_ranks(
    plan: Plan, costs: Costs, replicas: int, pp: int, tp: int, each: int
) -> None:
    plan = plan._replace(lazy=plan.lazy and costs.overlap)
    axes = {name: length for name, length in (("pp", pp), ("tp", tp)) if length > 1}
    layer = "block" if tp > 1 else "dense"
    if not replicas_take_the_same_time(replicas, pp * tp, costs.islands):
        with pytest.raises(RuleError, match=f"machines of {costs.islands} ranks"):
            both(trained(plan), pp, each, replicas, costs, layer=layer, **axes)
        return
    whole, folded = both(trained(plan), pp, each, replicas, costs, layer=layer, **axes)
    same_rows(whole, folded)
    same_figures(whole, folded)


def same_labels(whole: Outcome, folded: Outcome) -> None:
    """Every value of replica d is what the label of replica 0 says of it."""
    recomputations = [Recomputation(outcome.trace) for outcome in (whole, folded)]
    for recomputation in recomputations:
        with suppress(IncompleteError):
            recomputation.run()
    size, replicas = whole.trace.size, whole.trace.setting.mesh[0][1]
    classes = size.ranks // replicas
    for rank, state in enumerate(recomputations[0].ranks):
        d, c = divmod(rank, classes)
        for number, value in state.values.items():
            label = recomputations[1].ranks[c].values[number]
            assert elements_of(value, size, 0, 1) == elements_of(label, size, d, replicas)
            assert value.memory() == label.memory() or (262_144 % replicas and isinstance(value, Sharded))


def elements_of(value: Value, size: Size, d: int, replicas: int) -> tuple[Any, ...]:
    """What a value is, in terms that do not depend on how it is counted: kind, layer, step, batches, intervals."""
    own = getattr(value, "own", None)
    shards = {shard + (own.stride * d if own else 0) for shard in getattr(value, "shards", ())}
    cut = algebra.coarsest(frozenset(shards), getattr(value, "total", 1)) if shards else None
    batches, each = getattr(value, "batches", frozenset()), size.batches // replicas
    if getattr(value, "total_batches", size.batches) == size.batches:
        held = {batch + d * each for batch in batches}
    else:
        held = {batch + e * each for batch in batches for e in range(replicas)}
    return type(value), value.layer, getattr(value, "step", 0), held, cut, getattr(value, "parts", None)


# --- Random programs: what a folded run accepts, a run of all ranks accepts ---

STRICTER = (
    "compute with the same weights",
    "leaves gaps between the replicas",
    "leave gaps",
    "would mix the batches",
    "cannot sum what differs in",
)
"""What only a folded run refuses: it is right elsewhere, and useless."""


def a_program(seed: int, length: int = 20) -> tuple[Schedule, dict[int, list[str]]]:
    """A random program on the axes dp and tp, alike on all replicas, and what came of each operation, by rank."""
    log: dict[int, list[str]] = {}

    async def schedule(model: Model) -> None:
        draw, tp = Random(seed), model.index("tp")
        dp, replicas, rows = model.index("dp"), len(model.axis("dp")), len(model.axis("tp"))
        each = model.BATCHES // replicas
        both = rows * replicas
        parts = [(0, 1), (tp, rows), (dp, replicas), (tp * replicas + dp, both), (dp * rows + tp, both)]
        mine = log.setdefault(int(model._rank), [])
        held: dict[type, list[Any]] = {kind: [] for kind in (Weight, OptState, WeightGrad, Activation, ActivationGrad)}

        def keep(made: Any) -> None:
            for value in made if isinstance(made, tuple) else (made,):
                held[type(value)].append(value)

        def any_of(*kinds: type) -> Any:
            found = [value for kind in kinds for value in held[kind]]
            return draw.choice(found) if found else None

        keep(model.load_weights(0, *draw.choice(parts)))
        keep(model.load_weights(0))
        keep(model.get_activation([dp * each + draw.randrange(each)]))
        for _ in range(length):
            what, group, part = draw.randrange(9), draw.choice(["dp", "tp", ("dp", "tp"), None]), draw.choice(parts)
            sharded = any_of(Weight, OptState, WeightGrad)
            try:
                match what:
                    case 0:
                        keep(model.forward(0, any_of(Activation), any_of(Weight)))
                    case 1:
                        keep(model.loss(any_of(Activation)))
                    case 2:
                        keep(model.backward(0, any_of(Activation), any_of(ActivationGrad), any_of(Weight)))
                    case 3:
                        keep(sharded.shard(*part))
                    case 4:
                        keep(await model.allgather(sharded, 0, group=group))
                    case 5:
                        keep(await model.scatterreduce(any_of(WeightGrad), 0, group=group))
                    case 6:
                        keep(await model.allreduce(any_of(WeightGrad, Activation, ActivationGrad), 0, group=group))
                    case 7:
                        keep(model.update(0, any_of(WeightGrad), any_of(Weight), any_of(OptState)))
                    case _:
                        keep(any_of(WeightGrad) + any_of(WeightGrad))
                mine.append("ok")
            except (PuzzleError, TypeError, AttributeError) as why:  # None is no value
                mine.append(str(why))

    return schedule, log


def compared(seed: int) -> str:
    """If a random program goes as in a run of all ranks: "alike", or "stricter" if it is refused when folded."""
    setting = Setting(mesh=(("dp", 2 + seed % 3), ("tp", 1 + seed % 2)), layer="block")
    replicas, rows = (length for _, length in setting.mesh)
    size = Size(1, 2 * replicas, replicas * rows)
    (program, theirs), (again, ours) = a_program(seed), a_program(seed)
    whole, folded = run(program, *size, setting=setting), run(again, *size, setting=setting, fold="dp")
    assert (whole.error, folded.error) == (None, None)
    for c, outcomes in ours.items():
        replica_by_replica = zip(*[theirs[d * rows + c] for d in range(replicas)], strict=True)
        for found, expected in zip(outcomes, replica_by_replica, strict=True):
            refusals = [what for what in expected if what != "ok"]
            if found == "ok" and not refusals:
                continue
            if found == "ok":
                raise AssertionError(f"seed {seed}: accepted, but not by all ranks: {refusals[0]}")
            if not refusals:
                assert any(words in found for words in STRICTER), f"seed {seed}: {found}"
            if len(refusals) < replicas:
                return "stricter" if not refusals else "replicas differ"
    same_rows(whole, folded)
    same_labels(whole, folded)
    return "alike"


@pytest.mark.slow
def test_random_programs_go_as_they_would_on_all_ranks() -> None:
    verdicts = Counter(compared(seed) for seed in range(100))
    assert verdicts["alike"] > verdicts["stricter"], verdicts
    assert verdicts["replicas differ"] > 0


@pytest.mark.slow
def test_many_random_programs_go_as_they_would_on_all_ranks() -> None:
    for seed in range(100, 1000):
        compared(seed)


def test_the_work_is_that_of_one_replica() -> None:
    for dp in (1, 64, 100_000):
        trace = run(fsdp, 32, dp, dp, setting=Setting(mesh=(("dp", dp),)), fold="dp").trace
        assert len(trace.ranks) == 1
        assert len(trace.events(0)) == 193


# --- Numbers that differ between replicas ---


@given(
    st.tuples(st.integers(-20, 20), st.integers(-6, 6), st.integers(2, 5)),
    st.integers(-8, 8),
    st.sampled_from("+ - * // % == != < <= > >=".split()),
    st.booleans(),
)
def test_what_is_computed_with_such_a_number_holds_on_every_replica(
    number: tuple[int, int, int], n: int, symbol: str, swapped: bool
) -> None:
    first, stride, replicas = number
    shown = replica_number(first, stride, replicas)
    left, right = ("n", "x") if swapped else ("x", "n")
    compute = eval(f"lambda x, n: {left} {symbol} {right}")
    try:
        found = compute(shown, n)
    except ZeroDivisionError:
        assert n == 0
    except RuleError:
        right_ones = {
            compute(first + stride * d, n) for d in range(replicas) if not (swapped and first + stride * d == 0)
        }
        assert len(right_ones) > 1 or swapped
        assert symbol not in "+-*"
    else:
        for d in range(replicas):
            assert int(found) + stride_of(found) * d == compute(first + stride * d, n)
