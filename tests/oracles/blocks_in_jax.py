"""Transformer blocks as functions of JAX, with 8 heads of 8: as GPT has them, and as Llama does."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

HEADS, EACH = 8, 8
Params = dict[str, Any]


def rotated(x: Any) -> Any:
    """Rotary embedding: halves of each head are turned against each other, by more at later positions."""
    half = EACH // 2
    angles = np.arange(x.shape[1])[:, None] * (1 / 10000 ** (np.arange(half) / half))
    cosines, sines = (f(angles).astype(np.float32)[:, None, :] for f in (np.cos, np.sin))
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cosines - second * sines, second * cosines + first * sines], -1)


def attention(p: Params, x: Any, rotary: bool = True) -> Any:
    """Causal attention; several heads of queries share keys and values if these have fewer."""
    batch, length, width = x.shape
    q, k, v = ((x @ p[name]).reshape(batch, length, -1, EACH) for name in ("wq", "wk", "wv"))
    if rotary:
        q, k = rotated(q), rotated(k)
    if k.shape[2] < HEADS:
        k, v = (jnp.repeat(y, HEADS // y.shape[2], axis=2) for y in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(EACH)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    return mixed.reshape(batch, length, width) @ p["wo"]


def gpt_block(p: Params, x: Any) -> Any:
    """Attention and an MLP, each with its residual."""
    x = x + attention(p, x, rotary=False)
    return x + jax.nn.relu(x @ p["up"]) @ p["down"]


def llama_block(p: Params, x: Any) -> Any:
    """Attention with rotary embedding and a gated MLP, each behind a norm and with its residual."""

    def norm(x: Any, scale: Any) -> Any:
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale

    x = x + attention(p, norm(x, p["norm1"]))
    y = norm(x, p["norm2"])
    return x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"]
