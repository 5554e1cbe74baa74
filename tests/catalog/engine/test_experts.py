"""Chapter `experts`: bytes from formulas, layers equal to those of one device, the paper's gate and balance loss."""

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.engine import ShardedEngine, launch
from puzzles.catalog.engine import ENGINE_PUZZLES
from puzzles.catalog.engine.models import softmax
from puzzles.catalog.engine.trial import MethodCall, Trial, WrongResultError
from puzzles.content.engine.experts import trials
from puzzles.tracks.engine.judge import require_right
from solutions.engine.balance_loss import BalanceLoss
from solutions.engine.exact_dispatch import ExactDispatch
from solutions.engine.gshard_top2 import GShardTop2
from solutions.engine.switch_dispatch import SwitchDispatch
from tests.screens.texts import approved
from tests.support.engine_trials import perform
from tests.support.examples import examples

# --- Chapter `experts`: bytes from formulas, layers equal to those of one device, the gate equal to the paper's
# loops ---


N = 4
SEEDS = st.integers(0, 10_000)


def run(cls: type, params: Any, given: list[Any], **arguments: Any) -> list[Any]:
    """Results of forward on every device."""
    with launch(cls, N, **arguments) as devices:
        devices.load_checkpoint(params)
        return devices.forward(given)


def close(got: Any, wanted: Any) -> bool:
    """Equal up to rounding: a BLAS adds in another order for another number of rows."""
    return bool(np.allclose(got, wanted, rtol=1e-5, atol=1e-5))


@pytest.mark.parametrize(("factor", "sent"), [(1.0, 768), (1.25, 1_152), (2.0, 1_536)])
def test_a_switch_layer_sends_its_capacity_rounded_up_there_and_back(factor: float, sent: int) -> None:
    trial = trials.switch_dispatch(factor)
    (after,) = perform(trial, SwitchDispatch).readings[1:]
    assert {meter.sent for meter in after} == {sent}
    assert sent == 2 * 3 * math.ceil(8 / 4 * factor) * 16 * 4


def test_dropped_tokens_are_those_that_the_counts_leave_no_room_for() -> None:
    """Factor 1.0 drops 10 of the 32 tokens of the shown data, 1.25 drops 5."""
    params = trials.expert_parameters(trials.SEED, 16, 64)
    routed = trials.token_counts(params, trials.token_groups(trials.SEED + 50, 8, params))
    for factor, capacity, dropped in ((1.0, 2, 10), (1.25, 3, 5)):
        (results,) = perform(trials.switch_dispatch(factor), SwitchDispatch).results
        assert [len(result["dropped"]) for result in results] == np.maximum(routed - capacity, 0).sum(axis=1).tolist()
        assert sum(len(result["dropped"]) for result in results) == dropped


def test_the_catalogs_table_of_counts_is_that_of_the_shown_data() -> None:
    trial = trials.exact_dispatch()
    routed = trials.token_counts(trial.params, trial.calls[0].arguments)
    puzzle = ENGINE_PUZZLES["ExactDispatch"]
    rows = [re.findall(r"\d", line) for line in re.findall(r"device \d: ([\d ]+)", puzzle.arithmetic)]
    assert [[int(count) for count in row] for row in rows] == routed.tolist()
    assert 2 * 3 * routed.max() * 16 * 4 == 1_920  # padded, losing none
    approved("experts", "the catalogs table of counts is that of the shown data", puzzle.arithmetic, "4 x 5 x")


@examples(15)
@given(SEEDS, st.integers(1, 9))
def test_exact_dispatch_sends_each_row_once_in_each_direction_and_the_counts(seed: int, tokens: int) -> None:
    params = trials.expert_parameters(seed, 8, 16)
    xs = trials.token_groups(seed + 50, tokens, params)
    with launch(ExactDispatch, N, model_dim=8, hidden_dim=16, tokens=tokens) as devices:
        devices.load_checkpoint(params)
        devices.forward(xs)
        meters = devices.meters
    chosen = [trials.chosen_experts(params, x) for x in xs]
    away = [[int((chosen[source] == e).sum()) if e != source else 0 for e in range(N)] for source in range(N)]
    for device, meter in enumerate(meters):
        rows = sum(away[device]) + sum(row[device] for row in away)
        targets = meter.messages, sum(n > 0 for n in away[device]) + sum(row[device] > 0 for row in away)
        assert targets[0] == targets[1]
        assert (meter.sent, meter.unpacked) == tuple(rows * 8 * 4 + targets[0] * 16 + 3 * 4 * n for n in (4, 8))


@examples(15)
@given(SEEDS, st.integers(1, 9), st.sampled_from([0.25, 1.0, 1.25, 4.0]))
def test_a_switch_layer_is_that_of_one_device(seed: int, tokens: int, factor: float) -> None:
    params = trials.expert_parameters(seed, 8, 16)
    xs = trials.token_groups(seed + 50, tokens, params)
    results = run(SwitchDispatch, params, xs, model_dim=8, hidden_dim=16, factor=factor)
    for x, result in zip(xs, results):
        wanted = trials.switch_layer(params, x, math.ceil(tokens / 4 * factor))
        assert close(result["out"], wanted["out"])
        assert np.array_equal(result["dropped"], wanted["dropped"])
        assert np.array_equal(result["out"][result["dropped"]], x[result["dropped"]])


@examples(15)
@given(SEEDS, st.integers(1, 9))
def test_with_room_for_all_a_switch_layer_is_exact_dispatch(seed: int, tokens: int) -> None:
    params = trials.expert_parameters(seed, 8, 16)
    xs = trials.token_groups(seed + 50, tokens, params)
    exact = run(ExactDispatch, params, xs, model_dim=8, hidden_dim=16, tokens=tokens)
    roomy = run(SwitchDispatch, params, xs, model_dim=8, hidden_dim=16, factor=4.0)
    assert all(close(a, b["out"]) for a, b in zip(exact, roomy))


def algorithm_1(g: Any, rnd: Any, capacity: int) -> tuple[Any, float]:
    """The combine weights and the auxiliary loss, as the paper writes them: one line here for one there."""
    tokens, experts = g.shape
    c = [0] * experts
    weights = np.zeros((tokens, experts))
    m = g.mean(axis=0)
    for s in range(tokens):
        e1, e2 = sorted(range(experts), key=lambda e: -g[s, e])[:2]
        g1 = g[s, e1] / (g[s, e1] + g[s, e2])
        place = c[e1]
        if place < capacity:
            weights[s, e1] = g1
        c[e1] = place + 1
    aux = sum(c[e] / tokens * m[e] for e in range(experts)) / experts
    for s in range(tokens):
        e1, e2 = sorted(range(experts), key=lambda e: -g[s, e])[:2]
        g2 = g[s, e2] / (g[s, e1] + g[s, e2])
        place = c[e2]
        if place < capacity and 2 * g2 > rnd[s]:
            weights[s, e2] = g2
        c[e2] = place + 1
    return weights, aux


@examples(25)
@given(SEEDS, st.integers(1, 10), st.integers(1, 6))
def test_the_gate_is_algorithm_1_of_gshard(seed: int, tokens: int, capacity: int) -> None:
    params = trials.expert_parameters(seed, 8, 16)
    xs = trials.token_groups(seed + 50, tokens, params)
    rnds = np.random.default_rng(seed).random((N, tokens))
    given = [{"x": x, "rnd": rnd} for x, rnd in zip(xs, rnds)]
    results = run(GShardTop2, params, given, model_dim=8, hidden_dim=16, capacity=capacity)
    for x, rnd, result in zip(xs, rnds, results):
        weights, aux = algorithm_1(trials.router_probabilities(params, x), rnd, capacity)
        made = np.stack([np.maximum(x @ params[f"expert_{e}/w0"], 0) @ params[f"expert_{e}/w1"] for e in range(N)], 1)
        assert np.allclose(result["out"], x + (weights[..., None] * made).sum(axis=1), rtol=1e-5, atol=1e-5)
        assert result["aux"] == pytest.approx([aux], rel=1e-5)


@pytest.mark.parametrize("number", range(3))
def test_the_trials_of_the_gate_show_all_that_it_can_do(number: int) -> None:
    """Choices that do not fit, coins that refuse and coins that do not; and nothing hangs on a rounding."""
    trial = trials.TRIALS["GShardTop2"][number]()
    seen = set()
    for brought in trial.calls[0].arguments:
        g, rnd = trials.router_probabilities(trial.params, brought["x"]), brought["rnd"]
        weights, _ = algorithm_1(g, rnd, trial.arguments["capacity"])
        order = np.argsort(-g, axis=1)
        for row, kept, (first, second, third, _), coin in zip(g, weights, order, rnd):
            assert row[first] - row[second] > 1e-3
            assert row[second] - row[third] > 1e-3
            doubled = 2 * row[second] / (row[first] + row[second])
            assert abs(doubled - coin) > 1e-3
            seen.add(("first", "fits" if kept[first] else "does not fit"))
            seen.add(("second", "is kept" if kept[second] else "does not fit" if doubled > coin else "is refused"))
    every = {(1, "is kept"), (1, "is refused"), (1, "does not fit"), (0, "fits"), (0, "does not fit")}
    assert seen == {(("first", "second")[turn], what) for turn, what in every}


@pytest.mark.parametrize("slug", ["SwitchDispatch", "ExactDispatch", "FindTheRace"])
def test_no_token_is_in_doubt_about_its_expert(slug: str) -> None:
    for trial in (make() for make in trials.TRIALS[slug]):
        for x in (x for call in trial.calls for x in call.arguments):
            second, first = np.sort(trials.router_probabilities(trial.params, x), axis=1)[:, -2:].T
            assert (first - second > 1e-3).all()


def test_only_the_mistake_that_was_made_is_named() -> None:
    right, mistake = np.array([1.0, 2.0]), np.array([1.0, 3.0])
    call = MethodCall("forward", [right] * N, [right] * N, {"you added one": [mistake] * N})

    class Returns(ShardedEngine):
        def __init__(self, what: Any) -> None:
            self.what = np.array(what)

        def load_checkpoint(self, params: Any) -> None: ...
        def backward(self, grads: Any) -> Any: ...

        def forward(self, x: Any) -> Any:
            return self.what

    def told(what: list[float]) -> str:
        trial = Trial({"what": what}, {}, (call,), about="here is nothing special")
        with pytest.raises(WrongResultError) as why:
            require_right(trial, perform(trial, Returns))
        return str(why.value).partition("should be ")[2]

    assert told([1, 3]) == "2; you added one; here is nothing special"
    assert told([1, 4]) == "2; here is nothing special"


# --- BalanceLoss in exact numbers: losses of alpha, of alpha N and below alpha; its gradient against differences ---


def loss_of(p: list[list[Fraction]], alpha: Fraction = Fraction(1)) -> Fraction:
    """alpha N sum f P in exact numbers, for the tokens' probabilities."""
    tokens, experts = len(p), len(p[0])
    f = [Fraction(sum(row.index(max(row)) == i for row in p), tokens) for i in range(experts)]
    mean = [sum((row[i] for row in p), Fraction(0)) / tokens for i in range(experts)]
    return alpha * experts * sum((a * b for a, b in zip(f, mean)), Fraction(0))


ROWS = st.lists(st.integers(1, 9), min_size=4, max_size=4, unique=True)


@given(st.lists(ROWS, min_size=1, max_size=5))
def test_uniform_choices_give_exactly_alpha(weights: list[list[int]]) -> None:
    """Every row, rotated so that each expert is the likeliest once."""
    turned = [row[i:] + row[:i] for row in weights for i in range(4)]
    assert loss_of([[Fraction(w, sum(row)) for w in row] for row in turned]) == 1


def test_collapse_gives_alpha_n() -> None:
    assert loss_of([[Fraction(0), Fraction(1), Fraction(0), Fraction(0)]] * 5, Fraction(1, 100)) == Fraction(4, 100)


@pytest.mark.parametrize(
    ("make", "loss"), [(trials.balanced_routing, trials.ALPHA), (trials.collapsed_routing, trials.ALPHA * N)]
)
def test_the_reference_gives_alpha_and_alpha_n(make: Any, loss: float) -> None:
    results = perform(make(), BalanceLoss).results[0]
    assert [float(result[0]) for result in results] == pytest.approx([loss] * N, rel=1e-6)


def test_alpha_is_not_the_minimum() -> None:
    """The catalog's example: three tokens prefer the first of two experts by a hair, one the second for certain."""
    hair = Fraction(1, 1000)
    half = Fraction(1, 2)
    assert loss_of([[half + hair, half - hair]] * 3 + [[Fraction(0), Fraction(1)]]) < 1
    f, mean = (Fraction(3, 4), Fraction(1, 4)), (Fraction(3, 8), Fraction(5, 8))
    assert 2 * sum(a * b for a, b in zip(f, mean)) == Fraction(7, 8)
    assert "7/8 alpha" in ENGINE_PUZZLES["BalanceLoss"].concept


def test_the_average_of_local_losses_is_another_number() -> None:
    logits = trials.balance_loss(trials.some_logits(70, [8] * N)).calls[0].arguments
    whole, _ = trials.balance_loss_and_gradients(logits, 1.0)
    assert abs(np.mean([trials.balance_loss_and_gradients([z], 1.0)[0][0] for z in logits]) - whole[0]) > 0.01


def test_the_gradient_is_that_of_the_whole_loss() -> None:
    """Against differences of the loss itself, with the choices held."""
    logits = [z.astype(np.float64) for z in trials.some_logits(80, (3, 1, 2, 2))]
    _, grads = trials.balance_loss_and_gradients(logits, 0.5)
    f = np.bincount(np.concatenate(logits).argmax(axis=1), minlength=N) / 8

    def loss() -> float:
        return float(0.5 * N * (f * np.concatenate([softmax(z) for z in logits]).mean(axis=0)).sum())

    for z, grad in zip(logits, grads):
        for place in np.ndindex(z.shape):
            before = z[place]
            z[place] = before + 1e-5
            up = loss()
            z[place] = before - 1e-5
            slope = (up - loss()) / 2e-5
            z[place] = before
            assert slope == pytest.approx(grad[place], abs=1e-8)
