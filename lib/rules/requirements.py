"""States what the values must be that a layer computes with: each by itself, and all of them together."""

from lib.errors import RuleError
from lib.game.kinds import EMBEDDING, HEAD
from lib.game.setting import Game
from lib.values import algebra
from lib.values.algebra import counted
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


def require_usable(game: Game, layer: int, weight: Weight, inp: Activation) -> None:
    algebra.number(layer, game.layers, "layer")
    if weight.layer != layer:
        raise RuleError(f"this is the {weight}; pass the weight of layer {layer}")
    if len(weight.shards) < weight.total and game.layer in UNCUT:
        _require_head(game, layer, weight)
    if layer in game.setting.frozen and not weight.step and inp.step < game.steps:
        return
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
        raise RuleError(
            f"the weight is {counted(age, 'step')} old, and this game allows {game.lag}; use version {least} or newer"
        )


def require_version_of(grad: ActivationGrad, weight: Weight) -> None:
    """The weight is the one that the gradient came through."""
    version = grad.step if grad.version is None else grad.version
    if version != weight.step:
        raise RuleError(
            f"this gradient was made with version {version}; go on with version {version} in all layers, not "
            f"{weight.step}"
        )


def require_trained(game: Game, layer: int, inputs: bool = False) -> None:
    """Refuses a weight gradient of a frozen layer, or an input gradient that no trained layer waits for."""
    if frozen := game.setting.frozen:
        if layer in frozen and not inputs:
            raise RuleError(f"layer {layer} is frozen: it has no weight gradient and no update")
        if inputs and layer and layer <= game.first_trained:
            raise RuleError(
                f"no layer below {layer} is trained, so its input needs no gradient; call backward_weight"
                " in the first trained layer, and nothing below it"
            )


def require_input(layer: int, inp: Activation) -> None:
    if inp.layer != layer:
        raise RuleError(f"this is the {inp}; pass the input activation of layer {layer}")


def require_together(game: Game, name: str, layer: int, inp: Activation, grad: ActivationGrad) -> None:
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
        inp_version, grad_version = (inp.step if value.version is None else value.version for value in (inp, grad))
        raise RuleError(
            f"the activation was made with version {inp_version} of the weights, but its gradient with version "
            f"{grad_version}; pass two values of the same version"
        )
    if grad.of > 1:
        require_sum(grad)
    if (grad.total > 1 and not grad.vocabulary) or inp.total > 1:
        if game.layer != "experts":
            require_tokens(grad)
        elif algebra.coarsest(grad.shards, grad.total) != algebra.coarsest(inp.shards, inp.total):
            raise RuleError(
                f"the activation is {tokens_text(inp)}, but its gradient is {tokens_text(grad)}; "
                "pass two values with the same tokens"
            )


def shares_of(game: Game, inp: Activation, weight: Weight) -> tuple[Share, Share]:
    """Which summands, and which tokens, a layer yields of the batches that it is given."""
    if game.layer == "attention":
        raise RuleError("a layer of attention is computed in two parts; call keys and attend, or block_forward")
    if inp.of > 1:
        require_sum(inp)
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
        require_tokens(inp)
    if weight.total == 1:
        return WHOLE, WHOLE
    return algebra.coarsest(weight.shards, weight.total), WHOLE


def require_sum(value: Activation | ActivationGrad) -> None:
    if value.heads is not None:
        raise RuleError(f"these are heads {{{value.heads[0]}}} of {value.heads[1]}; exchange heads for tokens first")
    if len(value.parts) < value.of:
        raise RuleError(f"this is {parts_text(value)}; add the parts first: allreduce or scatterreduce")


def require_tokens(value: Activation | ActivationGrad) -> None:
    if len(value.shards) < value.total:
        raise RuleError(f"this is only {tokens_text(value)}; allgather them first")


def replica_of(game: Game, inp: Activation, *others: Weight | ActivationGrad) -> Copy | None:
    """The replica that values belong to; the model's input belongs to all."""
    if game.task == "outer":
        return outer.replica(inp, *others)
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
            model = f"a model with {counted(value.layers, 'layer')}"
            raise RuleError(f"the {value} belongs to {model}; this one has {game.layers}")
        if type(value) in OF_A_STEP and value.total_batches != game.batches and not _counts_shares(game, value):  # type: ignore[attr-defined]
            step = f"a step with {counted(value.total_batches, 'batch')}"  # type: ignore[attr-defined]
            raise RuleError(f"the {value} belongs to {step}; this one has {game.batches}")


def _counts_shares(game: Game, value: Value) -> bool:
    """True if a value is a gradient of shares of tokens, which are counted in place of batches."""
    if type(value) is not WeightGrad:
        return False
    return value.shares == game.shares and value.total_batches == game.batches * game.shares


def embeds(game: Game, layer: int) -> bool:
    unequal = game.setting.costs.unequal
    return unequal is not None and unequal.is_kind(layer, EMBEDDING)


# --- A head that is cut by vocabulary ---


def _require_head(game: Game, layer: int, weight: Weight) -> None:
    """The layer whose weight is cut is a head, and backward comes in two halves."""
    costs = game.setting.costs
    if costs.unequal is None or not costs.unequal.is_kind(layer, HEAD):
        raise RuleError(f"this weight is only {shards_text(weight)}; allgather it first")
    if not (costs.priced("backward_input") and costs.priced("backward_weight")):
        raise RuleError(
            f"this weight is only {shards_text(weight)}, and a cut head needs backward in two halves, which the costs "
            f"{costs.name!r} do not price; allgather it first"
        )


def require_vocabulary(grad: ActivationGrad, weight: Weight) -> None:
    """The gradient is of the scores that these shards of a head have made."""
    if algebra.coarsest(grad.shards, grad.total) != algebra.coarsest(weight.shards, weight.total):
        scores = tokens_text(grad) if grad.total > 1 else "the full vocabulary"
        raise RuleError(f"these are scores of {scores}, and the weight is {shards_text(weight)}; use the same shards")


def known_vocabulary(game: Game, inp: Activation, grad: ActivationGrad, total: Value | None) -> Share:
    """The shards whose weight gradient can be made, if `total` has what they need to know of the others."""
    if grad.total == 1:
        if total is not None:
            raise RuleError("total is for a head that is cut by vocabulary; leave it out here")
        return WHOLE
    if total is None:
        raise RuleError(
            f"this gradient knows only {tokens_text(grad)}; all-reduce what backward_input returned, and pass the sum "
            "as total="
        )
    total = require_kind(total, ActivationGrad, "total")
    same = [(value.batches, value.step, value.version) for value in (grad, total)]
    if not total.vocabulary or total.layer != inp.layer - 1 or same[0] != same[1]:
        raise RuleError(
            f"total is the {total}; pass the sum of what backward_input({inp.layer}, ...) returned for "
            f"{batches_text(inp)}"
        )
    require_sum(total)
    replica_of(game, inp, grad, total)
    return grad.shards, grad.total
