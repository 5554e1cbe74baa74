"""Labels in words: which shards, batches, parts and tokens a value holds."""

from collections.abc import Collection
from typing import Any

from .algebra import named, set_text

Labelled = Any
"""A value, by the fields that its words name; the kinds of values are made with these functions."""


def shards_text(value: Labelled) -> str:
    """'unsharded', 'shard 2 of 4', 'shards 0-2 of 4'."""
    if len(value.shards) == value.total:
        return "unsharded" if value.total == 1 else f"unsharded (all {value.total} shards)"
    return f"{named('shard', sorted(value.shards))} of {value.total}"


def shard_to_update(grad: Labelled, weight: Labelled, state: Labelled) -> str:
    """What to do where a gradient does not cover a weight: update the shard that it and the state are of, if they are
    of one."""
    if weight.total == 1 and len(grad.shards) == 1 and (grad.shards, grad.total) == (state.shards, state.total):
        (shard,) = grad.shards
        return f"update shard {shard} of the weight: `weights[layer].shard({shard}, {grad.total})`"
    return "update a weight with a gradient that covers all of its shards"


def share_text(value: Labelled) -> str:
    """', part 0 of 4 of a sum, share 1 of 4 of the tokens': what there is of an activation, if not all."""
    parts = f", {parts_text(value)}" if len(value.parts) < value.of else ""
    return parts + (f", {tokens_text(value)}" if len(value.shards) < value.total else "")


def parts_text(value: Labelled) -> str:
    """'part 0 of 4 of a sum'."""
    return f"{named('part', sorted(value.parts))} of {value.of} of a sum"


def tokens_text(value: Labelled) -> str:
    """'share 1 of 4 of the tokens', 'the vocabulary {1} of 4'."""
    if value.vocabulary:
        return f"the vocabulary {set_text(value.shards)} of {value.total}"
    return f"{named('share', sorted(value.shards))} of {value.total} of the tokens"


def expert_text(value: Labelled) -> str:
    """'expert 1 of 4': a shard of a layer of experts, or a share of the tokens on its way to them."""
    return f"{named('expert', sorted(value.shards))} of {value.total}"


def step_text(value: Labelled) -> str:
    """', step 2', ', step 2 with version 1 of the weights'; nothing for step 0, the first."""
    version = getattr(value, "version", None)
    version_text = "" if version is None else f" with version {version} of the weights"
    return f", step {value.step}{version_text}" if value.step else ""


def more_text(value: Labelled) -> str:
    """', of the replica trained since step 0 with batch 1'; nothing if there never were replicas."""
    return f", {value.copy}" if value.copy is not None else ""


def batches_text(value: Labelled) -> str:
    """'batch 1 of 4', 'batches 0-3 of 4', 'no batches (zero)'."""
    if not value.batches:
        return "no batches (zero)"
    shares = getattr(value, "shares", 1)
    if shares > 1:
        return shares_of_batches(value.batches, shares)
    return f"{named('batch', sorted(value.batches))} of {value.total_batches}"


def norm_text(value: Labelled) -> str:
    """'the layers {0, 1} of 4', 'shards {0} of 2 of layer 1': whose squares a norm adds up."""
    n = value.total // value.layers
    shards_of = {layer: {i for i in range(n) if layer * n + i in value.shards} for layer in range(value.layers)}
    full = [layer for layer, shards in shards_of.items() if len(shards) == n]
    parts = [f"the layers {set_text(full)} of {value.layers}"] if full else []
    parts += [
        f"shards {set_text(shards)} of {n} of layer {layer}"
        for layer, shards in shards_of.items()
        if shards and layer not in full
    ]
    return ", ".join(parts)


def shares_of_batches(numbers: Collection[int], shares: int) -> str:
    """'tokens {6, 7} of 8 of batch 0', 'tokens {0} of 8 of batch 1': shares of tokens that are numbered through."""
    tokens_of: dict[int, set[int]] = {}
    for number in sorted(numbers):
        tokens_of.setdefault(number // shares, set()).add(number % shares)
    of_all = [batch for batch, tokens in tokens_of.items() if len(tokens) == shares]
    parts = [named("batch", of_all)] if of_all else []
    parts += [
        f"tokens {set_text(tokens)} of {shares} of batch {b}" for b, tokens in tokens_of.items() if b not in of_all
    ]
    return ", ".join(parts)


RESULT_ORDER = {
    frozenset(("WeightGrad", "ActivationGrad")): "backward returns the weight gradient first",
    frozenset(("Weight", "OptState")): "load_weights and update return the weight first",
}
"""By two kinds that one call returns: their order."""


def order_hint(given: type, kind: type) -> str:
    """The end of a message on a value of a wrong kind: the order of results that were probably swapped."""
    order = RESULT_ORDER.get(frozenset((given.__name__, kind.__name__)))
    return f" ({order})" if order else ""


DIFFERENCES = {
    "total": "shard count",
    "layers": "the model's layers",
    "total_batches": "the step's batches",
    "copy": "the replica it belongs to",
    "vocabulary": "whether a cut head made them",
}
"""By field of a label: what differs, in words, where the name does not say it."""

ALIKE_FIRST = {
    ("gather", "parts"): "; add the parts first: scatterreduce leaves a share of their sum on each rank",
    ("sum", "shards"): "; sum equal shards: a shard that only one rank has needs no sum",
}
"""What to do first, by what is done with values and how they differ."""
