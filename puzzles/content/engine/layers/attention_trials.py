"""Trials of ring attention, without and with a causal mask: 8 tokens on each of 2, 4 or 8 devices.

Queries are integers, keys multiples of 2^-13 and head_dim is 16, so scores are exact in 24 bits. The first
two columns put the scores around 100, -100, -200 or -400, by blocks of 8 keys, with draws of their own, so that they
have to be sent. So exp overflows or underflows unless the maximum is subtracted, and the maximum is unknown until all
blocks have arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from lib.engine.call import WORD
from puzzles.catalog.engine.transformer import attention
from puzzles.catalog.engine.trial import MethodCall, Trial
from puzzles.catalog.engine.two_layer_mlp import ROUNDING, integers, numbers

LOCAL, DIM = 8, 16
"""Tokens per device, and numbers per token."""

PEAK = 5_248
"""Bytes, for any number of devices."""


def ring_attention(seed: int, devices: int) -> Trial:
    return _trial(seed, devices, range(devices), causal=False, flops=_flops(LOCAL, devices))


def causal_ring_attention(seed: int, devices: int) -> Trial:
    chunk = LOCAL // 2
    order = [part for i in range(devices) for part in (i, 2 * devices - 1 - i)]
    return _trial(seed, devices, order, causal=True, flops=_flops(chunk, 2 * devices + 1))


def _flops(rows: int, pairs: int) -> int:
    """For pairs of blocks of so many rows: two products and a correction of results and sums each, and one division."""
    return pairs * (4 * rows * rows * DIM + 2 * rows * (DIM + 1)) + 2 * LOCAL * DIM


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


RING_TRIALS: tuple[Callable[[], Trial], ...] = (
    partial(ring_attention, 1, 4),
    partial(ring_attention, 5, 2),
    partial(ring_attention, 9, 8),
    partial(causal_ring_attention, 1, 4),
    partial(causal_ring_attention, 5, 2),
    partial(causal_ring_attention, 9, 8),
)
