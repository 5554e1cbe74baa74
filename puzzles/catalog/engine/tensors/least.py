"""The least figures of the tensor parallel puzzles."""

from __future__ import annotations

from collections.abc import Mapping

from puzzles.catalog.engine import least
from puzzles.catalog.engine.least import Least, MakeLeasts
from puzzles.catalog.engine.trial import Trial

ALONE = "a device that makes all products of the output misses the target for flops, so something is sent"
"""Every device gets the whole batch and, while it loads, all weights: only the flops force it to share."""


def tensor_parallel(trial: Trial) -> dict[str, Least]:
    x, g = (least.arguments(trial, method)[0][0] for method in ("forward", "backward"))
    return {
        "sent": least.something(ALONE, given=("flops",)),
        "flops": least.flops(least.mlp_products(trial.params, x, g, with_dx=True), trial.devices),
        "weights": least.weights(trial),
    }


def sequence_parallel(trial: Trial) -> dict[str, Least]:
    x, g = least.whole(trial, "forward"), least.whole(trial, "backward")
    own = least.arguments(trial, "forward", "backward")
    return {
        "sent": least.leaves_device(own, "a device's rows and their gradient"),
        "flops": least.flops(least.mlp_products(trial.params, x, g, with_dx=True), trial.devices),
        "weights": least.weights(trial),
        "peak": least.peak(trial),
    }


def matmul_2d(trial: Trial) -> dict[str, Least]:
    """x @ w, x.T @ g and g @ w.T, of numbers that are not zero."""
    elements = sum(x.size for (x,) in least.arguments(trial, "forward"))
    own = least.arguments(trial, "forward", "backward")
    return {
        "sent": least.leaves_device(own, "a device's blocks of x and of the gradient"),
        "flops": least.flops(3 * elements * trial.arguments["hidden_dim"], trial.devices),
        "weights": least.weights(trial),
    }


def megatron_layer(trial: Trial) -> dict[str, Least]:
    """The four weights of attention three times, forward and for both gradients, and the first of the MLP once: what
    follows its relu may be zero."""
    tokens, dim = least.arguments(trial, "forward")[0][0].shape
    count = tokens * dim * (3 * 4 * dim + trial.arguments["hidden_dim"])
    return {
        **least.calls(),
        "sent": least.something(ALONE, given=("flops",)),
        "flops": least.flops(count, trial.devices),
        "weights": least.weights(trial),
    }


def vocab_parallel_loss(trial: Trial) -> dict[str, Least]:
    return {
        **least.calls(),
        "sent": least.something("every loss depends on the logits of all devices"),
        "peak": least.peak(trial),
    }


LEAST: Mapping[str, MakeLeasts] = {
    "TensorParallel": tensor_parallel,
    "SequenceParallel": sequence_parallel,
    "Matmul2D": matmul_2d,
    "MegatronLayer": megatron_layer,
    "VocabParallelLoss": vocab_parallel_loss,
}
