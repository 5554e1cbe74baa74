"""Names and types of what a caller may fix in a split, or replace in a preset."""

from __future__ import annotations

from typing import TypedDict


class SplitFields(TypedDict, total=False):
    """Some fields of a Split."""

    dp: int
    tp: int
    pp: int
    cp: int
    ep: int
    sp: bool
    zero: int
    schedule: str
    chunks: int
    microbatch: int
    recompute: str
    offload: str
    shards: int
    every: int
    layers: tuple[int, ...]
    warmup: int


class TransformerFields(TypedDict, total=False):
    """Some numbers of a Transformer."""

    layers: int
    hidden: int
    heads: int
    ffn: int
    vocab: int
    sequence: int
    kv_heads: int
    head_size: int
    gated: bool
    dropout: bool
    tied: bool
    experts: int
    top_k: int
    expert_ffn: int
    shared_ffn: int
    dense_layers: int
    attention: int


class GpuFields(TypedDict, total=False):
    """Some numbers of a Gpu."""

    flops: float
    flops8: float
    memory: int
    bandwidth: float
    nvlink: float
    network: float
    host: float
    machine: int
    efficiency: float
    core_megatron: float
    core_pytorch: float
    context: int
