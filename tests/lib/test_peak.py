"""What a peak consists of: the items add up to it, and each has the fate that a plain reading of the trace gives it."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import TIMED, Activation, Model, OptState, Trace, Weight, memory_by_kind, peak_lines, referee, run
from lib.judging.recompute import Retrace
from tests.lib.test_numbers import Choices
from tests.support import CLASSICS, Classic
from tests.support.examples import examples

WEIGHT, ACTIVATION = 512 * 512, 512 * 256


def charged(trace: Trace) -> tuple[int, int, int, Counter[tuple[str, int, bool, str]]]:
    """The peak by definition, moment by moment: elements, rank, tick; its values by name, size, storage and fate."""
    retrace = Retrace(trace)
    retrace.run()
    best: Any = (-1, 0, 0, Counter())
    for rank, ops in enumerate(trace.ranks):
        values = retrace.ranks[rank].values
        for at in [*(i for i, op in enumerate(ops) if op.name in TIMED), len(ops)]:
            places: dict[Any, int] = {}
            for op in ops[:at]:
                if op.name == "store":
                    places[op.args] = op.used[0]
                elif op.name == "delete":
                    del places[op.args]
            found: Counter[tuple[str, int, bool, str]] = Counter()
            for number in (n for op in ops[:at] for n in op.made):
                uses = [i for i, op in enumerate(ops) if op.name != "store" and number in op.used and i >= at]
                stored_later = any(op.name == "store" and number in op.used for op in ops[at:])
                final = any(op.name == "set_final_weight" and number in op.used for op in ops)
                stored = number in places.values()
                if not (uses or stored or stored_later or final):
                    continue
                kept = final or (type(values[number]).__name__ == "OptState" and values[number].label()[2] == 1)
                fate = ("now" if uses[0] == at else "later") if uses else "kept" if kept else "never"
                found[str(values[number]), values[number].memory(), stored, fate] += 1
            total = sum(size * n for (_, size, _, _), n in found.items())
            if total > best[0]:
                tick = ops[at].start if at < len(ops) else max((op.end for op in ops if op.name in TIMED), default=0)
                best = (total, rank, tick, found)
    return best


def assert_explained(trace: Trace) -> None:
    report = referee(trace)
    peak = report.contents
    assert sum(item.elements for item in peak.items) == peak.memory == report.peak.memory
    assert (peak.rank, trace.costs.steps(peak.tick)) == (report.peak.rank, report.peak.time)
    found = Counter((str(item.value), item.elements, item.stored, item.fate) for item in peak.items)
    assert (peak.memory, peak.rank, peak.tick, found) == charged(trace)
    assert sum(shown_elements(peak_lines(peak))) == peak.memory


def shown_elements(lines: list[str]) -> list[int]:
    """The figures at the beginning of the rows, as a reader sees them."""
    return [int(found[1].replace(",", "")) for line in lines if (found := re.match(r" +([\d,]+)  ", line))]


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
    assert f"{2 * WEIGHT + 2 * ACTIVATION:,} elements, is on rank 0 at t=0, as forward(layer=0) starts" in lines[0]
    assert f"{WEIGHT:,}  optimizer state of layer 0: never read again (made at line {line + 2})" in lines[1]
    assert f"{ACTIVATION:,}  activation of layer 0, batch 1: never read again (made at line {line + 3})" in lines[2]
    assert any("activation of layer 0, batch 0, outside the dictionaries: read by this forward" in x for x in lines)
    assert f"{WEIGHT + ACTIVATION:,} of these elements" in lines[-1]


def test_what_the_next_step_needs_is_not_called_waste() -> None:
    classic = CLASSICS[0]

    def heavy_end(model: Model) -> None:
        classic.solution(model)
        model.activations["a"] = model.get_activation(range(4))
        for spare in range(8):
            model.grad_weights["spare", spare] = model.fake_grad(0, [])

    outcome = run(heavy_end, *classic.size)
    assert outcome.error is None
    peak = referee(outcome.trace).contents
    assert peak.event is None
    kept = [item.value for item in peak.items if item.fate == "kept"]
    assert kept == [kind(layer, 2, 1) for layer in (0, 1) for kind in (Weight, OptState)]
    assert "at the end of the run" in peak_lines(peak)[0]


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
    assert f"weight of layer 0 ({WEIGHT:,} elements" in note.text
    assert f"activation of layer 0, batch 0 ({ACTIVATION:,} elements" in note.text
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
    assert f"updated weight of layer 0 ({WEIGHT:,} elements, kept for the next step)" in note.text
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
