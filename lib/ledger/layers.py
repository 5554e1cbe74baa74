"""States what computing a layer requires and returns: forward, loss, and backward, full or in two halves.

A weight may be cut. A block's shards each yield one summand of its output, since its second matrix is cut by rows
(Shoeybi et al. 2019, section 3); an expert is a shard, and takes its own tokens (Lepikhin et al. 2020, section 3.2).
A head is cut by vocabulary: its shards make scores, and with the gradients of all of them joined each knows its own
(Yeung et al. 2024, algorithm 2). What is computed with a replica's own weights is marked as that replica's.

One rule serves all kinds of layers, because they differ in which cuts they allow, not in what an operation is. Only
attention has rules of its own, in `attention`: its sums run over keys.
"""

from lib.errors import RuleError, Sentences
from lib.ledger import algebra
from lib.ledger.algebra import Copy, batches_text, counted, expert_text, parts_text, shards_text, shared, tokens_text
from lib.ledger.costs import EMBEDDING, HEAD
from lib.ledger.setting import Game
from lib.ledger.values import (
    Activation,
    ActivationGrad,
    KeyValue,
    KeyValueGrad,
    Value,
    Weight,
    WeightGrad,
    refuse_kinds,
    require_kind,
)

# --- What the values must be: each by itself, and all of them together ---

Share = tuple[frozenset[int], int]
"""Shards or parts, and of how many."""

WHOLE: Share = (frozenset((0,)), 1)

UNCUT = frozenset(("dense", "attention"))
"""The kinds of layers that take full weights only."""

OF_A_STEP = frozenset((Activation, ActivationGrad, WeightGrad, KeyValue, KeyValueGrad))
"""The kinds of values that name batches, and of how many in a step."""


def require_layers(game: Game, call: str, kind: str) -> None:
    """Refuses a call that is for layers of another kind."""
    if game.layer != kind:
        raise RuleError(SAYS("other kind of layers", call=call, kind=kind, layers=game.layer))


def require_usable(game: Game, layer: int, weight: Weight, inp: Activation) -> None:
    algebra.number(layer, game.layers, "layer")
    if weight.layer != layer:
        require_weight_of(layer, weight)
    if len(weight.shards) < weight.total and game.layer in UNCUT:
        _require_head(game, layer, weight)
    if layer in game.setting.frozen and not weight.step and inp.step < game.steps:
        return
    if inp.version is not None or weight.step != inp.step or weight.step >= game.steps:
        if game.lag:
            return _require_version(game, weight, inp)
        if game.task == "outer":
            refuse_step(weight, inp.step)
        if game.steps == 1:
            raise RuleError(SAYS("weight already used"))
        raise RuleError(SAYS("steps differ", step=weight.step, inp_step=inp.step))


def _require_version(game: Game, weight: Weight, inp: Activation) -> None:
    """The weight is as old as the game allows, and the one that made the activation, unless that is the model's input
    (Narayanan et al. 2021)."""
    version = inp.step if inp.version is None else inp.version
    if inp.layer and version != weight.step:
        raise RuleError(SAYS("other version", what="activation", version=version, step=weight.step))
    if weight.step > inp.step:
        raise RuleError(SAYS("weight too new", step=weight.step, inp_step=inp.step))
    if weight.step < inp.step - game.lag:
        age, least = inp.step - weight.step, inp.step - game.lag
        raise RuleError(SAYS("weight too old", age=counted(age, "step"), lag=game.lag, least=least))


def require_version_of(grad: ActivationGrad, weight: Weight) -> None:
    """The weight is the one that the gradient came through."""
    version = grad.step if grad.version is None else grad.version
    if version != weight.step:
        raise RuleError(SAYS("other version", what="gradient", version=version, step=weight.step))


def require_trained(game: Game, layer: int, inputs: bool = False) -> None:
    """Refuses a weight gradient of a frozen layer, or an input gradient that no trained layer waits for."""
    if frozen := game.setting.frozen:
        if layer in frozen and not inputs:
            raise RuleError(SAYS("frozen layer", layer=layer))
        if inputs and layer and layer <= game.first_trained:
            raise RuleError(SAYS("input needs no gradient", layer=layer))


def require_weight_of(layer: int, weight: Weight) -> None:
    if weight.layer != layer:
        raise RuleError(SAYS("other weight", weight=weight, layer=layer))


def require_input(layer: int, inp: Activation) -> None:
    if inp.layer != layer:
        raise RuleError(SAYS("other input", inp=inp, layer=layer))


def require_together(game: Game, name: str, layer: int, inp: Activation, grad: ActivationGrad) -> None:
    """The gradient is of this layer's output, for the same batches, step and tokens."""
    if grad.layer != layer:
        before = "backward" if name == "backward" else "backward_input"
        maker = "loss" if layer == game.layers - 1 else f"{before}({layer + 1}, ...)"
        raise RuleError(SAYS("other gradient", grad=grad, maker=maker))
    if inp.batches is not grad.batches and inp.batches != grad.batches:
        raise RuleError(SAYS("batches differ", batches=batches_text(inp), grad_batches=batches_text(grad)))
    if inp.step != grad.step:
        raise RuleError(SAYS("gradient of another step", step=inp.step, grad_step=grad.step))
    if inp.layer and inp.version != grad.version:
        inp_version, grad_version = (inp.step if value.version is None else value.version for value in (inp, grad))
        raise RuleError(SAYS("versions differ", inp_version=inp_version, grad_version=grad_version))
    if grad.of > 1:
        require_sum(grad)
    if (grad.total > 1 and not grad.vocabulary) or inp.total > 1:
        if game.layer != "experts":
            require_tokens(grad)
        elif algebra.coarsest(grad.shards, grad.total) != algebra.coarsest(inp.shards, inp.total):
            raise RuleError(SAYS("tokens differ", tokens=tokens_text(inp), grad_tokens=tokens_text(grad)))


def shares_of(game: Game, inp: Activation, weight: Weight) -> tuple[Share, Share]:
    """Which summands, and which tokens, a layer yields of the batches that it is given."""
    if game.layer == "attention":
        raise RuleError(SAYS("attention in two parts"))
    if inp.of > 1:
        require_sum(inp)
    if game.layer == "experts":
        tokens, expert = algebra.coarsest(inp.shards, inp.total), algebra.coarsest(weight.shards, weight.total)
        if tokens != expert:
            raise RuleError(SAYS("tokens of another expert", tokens=expert_text(inp), weight=expert_text(weight)))
        if game.ranks % tokens[1]:
            raise RuleError(SAYS("part of an expert", tokens=tokens_text(inp), ranks=game.ranks))
        return WHOLE, tokens
    if inp.total > 1:
        require_tokens(inp)
    if weight.total == 1:
        return WHOLE, WHOLE
    return algebra.coarsest(weight.shards, weight.total), WHOLE


def require_sum(value: Activation | ActivationGrad) -> None:
    if value.heads is not None:
        raise RuleError(SAYS("heads not exchanged", heads=value.heads[0], of=value.heads[1]))
    if len(value.parts) < value.of:
        raise RuleError(SAYS("parts not added", parts=parts_text(value)))


def require_tokens(value: Activation | ActivationGrad) -> None:
    if len(value.shards) < value.total:
        raise RuleError(SAYS("tokens not gathered", tokens=tokens_text(value)))


def replica_of(game: Game, inp: Activation, *others: Weight | ActivationGrad) -> Copy | None:
    """The replica that values belong to; the model's input belongs to all."""
    if game.task == "outer":
        return replica(inp, *others)
    copy = others[0].copy
    for value in (*others[1:], *((inp,) if inp.layer else ())):
        if value.copy is not copy and value.copy != copy:
            raise RuleError(SAYS("replicas mixed", first=others[0], value=value))
    return copy


def same_model(game: Game, *values: Value) -> None:
    """Refuses values of another model, which were made by hand or by another Dist."""
    for value in values:
        if value.layers != game.layers:
            model = f"a model with {counted(value.layers, 'layer')}"
            raise RuleError(SAYS("other model", value=value, model=model, layers=game.layers))
        if type(value) in OF_A_STEP and value.total_batches != game.batches and not _counts_shares(game, value):  # type: ignore[attr-defined]
            step = f"a step with {counted(value.total_batches, 'batch')}"  # type: ignore[attr-defined]
            raise RuleError(SAYS("other number of batches", value=value, step=step, batches=game.batches))


def _counts_shares(game: Game, value: Value) -> bool:
    """True if a value is a gradient of shares of tokens, which are counted in place of batches."""
    if type(value) is not WeightGrad:
        return False
    return value.shares == game.shares and value.total_batches == game.batches * game.shares


def replica(*values: Weight | Activation | ActivationGrad) -> Copy | None:
    """The replica of values that compute together: that of the copies among them; None if all weights were agreed."""
    common: Copy | None = None
    for value in values:
        mark = value.copy
        if mark is None or not mark.batches:
            continue
        if common is not None and common.batches != mark.batches:
            raise RuleError(SAYS("copies of different replicas", other=values[-1], value=value))
        common = Copy(0, mark.batches, mark.of)
    return common


def refuse_step(weight: Weight, step: int) -> None:
    """Refuses an agreed weight that is older than what it should compute with."""
    if shared(weight.copy) and weight.step < step:
        raise RuleError(SAYS("not merged", step=weight.step, copy_step=step))


def embeds(game: Game, layer: int) -> bool:
    unequal = game.setting.costs.unequal
    return unequal is not None and unequal.is_kind(layer, EMBEDDING)


# --- A head that is cut by vocabulary ---


def _require_head(game: Game, layer: int, weight: Weight) -> None:
    """The layer whose weight is cut is a head, and backward comes in two halves."""
    costs = game.setting.costs
    if costs.unequal is None or not costs.unequal.is_kind(layer, HEAD):
        raise RuleError(SAYS("weight not gathered", shards=shards_text(weight)))
    if not (costs.priced("backward_input") and costs.priced("backward_weight")):
        raise RuleError(SAYS("cut head not priced", shards=shards_text(weight), costs=costs.name))


def require_vocabulary(grad: ActivationGrad, weight: Weight) -> None:
    """The gradient is of the scores that these shards of a head have made."""
    if algebra.coarsest(grad.shards, grad.total) != algebra.coarsest(weight.shards, weight.total):
        scores = tokens_text(grad) if grad.total > 1 else "the full vocabulary"
        raise RuleError(SAYS("vocabulary differs", scores=scores, shards=shards_text(weight)))


def known_vocabulary(game: Game, inp: Activation, grad: ActivationGrad, total: Value | None) -> Share:
    """The shards whose weight gradient can be made, if `total` has what they need to know of the others."""
    if grad.total == 1:
        if total is not None:
            raise RuleError(SAYS("total not needed"))
        return WHOLE
    if total is None:
        raise RuleError(SAYS("no total for scores", tokens=tokens_text(grad)))
    total = require_kind(total, ActivationGrad, "total")
    same = [(value.batches, value.step, value.version) for value in (grad, total)]
    if not total.vocabulary or total.layer != inp.layer - 1 or same[0] != same[1]:
        raise RuleError(SAYS("other total", total=total, layer=inp.layer, batches=batches_text(inp)))
    require_sum(total)
    replica_of(game, inp, grad, total)
    return grad.shards, grad.total


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
    copy = replica_of(game, inp, weight)
    cuts = {"parts": parts[0], "of": parts[1], "shards": shares[0], "total": shares[1], "vocabulary": cut}
    return inp.to(Activation, layer + 1, **cuts, copy=copy, version=version)


def loss(game: Game, inp: Value) -> ActivationGrad:
    """The gradient of the loss with respect to the last layer's output; of some tokens or scores for these
    only."""
    inp = require_kind(inp, Activation, "inp")
    if inp.layer != inp.layers:
        raise RuleError(SAYS("loss too early", inp=inp))
    require_sum(inp)
    same_model(game, inp)
    cuts = {"shards": inp.shards, "total": inp.total, "vocabulary": inp.vocabulary}
    return inp.to(ActivationGrad, inp.layers - 1, **cuts, copy=inp.copy, version=inp.version)


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
        copy = replica_of(game, inp, grad, grad)
        return inp.to(WeightGrad, layer, shards=shards, total=total, copy=copy, version=grad.version)
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
    return inp.to(WeightGrad, weight.layer, shards=shards, total=total, copy=copy, version=version)


def _input_grad(
    inp: Activation, parts: Share, tokens: Share, copy: Copy | None, version: int | None, cut: bool = False
) -> ActivationGrad:
    if parts is WHOLE is tokens and not cut:  # most of all backwards
        return inp.to(ActivationGrad, inp.layer - 1, copy=copy, version=version)
    cuts = {"parts": parts[0], "of": parts[1], "shards": tokens[0], "total": tokens[1], "vocabulary": cut}
    return inp.to(ActivationGrad, inp.layer - 1, **cuts, copy=copy, version=version)


SAYS = Sentences(
    {
        "copies of different replicas": "the {other} and the {value} belong to different replicas; a replica uses its own copies",
        "not merged": "the agreed weight is of step {step} and the copy of step {copy_step}; merge them",
        "other kind of layers": "{call} is for layers of {kind}; the layers of this game are {layers!r}",
        "weight already used": "this weight was already updated (step 1); use the weight from before the update",
        "steps differ": "the weight is at step {step}, but the activation is of step {inp_step}; use a weight and an activation of the same step (get_activation takes a step)",
        "other version": "this {what} was made with version {version}; go on with version {version} in all layers, not {step}",
        "weight too new": "the weight is of step {step} and the activation of step {inp_step}; a weight cannot be newer than the data",
        "weight too old": "the weight is {age} old, and this game allows {lag}; use version {least} or newer",
        "frozen layer": "layer {layer} is frozen: it has no weight gradient and no update",
        "input needs no gradient": "no layer below {layer} is trained, so its input needs no gradient; call backward_weight in the first trained layer, and nothing below it",
        "other weight": "this is the {weight}; pass the weight of layer {layer}",
        "other input": "this is the {inp}; pass the input activation of layer {layer}",
        "other gradient": "this is the {grad}; pass the gradient that {maker} returned",
        "batches differ": "the activation covers {batches}, but its gradient covers {grad_batches}; pass two values with the same batches",
        "gradient of another step": "the activation is of step {step}, but its gradient is of step {grad_step}; pass two values of the same step",
        "versions differ": "the activation was made with version {inp_version} of the weights, but its gradient with version {grad_version}; pass two values of the same version",
        "tokens differ": "the activation is {tokens}, but its gradient is {grad_tokens}; pass two values with the same tokens",
        "attention in two parts": "a layer of attention is computed in two parts; call keys and attend, or block_forward",
        "tokens of another expert": "these tokens are for {tokens}, but the weight is {weight}; dispatch the tokens, and use this rank's own expert",
        "part of an expert": "{tokens} is for a part of an expert only: there are {ranks} experts, one for each rank; dispatch to all ranks, or to a group whose size divides {ranks}",
        "heads not exchanged": "these are heads {{{heads}}} of {of}; exchange heads for tokens first",
        "parts not added": "this is {parts}; add the parts first: allreduce or scatterreduce",
        "tokens not gathered": "this is only {tokens}; allgather them first",
        "replicas mixed": "the {first} and the {value} belong to different replicas; a replica uses its own values until an allreduce of the weights averages them",
        "other model": "the {value} belongs to {model}; this one has {layers}",
        "other number of batches": "the {value} belongs to {step}; this one has {batches}",
        "weight not gathered": "this weight is only {shards}; allgather it first",
        "cut head not priced": "this weight is only {shards}, and a cut head needs backward in two halves, which the costs {costs!r} do not price; allgather it first",
        "vocabulary differs": "these are scores of {scores}, and the weight is {shards}; use the same shards",
        "total not needed": "total is for a head that is cut by vocabulary; leave it out here",
        "no total for scores": "this gradient knows only {tokens}; all-reduce what backward_input returned, and pass the sum as total=",
        "other total": "total is the {total}; pass the sum of what backward_input({layer}, ...) returned for {batches}",
        "loss too early": "loss needs the output of the last layer, and this is the {inp}; call forward first",
        "no total for shards": "this weight is {shards}; call backward_input, all-reduce its result, and pass the sum to backward_weight as total=",
        "embedding has no input": "layer {layer} is an embedding, whose input is token numbers; call backward_weight alone",
        "weight not needed": "backward_weight needs no weight here; pass the activation and the gradient",
        "pair of several batches": "a pair has one microbatch on each side; these have {batches}, and {behind}",
        "pair of another batch": "this is the gradient of {batches}, not of microbatch {batch}",
        "pair of one batch": "a forward and the backward of microbatch {batch} cannot run at once",
    }
)
