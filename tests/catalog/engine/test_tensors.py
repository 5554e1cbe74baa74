"""Chapter `tensors`: the targets' formulas, the single-device results against slow ones, and large numbers."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.engine import ShardedEngine, launch
from puzzles.catalog.engine import ENGINE_PUZZLES, models, trials_of
from puzzles.catalog.engine.models import numbers
from puzzles.catalog.engine.puzzle import FIGURES
from puzzles.content.engine.tensors.trials import matmul_2d
from solutions.engine.vocab_parallel_loss import VocabParallelLoss
from tests.support.engine_trials import REFERENCES, perform, reference
from tests.support.examples import examples

pytestmark = pytest.mark.usefixtures("in_this_process")


@pytest.mark.parametrize("slug", ["Matmul2D", "MegatronLayer", "MegatronMesh", "VocabParallelLoss"])
def test_the_formulas_are_met_exactly_at_every_size(slug: str) -> None:
    for make in trials_of(ENGINE_PUZZLES[slug]):
        trial = make()
        performed = perform(trial, reference(slug))
        exact = {name: limit for name, limit in (trial.targets or {}).items() if name != "peak"}
        assert {name: FIGURES[name].of(performed) for name in exact} == exact


# --- Matmul2D: three ways to go forward ---------------------------------------------------------------


class OneProduct(ShardedEngine):
    """x is cut along both axes of a 2 x 2 mesh, w along the second."""

    def load_checkpoint(self, params: Any) -> None:
        self.along_y = [self.device_id // 2 * 2, self.device_id // 2 * 2 + 1]
        self.w = np.split(params["weights"], 2)[self.device_id % 2].copy()

    def backward(self, grads: Any) -> Any: ...


class Replicated(OneProduct):
    def forward(self, x: Any) -> Any:
        return self.all_reduce(x @ self.w, group=self.along_y)


class Scattered(OneProduct):
    def forward(self, x: Any) -> Any:
        return self.reduce_scatter(x @ self.w, axis=1, group=self.along_y)


class GatheredFirst(OneProduct):
    def forward(self, x: Any) -> Any:
        return self.all_gather(x, 1, self.along_y) @ self.all_gather(self.w, 0, self.along_y)


@pytest.mark.parametrize(
    ("cls", "sent", "flops"), [(Replicated, 512, 2_048), (Scattered, 256, 2_048), (GatheredFirst, 1_152, 4_096)]
)
def test_a_product_on_a_mesh_can_sum_scatter_or_gather(cls: type, sent: int, flops: int) -> None:
    trial = matmul_2d()
    with launch(cls, num_devices=4) as devices:
        devices.load_checkpoint(trial.params)
        outputs = devices.forward(list(trial.calls[0].arguments))
        assert {(meter.sent, meter.flops) for meter in devices.meters} == {(sent, flops)}
    wanted = trial.calls[0].wanted
    assert wanted is not None
    for i, output in enumerate(outputs):
        right = wanted[i] if cls is Scattered else np.concatenate(wanted[i // 2 * 2 : i // 2 * 2 + 2], axis=1)
        assert np.allclose(output, right, rtol=0, atol=1e-6)


# --- MegatronLayer: the single device ------------------------------------------------------------------


def slowly(params: Any, x: Any, heads: int) -> Any:
    """The layer, token by token, from the definition."""
    q, k, v = (x @ params[f"attention/{name}"].astype(float) for name in ("query", "key", "value"))
    each = x.shape[1] // heads
    mixed = np.zeros_like(x)
    for token in range(len(x)):
        for head in range(heads):
            at = slice(head * each, (head + 1) * each)
            powers = [np.exp(q[token, at].dot(other) / each**0.5) for other in k[:, at]]
            mixed[token, at] = sum(power * value for power, value in zip(powers, v[:, at])) / sum(powers)
    y = x + mixed @ params["attention/output"]
    return y + np.maximum(y @ params["mlp/up"], 0) @ params["mlp/down"]


LAYER = models.layer_parameters(3, model=8, hidden=12)
X, G = np.random.default_rng(4).normal(size=(2, 5, 8))


def test_the_layer_is_what_its_definition_says() -> None:
    assert np.allclose(models.layer_output(LAYER, X, heads=4), slowly(LAYER, X, heads=4), rtol=1e-12)


NORMED = {**LAYER, **{name: 1 + numbers(i, X.shape[1]) / 2 for i, name in enumerate(models.GAINS)}}


@pytest.mark.parametrize(("params", "name"), [(of, name) for of in (LAYER, NORMED) for name in ("x", *of)])
def test_its_gradients_are_slopes(params: dict[str, Any], name: str) -> None:
    grads = models.layer_gradients(params, X, G, heads=4)
    assert grads.keys() == {*params, "x"}

    def loss(direction: Any, step: float) -> float:
        moved = {**params, "x": X}
        moved[name] = moved[name] + step * direction
        return float((models.layer_output(moved, moved["x"], heads=4) * G).sum())

    for seed in range(3):
        direction = np.random.default_rng(seed).normal(size=grads[name].shape)
        slope = (loss(direction, 1e-6) - loss(direction, -1e-6)) / 2e-6
        assert slope == pytest.approx((grads[name] * direction).sum(), rel=1e-6)


def test_a_norm_divides_by_the_root_of_the_mean_square() -> None:
    normed = np.stack([row * NORMED["norm_0/gain"] / ((row @ row) / row.size + 1e-6) ** 0.5 for row in X.astype(float)])
    silent = {"mlp/down": 0 * LAYER["mlp/down"]}
    of_normed = models.layer_output({**LAYER, **silent}, normed, heads=4) - normed
    assert models.layer_output({**NORMED, **silent}, X, heads=4) == pytest.approx(X + of_normed)


def test_the_reference_on_a_mesh_is_the_starter_with_a_backward() -> None:
    """So what is given is right."""
    given = methods(ENGINE_PUZZLES["MegatronMesh"].starter)
    solved = methods(REFERENCES["MegatronMesh"].read_text(encoding="utf-8"))
    assert {name for name in solved if solved[name] != given.get(name)} == {"backward", "summed"}


def methods(source: str) -> dict[str, str]:
    """Their statements, without docstrings."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    return {node.name: ast.dump(ast.Module(node.body[ast.get_docstring(node) is not None :], [])) for node in nodes}


# --- VocabParallelLoss: slopes, shifts, and large numbers -----------------------------------------------


def losses(logits: Any, targets: Any, g: Any) -> tuple[Any, Any]:
    """Results of the reference on two devices for whole logits: losses, and the gradient of the logits."""
    with launch(VocabParallelLoss, 2, words=logits.shape[1]) as devices:
        here = [{"logits": part, "targets": targets} for part in np.split(logits, 2, axis=1)]
        (loss, _), grads = devices.forward(here), devices.backward(g)
    return loss, np.concatenate([part["logits"] for part in grads], axis=1)


def test_the_gradient_of_the_logits_is_a_slope() -> None:
    rng = np.random.default_rng(5)
    logits, targets, g = rng.normal(size=(3, 6)), np.array([0, 3, 5]), np.array([1.0, -2.0, 0.5])
    _, grads = losses(logits, targets, g)
    for place in np.ndindex(3, 6):
        step = np.zeros((3, 6))
        step[place] = 1e-6
        slope = ((losses(logits + step, targets, g)[0] - losses(logits - step, targets, g)[0]) * g).sum() / 2e-6
        assert slope == pytest.approx(grads[place], abs=1e-8)


@examples(25)
@given(st.lists(st.integers(-1000, 1000), min_size=3, max_size=3))
def test_a_number_added_to_all_logits_of_a_token_changes_nothing(shift: list[int]) -> None:
    rng = np.random.default_rng(6)
    logits, targets = rng.integers(-5, 6, (3, 6)).astype(np.float32), np.array([5, 0, 2])
    g = np.ones(3, np.float32)
    for one, other in zip(
        losses(logits, targets, g), losses(logits + np.array(shift, np.float32)[:, None], targets, g)
    ):
        assert np.array_equal(one, other)
