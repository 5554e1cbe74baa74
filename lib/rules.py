"""States what each operation demands and what it yields: pure functions on values, the one place that knows.

 1. A layer, batch, shard or rank must exist.
 2. An operation takes values of its own kinds, and the layer it names is the layer of what it is given.
 3. `forward` and `backward` need the whole weight as it was before the update, and every value of one
    microbatch set: the activation and its gradient carry the same batches.
 4. A sum never counts a batch twice and never mixes layers or shards (`values.kinds.sum_grads`).
 5. A gather takes every shard once, of one layer, step and shard count; gradients also of equal batches
    (`values.base.join_shards`).
 6. `update` needs a gradient over every batch, and a gradient and optimizer state that cover the weight's
    shards, at the weight's step.
 7. Every rank's k-th collective is the same operation on the same layer.
 8. At the end every layer's updated weight exists whole, and nothing that was sent is left unread.

The mathematics is that of data, sharded and pipeline parallel training: ZeRO (Rajbhandari et al. 2020,
section 5), GPipe (Huang et al. 2019, section 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from lib.values.algebra import missing_text
from lib.values.base import (
    Sharded,
    Value,
    batches_text,
    join_shards,
    make,
    object_text,
    refuse_kinds,
    require_kind,
    shard,
    shards_text,
    with_shards,
)
from lib.values.kinds import Activation, ActivationGrad, OptState, Weight, WeightGrad, sum_grads

from .errors import IncompleteError, MismatchError, RuleError
from .values import algebra

BATCHED = frozenset(("get_activation", "fake_grad", "forward", "loss", "backward"))
"""Operations on batches: those of the first value that they make."""


class Size(NamedTuple):
    """The shape of a problem: layers of the model, microbatches of the step, ranks."""

    layers: int
    batches: int
    ranks: int

    def __str__(self) -> str:
        return f"layers={self.layers}, batches={self.batches}, ranks={self.ranks}"


# --- What a rank does on its own -------------------------------------------------------------------


def load_weights(size: Size, layer: int, part: int, total: int) -> tuple[Weight, OptState]:
    """Shard `part` of `total` of a layer's weight and optimizer state, as they are before the step."""
    layer = algebra.number(layer, size.layers, "layer")
    total = algebra.whole_number(total, "total", least=1)
    if total == 1 and type(part) is int and part > 0:
        raise RuleError(f"shard {part} does not exist, because total is 1; give the number of shards too: total=...")
    shards = frozenset((algebra.number(part, total, "shard"),))
    return (
        make(Weight, layer, size.layers, 0, shards, total),
        make(OptState, layer, size.layers, 0, shards, total),
    )


def get_activation(size: Size, batches: object) -> Activation:
    """The model's input for some microbatches."""
    chosen = algebra.numbers(batches, size.batches, "batch")
    if not chosen:
        raise RuleError("no batches were given; give at least one, such as [0]")
    return make(Activation, 0, size.layers, chosen, size.batches)


def fake_grad(size: Size, layer: int, batches: object) -> WeightGrad:
    """A made-up gradient. Without batches it is a zero; with batches it is a fake, for exploring only."""
    layer = algebra.number(layer, size.layers, "layer")
    chosen = algebra.numbers(batches, size.batches, "batch")
    return make(WeightGrad, layer, size.layers, chosen, size.batches, frozenset((0,)), 1)


def forward(size: Size, layer: int, inp: Value, weight: Value) -> Activation:
    """The next layer's input, relu(inp @ weight)."""
    if type(inp) is not Activation or type(weight) is not Weight:
        refuse_kinds("forward(layer, inp, weight)", (inp, Activation), (weight, Weight))
    _usable(size, layer, weight)
    _input_of(layer, inp)
    _same_model(size, inp, weight)
    return make(Activation, layer + 1, inp.layers, inp.batches, inp.total_batches)


def loss(size: Size, inp: Value) -> ActivationGrad:
    """The gradient of the loss at the last layer's output."""
    inp = require_kind(inp, Activation, "inp")
    if inp.layer != inp.layers:
        raise RuleError(f"loss needs the output of the last layer, and this is the {inp}; call forward first")
    _same_model(size, inp)
    return make(ActivationGrad, inp.layers - 1, inp.layers, inp.batches, inp.total_batches)


def backward(size: Size, layer: int, inp: Value, grad: Value, weight: Value) -> tuple[WeightGrad, ActivationGrad]:
    """The layer's weight gradient, and the activation gradient for the layer before it."""
    if type(inp) is not Activation or type(grad) is not ActivationGrad or type(weight) is not Weight:
        call = "backward(layer, inp, grad, weight)"
        refuse_kinds(call, (inp, Activation), (grad, ActivationGrad), (weight, Weight))
    _usable(size, layer, weight)
    _input_of(layer, inp)
    if grad.layer != layer:
        maker = "loss" if layer == size.layers - 1 else f"backward({layer + 1}, ...)"
        raise RuleError(f"this is the {grad}; pass the gradient that {maker} returned")
    if inp.batches is not grad.batches and inp.batches != grad.batches:
        raise RuleError(
            f"the activation covers {batches_text(inp)}, but its gradient covers {batches_text(grad)}; "
            "pass two values with the same batches"
        )
    _same_model(size, inp, grad, weight)
    return (
        make(WeightGrad, layer, inp.layers, inp.batches, inp.total_batches, frozenset((0,)), 1),
        make(ActivationGrad, layer - 1, inp.layers, inp.batches, inp.total_batches),
    )


def update(size: Size, layer: int, weight_grad: Value, weight: Value, opt_state: Value) -> tuple[Weight, OptState]:
    """The weight and its optimizer state one step later, of the shards that the weight holds."""
    if type(weight_grad) is not WeightGrad or type(weight) is not Weight or type(opt_state) is not OptState:
        call = "update(layer, weight_grad, weight, opt_state)"
        refuse_kinds(call, (weight_grad, WeightGrad), (weight, Weight), (opt_state, OptState))
    grad = weight_grad
    for value in (grad, weight, opt_state):
        if value.layer != layer:
            raise RuleError(f"this is the {value}; update({layer}, ...) needs the one of layer {layer}")
    if weight.step != 0:
        raise RuleError("this weight was already updated (step 1); update each weight once")
    if opt_state.step != weight.step:
        raise RuleError(
            f"the optimizer state is at step {opt_state.step}, but the weight is at step {weight.step}; "
            "pass the optimizer state that belongs to this weight"
        )
    if len(grad.batches) < grad.total_batches:
        raise RuleError(
            f"this gradient covers only {batches_text(grad)}; "
            f"sum in {missing_text('batch', grad.batches, grad.total_batches)} with '+' or an all-reduce first"
        )
    if not algebra.covers(grad.shards, grad.total, weight.shards, weight.total):
        raise RuleError(
            f"the gradient is {shards_text(grad)}, but the weight is {shards_text(weight)}; "
            "update a weight with a gradient that covers all of its shards"
        )
    if not algebra.covers(opt_state.shards, opt_state.total, weight.shards, weight.total):
        raise RuleError(
            f"the optimizer state is {shards_text(opt_state)}, but the weight is {shards_text(weight)}; "
            "update the shard of the weight that this state belongs to, not the gathered weight"
        )
    _same_model(size, grad, weight, opt_state)
    return (
        make(Weight, layer, weight.layers, 1, weight.shards, weight.total),
        make(OptState, layer, weight.layers, 1, weight.shards, weight.total),
    )


def set_final_weight(size: Size, layer: int, weight: Value) -> tuple[()]:
    """Declares a weight to be the result of the step for its layer."""
    weight = require_kind(weight, Weight, "weight")
    if weight.layer != layer:
        raise RuleError(f"this is the {weight}; pass the weight of layer {layer}")
    if weight.step != 1:
        raise RuleError(f"this is the {weight}, which was never updated; pass the weight that update returned")
    _same_model(size, weight)
    return ()


def _usable(size: Size, layer: int, weight: Weight) -> None:
    algebra.number(layer, size.layers, "layer")
    if weight.layer != layer:
        raise RuleError(f"this is the {weight}; pass the weight of layer {layer}")
    if len(weight.shards) < weight.total:
        raise RuleError(f"this weight is only {shards_text(weight)}; allgather it first")
    if weight.step != 0:
        raise RuleError("this weight was already updated (step 1); use the weight from before the update")


def _input_of(layer: int, inp: Activation) -> None:
    if inp.layer != layer:
        raise RuleError(f"this is the {inp}; pass the input activation of layer {layer}")


def _same_model(size: Size, *values: Value) -> None:
    for value in values:
        if value.layers != size.layers:
            raise RuleError(f"the {value} belongs to a model with {value.layers} layers; this one has {size.layers}")
        batches = getattr(value, "total_batches", size.batches)
        if batches != size.batches:
            raise RuleError(f"the {value} belongs to a step with {batches} batches; this one has {size.batches}")


# --- What ranks do together: pure functions from every rank's value to every rank's result -------------


def allreduce(values: Sequence[Value]) -> list[Value]:
    """Everyone gets the sum. Each rank contributes its own batches."""
    return [_reduced(values)] * len(values)


def allgather(values: Sequence[Value]) -> list[Value]:
    """Everyone gets the shards of all, joined."""
    return [join_shards(values, _rank)] * len(values)  # type: ignore[type-var]  # join refuses what has no shards


def scatterreduce(values: Sequence[Value]) -> list[Value]:
    """The sum, of which rank r keeps shard r of as many as there are ranks (reduce-scatter)."""
    total, ranks = _reduced(values), len(values)
    if not len(total.shards) == total.total:
        raise RuleError(f"it splits a whole gradient, and this one is {shards_text(total)}; use allreduce for shards")
    return [with_shards(total, frozenset((r,)), ranks) for r in range(ranks)]


COLLECTIVE_RULES: Mapping[str, Callable[[Sequence[Value]], list[Value]]] = {
    "allreduce": allreduce,
    "allgather": allgather,
    "scatterreduce": scatterreduce,
}
"""Each collective operation by name: from every rank's value to every rank's result, both in rank order."""

COLLECTIVES = frozenset(COLLECTIVE_RULES)
"""The names of the operations in which all ranks meet."""


def partner(size: Size, rank: int, to: int) -> int:
    """The rank that a message may go to: one that exists, and another."""
    to = algebra.number(to, size.ranks, "rank")
    if to == rank:
        raise RuleError("a rank cannot send to itself; store the value in a dictionary")
    return to


def contribute(size: Size, name: str, layer: int, value: Value) -> None:
    """Refuses a value that a rank may not bring to a collective, as far as it alone can tell."""
    if name != "allgather":
        require_kind(value, WeightGrad, "the value to reduce")
    elif not isinstance(value, Sharded):
        raise RuleError(
            f"only weights, optimizer states and weight gradients have shards to gather; got {object_text(value)}"
        )
    if value.layer != layer:
        raise RuleError(f"this is the {value}, not of layer {layer}; pass the value's own layer")


def agree(calls: Sequence[tuple[str, int]], described: Callable[[int], str]) -> None:
    """Every rank's k-th collective is the same: operation and layer. `described` names the i-th call in a message."""
    for i, call in enumerate(calls):
        if call != calls[0]:
            raise MismatchError(
                f"{described(0)}, but {described(i)}; "
                "every rank must make the same collective calls, on the same layers, in the same order"
            )


def complete(size: Size, final: Iterable[Weight]) -> None:
    """At the end each layer's updated weight exists whole, in shards of one count.

    Raises:
        IncompleteError: naming the first layer that is missing, or the shards of it that are.
    """
    held: dict[int, dict[int, set[int]]] = {}
    for weight in final:
        held.setdefault(weight.layer, {}).setdefault(weight.total, set()).update(weight.shards)
    for layer in range(size.layers):
        by_total = held.get(layer)
        if by_total is None:
            raise IncompleteError(
                f"no rank set a final weight for layer {layer}; update it and call set_final_weight({layer}, ...)"
            )
        if not any(len(shards) == total for total, shards in by_total.items()):
            total, shards = max(by_total.items(), key=lambda item: len(item[1]) / item[0])
            raise IncompleteError(
                f"the final weight of layer {layer} lacks {missing_text('shard', shards, total)} of {total}; "
                "some rank must update each shard and set it as final"
            )


def _reduced(values: Sequence[Value]) -> WeightGrad:
    try:
        return sum_grads(values, _rank)
    except RuleError as why:
        whole = [rank for rank, v in enumerate(values) if isinstance(v, WeightGrad) and v.batches and v.is_complete()]
        if len(whole) < 2:
            raise
        raise RuleError(
            f"{algebra.named('rank', whole)} each bring every batch: this gradient was already reduced; reduce it once"
        ) from why


def _rank(rank: int) -> str:
    return f"rank {rank}"


# --- Local operations from a record ------------------------------------------------------------------


class LocalRecord(Protocol):
    """The columns of a local operation's record, besides the values it used."""

    @property
    def layer(self) -> Any: ...
    @property
    def batches(self) -> Any: ...
    @property
    def args(self) -> Any: ...


LOCAL_RULES: Mapping[str, Callable[[Size, LocalRecord, Sequence[Any]], tuple[Value, ...]]] = {
    "load_weights": lambda size, op, _: load_weights(size, op.layer, *op.args),
    "get_activation": lambda size, op, _: (get_activation(size, op.batches),),
    "fake_grad": lambda size, op, _: (fake_grad(size, op.layer, op.batches),),
    "forward": lambda size, op, v: (forward(size, op.layer, *v),),
    "loss": lambda size, op, v: (loss(size, *v),),
    "backward": lambda size, op, v: backward(size, op.layer, *v),
    "update": lambda size, op, v: update(size, op.layer, *v),
    "add": lambda size, op, v: (sum_grads(v),),
    "combine": lambda size, op, v: (join_shards(v),),
    "shard": lambda size, op, v: (shard(*v, *op.args),),
    "set_final_weight": lambda size, op, v: set_final_weight(size, op.layer, *v),
}
"""Each local operation by name: the values it makes, in order. A new operation is a rule and a row here."""
