"""Trials of the tensor parallel puzzles, with the results of a single device.

Numbers are compared within a tolerance of a few rounding errors. Every puzzle has trials on other meshes and sizes, so
that a class for the shown one alone is noticed. Results of common mistakes, such as an average in place of a sum, are
computed too, and a message names the mistake that a result comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from lib.engine.collectives import bytes_sent
from puzzles.catalog.engine import lower_bounds, models
from puzzles.catalog.engine.lower_bounds import FigureBound, MakeBounds
from puzzles.catalog.engine.models import (
    OTHER,
    ROUNDING,
    SHOWN,
    W0,
    W1,
    TwoLayerMLP,
    fixed_rng,
    mlp_forward_backward,
    numbers,
)
from puzzles.catalog.engine.trial import MethodCall, Trial

# --- Trials of MegatronMesh: a transformer layer with norms, on a mesh of data and tensor parallel devices.


def megatron_mesh(
    seed: int = 1, mesh: tuple[int, int] = (2, 2), tokens: int = 8, dim: int = 16, hidden: int = 32, heads: int = 4
) -> Trial:
    """A sequence of so many tokens for each row of the mesh, cut along tp; devices in mesh order, tp fastest."""
    dp, tp = mesh
    gains = {name: 1 + numbers(seed + 40 + i, dim) / 2 for i, name in enumerate(models.GAINS)}
    params = {**models.layer_parameters(seed, dim, hidden), **gains}
    xs, gs = (numbers(seed + i, dp, tokens, dim) for i in (50, 51))
    outs = [models.layer_output(params, x, heads) for x in xs]
    each = [models.layer_gradients(params, x, g, heads) for x, g in zip(xs, gs)]
    total = {name: sum(grads[name] for grads in each) for name in params}

    def cut(rows: Any) -> list[Any]:
        return [part for sequence in rows for part in np.split(sequence, tp)]

    def results(weights: list[dict[str, Any]], gains: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Each device's, where the device in row i takes its weights' and gains' gradients from the i-th of these."""
        found = []
        for device, dx in enumerate(cut([grads["x"] for grads in each])):
            i, j = divmod(device, tp)
            columns = {name: np.split(weights[i][name], tp, axis=1)[j] for name in models.COLUMNS}
            rows = {name: np.split(weights[i][name], tp)[j] for name in models.ROWS}
            found.append({**columns, **rows, **{name: gains[i][name] for name in models.GAINS}, "x": dx})
        return found

    mistakes = {
        "are the weights' gradients summed along dp? Each row of the mesh has another sequence": results(
            each, [total] * dp
        ),
        "are the gains' gradients summed along tp only? Each row of the mesh has another sequence": results(
            [total] * dp, each
        ),
    }
    return Trial(
        {"model_dim": dim, "hidden_dim": hidden, "heads": heads, "mesh": list(mesh)},
        params,
        (
            MethodCall("forward", cut(xs), cut(outs)),
            MethodCall("backward", cut(gs), results([total] * dp, [total] * dp), mistakes),
        ),
        devices=dp * tp,
        tolerance=ROUNDING,
        targets=mesh_limits(mesh, tokens, dim, hidden),
    )


def mesh_limits(mesh: tuple[int, int], tokens: int, dim: int, hidden: int) -> dict[str, int]:
    """Limits for four gathers and four reduce-scatters along tp, one bucket along dp, and one of gains on all."""
    dp, tp = mesh
    whole, gains = 4 * tokens * dim, 4 * 2 * dim
    weights = 4 * (4 * dim * dim + 2 * dim * hidden) // tp
    along_tp = bytes_sent("all_gather", whole // tp, tp) + bytes_sent("reduce_scatter", whole, tp)
    return {
        "sent": 4 * along_tp + bytes_sent("all_reduce", weights, dp) + bytes_sent("all_reduce", gains, dp * tp),
        "collectives": 10,
        "weights": weights + gains,
    }


# --- The trials of the chapter


def tensor_parallel(at: TwoLayerMLP = SHOWN) -> Trial:
    params, x, g = at.tensors()
    out, grads = mlp_forward_backward(params, x, g)
    wanted = [{W0: a, W1: b, "x": grads["x"]} for a, b in zip(at.split_columns(grads[W0]), at.split_rows(grads[W1]))]
    n = at.devices
    calls = (MethodCall("forward", [x] * n, [out] * n), MethodCall("backward", [g] * n, wanted))
    return at.trial(params, calls)


def sequence_parallel(at: TwoLayerMLP = SHOWN) -> Trial:
    return at.trained_by_rows({W0: at.split_columns, W1: at.split_rows, "x": at.split_rows})


def matmul_2d(seed: int = 1, mesh: tuple[int, int] = (2, 2), batch: int = 8, dim: int = 16, hidden: int = 32) -> Trial:
    """Devices in mesh order, y fastest. x and the output are split along both axes, the weight along y."""
    w, x, g = (
        numbers(seed, dim, hidden),
        numbers(seed + 1, batch, dim),
        numbers(seed + 2, batch, hidden),
    )
    along_x, along_y = mesh
    n = along_x * along_y

    def blocks(whole: Any) -> list[Any]:
        return [block for band in np.split(whole, along_x) for block in np.split(band, along_y, axis=1)]

    def bands(whole: Any) -> list[Any]:
        return [band for band in np.split(whole, along_x) for _ in range(along_y)]

    w_rows = np.split(w, along_y) * along_x
    parts = [np.split(block @ own, along_y, axis=1) for block, own in zip(blocks(x), w_rows)]
    everything = {
        "is this the sum over all devices? Only devices along y have parts of the same rows": [
            sum(part[i % along_y] for part in parts) for i in range(n)
        ]
    }
    w_grads, x_grads = np.split(x.T @ g, along_y) * along_x, blocks(g @ w.T)
    own_grads = [block.T @ band for block, band in zip(blocks(x), bands(g))]
    own = {
        "is this the weight's gradient for your rows only? Devices along x have other rows": [
            {"weights": dw, "x": dx} for dw, dx in zip(own_grads, x_grads)
        ]
    }
    return Trial(
        {"model_dim": dim, "hidden_dim": hidden, "mesh": list(mesh)},
        {"weights": w},
        (
            MethodCall("forward", blocks(x), blocks(x @ w), everything),
            MethodCall("backward", blocks(g), [{"weights": dw, "x": dx} for dw, dx in zip(w_grads, x_grads)], own),
        ),
        devices=n,
        tolerance=ROUNDING,
        targets=matmul_2d_limits(mesh, batch, dim, hidden),
    )


def matmul_2d_limits(mesh: tuple[int, int], batch: int, dim: int, hidden: int) -> dict[str, int]:
    """Limits for a reduce-scatter of the output along y, an all-gather of its gradient along y, and an all-reduce of
    the weight's gradient along x."""
    rows_here, dim_here = batch // mesh[0], dim // mesh[1]
    output, weight = 4 * rows_here * hidden, 4 * dim_here * hidden
    sent = bytes_sent("reduce_scatter", output, mesh[1]) + bytes_sent("all_gather", output // mesh[1], mesh[1])
    return {
        "sent": sent + bytes_sent("all_reduce", weight, mesh[0]),
        "flops": 3 * 2 * rows_here * dim_here * hidden,
        "weights": weight,
    }


def megatron_layer(
    seed: int = 1, devices: int = 4, tokens: int = 8, dim: int = 16, hidden: int = 64, heads: int = 4
) -> Trial:
    params = models.layer_parameters(seed, dim, hidden)
    x, g = (np.random.default_rng(seed + i).normal(size=(tokens, dim)).astype(np.float32) for i in (50, 51))
    out, grads = models.layer_output(params, x, heads), models.layer_gradients(params, x, g, heads)
    mistakes = {
        "is x added on every device? Then a sum contains it as often as there are devices": models.layer_output(
            params, x, heads, residuals=devices
        ),
        "are the scores divided by sqrt(head_dim)?": models.layer_output(params, x, heads, scaled=False),
    }
    parts = {
        **{name: np.split(grads[name], devices, axis=1) for name in models.COLUMNS},
        **{name: np.split(grads[name], devices) for name in models.ROWS},
        "x": [grads["x"]] * devices,
    }
    wanted = [{name: part[i] for name, part in parts.items()} for i in range(devices)]
    return Trial(
        {"model_dim": dim, "hidden_dim": hidden, "heads": heads},
        params,
        (
            MethodCall(
                "forward", [x] * devices, [out] * devices, {words: [y] * devices for words, y in mistakes.items()}
            ),
            MethodCall("backward", [g] * devices, wanted),
        ),
        devices=devices,
        tolerance=ROUNDING,
        targets=megatron_limits(devices, tokens, dim, hidden, heads),
    )


def megatron_limits(devices: int, tokens: int, dim: int, hidden: int, heads: int) -> dict[str, int]:
    """Limits for four all-reduces of an activation, 1/n of each weight, and 1/n of each product. The softmax
    and its gradient make three products element by element."""
    weights = 4 * dim * dim + 2 * dim * hidden
    forward = 2 * tokens * weights + 4 * tokens * tokens * dim
    return {
        "sent": 4 * bytes_sent("all_reduce", 4 * tokens * dim, devices),
        "collectives": 4,
        "flops": 3 * (forward + 2 * heads * tokens * tokens) // devices,
        "weights": 4 * weights // devices,
    }


def vocab_parallel_loss(seed: int = 1, devices: int = 4, tokens: int = 8, words: int = 64) -> Trial:
    """Logits around 150 and -150, and in half of the rows a wrong word 100 above: exp overflows or underflows unless
    the row's maximum is subtracted first."""
    rng = np.random.default_rng(seed)
    token = np.arange(tokens)
    targets, g = fixed_rng(seed).integers(0, words, tokens), numbers(seed + 1, tokens)
    logits = 3 * rng.normal(size=(tokens, words)) + np.where(token % 2, -150, 150)[:, None]
    logits[token, (targets + words // 2) % words] += np.where(token % 4 < 2, 100, 0)
    logits = logits.astype(np.float32)
    exact = logits.astype(np.float64)
    right = np.eye(words)[targets]
    loss = _log_sum(exact) - exact[right > 0]
    grads = (models.softmax(exact) - right) * g[:, None]
    here = [{"logits": part, "targets": targets} for part in np.split(logits, devices, axis=1)]
    return Trial(
        {"words": words},
        {},
        (
            MethodCall("forward", here, [loss] * devices, _vocab_mistakes(exact, right, devices)),
            MethodCall("backward", [g] * devices, [{"logits": part} for part in np.split(grads, devices, axis=1)]),
        ),
        devices=devices,
        tolerance=2 * ROUNDING,  # the log of a sum near 250, which a class may send, is rounded by more than one
        targets=vocab_limits(devices, tokens, words),
    )


def _log_sum(logits: Any) -> Any:
    highest = logits.max(axis=1)
    return highest + np.log(np.exp(logits - highest[:, None]).sum(axis=1))


def _vocab_mistakes(logits: Any, right: Any, devices: int) -> dict[str, list[Any]]:
    """Losses from common mistakes. `right` is 1 where a word is a token's target, else 0."""

    def loss(sums: Any, parts: list[Any]) -> Any:
        return np.log(sums) - sum((part * r).sum(axis=1) for part, r in zip(parts, rights))

    parts, rights = np.split(logits, devices, axis=1), np.split(right, devices, axis=1)
    shifted = [part - logits.max(axis=1, keepdims=True) for part in parts]
    uneven = [part - part.max(axis=1, keepdims=True) for part in parts]
    sums, uneven_sums = (sum(np.exp(part).sum(axis=1) for part in each) for each in (shifted, uneven))
    return {
        "is this the highest logit of your words only? All devices must subtract the same number": (
            [loss(uneven_sums, uneven)] * devices
        ),
        "did you average the sum of exponentials over devices?": [loss(sums / devices, shifted)] * devices,
        "is this the loss over your words only?": [
            np.log(np.exp(part).sum(axis=1)) - (part * r).sum(axis=1) for part, r in zip(uneven, rights)
        ],
    }


def vocab_limits(devices: int, tokens: int, words: int) -> dict[str, int]:
    """Limits for three all-reduces of one number per token, and six arrays of the local logits' size at the peak."""
    return {
        "sent": 3 * bytes_sent("all_reduce", 4 * tokens, devices),
        "collectives": 3,
        "peak": 6 * 4 * tokens * words // devices,
    }


TRIALS: Mapping[str, tuple[Callable[[], Trial], ...]] = {
    "TensorParallel": (tensor_parallel, partial(tensor_parallel, OTHER)),
    "SequenceParallel": (sequence_parallel, partial(sequence_parallel, OTHER)),
    "Matmul2D": (
        matmul_2d,
        partial(matmul_2d, 7, (4, 2), 8, 12, 16),
        partial(matmul_2d, 11, (2, 4), 6, 16, 8),
    ),
    "MegatronLayer": (
        megatron_layer,
        partial(megatron_layer, 5, 2, 6, 16, 32, 4),
        partial(megatron_layer, 9, 8, 12, 32, 64, 8),
    ),
    "MegatronMesh": (
        megatron_mesh,
        partial(megatron_mesh, 5, (4, 2), 6, 16, 16, 2),
        partial(megatron_mesh, 9, (2, 4), 8, 16, 32, 4),
    ),
    "VocabParallelLoss": (
        vocab_parallel_loss,
        partial(vocab_parallel_loss, 5, 2, 12, 40),
        partial(vocab_parallel_loss, 9, 8, 16, 128),
    ),
}


# --- What no class can do with less ---


ALONE = "a device that makes all products of the output misses the target for flops, so something is sent"
"""Every device gets the whole batch and, while it loads, all weights: only the flops force it to share."""


def tensor_parallel_bounds(trial: Trial) -> dict[str, FigureBound]:
    x, g = (lower_bounds.arguments(trial, method)[0][0] for method in ("forward", "backward"))
    return {
        "sent": lower_bounds.something(ALONE, given=("flops",)),
        "flops": lower_bounds.flops(lower_bounds.mlp_products(trial.params, x, g, with_dx=True), trial.devices),
    }


def sequence_parallel_bounds(trial: Trial) -> dict[str, FigureBound]:
    x, g = lower_bounds.whole(trial, "forward"), lower_bounds.whole(trial, "backward")
    own = lower_bounds.arguments(trial, "forward", "backward")
    return {
        "sent": lower_bounds.leaves_device(own, "a device's rows and their gradient"),
        "flops": lower_bounds.flops(lower_bounds.mlp_products(trial.params, x, g, with_dx=True), trial.devices),
    }


def matmul_2d_bounds(trial: Trial) -> dict[str, FigureBound]:
    """x @ w, x.T @ g and g @ w.T, of numbers that are not zero."""
    elements = sum(x.size for (x,) in lower_bounds.arguments(trial, "forward"))
    own = lower_bounds.arguments(trial, "forward", "backward")
    return {
        "sent": lower_bounds.leaves_device(own, "a device's blocks of x and of the gradient"),
        "flops": lower_bounds.flops(3 * elements * trial.arguments["hidden_dim"], trial.devices),
    }


def megatron_layer_bounds(trial: Trial) -> dict[str, FigureBound]:
    """The four weights of attention three times, forward and for both gradients, and the first of the MLP once: what
    follows its relu may be zero."""
    tokens, dim = lower_bounds.arguments(trial, "forward")[0][0].shape
    count = tokens * dim * (3 * 4 * dim + trial.arguments["hidden_dim"])
    return {
        "sent": lower_bounds.something(ALONE, given=("flops",)),
        "flops": lower_bounds.flops(count, trial.devices),
    }


def megatron_mesh_bounds(trial: Trial) -> dict[str, FigureBound]:
    own = lower_bounds.arguments(trial, "forward", "backward")
    return {
        "sent": lower_bounds.leaves_device(own, "a device's tokens and their gradient"),
    }


def vocab_parallel_loss_bounds(trial: Trial) -> dict[str, FigureBound]:
    return {
        "sent": lower_bounds.something("every loss depends on the logits of all devices"),
    }


LOWER_BOUNDS: Mapping[str, MakeBounds] = {
    "TensorParallel": tensor_parallel_bounds,
    "SequenceParallel": sequence_parallel_bounds,
    "Matmul2D": matmul_2d_bounds,
    "MegatronLayer": megatron_layer_bounds,
    "MegatronMesh": megatron_mesh_bounds,
    "VocabParallelLoss": vocab_parallel_loss_bounds,
}
