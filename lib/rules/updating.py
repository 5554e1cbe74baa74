"""States what updates of weights demand and yield: on the device, and on a memory tier that has a processor."""

from typing import NoReturn

from lib.errors import RuleError
from lib.game.setting import Game
from lib.values.algebra import covers, missing_text, named
from lib.values.arguments import refuse_kinds
from lib.values.base import Value
from lib.values.kinds import OptState, Parked, Weight, WeightGrad
from lib.values.label_text import batches_text, shard_to_update, shards_text
from lib.values.replicas import Copy, averages_of

from . import memory_tiers, outer
from .clipping import require_scale
from .requirements import require_trained, same_model
from .words import SAYS


def update(
    game: Game, layer: int, weight_grad: Value, weight: Value, opt_state: Value, scale: Value | None = None
) -> tuple[Weight, OptState]:
    """The weight and its optimizer state one step later, of the shards that the weight holds; where the game clips
    gradients, with the gradient scaled by the norm of all."""
    if game.task == "infer":
        raise RuleError(SAYS("update while inferring"))
    if type(weight_grad) is not WeightGrad or type(weight) is not Weight or type(opt_state) is not OptState:
        if isinstance(weight, Parked) and memory_tiers.tier(game.setting.costs, weight.tier).update is not None:
            raise RuleError(SAYS("update on the tier", weight=weight, tier=weight.tier))
        call = "update(layer, weight_grad, weight, opt_state)"
        refuse_kinds(call, (weight_grad, WeightGrad), (weight, Weight), (opt_state, OptState))
    require_trained(game, layer)
    if game.setting.whole and not weight.is_complete():
        raise RuleError(SAYS("matrix not whole", weight=weight))
    grad = weight_grad
    for value in (grad, weight, opt_state):
        if value.layer != layer:
            raise RuleError(SAYS("other layer", value=value, call="update", layer=layer))
    if not opt_state.step == grad.step == weight.step < game.steps:
        _refuse_steps(game, grad, weight, opt_state)
    copy = _updated_replica(game, grad, weight, opt_state)
    if not covers(grad.shards, grad.total, weight.shards, weight.total):
        raise RuleError(
            SAYS(
                "gradient of other shards",
                shards=shards_text(grad),
                weight_shards=shards_text(weight),
                advice=shard_to_update(grad, weight, opt_state),
            )
        )
    if not covers(opt_state.shards, opt_state.total, weight.shards, weight.total):
        raise RuleError(SAYS("state of other shards", shards=shards_text(opt_state), weight_shards=shards_text(weight)))
    require_scale(game, grad, scale)
    same_model(game, grad, weight, opt_state)
    label = layer, weight.layers, weight.step + 1, weight.shards, weight.total, copy
    return Weight.made(*label), OptState.made(*label)


def tier_update(
    game: Game, layer: int, to: object, weight_grad: Value, weight: Value, opt_state: Value, *scale: Value
) -> tuple[Parked, Parked]:
    """The same on a tier, where all are parked (Ren et al. 2021, section 4)."""
    if memory_tiers.tier(game.setting.costs, to).update is None:
        raise RuleError(SAYS("tier without update", tier=to))
    there: list[Value] = []
    for value in (weight_grad, weight, opt_state, *scale):
        if not isinstance(value, Parked):
            there_now = f"the {value} is on the device; offload it first"
            raise RuleError(SAYS("not on the tier", tier=to, there_now=there_now))
        if value.tier != to:
            raise RuleError(SAYS("value not on tier", tier=to, value=value))
        there.append(value.value)
    updated = update(game, layer, *there)
    return Parked.made(updated[0], to), Parked.made(updated[1], to)


def _refuse_steps(game: Game, grad: WeightGrad, weight: Weight, opt_state: OptState) -> NoReturn:
    if weight.step >= game.steps and game.steps == 1:
        raise RuleError(SAYS("updated twice"))
    if opt_state.step != weight.step:
        raise RuleError(SAYS("state of another step", step=opt_state.step, weight_step=weight.step))
    if game.task == "outer":
        outer.refuse_step(weight, grad.step)
    if game.lag:
        raise RuleError(SAYS("gradient comes late", step=grad.step, weight_step=weight.step))
    raise RuleError(SAYS("gradient of other weight", step=grad.step, weight_step=weight.step, steps=game.steps))


def _updated_replica(game: Game, grad: WeightGrad, weight: Weight, opt_state: OptState) -> Copy | None:
    """Whose the updated weight is: everybody's after every batch; after some a replica's, if the task has any."""
    if game.task == "outer":
        return outer.updated_copy(grad, weight, opt_state)
    if weight.copy is grad.copy is opt_state.copy is None:
        if len(grad.batches) == grad.total_batches:
            return None
        if game.task == "local" and grad.batches:
            return Copy(weight.step, grad.batches, grad.total_batches)
        if grad.shares > 1:
            raise RuleError(SAYS("shares missing", batches=batches_text(grad)))
        raise RuleError(
            SAYS(
                "batches missing",
                batches=batches_text(grad),
                missing=missing_text("batch", grad.batches, grad.total_batches),
            )
        )
    if grad.copy != weight.copy:
        raise RuleError(SAYS("gradient of another replica", grad=grad, weight=weight))
    mark = weight.copy
    if mark is None or not mark.batches:
        mark = Copy(weight.step, grad.batches, grad.total_batches, averages_of(mark))
        theirs = None if opt_state.copy is None else opt_state.copy.batches
        fits = theirs == mark.batches and averages_of(opt_state.copy) == mark.averages[:-1]
    else:
        fits = opt_state.copy == mark
    if mark.batches != grad.batches:
        raise RuleError(
            SAYS(
                "replica with other batches",
                batches=named("batch", sorted(mark.batches)),
                since=mark.since,
                grad_batches=batches_text(grad),
            )
        )
    if not fits:
        raise RuleError(SAYS("state of another replica", opt_state=opt_state, weight=weight))
    return mark
