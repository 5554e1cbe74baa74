"""Memory: lifetimes by their definition, kinds that add up to what is measured, and what a peak consists of."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import (
    COSTS,
    Activation,
    Model,
    OptState,
    Setting,
    Share,
    Trace,
    Weight,
    memory_by_kind,
    peak_lines,
    referee,
    run,
)
from lib.errors import IncompleteError
from lib.ledger.collectives import COLLECTIVES
from lib.ledger.lifetimes import lifetimes
from lib.ledger.memory import AGAIN, peak_rows
from lib.ledger.recomputation import Recomputation
from lib.ledger.trace import TIMED, Op
from lib.ledger.values import Parked
from lib.pipelines import pipeline, sequence_parallel, tensor_parallel, zb_h1, zb_h2
from puzzles.catalog.schedule import PUZZLES
from solutions.fsdp_prefetch import fsdp_prefetch
from tests.catalog.lessons.families.replicas import buckets
from tests.ledger.test_random_programs import Choices
from tests.screens.texts import approved
from tests.support import CLASSICS, Classic, finished
from tests.support.examples import examples
from tests.support.schedules import shards, tiers
from tests.support.schedules.groups import hybrid_shard
from tests.support.solved import reference_of

# === Lifetimes: a value exists while it is stored, or still to be used ===


PLACES = [("weights", 0), ("weights", 1), ("activations", 0)]

Choice = tuple[str, int, int]
"""An operation that chance picks: its name, and two numbers that say which values or which place it takes."""

choices = st.lists(
    st.tuples(
        st.sampled_from(["load_weights", "forward", "forward", "add", "store", "store", "delete", "set_final_weight"]),
        st.integers(0, 5),
        st.integers(0, 5),
    ),
    min_size=8,
    max_size=25,
)


def operations(picked: list[Choice]) -> list[Op]:
    """One rank's operations: each uses only what was made, and deletes only what is stored."""
    made, full = 2, set()
    ops = [op("load_weights", made=(0, 1))]
    for name, a, b in picked:
        place = PLACES[b % len(PLACES)]
        if name == "load_weights":
            ops.append(op(name, made=(made, made + 1)))
            made += 2
        elif name == "delete" and place in full:
            ops.append(op(name, args=place))
            full.remove(place)
        elif name == "store":
            ops.append(op(name, (a % made,), args=place))
            full.add(place)
        elif name == "set_final_weight":
            ops.append(op(name, (a % made,)))
        elif name in ("forward", "add"):
            ops.append(op(name, (a % made, b % made), (made,)))
            made += 1
    return ops


def op(name: str, used: tuple[int, ...] = (), made: tuple[int, ...] = (), args: tuple[object, ...] = ()) -> Op:
    return Op(name, 0, 0, inputs=used, outputs=made, args=args)


def stored_before(ops: list[Op]) -> list[set[int]]:
    """The values that are stored just before each operation and, last, at the end."""
    places: dict[object, int] = {}
    before = [set(places.values())]
    for each in ops:
        if each.name == "store":
            places[each.args] = each.inputs[0]
        elif each.name == "delete":
            del places[each.args]
        before.append(set(places.values()))
    return before


def needed(ops: list[Op], at: int) -> Iterator[int]:
    """The values made before operation `at` that are stored then or later, are used then or later, or are final."""
    after = set[int]().union(*stored_before(ops)[at:], *(each.inputs for each in ops[at:]))
    final = {number for each in ops if each.name == "set_final_weight" for number in each.inputs}
    for each in ops[:at]:
        yield from (number for number in each.outputs if number in after | final)


@examples(400)
@given(choices)
def test_memory_is_that_of_the_definition(picked: list[Choice]) -> None:
    ops = operations(picked)
    events = [i for i, each in enumerate(ops) if each.name in TIMED]
    sizes = [2**number for number in range(2 * len(ops))]  # sums of them name the values
    lives = lifetimes(ops)
    assert (lives.events, lives.sampled(lives.held, sizes), lives.sampled(lives.stored, sizes)) == (
        events,
        [sum(sizes[number] for number in needed(ops, at)) for at in [*events, len(ops)]],
        [sum(sizes[number] for number in stored_before(ops)[at]) for at in [*events, len(ops)]],
    )


@examples(400)
@given(choices)
def test_hidden_is_what_an_event_passes_outside_the_dictionaries(picked: list[Choice]) -> None:
    ops = operations(picked)
    before = stored_before(ops)
    final = {number for each in ops if each.name == "set_final_weight" for number in each.inputs}
    hidden = {
        number
        for event, each in enumerate(ops)
        if each.name in TIMED
        for earlier in ops[:event]
        for number in earlier.outputs
        if number not in before[event] and any(number in later.inputs for later in ops[event + 1 :])
    }
    lives = lifetimes(ops)
    assert (lives.kept_outside, lives.stored_at_end) == (sorted(hidden - final), before[-1])


def test_an_empty_place_cannot_be_emptied() -> None:
    with pytest.raises(KeyError):
        lifetimes([op("delete", args=("weights", 0))])


# === Memory by kind ===


WEIGHT, ACTIVATION = 512 * 512, 512 * 256


@pytest.mark.parametrize("classic", CLASSICS, ids=lambda classic: classic.slug)
def test_the_kinds_add_up_to_the_referees_memory(classic: Classic) -> None:
    trace = run(classic.solution, *classic.size).trace
    added = [tuple(sum(sum(share) for share in sample) for sample in rank) for rank in memory_by_kind(trace)]
    assert added == [rank.memory for rank in referee(trace).ranks]


def test_what_is_kept_in_a_local_variable_is_hidden() -> None:
    def schedule(model: Model) -> None:
        model.weights[0], state = model.load_weights(0)
        model.activations[0] = model.get_activation([0])
        model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
        grad = model.loss(model.activations[1])
        model.grad_weights[0], _ = model.backward(0, model.activations[0], grad, model.weights[0])
        model.update(0, model.grad_weights[0], model.weights[0], state)

    (samples,) = memory_by_kind(run(schedule, 1, 1, 1).trace)
    assert [sample.opt_states for sample in samples] == [Share(0, WEIGHT)] * 4 + [Share(0, 0)]
    assert [sample.gradients for sample in samples] == [
        Share(0, 0), Share(0, 0), Share(0, ACTIVATION), Share(WEIGHT, 0), Share(WEIGHT, 0)
    ]  # fmt: skip
    assert samples[0] == (Share(WEIGHT, 0), Share(0, WEIGHT), Share(ACTIVATION, 0), Share(0, 0))


def test_an_illegal_trace_is_measured_as_far_as_it_goes() -> None:
    async def schedule(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        model.forward(0, model.get_activation([0]), model.weights[0])
        await model.receive()

    trace = run(schedule, 1, 1, 1).trace
    assert [len(rank) for rank in memory_by_kind(trace)] == [len(rank.memory) for rank in referee(trace).ranks] == [2]


def test_each_wait_names_what_it_waited_for() -> None:
    async def schedule(model: Model) -> None:
        weight, _ = model.load_weights(0)
        if model.rank == 0:
            out = model.forward(0, model.get_activation([0]), weight)
            await model.pass_to(1, out)
        else:
            await model.receive()
        await model.allgather(weight.shard(model.rank, 2), 0)

    trace = run(schedule, 1, 1, 2).trace
    named = [
        {ops[i].name: (rank, trace.ranks[rank][j].name) for i, (rank, j) in waits.items()}
        for ops, waits in zip(trace.ranks, referee(trace).waits, strict=True)
    ]
    assert named == [{"allgather": (1, "allgather")}, {"receive": (0, "pass_to")}]


# === What a peak consists of ===


Charged = Counter[tuple[str, int, bool, bool, str]]
"""Values by name, size, whether they are stored, whether a pending call holds them, and fate."""


def charged(trace: Trace) -> tuple[int, int, int, Charged]:
    """The peak by definition, moment by moment: elements, rank, tick, and its values."""
    recomputation = Recomputation(trace)
    with suppress(IncompleteError):
        recomputation.run()
    best: Any = (-1, 0, 0, Counter())
    for rank, ops in enumerate(trace.ranks):
        values = recomputation.ranks[rank].values
        for at in [*(i for i, op in enumerate(ops) if op.name in TIMED), len(ops)]:
            places: dict[Any, int] = {}
            for op in ops[:at]:
                if op.name == "store":
                    places[op.args] = op.inputs[0]
                elif op.name == "delete":
                    del places[op.args]
            calls = {i: {*op.inputs, *op.outputs} for i, op in enumerate(ops[:at]) if beside_computation(trace, op)}
            for op in ops[:at]:
                if op.name == "await":
                    del calls[op.args[0]]
            found: Charged = Counter()
            for number in (n for op in ops[:at] for n in op.outputs):
                uses = [i for i, op in enumerate(ops) if op.name != "store" and number in op.inputs and i >= at]
                stored_later = any(op.name == "store" and number in op.inputs for op in ops[at:])
                final = any(op.name == "set_final_weight" and number in op.inputs for op in ops)
                stored = number in places.values()
                if not (uses or stored or stored_later or final):
                    continue
                value = values[number]
                kept = final or (isinstance(value, OptState) and value.step == trace.setting.steps)
                fate = "kept" if kept else "never"
                if uses:
                    fate = "now" if uses[0] == at else "awaited" if ops[uses[0]].name == "await" else "later"
                held = not stored and any(number in call for call in calls.values())
                found[str(value), value.memory(trace.costs), stored, held, fate] += 1
            total = sum(size * n for (_, size, *_), n in found.items())
            if total > best[0]:
                timed = [op for op in ops[:at] if op.name in TIMED or op.name == "await"]
                before = [op.end for op in timed if not beside_computation(trace, op)]
                if at == len(ops):
                    tick = max((op.end for op in ops if op.name in TIMED), default=0)
                else:
                    called = beside_computation(trace, ops[at])
                    tick = max(before, default=0) if called else ops[at].start
                best = (total, rank, tick, found)
    return best


def beside_computation(trace: Trace, op: Op) -> bool:
    """True if an operation is a call, which is joined by await."""
    return trace.costs.overlap and op.name in (*COLLECTIVES, "pass_to", "offload", "fetch")


def assert_explained(trace: Trace) -> None:
    report = referee(trace)
    peak = report.contents
    assert sum(item.elements for item in peak.items) == peak.memory == report.peak.memory
    assert (peak.rank, trace.costs.steps(peak.tick)) == (report.peak.rank, report.peak.time)
    found = Counter((str(item.value), item.elements, item.stored, item.in_call, item.fate) for item in peak.items)
    assert (peak.memory, peak.rank, peak.tick, found) == charged(trace)
    assert sum(shown_elements(peak_lines(peak))) == peak.memory


def shown_elements(lines: list[str]) -> list[int]:
    """The figures at the beginning of the rows, as a reader sees them."""
    return [int(found[1].replace(",", "")) for line in lines if (found := re.match(r" +([\d,]+)  ", line))]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("classic", CLASSICS, ids=lambda classic: classic.slug)
def test_the_items_of_a_reference_add_up_to_its_peak_and_fit_a_screen(classic: Classic) -> None:
    trace = run(classic.solution, *classic.size).trace
    assert_explained(trace)
    lines = peak_lines(referee(trace).contents)
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 100


@examples(60)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**9), st.randoms())
def test_the_items_of_random_programs_add_up_to_their_peak(
    layers: int, batches: int, ranks: int, seed: int, draw: Any
) -> None:
    trace = run(Choices(ranks, seed), layers, batches, ranks).trace
    assert_explained(trace)
    assert_explained(forgetful(trace, draw))


def forgetful(trace: Trace, draw: Any) -> Trace:
    """The run with some deletions left out, and some values never stored: what is used is charged all the same."""
    ranks = []
    for ops in trace.ranks:
        dropped: set[Any] = {op.args for op in ops if op.name in ("store", "delete") and draw.random() < 0.3}
        ranks.append(tuple(op for op in ops if op.name not in ("store", "delete") or op.args not in dropped))
    return Trace(trace.size, tuple(ranks))


def test_what_nobody_reads_again_comes_first_with_its_line() -> None:
    def schedule(model: Model) -> None:
        weights, states, activations, _, _ = model.storage()
        weights[0], states[0] = model.load_weights(0)
        activations["unused"] = model.get_activation([1])
        inp = model.get_activation([0])
        out = model.forward(0, inp, weights[0])
        model.loss(out)

    peak = referee(run(schedule, 1, 2, 1).trace).contents
    fates = [(item.value, item.fate, item.stored) for item in peak.items]
    assert (peak.memory, peak.tick, peak.event and peak.event.name) == (2 * WEIGHT + 2 * ACTIVATION, 0, "forward")
    assert fates == [
        (Weight(0, 1, 0), "now", True),
        (OptState(0, 1, 0), "never", True),
        (Activation(0, 1, {1}, 2), "never", True),
        (Activation(0, 1, {0}, 2), "now", False),
    ]
    lines = peak_lines(peak)
    line = schedule.__code__.co_firstlineno
    assert f"{2 * WEIGHT + 2 * ACTIVATION:,} elements, is on" in lines[0]
    assert f"{WEIGHT:,}  optimizer state of" in lines[1]
    assert lines[1].endswith(f"never read again (made at line {line + 2})")
    assert f"{ACTIVATION:,}  activation of" in lines[2]
    assert lines[2].endswith(f"batch 1: never read again (made at line {line + 3})")
    approved("peak", "what is read and what is not", [x for x in lines if "outside the dictionaries" in x])
    assert f"{WEIGHT + ACTIVATION:,} of these elements" in lines[-1]


def test_what_the_next_step_needs_is_not_called_waste() -> None:
    classic = CLASSICS[0]

    def heavy_end(model: Model) -> None:
        classic.solution(model)
        model.activations["a"] = model.get_activation(range(4))
        for spare in range(8):
            model.grad_weights["spare", spare] = model.fake_grad(0, [])

    outcome = finished(heavy_end, *classic.size)
    peak = referee(outcome.trace).contents
    assert peak.event is None
    kept = [item.value for item in peak.items if item.fate == "kept"]
    assert kept == [kind(layer, 2, 1) for layer in (0, 1) for kind in (Weight, OptState)]
    approved("peak", "what the next step needs is not called waste", peak_lines(peak)[0], "at the end of")


def test_a_note_names_what_is_charged_at_the_peak_without_being_stored() -> None:
    def schedule(model: Model) -> None:
        weight, _ = model.load_weights(0)
        model.forward(0, model.get_activation([0]), weight)

    def storing(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        model.activations[0] = model.get_activation([0])
        model.forward(0, model.activations[0], model.weights[0])

    def notes(schedule: Any) -> list[Any]:
        return [note for note in referee(run(schedule, 1, 1, 1).trace).notes if "the peak" in note.text]

    (note,) = notes(schedule)
    assert "rank 0 at t=0" in note.text
    assert f"of layer 0 ({WEIGHT:,} elements" in note.text
    assert f"0, batch 0 ({ACTIVATION:,} elements" in note.text
    assert not note.costs_a_star
    assert not notes(storing)


def test_a_final_weight_outside_the_dictionaries_is_named_too() -> None:
    def schedule(model: Model) -> None:
        weights, states, activations, grads, _ = model.storage()
        weights[0], states[0] = model.load_weights(0)
        activations[0] = model.get_activation([0])
        activations[1] = model.forward(0, activations[0], weights[0])
        grads[1] = model.loss(activations[1])
        grad, _ = model.backward(0, activations[0], grads[1], weights[0])
        new, states[0] = model.update(0, grad, weights[0], states[0])
        model.set_final_weight(0, new)
        activations[2] = model.get_activation([0])
        activations[3] = model.forward(0, activations[2], weights[0])

    trace = run(schedule, 1, 1, 1).trace
    (note,) = referee(trace).notes
    assert f"of layer 0 ({WEIGHT:,} elements, kept for" in note.text
    assert_explained(trace)


@pytest.mark.parametrize("classic", CLASSICS, ids=lambda classic: classic.slug)
def test_what_is_not_stored_agrees_with_the_ledger(classic: Classic) -> None:
    trace = run(classic.solution, *classic.size).trace
    peak = referee(trace).contents
    moments = [sum(sum(share) for share in sample) for sample in memory_by_kind(trace)[peak.rank]]
    sample = memory_by_kind(trace)[peak.rank][moments.index(peak.memory)]
    assert sum(share.hidden for share in sample) == sum(item.elements for item in peak.items if not item.stored)


def test_a_run_that_broke_a_rule_is_explained_as_far_as_it_went() -> None:
    def schedule(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        model.forward(0, model.get_activation([0]), model.weights[0])
        model.forward(1, model.get_activation([0]), model.weights[0])

    peak = referee(run(schedule, 2, 1, 1).trace).contents
    assert sum(item.elements for item in peak.items) == peak.memory == WEIGHT + ACTIVATION


def test_a_run_that_did_nothing_has_an_empty_explanation() -> None:
    peak = referee(run(lambda model: None, 1, 1, 1).trace).contents
    assert (peak.memory, peak.items, len(peak_lines(peak))) == (0, (), 1)


def rows(schedule: Any, size: tuple[int, int, int], setting: Setting) -> tuple[Trace, str]:
    """A run of an extended schedule, whose peak must be explained, and the explanation."""
    outcome = finished(schedule, *size, setting=setting)
    assert_explained(outcome.trace)
    lines = peak_lines(referee(outcome.trace).contents)
    assert len(lines) <= 20
    return outcome.trace, "\n".join(lines)


EXTENDED = {
    "halves and two steps": (pipeline(zb_h2), (2, 4, 2), Setting(COSTS["parts"], steps=2)),
    "halves": (pipeline(zb_h1), (3, 4, 3), Setting(COSTS["parts"])),
    "parts of a sum": (tensor_parallel, (3, 1, 4), Setting(COSTS["quarters"], layer="block")),
    "shares of the tokens": (sequence_parallel, (3, 1, 4), Setting(COSTS["long_quarters"], layer="block")),
    "experts": (shards.expert_parallel, (2, 8, 4), Setting(COSTS["experts"], layer="experts")),
    "replicas": (shards.local_sgd(2), (2, 4, 4), Setting(COSTS["slow"], steps=4, task="local")),
    "several steps": (shards.data_parallel_steps, (2, 2, 2), Setting(COSTS["slow"], steps=3)),
    "offload": (tiers.offload(range(1, 4)), (5, 1, 1), Setting(COSTS["copies"])),
    "inference": (tiers.stream_inference, (4, 2, 1), Setting(COSTS["streams"], task="infer")),
    "buckets": (buckets(2, 2), (4, 2, 2), Setting(COSTS["buckets"])),
    "overlap": (fsdp_prefetch, (4, 2, 2), Setting(COSTS["overlap"])),
    "groups": (hybrid_shard, (3, 4, 4), Setting(COSTS["islands"], mesh=(("replica", 2), ("shard", 2)))),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", EXTENDED)
def test_the_peak_of_an_extended_schedule_is_explained(name: str) -> None:
    rows(*EXTENDED[name])


def test_what_a_call_under_way_holds_is_said() -> None:
    trace, text = rows(*EXTENDED["overlap"])
    assert re.search(r"weight of layer \d, in a pending call: next read at t=", text)
    assert re.search(r"weight gradient of layer \d, batch 0, in a pending call: held until its call is awaited", text)
    assert "await calls earlier" in text
    (note,) = [note for note in referee(trace).notes if "in variables" in note.text]
    in_calls = sum(item.elements for item in referee(trace).contents.items if item.in_call and not item.stored)
    assert in_calls > 0
    assert note.text.endswith(f"{in_calls:,} elements of pending calls")
    assert not note.costs_a_star


def test_a_call_is_made_while_the_rank_computes_on() -> None:
    """The heading of a peak at a call has the rank's clock, not the time at which the call starts on its lane."""

    async def schedule(model: Model) -> None:
        inp = model.get_activation([0])
        weight, _ = model.load_weights(0)
        out = model.forward(0, inp, weight)
        first = model.offload(out)
        model.activations["more"] = model.get_activation([0])
        second = model.offload(inp)
        await first
        await second
        model.forward(0, inp, weight)

    trace = run(schedule, 1, 1, 1, setting=Setting(COSTS["copies"])).trace
    assert [op.start for op in trace.ranks[0] if op.name == "offload"] == [10, 20]
    assert_explained(trace)
    heading, *_ = peak_lines(referee(trace).contents)
    approved("peak", "a call is made while the rank computes on", heading, "at t=1, as offload()")


def test_what_is_parked_takes_nothing_of_the_device() -> None:
    trace, text = rows(*EXTENDED["offload"])
    peak = referee(trace).contents
    assert any(type(item.value) is Parked and not item.elements for item in peak.items)
    assert "host" not in text


def test_parts_shares_and_steps_are_in_the_rows() -> None:
    approved("peak", "parts shares and steps are in the rows", rows(*EXTENDED["parts of a sum"])[1], "part 0 of 4")
    approved(
        "peak", "parts shares and steps are in the rows, 2", rows(*EXTENDED["shares of the tokens"])[1], "share 0 of 4"
    )
    assert "step 0" in rows(*EXTENDED["several steps"])[1]
    assert "step" not in rows(*EXTENDED["groups"])[1]


def test_only_the_last_steps_state_is_kept() -> None:
    """An optimizer state that was updated again is waste, and one of the last step is not."""

    def schedule(model: Model) -> None:
        weight, state = model.load_weights(0)
        for step in range(2):
            inp = model.get_activation([0], step)
            grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
            weight, state = model.update(0, grad, weight, state)
            model.opt_states[step] = state
        model.set_final_weight(0, weight)
        for spare in range(4):
            model.weights[spare], _ = model.load_weights(0)

    trace = run(schedule, 1, 1, 1, setting=Setting(steps=2)).trace
    assert_explained(trace)
    peak = referee(trace).contents
    fates = {(type(item.value), item.value.step): item.fate for item in peak.items}  # type: ignore[attr-defined]
    assert fates == {(OptState, 1): "never", (OptState, 2): "kept", (Weight, 0): "never", (Weight, 2): "kept"}


def test_inputs_of_the_model_that_are_read_later_can_be_taken_again() -> None:
    goal = PUZZLES["one_f_one_b"].goal
    report = referee(run(reference_of("one_f_one_b"), *goal.size, setting=goal.setting).trace, goal)
    rows = [row for row in peak_rows(report.contents) if AGAIN in row.when]
    assert [row.elements for row in rows] == [4 * 131_072]
