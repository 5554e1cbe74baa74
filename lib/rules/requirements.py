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
from .words import SAYS

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
        raise RuleError(SAYS("other weight", weight=weight, layer=layer))
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
        return outer.replica(inp, *others)
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
