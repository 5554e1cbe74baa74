"""What the ranks of a planned step hold: the values, their bytes, and how each action changes their number.

This is the only place that knows it: `timing` adds up the bytes, and `memory` names the values of the fullest moment.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from .actions import Program
from .cost_model import Prices

KINDS = ("weights", "gradients", "states", "activations", "ends", "workspace")
"""Kinds of memory: `ends` are the embedding, the head and its logits."""

WEIGHT, GATHERED, WEIGHT_SHARD = "weights", "gathered weights", "shards of weights"
GRADIENT, REDUCING = "gradients of weights", "gradients that are being reduced"
GRADIENT_SHARD = "shards of gradients of weights"
STATE, STATE_SHARD = "states of the optimizer", "shards of states of the optimizer"
KEPT, OUTPUT, INPUT_GRADIENT = "activations kept for backward", "outputs of a stage", "gradients of activations"

KIND_OF: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys((WEIGHT, GATHERED, WEIGHT_SHARD), "weights"),
        **dict.fromkeys((GRADIENT, REDUCING, GRADIENT_SHARD), "gradients"),
        **dict.fromkeys((STATE, STATE_SHARD), "states"),
        **dict.fromkeys((KEPT, OUTPUT, INPUT_GRADIENT), "activations"),
    }
)
"""The kind of each value."""


def sizes_of(priced: Prices, program: Program) -> Mapping[str, int]:
    """Bytes of each value; shards are those of the first replica."""
    elements = priced.parameters // priced.replicas
    shards = [
        round(elements * (full // priced.parameters) * priced.shard)
        for full in (priced.weight, priced.gradient, priced.state)
    ]
    return {
        **dict(zip((WEIGHT_SHARD, GRADIENT_SHARD, STATE_SHARD), shards)),
        WEIGHT: priced.weight,
        GATHERED: priced.gathered,
        GRADIENT: priced.gradient,
        REDUCING: priced.reduced,
        STATE: priced.state,
        KEPT: priced.kept,
        OUTPUT: priced.border,
        INPUT_GRADIENT: priced.border,
    }


class Effect(NamedTuple):
    """The change of a rank's values by an action: by how many `after` its end (of a call: its start), and `before` its
    start. `operation` is the ledger's; memory is sampled when it starts. An action without one only renames or drops.
    """

    operation: str = ""
    after: Mapping[str, int] = MappingProxyType({})
    before: Mapping[str, int] = MappingProxyType({})


def effects_of(program: Program) -> Mapping[str, Effect]:
    """The effect of each action by its name. An all-reduce is in place, as with NCCL."""
    zero = program.zero
    gradient = REDUCING if zero > 1 else GRADIENT
    reduced, state = (GRADIENT_SHARD, STATE_SHARD) if zero else (GRADIENT, STATE)
    is_cut = zero in (1, 2)
    """The update has a shard of the weight, and gathers it."""
    return {
        "load": Effect(after={WEIGHT_SHARD if zero == 3 else WEIGHT: 1, **({} if program.offload else {state: 1})}),
        "input": Effect(after={KEPT: 1}),
        "input to border": Effect(after={OUTPUT: 1}),
        "forward": Effect("forward", {KEPT: 1}),
        "forward to border": Effect("forward", {OUTPUT: 1}),
        "recompute": Effect("forward"),
        "loss": Effect("loss", {OUTPUT: -1, INPUT_GRADIENT: 1}),
        "backward": Effect("backward", {KEPT: -1, gradient: 1}),
        "backward_input": Effect("backward_input", {INPUT_GRADIENT: 1}),
        "backward_weight": Effect("backward_weight", {INPUT_GRADIENT: -1, KEPT: -1, gradient: 1}),
        "drop": Effect(after={INPUT_GRADIENT: -1}),
        "keep": Effect(),
        "keep_reduced": Effect(),
        "add": Effect(after={gradient: -1}),
        "add_reduced": Effect(after={reduced: -1}),
        "release": Effect(after={GATHERED: -1}),
        "update": Effect("update", {reduced: -1}, {WEIGHT: -1, WEIGHT_SHARD: 1} if is_cut else {}),
        "store": Effect("set_final_weight"),
        "gather": Effect("allgather", {GATHERED if zero == 3 else WEIGHT: 1}),
        "wait gather": Effect(after={WEIGHT_SHARD: -1} if is_cut else {}),
        "reduce": Effect("scatterreduce", {reduced: 1}) if zero else Effect("allreduce"),
        "wait reduce": Effect(after={gradient: -1} if zero else {}),
        "fetch": Effect("fetch", {state: 1}),
        "wait fetch": Effect(),
        "park": Effect("offload"),
        "wait park": Effect(after={state: -1}),
        "send": Effect("pass_to"),
        "wait send": Effect(after={OUTPUT: -1}),
        "wait send of a gradient": Effect(after={INPUT_GRADIENT: -1}),
        "receive": Effect("receive", {KEPT: 1}),
        "receive to border": Effect("receive", {OUTPUT: 1}),
        "receive of a gradient": Effect("receive", {INPUT_GRADIENT: 1}),
    }
