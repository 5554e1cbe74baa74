"""States what an outer step requires and yields: replicas train alone, and an outer optimizer averages their changes.

In rounds of at most `Setting.outer` steps each replica trains a copy of every layer's agreed weight (Douillard et al.
2023, DiLoCo). The changes of all copies are added up, and an outer optimizer makes the agreed weight of the next round.
It may come late, and layers may take turns: a copy that has gone on is merged with it (Douillard et al. 2025, Streaming
DiLoCo).

Activations and gradients are marked with their replica alone, since its layers may differ in their rounds. So the end
of a run checks that each microbatch of a step was computed, and each copy updated, with one weight in every layer.
"""

from collections.abc import Iterable, Mapping, Sequence

from lib.errors import IncompleteError, RuleError
from lib.game.setting import Game
from lib.values import algebra
from lib.values.algebra import counted
from lib.values.arguments import refuse_kinds
from lib.values.base import Value, require_kind, with_fields
from lib.values.kinds import Activation, ActivationGrad, Delta, OptState, OuterState, Weight, WeightGrad
from lib.values.label_text import batches_text, shards_text
from lib.values.replicas import Copy, averages_of, shared

from .words import SAYS

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
        raise RuleError(SAYS("merged too late", late=counted(late, "step"), allowed=game.setting.late))
    if late < 0:
        raise RuleError(SAYS("merged too early", step=agreed.step, copy_step=copy.step))
    return with_fields(copy, copy=mark._replace(batches=copy_mark.batches))


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
    if weight.step <= game.steps - game.setting.outer:
        raise RuleError(
            SAYS(
                "round not last",
                step=weight.step,
                last=game.steps - game.setting.outer,
                most=counted(game.setting.outer, "step"),
            )
        )


# --- What computes with a replica ---


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


def updated_copy(grad: WeightGrad, weight: Weight, state: OptState) -> Copy:
    """The mark of a copy that has been updated with its own gradient."""
    marks = [mark for mark in (weight.copy, grad.copy, state.copy) if mark is not None and mark.batches]
    if any(mark.batches != grad.batches for mark in marks):
        theirs = next(mark for mark in marks if mark.batches != grad.batches)
        raise RuleError(
            SAYS(
                "copy with other batches",
                batches=algebra.named("batch", sorted(theirs.batches)),
                grad_batches=batches_text(grad),
            )
        )
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
