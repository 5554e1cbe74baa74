"""Trials of the pipeline puzzles and of ring attention, and the results of a single device.

Scores of ring attention are exact in 24 bits, and so large that exp overflows or underflows unless the maximum is
subtracted, which is unknown until all blocks have arrived. Weights of chains are scaled so that activations keep their
size through sixteen layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from lib.engine.collectives import WORD
from puzzles.catalog.engine import lower_bounds
from puzzles.catalog.engine.lower_bounds import BITS, FigureBound, MakeBounds
from puzzles.catalog.engine.models import BATCH, DEVICES, MODEL, ROUNDING, attention, exact, integers, numbers, softmax
from puzzles.catalog.engine.trial import MethodCall, Trial

# --- Trials of ring attention, without and with a causal mask: 8 tokens on each of 2, 4 or 8 devices.
#
# Queries are integers, keys multiples of 2^-13 and head_dim is 16, so scores are exact in 24 bits. The first
# two columns put the scores around 100, -100, -200 or -400, by blocks of 8 keys, with draws of their own, so that they
# have to be sent. So exp overflows or underflows unless the maximum is subtracted, and the maximum is unknown until all
# blocks have arrived.


LOCAL, DIM = 8, 16
"""Tokens per device, and numbers per token."""

PEAK = 5_248
"""Bytes, for any number of devices."""


def ring_attention(seed: int, devices: int) -> Trial:
    return _trial(seed, devices, range(devices), causal=False, flops=_flops(LOCAL, devices))


def causal_ring_attention(seed: int, devices: int) -> Trial:
    chunk = LOCAL // 2
    return _trial(seed, devices, causal_order(devices), causal=True, flops=_flops(chunk, 2 * devices + 1))


def causal_order(devices: int) -> list[int]:
    """The chunks of the devices' tokens: chunk i and chunk 2n - 1 - i on device i."""
    return [part for i in range(devices) for part in (i, 2 * devices - 1 - i)]


def _flops(rows: int, pairs: int) -> int:
    """For pairs of blocks of so many rows: two products, a division of the scores by an array or a number of numpy, and
    a correction of results and sums each; and one division at the end."""
    return pairs * (4 * rows * rows * DIM + 2 * rows * rows + 2 * rows * (DIM + 1)) + 2 * LOCAL * DIM


def _trial(seed: int, devices: int, order: Sequence[int], causal: bool, flops: int) -> Trial:
    tokens = LOCAL * devices
    q, k = integers(seed, tokens, DIM, most=3), integers(seed + 1, tokens, DIM, most=3 << 13) / np.float32(1 << 13)
    v = numbers(seed + 2, tokens, DIM)
    place = np.arange(tokens)
    k[:, :2] /= 4
    q[:, 0], k[:, 0] = np.where(place % 2, -20, 20), k[:, 0] + np.where(place // LOCAL % 2, -20, 20)
    q[:, 1], k[:, 1] = np.where(place % 4 == 3, -60, 0), k[:, 1] + 20

    def parts(whole: Any) -> list[Any]:
        """Each device's part."""
        pieces = np.split(whole, len(order))
        return np.split(np.concatenate([pieces[part] for part in order]), devices)

    mask = np.tri(tokens, dtype=bool) if causal else np.ones((tokens, tokens), dtype=bool)
    local = [attention(*some) for some in zip(parts(q), parts(k), parts(v))]
    mistakes = {"is this the attention over your own tokens only?": local}
    if causal:
        mistakes["does a token see later tokens?"] = parts(attention(q, k, v))
    else:
        each = [sum(attention(own, *other) for other in zip(parts(k), parts(v))) / devices for own in parts(q)]
        mistakes["did you average the blocks' results? Blocks with higher scores count for more"] = each
    arguments = [{"q": a, "kv": np.stack([b, c])} for a, b, c in zip(parts(q), parts(k), parts(v))]
    return Trial(
        {"causal": causal},
        calls=(MethodCall("forward", arguments, parts(attention(q, k, v, mask)), mistakes),),
        devices=devices,
        tolerance=ROUNDING,
        targets={
            "sent": (devices - 1) * (2 * LOCAL * DIM * 4 + 2 * WORD),
            "messages": devices - 1,
            "collectives": 0,
            "flops": flops,
            "peak": PEAK,
        },
    )


# --- Trials of LayerSplit and GPipeRemat: training a chain of layers x = relu(x) @ w.
#
# Weights are scaled so that activations keep their size through sixteen layers.


Tensors = dict[str, Any]


def square(seed: int, dim: int) -> Any:
    """A square matrix whose product with relu of random numbers keeps their size: of variance 2 / dim."""
    return numbers(seed, dim, dim) * np.float32((6 / dim) ** 0.5)


def chain_forward_backward(params: Tensors, x: Any, g: Any) -> tuple[Any, Tensors]:
    """Output and gradients on one device; 'x' is the gradient of the input."""
    params, inputs, x, g = exact(params), [], np.asarray(x, np.float64), np.asarray(g, np.float64)
    for weight in params.values():
        inputs.append(x)
        x = np.maximum(x, 0) @ weight
    grads: Tensors = {}
    for name, weight in reversed(params.items()):
        before = inputs.pop()
        grads[name] = np.maximum(before, 0).T @ g
        g = (g @ weight.T) * (before > 0)
    return x, {**grads, "x": g}


def random_layers(seed: int, dim: int, layers: int) -> Tensors:
    """Parameters of a chain of layers."""
    return {f"layer_{i}/weights": square(seed + i, dim) for i in range(layers)}


def chain_output(params: Tensors, x: Any) -> Any:
    """The output of a chain of layers for inference, x = relu(x @ w)."""
    for weight in params.values():
        x = np.maximum(x.astype(np.float64) @ weight, 0)
    return x


def at_ends(first: Any, last: Any, n: int) -> list[Any]:
    """Arguments or results of all devices: given for the first and the last, None for those in between."""
    return [first, *[None] * (n - 2), last]


def parts_of(grads: Tensors, names: Sequence[str], n: int) -> list[Tensors]:
    """The gradients that each device returns: of its own layers."""
    each = len(names) // n
    return [{name: grads[name] for name in names[i * each : (i + 1) * each]} for i in range(n)]


def layer_split(batch: int = BATCH, dim: int = MODEL, n: int = DEVICES, steps: int = 1) -> Trial:
    params = random_layers(74, dim, n)
    calls: list[MethodCall] = []
    for step in range(steps):
        x, g = numbers(80 + step, batch, dim), numbers(90 + step, batch, dim)
        out, grads = chain_forward_backward(params, x, g)
        wanted = parts_of(grads, list(params), n)
        wanted[0]["x"] = grads["x"]
        calls.append(MethodCall("forward", at_ends(x, None, n), at_ends(None, out, n)))
        calls.append(MethodCall("backward", at_ends(None, g, n), wanted))
    targets = split_targets(batch, dim, n, steps)
    return Trial({"model_dim": dim}, params, tuple(calls), devices=n, tolerance=ROUNDING, targets=targets)


def split_targets(batch: int, dim: int, n: int, steps: int) -> dict[str, int]:
    """Limits from the puzzle's arithmetic."""
    message, product = 4 * batch * dim + WORD, 2 * batch * dim * dim
    return {
        "sent": steps * 2 * message,
        "messages": steps * 2,
        "collectives": 0,
        "flops": steps * 3 * product,
        "weights": 4 * dim * dim,
        "clock": steps * 3 * product * n,
    }


def gpipe_remat(
    batch: int = BATCH, dim: int = MODEL, layers: int = 16, n: int = DEVICES, microbatches: int = 4
) -> Trial:
    params = random_layers(74, dim, layers)
    x, g = numbers(80, batch, dim), numbers(90, batch, dim)
    out, grads = chain_forward_backward(params, x, g)
    calls = (
        MethodCall("forward", at_ends(x, None, n), at_ends(None, out, n)),
        MethodCall("backward", at_ends(None, g, n), parts_of(grads, list(params), n)),
    )
    sizes = {"model_dim": dim, "layers": layers, "microbatches": microbatches}
    targets = gpipe_targets(batch // microbatches, dim, layers // n, n, microbatches)
    return Trial(sizes, params, calls, devices=n, tolerance=ROUNDING, targets=targets)


def gpipe_targets(rows: int, dim: int, each: int, n: int, microbatches: int) -> dict[str, int]:
    """Limits from the puzzle's arithmetic, for `each` layers per device and `rows` per microbatch."""
    boundary, forward = 4 * rows * dim, each * 2 * rows * dim * dim
    return {
        "sent": 2 * microbatches * (boundary + WORD),
        "messages": 2 * microbatches,
        "collectives": 0,
        "flops": 4 * microbatches * forward,
        "weights": 2 * each * 4 * dim * dim,
        "stored": (microbatches + each - 1) * boundary,
        "clock": (microbatches + n - 1 + 3 * microbatches + 2 * (n - 1)) * forward,
    }


# --- The trials of the chapter


def pipeline_inference(devices: int = DEVICES, model_dim: int = MODEL, length: int = 12) -> Trial:
    params = random_layers(20, model_dim, devices)
    inputs = [numbers(30 + i, 2, model_dim) for i in range(length)]
    outputs = [chain_output(params, x) for x in inputs]
    product = 2 * 2 * model_dim * model_dim
    limits = {"messages": length, "collectives": 0, "clock": (length + devices - 1) * product}
    sent = {"sent": length * (2 * model_dim * 4 + WORD), "weights": model_dim * model_dim * 4}
    return Trial(
        {"model_dim": model_dim},
        params,
        stream=(inputs, outputs),
        devices=devices,
        tolerance=ROUNDING,
        targets=sent | limits,
        hidden=devices != DEVICES,
    )


TRIALS: Mapping[str, tuple[Callable[[], Trial], ...]] = {
    "LayerSplit": (layer_split, partial(layer_split, 5, 6, 3, steps=2)),
    "PipelineInference": (pipeline_inference, partial(pipeline_inference, 3, 8, 5)),
    "GPipeRemat": (gpipe_remat, partial(gpipe_remat, 6, 8, 12, 3, 3)),
    "RingAttention": tuple(
        partial(make, seed, devices)
        for make in (ring_attention, causal_ring_attention)
        for seed, devices in ((1, 4), (5, 2), (9, 8))
    ),
}


# --- What no class can do with less ---


VISIBLE = 1e-4
"""Weight of a key in a query's result above which leaving it out shows."""


def ring_attention_bounds(trial: Trial) -> dict[str, FigureBound]:
    causal = trial.arguments["causal"]
    given = [given for (given,) in lower_bounds.arguments(trial, "forward")]
    q = np.concatenate([part["q"] for part in given]).astype(np.float64)
    k, v = (np.concatenate([part["kv"][i] for part in given]) for i in (0, 1))
    chunks = np.split(np.arange(len(q)), 2 * trial.devices)
    places = np.concatenate([chunks[part] for part in causal_order(trial.devices)]) if causal else np.arange(len(q))
    mask = places[:, None] >= places if causal else True
    visible = int((softmax(np.where(mask, q @ k.T / np.sqrt(q.shape[1]), -np.inf)) > VISIBLE).sum())
    count = visible * (q.shape[1] + v.shape[1])
    row = v.shape[1] * BITS // 8
    return {
        "sent": FigureBound(row, f"at least one value, {row} B, shows in the result of another device"),
        "flops": lower_bounds.flops(count, trial.devices)._replace(
            reason=f"{visible:,} pairs of a query and a key show in the results; each takes its score and its value"
        ),
    }


def chain(trial: Trial) -> dict[str, FigureBound]:
    """Training of a chain of layers, whose ends are on different devices."""
    count, rows = 0, 0
    backward = [call for call in trial.calls if call.method == "backward"]
    forward = [call for call in trial.calls if call.method == "forward"]
    for first, last in zip(forward, backward):
        with_dx = "x" in (last.wanted or ({},))[0]
        count += lower_bounds.chain_products(trial.params, first.arguments[0], last.arguments[-1], with_dx=with_dx)
        rows += int(np.any((first.wanted or (None,))[-1], axis=1).sum())
    work = lower_bounds.flops(count, trial.devices)
    each = rows * BITS // 8
    return {
        "sent": FigureBound(each, f"{rows} rows of the output depend on rows that only the first device has"),
        "flops": work,
        "stored": FigureBound(0, "a device that is sent its inputs again need not keep them"),
        "clock": work._replace(reason=f"a device's clock is at least its flops: {work.reason}"),
    }


def pipeline_inference_bounds(trial: Trial) -> dict[str, FigureBound]:
    assert trial.stream is not None
    inputs = np.concatenate(trial.stream[0])
    count = lower_bounds.chain_products(trial.params, inputs, relu_first=False)
    work = lower_bounds.flops(count, trial.devices)
    clock = (trial.targets or {}).get("clock", 2 * count)
    alone = "a device that computes all layers alone misses the target for the clock, so something is sent"
    return {
        "sent": lower_bounds.something(alone, given=("clock",))
        if 2 * count > clock
        else FigureBound(0, "one device may do it all"),
        "clock": work._replace(reason=f"a device's clock is at least its flops: {work.reason}"),
    }


LOWER_BOUNDS: Mapping[str, MakeBounds] = {
    "LayerSplit": chain,
    "PipelineInference": pipeline_inference_bounds,
    "GPipeRemat": chain,
    "RingAttention": ring_attention_bounds,
}
