"""The least figures of the tensor parallel puzzles."""

from __future__ import annotations

from collections.abc import Mapping

from puzzles.catalog.engine import lower_bounds
from puzzles.catalog.engine.lower_bounds import FigureBound, MakeBounds
from puzzles.catalog.engine.trial import Trial

ALONE = "a device that makes all products of the output misses the target for flops, so something is sent"
"""Every device gets the whole batch and, while it loads, all weights: only the flops force it to share."""


def tensor_parallel(trial: Trial) -> dict[str, FigureBound]:
    x, g = (lower_bounds.arguments(trial, method)[0][0] for method in ("forward", "backward"))
    return {
        "sent": lower_bounds.something(ALONE, given=("flops",)),
        "flops": lower_bounds.flops(lower_bounds.mlp_products(trial.params, x, g, with_dx=True), trial.devices),
        "weights": lower_bounds.weights(trial),
    }


def sequence_parallel(trial: Trial) -> dict[str, FigureBound]:
    x, g = lower_bounds.whole(trial, "forward"), lower_bounds.whole(trial, "backward")
    own = lower_bounds.arguments(trial, "forward", "backward")
    return {
        **lower_bounds.calls(),
        "sent": lower_bounds.leaves_device(own, "a device's rows and their gradient"),
        "flops": lower_bounds.flops(lower_bounds.mlp_products(trial.params, x, g, with_dx=True), trial.devices),
        "weights": lower_bounds.weights(trial),
        "peak": lower_bounds.peak(trial),
    }


def matmul_2d(trial: Trial) -> dict[str, FigureBound]:
    """x @ w, x.T @ g and g @ w.T, of numbers that are not zero."""
    elements = sum(x.size for (x,) in lower_bounds.arguments(trial, "forward"))
    own = lower_bounds.arguments(trial, "forward", "backward")
    return {
        "sent": lower_bounds.leaves_device(own, "a device's blocks of x and of the gradient"),
        "flops": lower_bounds.flops(3 * elements * trial.arguments["hidden_dim"], trial.devices),
        "weights": lower_bounds.weights(trial),
    }


def megatron_layer(trial: Trial) -> dict[str, FigureBound]:
    """The four weights of attention three times, forward and for both gradients, and the first of the MLP once: what
    follows its relu may be zero."""
    tokens, dim = lower_bounds.arguments(trial, "forward")[0][0].shape
    count = tokens * dim * (3 * 4 * dim + trial.arguments["hidden_dim"])
    return {
        **lower_bounds.calls(),
        "sent": lower_bounds.something(ALONE, given=("flops",)),
        "flops": lower_bounds.flops(count, trial.devices),
        "weights": lower_bounds.weights(trial),
    }


def megatron_mesh(trial: Trial) -> dict[str, FigureBound]:
    own = lower_bounds.arguments(trial, "forward", "backward")
    return {
        **lower_bounds.calls(),
        "sent": lower_bounds.leaves_device(own, "a device's tokens and their gradient"),
        "weights": lower_bounds.weights(trial),
    }


def vocab_parallel_loss(trial: Trial) -> dict[str, FigureBound]:
    return {
        **lower_bounds.calls(),
        "sent": lower_bounds.something("every loss depends on the logits of all devices"),
        "peak": lower_bounds.peak(trial),
    }


LOWER_BOUNDS: Mapping[str, MakeBounds] = {
    "TensorParallel": tensor_parallel,
    "SequenceParallel": sequence_parallel,
    "Matmul2D": matmul_2d,
    "MegatronLayer": megatron_layer,
    "MegatronMesh": megatron_mesh,
    "VocabParallelLoss": vocab_parallel_loss,
}
