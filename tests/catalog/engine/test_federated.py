"""Chapter `federated`: weighted steps, client drift, compressed updates, and unbiased estimates.

Averages are over 2,000 fixed seeds, within bounds from exact variances.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.engine import launch
from puzzles.catalog.engine import ENGINE_PUZZLES, trials_of
from puzzles.catalog.engine.models import ROUNDING
from puzzles.catalog.engine.trial import Trial
from puzzles.content.engine.federated.trials import linear_clients, padded_vector, spiky_vector, walsh_hadamard
from puzzles.tracks.engine.judge import with_other_values
from solutions.engine.fed_avg import FedAvg
from solutions.engine.fed_sgd import FedSGD
from solutions.engine.low_rank import LowRank
from solutions.engine.quantize import Quantize
from solutions.engine.rotate import Rotate, hadamard
from solutions.engine.subsample import Subsample
from tests.support.engine_trials import perform
from tests.support.examples import examples

SEEDS = 2_000
CLIENTS = 4
DEVIATIONS = 5

H = np.random.default_rng(7).integers(-30, 71, 64).astype(np.float32)
H[0], H[1] = -30, 70


def estimates(cls: type, h: Any, seeds: range = range(SEEDS), **arguments: Any) -> Any:
    """Estimates of an update by the server, (seeds, size), from four clients at a time."""
    found = []
    with launch(cls, 1 + CLIENTS, metered=False, size=h.size, **arguments) as run:
        for first in seeds[::CLIENTS]:
            found.append(run.forward([None, *({"update": h, "seed": first + i} for i in range(CLIENTS))])[0])
    return np.concatenate(found).astype(np.float64)


def require_near(found: Any, right: Any) -> None:
    assert np.abs(found - right).max() <= ROUNDING * np.abs(right).max()


def require_fair(found: Any, h: Any, variance: Any) -> None:
    """The average is right for every number, and the squared error is what the variance says. `variance` is that of
    each number, for each seed or for all."""
    variance = np.broadcast_to(variance, found.shape)
    assert (np.abs(found.mean(axis=0) - h) <= DEVIATIONS * np.sqrt(variance.sum(axis=0)) / len(found) + 1e-4).all()
    assert np.mean((found - h) ** 2) == pytest.approx(variance.mean(), rel=0.03)


def examples_of(trial: Trial, call: int = 0) -> tuple[list[Any], list[Any]]:
    clients = trial.calls[call].arguments[1:]
    return [c["x"].astype(np.float64) for c in clients], [c["y"].astype(np.float64) for c in clients]


def step(xs: list[Any], ys: list[Any], w: Any, rate: float) -> Any:
    """One step of a single device on all examples."""
    x, y = np.concatenate(xs), np.concatenate(ys)
    return w - rate * x.T @ (x @ w - y) / len(y)


@pytest.mark.parametrize("make", trials_of(ENGINE_PUZZLES["FedSGD"]))
def test_a_weighted_average_is_one_big_step_and_an_unweighted_one_is_not(make: Any) -> None:
    trial = make()
    w = np.asarray(trial.params["weights"], np.float64)
    performed = perform(trial, FedSGD)
    for i, results in enumerate(performed.results):
        xs, ys = examples_of(trial, i)
        unweighted = np.mean([step([x], [y], w, trial.arguments["rate"]) for x, y in zip(xs, ys)], axis=0)
        w = step(xs, ys, w, trial.arguments["rate"])
        assert not np.array_equal(unweighted, w)
        for result in results:
            require_near(result, w)


def descent(trial: Trial, epochs: int, rounds: int, weighted: bool = True) -> list[float]:
    """Part of the way to the least loss covered after each round; computed independently, in float64."""
    xs, ys = examples_of(trial)
    x, y = np.concatenate(xs), np.concatenate(ys)
    counts = np.array([len(part) for part in ys])
    shares = counts / counts.sum() if weighted else np.full(CLIENTS, 1 / CLIENTS)
    least = np.linalg.solve(x.T @ x, x.T @ y)
    first, best, w, gone = np.mean(y**2), np.mean((x @ least - y) ** 2), np.zeros(x.shape[1]), []
    for _ in range(rounds):
        ends = []
        for part, labels in zip(xs, ys):
            v = w
            for _ in range(epochs):
                v = step([part], [labels], v, trial.arguments["rate"])
            ends.append(v)
        w = shares @ ends
        gone.append(float((first - np.mean((x @ w - y) ** 2)) / (first - best)))
    return gone


def rounds_needed(trial: Trial, epochs: int, most: int = 60, weighted: bool = True) -> int | None:
    return next((i for i, gone in enumerate(descent(trial, epochs, most, weighted), 1) if gone >= 0.99), None)


@pytest.mark.slow
def test_epochs_trade_rounds_against_drift() -> None:
    trials = [make() for make in trials_of(ENGINE_PUZZLES["FedAvg"])]
    assert [rounds_needed(trial, 1) for trial in trials] == [25, 25, 29]
    assert max(rounds_needed(trial, FedAvg.EPOCHS) or 99 for trial in trials) <= FedAvg.ROUNDS
    assert [rounds_needed(trial, 16) for trial in trials] == [None] * 3
    assert rounds_needed(trials[0], FedAvg.EPOCHS, weighted=False) is None


def test_averaging_is_cheaper_than_what_would_replace_it() -> None:
    xs, _ = examples_of(trials_of(ENGINE_PUZZLES["FedAvg"])[0]())
    counts, dim = [len(x) for x in xs], xs[0].shape[1]
    target = ENGINE_PUZZLES["FedAvg"].targets["uplink"]
    assert target == FedAvg.ROUNDS * CLIENTS * (dim * 4 + 8) == 9_504
    assert 29 * CLIENTS * (dim + 1) * 4 == 30_160
    assert sum(counts) * (dim + 1) * 4 == 66_560
    assert CLIENTS * (dim * (dim + 1) // 2 + dim) * 4 == 34_304
    # Half the precision would not make the examples or the products cheaper than the target, whichever a client sends.
    assert sum(min(n * (dim + 1), dim * (dim + 1) // 2 + dim) * 2 for n in counts) > target


def test_one_epoch_and_one_round_are_fed_sgd() -> None:
    class Once(FedAvg):
        EPOCHS, ROUNDS = 1, 1

    trial = trials_of(ENGINE_PUZZLES["FedAvg"])[0]()
    xs, ys = examples_of(trial)
    wanted = step(xs, ys, np.zeros(64), trial.arguments["rate"])
    np.testing.assert_allclose(perform(trial, Once).results[0][0], wanted, atol=1e-5)


def slopes(loss: Any, at: Any) -> Any:
    """The gradient of a quadratic function, by differences: exact."""
    found = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        e = np.zeros_like(at)
        e[place] = 1
        found[place] = (loss(at + e) - loss(at - e)) / 2
    return found


def structured(cls: type, seed: int, **arguments: Any) -> tuple[Any, Any]:
    """A small layer, 8 x 8, and what the server rebuilds after two steps."""
    small = linear_clients(8, seed)
    with launch(cls, 1 + CLIENTS, metered=False, dim=8, rate=2.0**-10, steps=2, **arguments) as run:
        run.load_checkpoint({"weights": small.w})
        return small, run.forward([None, *small.examples])[0]


@pytest.mark.parametrize("seed", [20, 40])
def test_only_b_goes_down_its_own_gradient(seed: int) -> None:
    small, found = structured(LowRank, seed, rank=2)
    for e, update in zip(small.examples, found):
        a = 2.0 * np.random.default_rng(e["seed"]).integers(0, 2, (8, 2)) - 1

        def loss(b: Any, x: Any = e["x"], y: Any = e["y"], a: Any = a) -> Any:
            return ((x @ (small.w + a @ b) - y) ** 2).sum() / 2

        b = np.zeros((2, 8))
        losses = [loss(b)]
        for _ in range(2):
            b = b - 2.0**-10 * slopes(loss, b)
            losses.append(loss(b))
        require_near(update, a @ b)
        assert losses[0] > losses[1] > losses[2]


def test_a_structured_update_is_of_low_rank_and_lowers_the_loss() -> None:
    trial = trials_of(ENGINE_PUZZLES["LowRank"])[0]()
    w, (updates, *_) = trial.params["weights"], perform(trial, LowRank).results[0]
    for x, y, update in zip(*examples_of(trial), updates):
        assert np.linalg.matrix_rank(update) == 4
        assert ((x @ (w + update) - y) ** 2).sum() < ((x @ w - y) ** 2).sum()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_results_do_not_depend_on_the_order_of_products(dtype: type) -> None:
    """Another order of the products makes no difference, nor does double precision."""
    for make in trials_of(ENGINE_PUZZLES["LowRank"]):
        trial = make()
        (call,) = trial.calls
        assert call.wanted is not None
        w = trial.params["weights"].astype(dtype)
        for e, right in zip(call.arguments[1:], call.wanted[0]):
            coins = np.random.default_rng(e["seed"]).integers(0, 2, (len(w), trial.arguments["rank"]))
            a, x, y, update = (2 * coins - 1).astype(dtype), e["x"].astype(dtype), e["y"], np.zeros_like(w)
            for _ in range(trial.arguments["steps"]):
                update = update - trial.arguments["rate"] * (a @ ((x @ a).T @ (x @ w + x @ update - y)))
            require_near(right, update)


@pytest.mark.slow
def test_a_subsample_is_right_on_average() -> None:
    h = np.where(H == 0, 1, H)
    found = estimates(Subsample, h, share=16)
    assert set((found / h).ravel()) == {0, 16}
    require_fair(found, h, 15 * h**2)


def neighbours(h: Any, bits: int) -> tuple[Any, Any]:
    """The levels below and above every number."""
    levels = np.linspace(h.min(), h.max(), 2**bits)
    above = np.clip(np.searchsorted(levels, h), 1, None)
    return levels[above - 1], levels[above]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("bits", [1, 2, 3])
def test_quantized_numbers_are_right_on_average(bits: int) -> None:
    found = estimates(Quantize, H, bits=bits)
    assert len(set(np.round(found, 3).ravel())) == 2**bits
    below, above = neighbours(H, bits)
    require_fair(found, H, (above - H) * (H - below))


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=20), st.integers(1, 8), st.integers(0, 999))
@examples(40)
def test_every_number_becomes_a_level_next_to_it(numbers: list[int], bits: int, seed: int) -> None:
    h = np.array(numbers, np.float32)
    (found, *_) = estimates(Quantize, h, range(seed, seed + 1), bits=bits)
    step = (h.max() - h.min()) / (2**bits - 1)
    assert (np.abs(found - h) <= step * 1.001 + 1e-3).all()


@cache
def sylvester(d: int) -> Any:
    """H, number by number: -1 where two indices share an odd number of bits."""
    return np.array([[(-1.0) ** (i & j).bit_count() for j in range(d)] for i in range(d)])


@pytest.mark.parametrize("transform", [walsh_hadamard, hadamard])
def test_the_transform_is_walshs_and_its_own_inverse(transform: Any) -> None:
    for d in (1, 4, 16, 64):
        v = np.random.default_rng(d).integers(-9, 10, d).astype(np.float32)
        np.testing.assert_array_equal(transform(v), sylvester(d) @ v / np.sqrt(d))
        np.testing.assert_array_equal(transform(transform(v)), v)


def rotated(h: Any, seed: int) -> tuple[Any, Any]:
    """H with its columns' signs, and the rotated vector."""
    signs = 2 * np.random.default_rng(seed).integers(0, 2, h.size) - 1
    matrix = sylvester(h.size) * signs / np.sqrt(h.size)
    return matrix, matrix @ h


@pytest.mark.slow
def test_a_rotated_bit_is_right_on_average() -> None:
    h = spiky_vector(5, 64)
    variance = []
    for seed in range(SEEDS):
        _, r = rotated(h, seed)
        # Rotating back mixes all errors alike: each number gets a d-th of their sum.
        variance.append(np.full(h.size, ((r.max() - r) * (r - r.min())).mean()))
    require_fair(estimates(Rotate, h), h, np.array(variance))


def test_rotation_lowers_the_error_of_a_spiky_vector_several_fold() -> None:
    h = spiky_vector(92, 4096)
    plain = estimates(Quantize, h, range(20), bits=1)
    turned = estimates(Rotate, h, range(20))
    expected = ((h.max() - h) * (h - h.min())).sum()
    assert expected == 4_187_428
    assert np.mean(((plain - h) ** 2).sum(axis=1)) == pytest.approx(expected, rel=0.01)
    assert np.mean(((turned - h) ** 2).sum(axis=1)) == pytest.approx(69_000, rel=0.05)


@pytest.mark.parametrize(
    ("h", "plain"),
    [(padded_vector(4096, 1, -1), 4_094), (padded_vector(4096, 1), 0), (padded_vector(4096, 0, 0, 3), 0)],
)
def test_two_values_after_rotation_are_exact(h: Any, plain: int) -> None:
    assert (estimates(Rotate, h, range(40)) == h).all()
    assert ((h.max() - h) * (h - h.min())).sum() == plain


@pytest.mark.parametrize("number", range(8))
def test_no_draw_is_so_close_that_rounding_decides(number: int) -> None:
    """Single or double precision, and any order of sums, lead to the same bits; also on the values of a second run."""
    made = trials_of(ENGINE_PUZZLES["Rotate"])
    trial = made[number]() if number < len(made) else with_other_values(made[0], str(number), "of this test")
    for e in trial.calls[0].arguments[1:]:
        rng = np.random.default_rng(e["seed"])
        r = walsh_hadamard((2 * rng.integers(0, 2, trial.arguments["size"]) - 1) * e["update"])
        exact = (r - r.min()) / ((r.max() - r.min()) or 1)
        margin = np.abs(rng.random(r.size) - exact % 1)
        whole = np.abs(exact - np.rint(exact)) < 1e-9
        assert np.where(whole, 1, margin).min() > 5e-6
