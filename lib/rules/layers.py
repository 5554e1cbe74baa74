"""States what computing a layer requires and returns: forward, loss, and backward, full or in two halves.

A weight may be cut. A block's shards each yield one summand of its output, since its second matrix is cut by rows
(Shoeybi et al. 2019, section 3); an expert is a shard, and takes its own tokens (Lepikhin et al. 2020, section 3.2).
What is computed with a replica's own weights is marked as that replica's.
"""

from lib.errors import RuleError
from lib.game.kinds import EMBEDDING
from lib.game.setting import Game
from lib.values import algebra
from lib.values.arguments import refuse_kinds
from lib.values.base import Value, require_kind
from lib.values.kinds import Activation, ActivationGrad, KeyValue, KeyValueGrad, Weight, WeightGrad
from lib.values.label_text import batches_text, expert_text, parts_text, shards_text, tokens_text
from lib.values.replicas import Copy

from . import outer

Share = tuple[frozenset[int], int]
"""Shards or parts, and of how many."""

WHOLE: Share = (frozenset((0,)), 1)

UNCUT = frozenset(("dense", "attention"))
"""The kinds of layers that take full weights only."""

OF_A_STEP = frozenset((Activation, ActivationGrad, WeightGrad, KeyValue, KeyValueGrad))
"""The kinds of values that name batches, and of how many in a step."""

THREE = "(layer, inp, grad, weight)"
"""The arguments of a full backward, and of its half that makes the input gradient."""


def forward(game: Game, layer: int, inp: Value, weight: Value) -> Activation:
    """The next layer's input, relu(inp @ weight) of a dense layer."""
    if type(inp) is not Activation or type(weight) is not Weight:
        refuse_kinds("forward(layer, inp, weight)", (inp, Activation), (weight, Weight))
    require_usable(game, layer, weight, inp)
    _input_of(layer, inp)
    version = None if weight.step == inp.step else weight.step
    usual = version is None and weight.copy is inp.copy is None
    if usual and game.layer == "dense" and inp.of == inp.total == 1:
        same_model(game, inp, weight)  # most of all forwards, and all of the classic ones
        return Activation.made(layer + 1, inp.layers, inp.batches, inp.total_batches, inp.step)
    parts, tokens = _shares(game, inp, weight)
    same_model(game, inp, weight)
    label = layer + 1, inp.layers, inp.batches, inp.total_batches, inp.step, *parts, *tokens
    return Activation.made(*label, _replica(game, inp, weight), version)


def loss(game: Game, inp: Value) -> ActivationGrad:
    """The gradient of the loss with respect to the last layer's output; for some tokens if it is given some."""
    inp = require_kind(inp, Activation, "inp")
    if inp.layer != inp.layers:
        raise RuleError(f"loss needs the output of the last layer, and this is the {inp}; call forward first")
    _require_sum(inp)
    same_model(game, inp)
    label = inp.layers - 1, inp.layers, inp.batches, inp.total_batches, inp.step, *WHOLE, inp.shards, inp.total
    return ActivationGrad.made(*label, inp.copy, inp.version)


def backward(
    game: Game, layer: int, inp: Value, grad: Value, weight: Value
) -> tuple[WeightGrad, ActivationGrad] | tuple[WeightGrad]:
    """The layer's weight gradient, and the activation gradient for the layer before it; of an embedding only the
    first, since token numbers have no gradient."""
    if type(inp) is not Activation or type(grad) is not ActivationGrad or type(weight) is not Weight:
        refuse_kinds(f"backward{THREE}", (inp, Activation), (grad, ActivationGrad), (weight, Weight))
    require_usable(game, layer, weight, inp)
    _input_of(layer, inp)
    _belong_together(game, "backward", layer, inp, grad)
    whole = game.layer == "dense" and inp.of == inp.total == 1
    parts, tokens = (WHOLE, WHOLE) if whole else _shares(game, inp, weight)
    same_model(game, inp, grad, weight)
    copy = None if weight.copy is grad.copy is inp.copy is None else _replica(game, inp, weight, grad)
    if grad.version is not None or weight.step != inp.step:
        _require_version_of(grad, weight)
    own = _weight_grad(inp, weight, copy, grad.version)
    return (own,) if _embeds(game, layer) else (own, _input_grad(inp, parts, tokens, copy, grad.version))


def backward_input(game: Game, layer: int, inp: Value, grad: Value, weight: Value) -> ActivationGrad:
    """The half of backward that the layer before waits for (I, or B in Qi et al. 2024, section 2)."""
    if type(inp) is not Activation or type(grad) is not ActivationGrad or type(weight) is not Weight:
        refuse_kinds(f"backward_input{THREE}", (inp, Activation), (grad, ActivationGrad), (weight, Weight))
    require_usable(game, layer, weight, inp)
    if _embeds(game, layer):
        raise RuleError(f"layer {layer} is an embedding, whose input is token numbers; call backward_weight alone")
    _input_of(layer, inp)
    _belong_together(game, "backward_input", layer, inp, grad)
    parts, tokens = _shares(game, inp, weight)
    same_model(game, inp, grad, weight)
    _require_version_of(grad, weight)
    return _input_grad(inp, parts, tokens, _replica(game, inp, weight, grad), grad.version)


def backward_weight(game: Game, layer: int, inp: Value, grad: Value, weight: Value | None = None) -> WeightGrad:
    """The half of backward that no other layer waits for (W). A layer that can be cut needs its weight here too,
    which says what shard's gradient this is."""
    if type(inp) is not Activation or type(grad) is not ActivationGrad:
        refuse_kinds("backward_weight(layer, inp, grad)", (inp, Activation), (grad, ActivationGrad))
    algebra.number(layer, game.layers, "layer")
    _input_of(layer, inp)
    _belong_together(game, "backward_weight", layer, inp, grad)
    if game.layer == "dense":
        if weight is not None:
            raise RuleError("backward_weight needs no weight here; pass the activation and the gradient")
        same_model(game, inp, grad)
        _require_sum(inp)
        _require_tokens(inp)
        label = layer, inp.layers, inp.batches, inp.total_batches, *WHOLE, inp.step
        return WeightGrad.made(*label, _replica(game, inp, grad, grad), None, grad.version)
    weight = require_kind(weight, Weight, f"the weight, which backward_weight needs where a layer is {game.layer!r},")
    require_usable(game, layer, weight, inp)
    _shares(game, inp, weight)
    same_model(game, inp, grad, weight)
    _require_version_of(grad, weight)
    return _weight_grad(inp, weight, _replica(game, inp, weight, grad), grad.version)


def pair(game: Game, layer: int, back: int, batch: int, *values: Value) -> tuple[Value, ...]:
    """The forward of one microbatch in a layer, and the backward of another one, `batch`, in the layer `back`: what the
    first makes, then what the second makes."""
    inp, weight, *rest = values
    ahead, behind = forward(game, layer, inp, weight), backward(game, back, *rest)
    if len(ahead.batches) > 1 or len(behind[0].batches) > 1:
        raise RuleError(
            f"a pair has one microbatch on each side; these have {batches_text(ahead)}, and {batches_text(behind[0])}"
        )
    if behind[0].batches != {batch}:
        raise RuleError(f"this is the gradient of {batches_text(behind[0])}, not of microbatch {batch}")
    if (ahead.step, ahead.batches) == (behind[0].step, behind[0].batches):
        raise RuleError(f"a forward and the backward of microbatch {batch} cannot run at once")
    return ahead, *behind


# --- What the values must be ---


def require_usable(game: Game, layer: int, weight: Weight, inp: Activation) -> None:
    algebra.number(layer, game.layers, "layer")
    if weight.layer != layer:
        raise RuleError(f"this is the {weight}; pass the weight of layer {layer}")
    if len(weight.shards) < weight.total and game.layer in UNCUT:
        raise RuleError(f"this weight is only {shards_text(weight)}; allgather it first")
    if inp.version is not None or weight.step != inp.step or weight.step >= game.steps:
        if game.lag:
            return _require_version(game, weight, inp)
        if game.task == "outer":
            outer.refuse_step(weight, inp.step)
        if game.steps == 1:
            raise RuleError("this weight was already updated (step 1); use the weight from before the update")
        raise RuleError(
            f"the weight is at step {weight.step}, but the activation is of step {inp.step}; use a weight and "
            "an activation of the same step (get_activation takes a step)"
        )


def _require_version(game: Game, weight: Weight, inp: Activation) -> None:
    """The weight is as old as the game allows, and the one that made the activation, unless that is the model's input
    (Narayanan et al. 2021)."""
    version = inp.step if inp.version is None else inp.version
    if inp.layer and version != weight.step:
        raise RuleError(
            f"this activation was made with version {version}; go on with version {version} in all layers, not "
            f"{weight.step}"
        )
    if weight.step > inp.step:
        raise RuleError(
            f"the weight is of step {weight.step} and the activation of step {inp.step}; a weight cannot be newer than "
            "the data"
        )
    if weight.step < inp.step - game.lag:
        age, least = inp.step - weight.step, inp.step - game.lag
        raise RuleError(f"the weight is {age} steps old, and this game allows {game.lag}; use version {least} or newer")


def _require_version_of(grad: ActivationGrad, weight: Weight) -> None:
    """The weight is the one that the gradient came through."""
    version = grad.step if grad.version is None else grad.version
    if version != weight.step:
        raise RuleError(
            f"this gradient was made with version {version}; go on with version {version} in all layers, not "
            f"{weight.step}"
        )


def _input_of(layer: int, inp: Activation) -> None:
    if inp.layer != layer:
        raise RuleError(f"this is the {inp}; pass the input activation of layer {layer}")


def _belong_together(game: Game, name: str, layer: int, inp: Activation, grad: ActivationGrad) -> None:
    """The gradient is of this layer's output, for the same batches, step and tokens."""
    if grad.layer != layer:
        before = "backward" if name == "backward" else "backward_input"
        maker = "loss" if layer == game.layers - 1 else f"{before}({layer + 1}, ...)"
        raise RuleError(f"this is the {grad}; pass the gradient that {maker} returned")
    if inp.batches is not grad.batches and inp.batches != grad.batches:
        raise RuleError(
            f"the activation covers {batches_text(inp)}, but its gradient covers {batches_text(grad)}; "
            "pass two values with the same batches"
        )
    if inp.step != grad.step:
        raise RuleError(
            f"the activation is of step {inp.step}, but its gradient is of step {grad.step}; "
            "pass two values of the same step"
        )
    if inp.layer and inp.version != grad.version:
        mine, other = (inp.step if one.version is None else one.version for one in (inp, grad))
        raise RuleError(
            f"the activation was made with version {mine} of the weights, but its gradient with version {other}; pass "
            "two values of the same version"
        )
    if grad.of > 1:
        _require_sum(grad)
    if grad.total > 1 or inp.total > 1:
        if game.layer != "experts":
            _require_tokens(grad)
        elif algebra.coarsest(grad.shards, grad.total) != algebra.coarsest(inp.shards, inp.total):
            raise RuleError(
                f"the activation is {tokens_text(inp)}, but its gradient is {tokens_text(grad)}; "
                "pass two values with the same tokens"
            )


def _shares(game: Game, inp: Activation, weight: Weight) -> tuple[Share, Share]:
    """Which summands, and which tokens, a layer yields of the batches that it is given."""
    if game.layer == "attention":
        raise RuleError("a layer of attention is computed in two parts; call keys and attend, or block_forward")
    if weight.own is not None:
        raise RuleError(
            f"this is the {weight}; the replicas of a folded run compute with the same weights: allgather it first"
        )
    if inp.of > 1:
        _require_sum(inp)
    if game.layer == "experts":
        tokens, expert = algebra.coarsest(inp.shards, inp.total), algebra.coarsest(weight.shards, weight.total)
        if tokens != expert:
            raise RuleError(
                f"these tokens are for {expert_text(inp)}, but the weight is {expert_text(weight)}; "
                "dispatch the tokens, and use this rank's own expert"
            )
        if game.ranks % tokens[1]:
            raise RuleError(
                f"{tokens_text(inp)} is for a part of an expert only: there are {game.ranks} experts, one for each "
                f"rank; dispatch to all ranks, or to a group whose size divides {game.ranks}"
            )
        return WHOLE, tokens
    if inp.total > 1:
        _require_tokens(inp)
    if weight.total == 1:
        return WHOLE, WHOLE
    return algebra.coarsest(weight.shards, weight.total), WHOLE


def _require_sum(value: Activation | ActivationGrad) -> None:
    if value.heads is not None:
        raise RuleError(f"these are heads {{{value.heads[0]}}} of {value.heads[1]}; exchange heads for tokens first")
    if len(value.parts) < value.of:
        raise RuleError(f"this is {parts_text(value)}; add the parts first: allreduce or scatterreduce")


def _require_tokens(value: Activation | ActivationGrad) -> None:
    if len(value.shards) < value.total:
        raise RuleError(f"this is only {tokens_text(value)}; allgather them first")


def _replica(game: Game, inp: Activation, *others: Weight | ActivationGrad) -> Copy | None:
    """The replica that values belong to; the model's input belongs to all."""
    if game.task == "outer":
        return outer.replica(game, inp, *others)
    copy = others[0].copy
    for value in (*others[1:], *((inp,) if inp.layer else ())):
        if value.copy is not copy and value.copy != copy:
            raise RuleError(
                f"the {others[0]} and the {value} belong to different replicas; a replica uses its own values "
                "until an allreduce of the weights averages them"
            )
    return copy


def same_model(game: Game, *values: Value) -> None:
    """Refuses values of another model, which were made by hand or by another Dist."""
    for value in values:
        if value.layers != game.layers:
            raise RuleError(f"the {value} belongs to a model with {value.layers} layers; this one has {game.layers}")
        if type(value) in OF_A_STEP and value.total_batches != game.batches and not _of_all(game, value):  # type: ignore[attr-defined]
            raise RuleError(
                f"the {value} belongs to a step with {value.total_batches} batches; this one has {game.batches}"  # type: ignore[attr-defined]
            )


def _of_all(game: Game, value: Value) -> bool:
    """True if a value is a gradient summed over all replicas of a folded run, whose batches are counted in each one, or
    of shares of tokens, which are counted in place of batches."""
    if type(value) is not WeightGrad:
        return False
    replicas = 1 if game.fold is None else game.fold.replicas
    return value.shares == game.shares and value.total_batches * replicas == game.batches * game.shares


def _embeds(game: Game, layer: int) -> bool:
    unequal = game.setting.costs.unequal
    return unequal is not None and unequal.is_kind(layer, EMBEDDING)


# --- What is yielded ---


def _weight_grad(inp: Activation, weight: Weight, copy: Copy | None, version: int | None) -> WeightGrad:
    shards, total = WHOLE if weight.total == 1 else algebra.coarsest(weight.shards, weight.total)
    label = weight.layer, inp.layers, inp.batches, inp.total_batches, shards, total, inp.step, copy
    return WeightGrad.made(*label, None, version)


def _input_grad(inp: Activation, parts: Share, tokens: Share, copy: Copy | None, version: int | None) -> ActivationGrad:
    label = inp.layer - 1, inp.layers, inp.batches, inp.total_batches, inp.step, *parts, *tokens
    return ActivationGrad.made(*label, copy, version)
