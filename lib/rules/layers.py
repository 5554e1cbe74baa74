"""States what computing a layer requires and returns: forward, loss, and backward, full or in two halves.

A weight may be cut. A block's shards each yield one summand of its output, since its second matrix is cut by rows
(Shoeybi et al. 2019, section 3); an expert is a shard, and takes its own tokens (Lepikhin et al. 2020, section 3.2).
A head is cut by vocabulary: its shards make scores, and with the gradients of all of them joined each knows its own
(Yeung et al. 2024, algorithm 2). What is computed with a replica's own weights is marked as that replica's.
"""

from lib.errors import RuleError
from lib.game.setting import Game
from lib.values import algebra
from lib.values.arguments import refuse_kinds
from lib.values.base import Value, require_kind
from lib.values.kinds import Activation, ActivationGrad, Weight, WeightGrad
from lib.values.label_text import batches_text, shards_text
from lib.values.replicas import Copy

from .requirements import (
    WHOLE,
    Share,
    embeds,
    known_vocabulary,
    replica_of,
    require_input,
    require_sum,
    require_together,
    require_tokens,
    require_trained,
    require_usable,
    require_version_of,
    require_vocabulary,
    same_model,
    shares_of,
)
from .words import SAYS

THREE = "(layer, inp, grad, weight)"
"""The arguments of a full backward, and of its half that makes the input gradient."""


def forward(game: Game, layer: int, inp: Value, weight: Value) -> Activation:
    """The next layer's input, relu(inp @ weight) of a dense layer."""
    if type(inp) is not Activation or type(weight) is not Weight:
        refuse_kinds("forward(layer, inp, weight)", (inp, Activation), (weight, Weight))
    require_usable(game, layer, weight, inp)
    require_input(layer, inp)
    version = None if weight.step == inp.step or layer in game.setting.frozen else weight.step
    usual = version is None and weight.copy is inp.copy is None
    cut = game.layer == "dense" and len(weight.shards) < weight.total
    if usual and game.layer == "dense" and inp.of == inp.total == 1 and not cut:
        same_model(game, inp, weight)  # most of all forwards, and all of the classic ones
        return Activation.made(
            layer=layer + 1, layers=inp.layers, batches=inp.batches, total_batches=inp.total_batches, step=inp.step
        )
    parts, shares = shares_of(game, inp, weight)
    if cut:
        parts, shares = WHOLE, parts
    same_model(game, inp, weight)
    return Activation.made(
        layer=layer + 1,
        layers=inp.layers,
        batches=inp.batches,
        total_batches=inp.total_batches,
        step=inp.step,
        parts=parts[0],
        of=parts[1],
        shards=shares[0],
        total=shares[1],
        copy=replica_of(game, inp, weight),
        version=version,
        vocabulary=cut,
    )


def loss(game: Game, inp: Value) -> ActivationGrad:
    """The gradient of the loss with respect to the last layer's output; of some tokens or scores for these
    only."""
    inp = require_kind(inp, Activation, "inp")
    if inp.layer != inp.layers:
        raise RuleError(SAYS("loss too early", inp=inp))
    require_sum(inp)
    same_model(game, inp)
    return ActivationGrad.made(
        layer=inp.layers - 1,
        layers=inp.layers,
        batches=inp.batches,
        total_batches=inp.total_batches,
        step=inp.step,
        shards=inp.shards,
        total=inp.total,
        copy=inp.copy,
        version=inp.version,
        vocabulary=inp.vocabulary,
    )


def backward(
    game: Game, layer: int, inp: Value, grad: Value, weight: Value
) -> tuple[WeightGrad, ActivationGrad] | tuple[WeightGrad]:
    """The layer's weight gradient, and the activation gradient for the layer before it; of an embedding only the
    first, since token numbers have no gradient."""
    if type(inp) is not Activation or type(grad) is not ActivationGrad or type(weight) is not Weight:
        refuse_kinds(f"backward{THREE}", (inp, Activation), (grad, ActivationGrad), (weight, Weight))
    require_usable(game, layer, weight, inp)
    require_trained(game, layer)
    require_trained(game, layer, inputs=True)
    require_input(layer, inp)
    if len(weight.shards) < weight.total and game.layer == "dense":
        raise RuleError(SAYS("no total for shards", shards=shards_text(weight)))
    require_together(game, "backward", layer, inp, grad)
    if grad.vocabulary:
        require_vocabulary(grad, weight)
    whole = game.layer == "dense" and inp.of == inp.total == 1
    parts, tokens = (WHOLE, WHOLE) if whole else shares_of(game, inp, weight)
    same_model(game, inp, grad, weight)
    copy = None if weight.copy is grad.copy is inp.copy is None else replica_of(game, inp, weight, grad)
    if grad.version is not None or weight.step != inp.step:
        require_version_of(grad, weight)
    weight_grad = _weight_grad(inp, weight, copy, grad.version)
    return (weight_grad,) if embeds(game, layer) else (weight_grad, _input_grad(inp, parts, tokens, copy, grad.version))


def backward_input(game: Game, layer: int, inp: Value, grad: Value, weight: Value) -> ActivationGrad:
    """The half of backward that the layer before waits for (I, or B in Qi et al. 2024, section 2)."""
    if type(inp) is not Activation or type(grad) is not ActivationGrad or type(weight) is not Weight:
        refuse_kinds(f"backward_input{THREE}", (inp, Activation), (grad, ActivationGrad), (weight, Weight))
    require_usable(game, layer, weight, inp)
    if embeds(game, layer):
        raise RuleError(SAYS("embedding has no input", layer=layer))
    if not grad.vocabulary:  # the weight half of a cut head needs the sum of these
        require_trained(game, layer, inputs=True)
    require_input(layer, inp)
    require_together(game, "backward_input", layer, inp, grad)
    parts, tokens = shares_of(game, inp, weight)
    cut = game.layer == "dense" and parts != WHOLE
    if cut or grad.vocabulary:
        require_vocabulary(grad, weight)
    same_model(game, inp, grad, weight)
    if layer not in game.setting.frozen:
        require_version_of(grad, weight)
    return _input_grad(inp, parts, tokens, replica_of(game, inp, weight, grad), grad.version, cut)


def backward_weight(game: Game, layer: int, inp: Value, grad: Value, more: Value | None = None) -> WeightGrad:
    """The half of backward that no other layer waits for (W). A layer that can be cut needs its weight here too,
    which says what shard's gradient this is; a cut head the input gradient of the full vocabulary."""
    if type(inp) is not Activation or type(grad) is not ActivationGrad:
        refuse_kinds("backward_weight(layer, inp, grad)", (inp, Activation), (grad, ActivationGrad))
    algebra.number(layer, game.layers, "layer")
    require_trained(game, layer)
    require_input(layer, inp)
    require_together(game, "backward_weight", layer, inp, grad)
    if game.layer == "dense":
        if type(more) is Weight:
            raise RuleError(SAYS("weight not needed"))
        same_model(game, inp, grad)
        require_sum(inp)
        require_tokens(inp)
        shards, total = known_vocabulary(game, inp, grad, more)
        return WeightGrad.made(
            layer=layer,
            layers=inp.layers,
            batches=inp.batches,
            total_batches=inp.total_batches,
            step=inp.step,
            shards=shards,
            total=total,
            copy=replica_of(game, inp, grad, grad),
            version=grad.version,
        )
    weight = require_kind(more, Weight, f"the weight, which backward_weight needs where a layer is {game.layer!r},")
    require_usable(game, layer, weight, inp)
    shares_of(game, inp, weight)
    same_model(game, inp, grad, weight)
    require_version_of(grad, weight)
    return _weight_grad(inp, weight, replica_of(game, inp, weight, grad), grad.version)


def pair(game: Game, layer: int, back: int, batch: int, *values: Value) -> tuple[Value, ...]:
    """The forward of one microbatch in a layer, and the backward of another one, `batch`, in the layer `back`: what the
    first makes, then what the second makes."""
    inp, weight, *rest = values
    ahead, behind = forward(game, layer, inp, weight), backward(game, back, *rest)
    if len(ahead.batches) > 1 or len(behind[0].batches) > 1:
        raise RuleError(SAYS("pair of several batches", batches=batches_text(ahead), behind=batches_text(behind[0])))
    if behind[0].batches != {batch}:
        raise RuleError(SAYS("pair of another batch", batches=batches_text(behind[0]), batch=batch))
    if (ahead.step, ahead.batches) == (behind[0].step, behind[0].batches):
        raise RuleError(SAYS("pair of one batch", batch=batch))
    return ahead, *behind


# --- What is yielded ---


def _weight_grad(inp: Activation, weight: Weight, copy: Copy | None, version: int | None) -> WeightGrad:
    shards, total = WHOLE if weight.total == 1 else algebra.coarsest(weight.shards, weight.total)
    return WeightGrad.made(
        layer=weight.layer,
        layers=inp.layers,
        batches=inp.batches,
        total_batches=inp.total_batches,
        step=inp.step,
        shards=shards,
        total=total,
        copy=copy,
        version=version,
    )


def _input_grad(
    inp: Activation, parts: Share, tokens: Share, copy: Copy | None, version: int | None, cut: bool = False
) -> ActivationGrad:
    return ActivationGrad.made(
        layer=inp.layer - 1,
        layers=inp.layers,
        batches=inp.batches,
        total_batches=inp.total_batches,
        step=inp.step,
        parts=parts[0],
        of=parts[1],
        shards=tokens[0],
        total=tokens[1],
        copy=copy,
        version=version,
        vocabulary=cut,
    )
