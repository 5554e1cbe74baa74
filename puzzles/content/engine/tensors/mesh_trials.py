"""Trials of MegatronMesh: a transformer layer with norms, on a mesh of data and tensor parallel devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from lib.engine.collectives import bytes_sent
from puzzles.catalog.engine import transformer
from puzzles.catalog.engine.trial import MethodCall, Trial
from puzzles.catalog.engine.two_layer_mlp import ROUNDING, numbers


def megatron_mesh(
    seed: int = 1, mesh: tuple[int, int] = (2, 2), tokens: int = 8, dim: int = 16, hidden: int = 32, heads: int = 4
) -> Trial:
    """A sequence of so many tokens for each row of the mesh, cut along tp; devices in mesh order, tp fastest."""
    dp, tp = mesh
    gains = {name: 1 + numbers(seed + 40 + i, dim) / 2 for i, name in enumerate(transformer.GAINS)}
    params = {**transformer.layer_parameters(seed, dim, hidden), **gains}
    xs, gs = (numbers(seed + i, dp, tokens, dim) for i in (50, 51))
    outs = [transformer.layer_output(params, x, heads) for x in xs]
    each = [transformer.layer_gradients(params, x, g, heads) for x, g in zip(xs, gs)]
    total = {name: sum(grads[name] for grads in each) for name in params}

    def cut(rows: Any) -> list[Any]:
        return [part for sequence in rows for part in np.split(sequence, tp)]

    def results(weights: list[dict[str, Any]], gains: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Each device's, where the device in row i takes its weights' and gains' gradients from the i-th of these."""
        found = []
        for device, dx in enumerate(cut([grads["x"] for grads in each])):
            i, j = divmod(device, tp)
            columns = {name: np.split(weights[i][name], tp, axis=1)[j] for name in transformer.COLUMNS}
            rows = {name: np.split(weights[i][name], tp)[j] for name in transformer.ROWS}
            found.append({**columns, **rows, **{name: gains[i][name] for name in transformer.GAINS}, "x": dx})
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
