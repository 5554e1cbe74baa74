"""States how weights change, where they may wait, and what must be there at the end.

An update takes a gradient of all batches, or a replica's own. Whatever varies it is a requirement of the same rule: a
memory tier that has a processor, clipping, outer steps. An update for each would repeat what all have in common.

This module decides which gradients, weights and states belong together. How a gradient is made is decided by `layers`
and `attention`, and how it is summed by `collectives`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from lib.errors import IncompleteError, RuleError, Sentences
from lib.ledger import algebra
from lib.ledger.algebra import Copy, averages_of, batches_text, shards_text, shared
from lib.ledger.costs import ON_TIER, Costs, Tier
from lib.ledger.setting import Game
from lib.ledger.values import (
    Activation,
    Delta,
    OptState,
    OuterState,
    Parked,
    Scalar,
    Value,
    Weight,
    WeightGrad,
    object_text,
    refuse_kinds,
    require_kind,
)

from .layers import refuse_step, require_trained, same_model

# --- Memory tiers: offload, fetch, move, and weights loaded there ---
#
# A parked value is a copy on a tier, such as the host's memory. It weighs nothing on the device (Rhu et al. 2016,
# section 3; Ren et al. 2021, section 3).


def offload(game: Game, value: Value, to: object) -> Parked:
    """A copy of a value on a tier."""
    tier(game.setting.costs, to)
    if isinstance(value, Parked):
        raise RuleError(SAYS("parked already", value=value))
    return Parked.made(value.copied(), to)


def fetch(game: Game, parked: Value) -> Value:
    """A copy of a parked value on the device."""
    return require_kind(parked, Parked, "the value to fetch").value.copied()


def move(game: Game, parked: Value, to: object) -> Parked:
    """A copy of a parked value on another tier."""
    tier(game.setting.costs, to)
    source = require_kind(parked, Parked, "the value to move")
    if source.tier == to:
        raise RuleError(SAYS("moved already", value=source))
    return Parked.made(source.value.copied(), to)


def parked_weights(game: Game, values: Iterable[Value], to: object) -> tuple[Parked, ...]:
    """A weight and its states, on a tier instead of the device."""
    tier(game.setting.costs, to)
    return tuple(Parked.made(value, to) for value in values)


def tier(costs: Costs, name: object) -> Tier:
    """A tier by its name."""
    if not isinstance(name, str) or name not in costs.tiers:
        known = ", ".join(costs.tiers) or "none"
        raise RuleError(SAYS("no such tier", tier=name, costs=costs.name, known=known))
    return costs.tiers[name]


def require_room(costs: Costs, stored: Iterable[Parked], new: Sequence[Value]) -> None:
    """Refuses to park more on a tier than fits next to what `stored` has in `model.parked`."""
    parked = [value for value in new if isinstance(value, Parked)]
    if not parked:
        return
    name = parked[0].tier
    capacity = tier(costs, name).capacity
    if capacity is None:
        return
    there = sum(value.size(costs) for value in stored if value.tier == name)
    more = sum(value.size(costs) for value in parked)
    if there + more > capacity:
        raise RuleError(SAYS("tier full", tier=name, there=there, capacity=capacity, more=more))


def tier_ticks(costs: Costs, operation: str, results: Sequence[Value], used: Sequence[Value]) -> int:
    """How long an operation on a tier takes. A move takes a fetch from one tier and an offload to the other."""
    if operation == "move":
        return tier_ticks(costs, "fetch", (), used) + tier_ticks(costs, "offload", results, ())
    parked = results[0] if operation == "offload" else used[0]
    assert isinstance(parked, Parked)
    price = getattr(tier(costs, parked.tier), ON_TIER[operation])
    if price is None:
        raise costs.unpriced(f"{operation} for the tier {parked.tier!r}")
    return int(price) + costs.by_size(operation, 1, parked.size(costs))


# --- Clipping by the global norm: the norm of every layer's gradient before the first update ---
#
# The squares of all gradients of a step are added up, and each update scales its gradient by the root of their sum
# (Pascanu et al. 2013, section 3.2; torch.nn.utils.clip_grad_norm_).


def norm(game: Game, layer: int, grad: Value) -> Scalar:
    """The sum of the squares of a layer's gradient, or of the shards of it that there are."""
    _require_clip(game, "norm")
    grad = require_kind(grad, WeightGrad, "grad")
    if grad.layer != layer:
        raise RuleError(SAYS("norm of another layer", grad=grad, layer=layer))
    if len(grad.batches) < grad.total_batches:
        missing = algebra.missing_text("batch", grad.batches, grad.total_batches)
        more = "the others" if grad.shares > 1 else missing
        raise RuleError(SAYS("norm of some batches", batches=batches_text(grad), missing=more))
    n = grad.total
    return Scalar.made(
        grad.layers, grad.step, frozenset(layer * n + i for i in grad.shards), grad.layers * n, grad.version
    )


def require_scale(game: Game, grad: WeightGrad, scale: Value | None) -> None:
    """An update scales its gradient by the norm of all gradients of its step, where the game clips, and only there."""
    if scale is None:
        if game.setting.clip:
            raise RuleError(SAYS("no scale"))
        return
    _require_clip(game, "scale=")
    if type(scale) is not Scalar:
        raise RuleError(SAYS("scale no norm", scale=object_text(scale)))
    if (scale.step, scale.version) != (grad.step, grad.version):
        raise RuleError(SAYS("norm of another step", scale=scale, grad=grad))
    if not scale.is_complete():
        raise RuleError(SAYS("partial norm", norm=algebra.norm_text(scale)))


def _require_clip(game: Game, call: str) -> None:
    if not game.setting.clip:
        raise RuleError(SAYS("no clipping", call=call))


# --- Outer steps: replicas train alone, and an outer optimizer averages their changes ---
#
# In rounds of at most `Setting.outer` steps each replica trains a copy of every layer's agreed weight (Douillard et al.
# 2023, DiLoCo). The changes of all copies are added up, and an outer optimizer makes the agreed weight of the next
# round. It may come late, and layers may take turns: a copy that has gone on is merged with it (Douillard et al. 2025,
# Streaming DiLoCo).
#
# Activations and gradients are marked with their replica alone, since its layers may differ in their rounds. So the end
# of a run checks that each microbatch of a step was computed, and each copy updated, with one weight in every layer.

USES_A_WEIGHT: Mapping[str, int] = {
    **dict.fromkeys(("forward", "update"), 1),
    **dict.fromkeys(("backward", "backward_input"), 2),
}
"""Operations on data and a weight, by the place of the weight among their values; the data are the first of them."""


def load_outer_state(game: Game, weight: Weight) -> OuterState:
    """The outer optimizer's state of a weight that is loaded."""
    _require_outer(game, "outer=True")
    return OuterState.made(weight.layer, weight.layers, 0, weight.shards, weight.total)


def delta(game: Game, layer: int, before: Value, after: Value) -> Delta:
    """By how much a copy has moved away from the agreed weight in one round."""
    _require_outer(game, "delta")
    if type(before) is not Weight or type(after) is not Weight:
        refuse_kinds("delta(layer, before, after)", (before, Weight), (after, Weight))
    _same_layer("delta", layer, before, after)
    _require_agreed(before, "before")
    copy = _require_copy(after, "after")
    _same_shards(before, after)
    if copy.averages != averages_of(before.copy):
        copy_round, round_of = len(copy.averages), len(averages_of(before.copy))
        raise RuleError(SAYS("copy not merged", copy_round=copy_round, round_of=round_of))
    steps = after.step - before.step
    if steps > game.setting.outer:
        raise RuleError(SAYS("round too long", steps=steps, most=game.setting.outer))
    batches = tuple(sorted(copy.batches))
    return Delta.made(layer, after.layers, after.step, after.shards, after.total, copy, (batches,))


def outer_update(game: Game, layer: int, before: Value, change: Value, state: Value) -> tuple[Weight, OuterState]:
    """The agreed weight of the next round, and its outer state."""
    _require_outer(game, "outer_update")
    if type(before) is not Weight or type(change) is not Delta or type(state) is not OuterState:
        call = "outer_update(layer, before, delta, outer_state)"
        refuse_kinds(call, (before, Weight), (change, Delta), (state, OuterState))
    _same_layer("outer_update", layer, before, change, state)
    _require_agreed(before, "before")
    _same_shards(before, change)
    _same_shards(before, state)
    mark = change.copy
    assert mark is not None  # every outer gradient has one
    if mark.averages != averages_of(before.copy):
        raise RuleError(
            SAYS("delta of another round", delta_round=len(mark.averages), weight_round=len(averages_of(before.copy)))
        )
    if state.copy != before.copy:
        raise RuleError(SAYS("other outer state", state=state, weight=before))
    if len(mark.batches) < mark.of:
        summed = algebra.set_text(mark.batches)
        raise RuleError(SAYS("copies missing", batches=summed, of=mark.of))
    agreed = Copy(change.step, frozenset(), mark.of, (*mark.averages, (mark.since, change.step, change.copies)))
    label = layer, before.layers, change.step, before.shards, before.total, agreed
    return Weight.made(*label), OuterState.made(*label)


def merge(game: Game, layer: int, copy: Value, agreed: Value) -> Weight:
    """A copy that goes on from a mixture of itself and the agreed weight of the next round."""
    _require_outer(game, "merge")
    if type(copy) is not Weight or type(agreed) is not Weight:
        refuse_kinds("merge(layer, copy, agreed)", (copy, Weight), (agreed, Weight))
    _same_layer("merge", layer, copy, agreed)
    copy_mark, mark = _require_copy(copy, "copy"), agreed.copy
    _require_agreed(agreed, "agreed")
    _same_shards(copy, agreed)
    if mark is None or mark.averages[:-1] != copy_mark.averages:
        raise RuleError(
            SAYS("merge of other rounds", copy_round=len(copy_mark.averages), weight_round=len(averages_of(mark)))
        )
    late = copy.step - agreed.step
    if late > game.setting.late:
        raise RuleError(SAYS("merged too late", late=algebra.counted(late, "step"), allowed=game.setting.late))
    if late < 0:
        raise RuleError(SAYS("merged too early", step=agreed.step, copy_step=copy.step))
    return copy.copied(copy=mark._replace(batches=copy_mark.batches))


def set_final_copy(game: Game, layer: int, copy: Value) -> tuple[()]:
    """Declares a replica's own weight after all steps."""
    _require_outer(game, "set_final_copy")
    weight = require_kind(copy, Weight, "copy")
    _same_layer("set_final_copy", layer, weight)
    _require_copy(weight, "copy")
    if weight.step != game.steps:
        raise RuleError(SAYS("copy not final", weight=weight, steps=game.steps))
    return ()


def require_final(game: Game, weight: Weight) -> None:
    """Refuses a weight that is not the agreed one of the last round that a game allows."""
    if not shared(weight.copy):
        raise RuleError(SAYS("final weight not agreed", weight=weight))
    last = game.steps - game.setting.outer
    if weight.step <= last:
        most = algebra.counted(game.setting.outer, "step")
        raise RuleError(SAYS("round not last", step=weight.step, last=last, most=most))


def updated_copy(grad: WeightGrad, weight: Weight, state: OptState) -> Copy:
    """The mark of a copy that has been updated with its own gradient."""
    marks = [mark for mark in (weight.copy, grad.copy, state.copy) if mark is not None and mark.batches]
    if any(mark.batches != grad.batches for mark in marks):
        theirs = next(mark.batches for mark in marks if mark.batches != grad.batches)
        batches = algebra.named("batch", sorted(theirs))
        raise RuleError(SAYS("copy with other batches", batches=batches, grad_batches=batches_text(grad)))
    if not grad.batches:
        raise RuleError(SAYS("gradient of no batches"))
    mark = weight.copy
    return Copy(weight.step if mark is None else mark.since, grad.batches, grad.total_batches, averages_of(mark))


# --- The end ---


def complete_copies(game: Game, final: Iterable[Weight], copies: Iterable[Weight]) -> None:
    """At the end the agreed weights of a layer belong together, and every replica has declared its copy."""
    marks: dict[int, Weight] = {}
    for weight in final:
        first = marks.setdefault(weight.layer, weight)
        if first.copy != weight.copy:
            raise IncompleteError(SAYS("final weights differ", first=first, weight=weight))
    shares: dict[tuple[int, frozenset[int]], set[tuple[int, int]]] = {}
    for copy in copies:
        assert copy.copy is not None  # as its rule demands
        shares.setdefault((copy.layer, copy.copy.batches), set()).update((i, copy.total) for i in copy.shards)
    for layer in range(game.layers):
        there = [
            batches
            for (of_layer, batches), shards in shares.items()
            if of_layer == layer and len({n for _, n in shards}) == 1
        ]
        whole = [batches for batches in there if len(shares[layer, batches]) == next(iter(shares[layer, batches]))[1]]
        trained = frozenset[int]().union(*whole)
        if len(trained) < game.batches:
            raise IncompleteError(
                SAYS("no final copy", layer=layer, missing=algebra.missing_text("batch", trained, game.batches))
            )


def require_one_weight(uses: Iterable[tuple[str, Sequence[Value]]]) -> None:
    """Refuses a replica that computes one step with several weights of a layer. `uses` has the name of each operation
    with a weight, and the values that it uses."""
    used: dict[tuple[int, int, int], Weight] = {}
    for name, values in uses:
        data, weight = values[0], values[USES_A_WEIGHT[name]]
        assert isinstance(data, Activation | WeightGrad)
        assert isinstance(weight, Weight)
        for batch in data.batches:
            first = used.setdefault((batch, data.step, weight.layer), weight)
            if first.copy != weight.copy:
                raise RuleError(SAYS("several weights", batch=batch, step=data.step, first=first, weight=weight))


# --- What the values must be ---


def _require_outer(game: Game, call: str) -> None:
    if game.task != "outer":
        raise RuleError(SAYS("no outer steps", call=call, task=game.task))


def _same_layer(call: str, layer: int, *values: Value) -> None:
    for value in values:
        if value.layer != layer:
            raise RuleError(SAYS("other layer", value=value, call=call, layer=layer))


def _require_agreed(weight: Weight, what: str) -> None:
    if not shared(weight.copy):
        raise RuleError(SAYS("weight not agreed", weight=weight, what=what))


def _require_copy(weight: Weight, what: str) -> Copy:
    if weight.copy is None or not weight.copy.batches:
        raise RuleError(SAYS("weight not a copy", weight=weight, what=what))
    return weight.copy


def _same_shards(weight: Weight, other: Weight | Delta | OuterState) -> None:
    if (weight.shards, weight.total) != (other.shards, other.total):
        raise RuleError(SAYS("other shards", shards=shards_text(weight), other=other))


# --- Updates, on the device and on a tier that has a processor ---


def update(
    game: Game, layer: int, weight_grad: Value, weight: Value, opt_state: Value, scale: Value | None = None
) -> tuple[Weight, OptState]:
    """The weight and its optimizer state one step later, of the shards that the weight holds; where the game clips
    gradients, with the gradient scaled by the norm of all."""
    if game.task == "infer":
        raise RuleError(SAYS("update while inferring"))
    if type(weight_grad) is not WeightGrad or type(weight) is not Weight or type(opt_state) is not OptState:
        if isinstance(weight, Parked) and tier(game.setting.costs, weight.tier).update is not None:
            raise RuleError(SAYS("update on the tier", weight=weight, tier=weight.tier))
        call = "update(layer, weight_grad, weight, opt_state)"
        refuse_kinds(call, (weight_grad, WeightGrad), (weight, Weight), (opt_state, OptState))
    require_trained(game, layer)
    if game.setting.whole and not weight.is_complete():
        raise RuleError(SAYS("matrix not whole", weight=weight))
    grad = weight_grad
    _same_layer("update", layer, grad, weight, opt_state)
    if not opt_state.step == grad.step == weight.step < game.steps:
        _refuse_steps(game, grad, weight, opt_state)
    copy = _updated_replica(game, grad, weight, opt_state)
    if not algebra.covers(grad.shards, grad.total, weight.shards, weight.total):
        shards, advice = shards_text(grad), algebra.shard_to_update(grad, weight, opt_state)
        why = SAYS("gradient of other shards", shards=shards, weight_shards=shards_text(weight), advice=advice)
        raise RuleError(why)
    if not algebra.covers(opt_state.shards, opt_state.total, weight.shards, weight.total):
        raise RuleError(SAYS("state of other shards", shards=shards_text(opt_state), weight_shards=shards_text(weight)))
    require_scale(game, grad, scale)
    same_model(game, grad, weight, opt_state)
    label = layer, weight.layers, weight.step + 1, weight.shards, weight.total, copy
    return Weight.made(*label), OptState.made(*label)


def tier_update(
    game: Game, layer: int, to: object, weight_grad: Value, weight: Value, opt_state: Value, *scale: Value
) -> tuple[Parked, Parked]:
    """The same on a tier, where all are parked (Ren et al. 2021, section 4)."""
    if tier(game.setting.costs, to).update is None:
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
        refuse_step(weight, grad.step)
    if game.lag:
        raise RuleError(SAYS("gradient comes late", step=grad.step, weight_step=weight.step))
    raise RuleError(SAYS("gradient of other weight", step=grad.step, weight_step=weight.step, steps=game.steps))


def _updated_replica(game: Game, grad: WeightGrad, weight: Weight, opt_state: OptState) -> Copy | None:
    """Whose the updated weight is: everybody's after every batch; after some a replica's, if the task has any."""
    if game.task == "outer":
        return updated_copy(grad, weight, opt_state)
    if weight.copy is grad.copy is opt_state.copy is None:
        if len(grad.batches) == grad.total_batches:
            return None
        if game.task == "local" and grad.batches:
            return Copy(weight.step, grad.batches, grad.total_batches)
        if grad.shares > 1:
            raise RuleError(SAYS("shares missing", batches=batches_text(grad)))
        missing = algebra.missing_text("batch", grad.batches, grad.total_batches)
        raise RuleError(SAYS("batches missing", batches=batches_text(grad), missing=missing))
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
        own, others = algebra.named("batch", sorted(mark.batches)), batches_text(grad)
        raise RuleError(SAYS("replica with other batches", batches=own, since=mark.since, grad_batches=others))
    if not fits:
        raise RuleError(SAYS("state of another replica", opt_state=opt_state, weight=weight))
    return mark


# --- The end: each updated weight, or in inference each output ---


def complete(game: Game, final: Iterable[Weight]) -> None:
    """At the end each layer's updated weight exists whole, in shards of one count."""
    shards_of: dict[int, dict[int, set[int]]] = {}
    final = list(final)
    for weight in final:
        if weight.copy != final[0].copy and game.task != "outer":
            raise IncompleteError(SAYS("final weights differ", first=final[0], weight=weight))
        shards_of.setdefault(weight.layer, {}).setdefault(weight.total, set()).update(weight.shards)
    for layer in (layer for layer in range(game.layers) if layer not in game.setting.frozen):
        by_total = shards_of.get(layer)
        if by_total is None:
            raise IncompleteError(SAYS("no final weight", layer=layer))
        if not any(len(shards) == total for total, shards in by_total.items()):
            total = max(by_total, key=lambda total: len(by_total[total]) / total)
            missing = algebra.missing_text("shard", by_total[total], total)
            raise IncompleteError(SAYS("final shards missing", layer=layer, missing=missing, total=total))


def complete_outputs(game: Game, outputs: Iterable[Activation]) -> None:
    """At the end of inference each batch has come out of the last layer."""
    batches = frozenset().union(*[output.batches for output in outputs])
    if len(batches) < game.batches:
        missing = algebra.missing_text("batch", batches, game.batches)
        raise IncompleteError(SAYS("no output", missing=missing))


SAYS = Sentences(
    {
        "parked already": "this is the {value} already; fetch it before you park it elsewhere",
        "moved already": "this is the {value} already; move it to another tier",
        "no such tier": "there is no memory tier {tier!r} in the costs {costs!r}; known: {known}",
        "tier full": "{tier} holds {there:,} of {capacity:,} elements, and this needs {more:,} more; delete a parked value first, with 'del model.parked[...]'",
        "norm of another layer": "this is the {grad}; norm({layer}, ...) needs a gradient of layer {layer}",
        "norm of some batches": "the gradient has only {batches}; add {missing} first: a norm is of the full sum",
        "no scale": "this game clips gradients; pass scale=, the norm of the gradients of all layers",
        "scale no norm": "scale must be a norm; got {scale}",
        "norm of another step": "this is the {scale}, and the {grad}; scale a gradient by the norm of its own step",
        "partial norm": "this norm has {norm}; add the others first",
        "no clipping": "{call} is for a setting with clip=True; this game does not clip gradients",
        "copy not merged": "the copy is of round {copy_round} and the agreed weight of round {round_of}; merge the copy with each agreed weight, and take its change from the agreed weight that it was merged with last",
        "round too long": "this copy has made {steps} steps since the agreed weight, and a round has at most {most}; take the change earlier",
        "delta of another round": "this delta starts from round {delta_round} and the weight is of round {weight_round}; update the agreed weight that the delta starts from",
        "other outer state": "this is the {state}, and the {weight}; pass the outer state that belongs to this weight",
        "copies missing": "the copies of {batches} of {of} are in this delta; all-reduce it first",
        "merge of other rounds": "the copy is of round {copy_round} and the agreed weight of round {weight_round}; merge a copy with the agreed weight of the round after its own",
        "merged too late": "this average is {late} late, and this game allows {allowed}; merge it earlier",
        "merged too early": "the agreed weight is of step {step} and the copy of step {copy_step}; train it first",
        "copy not final": "this is the {weight}, not the copy after all {steps} steps; pass what update returned",
        "final weight not agreed": "this is the {weight}; declare the agreed weight, and the copy with set_final_copy",
        "round not last": "this is the agreed weight of step {step}; the last round ends after step {last}, since a round has at most {most}",
        "copy with other batches": "this replica trains with {batches}, but the gradient covers {grad_batches}; a replica uses the same batches in every step",
        "gradient of no batches": "this gradient has no batches; compute one",
        "final weights differ": "the final weights do not belong together: {first}, and {weight}",
        "no final copy": "no rank set the final copy of layer {layer} that was trained with {missing}; call set_final_copy({layer}, ...)",
        "several weights": "batch {batch} of step {step} is computed with the {first}, and with the {weight}; compute a step with one weight in each layer, forward and backward, and update that weight",
        "no outer steps": "{call} is for the task 'outer'; the task of this game is {task!r}",
        "other layer": "this is the {value}; {call}({layer}, ...) needs a value of layer {layer}",
        "weight not agreed": "this is the {weight}; {what} is an agreed weight: as loaded, or from outer_update",
        "weight not a copy": "this is the {weight}, which no replica has trained; {what} is a copy, from update",
        "other shards": "the weight is {shards}, and this is the {other}; pass the same shards",
        "update while inferring": "this game is inference only: no weight is updated",
        "update on the tier": 'this is the {weight}; to update it there, pass `on="{tier}"`',
        "matrix not whole": "this is the {weight}; an update here needs a full matrix, because it orthogonalizes the gradient: bring its shards together on one rank first",
        "gradient of other shards": "the gradient is {shards}, but the weight is {weight_shards}; {advice}",
        "state of other shards": "the optimizer state is {shards}, but the weight is {weight_shards}; update the shard of the weight that this state belongs to, not the gathered weight",
        "tier without update": "the tier {tier} has no update; fetch the values and update them on the device",
        "not on the tier": "update on the {tier} needs values that are parked there; {there_now}",
        "value not on tier": "update on the {tier} needs values that are parked there; this is the {value}",
        "updated twice": "this weight was already updated (step 1); update each weight once",
        "state of another step": "the optimizer state is at step {step}, but the weight is at step {weight_step}; pass the optimizer state that belongs to this weight",
        "gradient comes late": "this gradient is of step {step}, the weight at step {weight_step}; update it with the gradient of a batch of step {weight_step}",
        "gradient of other weight": "the gradient is of step {step}, but the weight is at step {weight_step} of {steps}; update the weight that the gradient was computed with",
        "shares missing": "the gradient has only {batches}; add the others first",
        "batches missing": "this gradient covers only {batches}; first add {missing}, with '+' or an all-reduce",
        "gradient of another replica": "this is the {grad}, and the {weight}; update a replica's weight with its own gradient",
        "replica with other batches": "this replica has trained with {batches} since step {since}, but the gradient covers {grad_batches}; a replica uses the same batches until the weights are averaged",
        "state of another replica": "this is the {opt_state}, and the {weight}; pass the state that was updated with this replica",
        "no final weight": "no rank set a final weight for layer {layer}; update it and call set_final_weight({layer}, ...)",
        "final shards missing": "the final weight of layer {layer} lacks {missing} of {total}; some rank must update each shard and set it as final",
        "no output": "no rank set an output for {missing}; go forward with it and call set_output(...)",
    }
)
