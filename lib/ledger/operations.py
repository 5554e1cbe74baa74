"""States what each operation demands and what it yields: pure functions on values, the one place that knows.

 1. A layer, batch, shard or rank must exist.
 2. An operation takes values of its kinds, and the layer it names is the layer of what it is given.
 3. `forward` and `backward` need the full weight of their own step, and every value of one microbatch set: the
    activation and its gradient carry the same batches (`layers`).
 4. A sum never counts a batch twice and never mixes layers or shards (`values.sum_grads`).
 5. A gather takes every shard once, of one layer, step and shard count; gradients also of equal batches
    (`values.join_shards`).
 6. `update` needs a gradient over every batch, and a gradient and optimizer state that cover the weight's
    shards, at the weight's step.
 7. The k-th collective of every rank in a group is the same operation on the same layer (`collectives`).
 8. At the end every layer's updated weight exists whole, and nothing that was sent is left unread.

The mathematics is from data, sharded and pipeline parallel training: ZeRO (Rajbhandari et al. 2020,
section 5), GPipe (Huang et al. 2019, section 2). Rules are pure, so that the run and the referee apply the same ones. A
referee with rules of its own would check more, but every rule would be stated twice.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from lib.errors import RuleError, Sentences
from lib.ledger import algebra
from lib.ledger.algebra import shared
from lib.ledger.costs import ATTENDING, COMPUTING, ON_TIER, PRODUCTS
from lib.ledger.setting import CLASSIC_SETTING, Game
from lib.ledger.values import (
    Activation,
    Batched,
    OptState,
    Value,
    Weight,
    WeightGrad,
    added,
    join_shards,
    require_kind,
    shard,
)

from . import attention, layers, updates
from .collectives import require_own
from .layers import WHOLE, require_layers, require_trained, require_weight_of, same_model

PER_BATCH = COMPUTING | {"get_activation", "fake_grad", "loss"}
"""Operations on batches: the batches of the first value that they make."""


def batches_of(results: Sequence[Any]) -> frozenset[int]:
    """The batches that such an operation is of. A weight gradient may count shares of their tokens in their place."""
    first = results[0]
    if type(first) is WeightGrad and first.shares > 1:
        return frozenset(number // first.shares for number in first.batches)
    batches: frozenset[int] = first.batches
    return batches


# --- What a rank does on its own ---


def load_weights(
    game: Game, layer: int, part: int, total: int, tier: object = None, with_outer: object = None
) -> tuple[Value, ...]:
    """Shard `part` of `total` of a layer's weight and optimizer state, and perhaps of its outer state, as they are
    before the step; parked on a tier where one is named."""
    layer = algebra.number(layer, game.layers, "layer")
    total = algebra.whole_number(total, "total", least=1)
    if total == 1 and type(part) is int and part > 0:
        raise RuleError(SAYS("shard without total", part=part))
    shards = frozenset((algebra.number(part, total, "shard"),))
    label = layer, game.layers, 0, shards, total
    weight = Weight.made(*label)
    more = (updates.load_outer_state(game, weight),) if with_outer else ()
    values = (weight, OptState.made(*label), *more)
    return values if tier is None else updates.parked_weights(game, values, tier)


def get_activation(game: Game, batches: object, step: object = 0, shares: object = None) -> Activation:
    """The model's input for some microbatches of a step; of attention, perhaps for some shares of their tokens only."""
    chosen = algebra.numbers(batches, game.batches, "batch")
    if not chosen:
        raise RuleError(SAYS("no batches"))
    label = 0, game.layers, chosen, game.batches, algebra.number(step, game.steps, "step")
    if game.shares == 1 and shares is None:
        return Activation.made(*label)
    require_layers(game, "shares=", "attention")
    tokens = range(game.shares) if shares is None else algebra.numbers(shares, game.shares, "share")
    if not tokens:
        raise RuleError(SAYS("no shares"))
    return Activation.made(*label, *WHOLE, frozenset(tokens), game.shares)


def fake_grad(game: Game, layer: int, batches: object, step: object = 0) -> WeightGrad:
    """A made-up gradient. Without batches it is a zero; with batches it is a fake, for exploring only."""
    layer = algebra.number(layer, game.layers, "layer")
    chosen = algebra.numbers(batches, game.batches, "batch")
    step = algebra.number(step, game.steps, "step")
    if game.shares > 1:
        numbers = attention.in_shares(game, chosen, frozenset(range(game.shares)))
        total = game.batches * game.shares
        return WeightGrad.made(layer, game.layers, numbers, total, step=step, shares=game.shares)
    return WeightGrad.made(layer, game.layers, chosen, game.batches, step=step)


def set_output(game: Game, output: Value) -> tuple[()]:
    """Declares the last layer's activation to be a result."""
    output = require_kind(output, Activation, "the output")
    if game.task != "infer":
        raise RuleError(SAYS("output while training"))
    if output.layer != output.layers:
        raise RuleError(SAYS("output too early", output=output))
    if len(output.parts) < output.of or len(output.shards) < output.total or output.heads:
        raise RuleError(SAYS("partial output", output=output))
    same_model(game, output)
    return ()


def set_final_weight(game: Game, layer: int, weight: Value) -> tuple[()]:
    """Declares a weight to be the result of the step for its layer."""
    weight = require_kind(weight, Weight, "weight")
    if game.task == "infer":
        raise RuleError(SAYS("weight while inferring"))
    require_weight_of(layer, weight)
    require_trained(game, layer)
    if game.task == "outer":
        updates.require_final(game, weight)
    elif weight.step != game.steps:
        done = "was never updated" if not weight.step else f"is not the one after all {game.steps} steps"
        raise RuleError(SAYS("weight not final", weight=weight, done=done))
    if not shared(weight.copy):
        raise RuleError(SAYS("final replica", weight=weight))
    same_model(game, weight)
    return ()


def shard_value(game: Game, value: Value, i: int, n: int) -> Value:
    """Shard `i` of `n` of a value; of an activation, so many of its tokens."""
    require_cuttable(game, value)
    return shard(value, i, n)  # type: ignore[type-var]  # every kind that is left has shards


def require_cuttable(game: Game, value: Value) -> None:
    """Refuses to cut an activation where a layer takes full activations only."""
    if isinstance(value, Batched) and game.layer == "attention":
        raise RuleError(SAYS("shares not named", value=value))
    if isinstance(value, Batched) and game.layer == "dense":
        raise RuleError(SAYS("shares not allowed", value=value))


# --- What ranks do together; `collectives` has the collectives ---


def partner(game: Game, rank: int, to: object) -> int:
    """The rank that a message may go to: one that exists, and another."""
    to = algebra.number(to, game.ranks, "rank")
    if to == rank:
        raise RuleError(SAYS("sent to itself"))
    return to


def tag(game: Game, given: object) -> int:
    """The tag of a message: any number, where there are tags."""
    number = algebra.whole_number(given, "tag", least=0)
    if number and game.setting == CLASSIC_SETTING:
        raise RuleError(SAYS("classic tag", tag=number))
    return number


def message(values: Iterable[Value]) -> None:
    """Refuses what cannot be sent."""
    for value in values:
        require_own(value)


# --- Local operations from a record ---


LocalRecord = Any
"""The record of a local operation: an `Op`, of which the rules read the layer, the batches and the args."""


def _loaded(op: LocalRecord) -> Any:
    """The arguments of loading: a shard, of how many, a tier where there is one, whether with an outer state."""
    if op.args[-1] is None:
        raise RuleError(SAYS("record of no tier"))
    args: tuple[Any, ...] = op.args
    part, total, tier, with_outer = args + (None,) * (4 - len(args))
    if with_outer not in (None, 1):
        raise RuleError(SAYS("record of outer", got=with_outer))
    return part, total, tier, with_outer


def _step(op: LocalRecord) -> Any:
    """The step that a record names, if it is not the first, and its shares, if they are not all: what it is to leave
    out."""
    step, *shares = op.args or (None,)
    if op.args and (step == 0 or type(step) is not int) and not (shares and step is None):
        raise RuleError(SAYS("record of a step", step=step))
    return (step or 0, *shares)


LOCAL_RULES: Mapping[str, Callable[[Game, LocalRecord, Sequence[Any]], tuple[Value, ...]]] = {
    "load_weights": lambda game, op, _: load_weights(game, op.layer, *_loaded(op)),
    "get_activation": lambda game, op, _: (get_activation(game, op.batches, *_step(op)),),
    "fake_grad": lambda game, op, _: (fake_grad(game, op.layer, op.batches, *_step(op)),),
    "forward": lambda game, op, v: (layers.forward(game, op.layer, *v),),
    "loss": lambda game, op, v: (layers.loss(game, *v),),
    "backward": lambda game, op, v: layers.backward(game, op.layer, *v),
    "pair": lambda game, op, v: layers.pair(game, op.layer, *op.args, *v),
    "backward_input": lambda game, op, v: (layers.backward_input(game, op.layer, *v),),
    "backward_weight": lambda game, op, v: (layers.backward_weight(game, op.layer, *v),),
    "update": lambda game, op, v: updates.update(game, op.layer, *v),
    "norm": lambda game, op, v: (updates.norm(game, op.layer, *v),),
    "tier_update": lambda game, op, v: updates.tier_update(game, op.layer, *op.args, *v),
    "delta": lambda game, op, v: (updates.delta(game, op.layer, *v),),
    "outer_update": lambda game, op, v: updates.outer_update(game, op.layer, *v),
    "merge": lambda game, op, v: (updates.merge(game, op.layer, *v),),
    "set_final_copy": lambda game, op, v: updates.set_final_copy(game, op.layer, *v),
    "keys": lambda game, op, v: (attention.keys(game, op.layer, *v),),
    "attend": lambda game, op, v: (attention.attend(game, op.layer, *v),),
    "attend_backward": lambda game, op, v: attention.attend_backward(game, op.layer, *v),
    "keys_backward": lambda game, op, v: attention.keys_backward(game, op.layer, *v),
    "add": lambda game, op, v: (added(v),),
    "combine": lambda game, op, v: (join_shards(v),),
    "shard": lambda game, op, v: (shard_value(game, *v, *op.args),),
    "offload": lambda game, op, v: (updates.offload(game, *v, *op.args),),
    "fetch": lambda game, op, v: (updates.fetch(game, *v),),
    "move": lambda game, op, v: (updates.move(game, *v, *op.args),),
    "set_final_weight": lambda game, op, v: set_final_weight(game, op.layer, *v),
    "set_output": lambda game, op, v: set_output(game, *v),
}
"""Each local operation by name: the values it makes, in order. A new operation is a rule and a row here."""


# --- How long a rank's own operation takes ---


def ticks(game: Game, operation: str, items: int, used: Sequence[Any], results: Sequence[Any], rank: int) -> int:
    """The ticks of a rank's own operation on `items` batches: on a shard of a weight, that share of the time."""
    price = game.prices.get(operation)
    if price is not None:
        return price * items
    costs = game.setting.costs
    if operation in ON_TIER:
        return updates.tier_ticks(costs, operation, results, used)
    if operation in ATTENDING:
        return attention.ticks(game, operation, used)
    sized = used if operation in PRODUCTS or operation == "loss" else ()
    shares = [(len(v.shards), v.total) for v in sized if type(v) is Weight or getattr(v, "vocabulary", False)]
    shards, total = shares[0] if shares else (1, 1)
    if costs.unequal is not None:
        batches = batches_of(results) if operation in PER_BATCH else ()
        layer = min(used[0].layer, game.layers - 1)  # a loss is the last layer's
        return costs.unequal.ticks(operation, layer, batches, rank, Fraction(shards, total))
    return costs.duration(operation, items, shards, total)


SAYS = Sentences(
    {
        "shard without total": "shard {part} does not exist, because total is 1; give the number of shards too: total=...",
        "no batches": "no batches were given; give at least one, such as [0]",
        "no shares": "no shares were given; name at least one, such as shares=[0]",
        "output while training": "this game trains, so its results are weights; call set_final_weight",
        "output too early": "this is the {output}; an output comes from the last layer, so go forward first",
        "partial output": "this is the {output}; an output is a full sum, with all tokens",
        "weight while inferring": "this game is inference only, so its results are activations; call set_output",
        "weight not final": "this is the {weight}, which {done}; pass the weight that update returned",
        "final replica": "this is the {weight}; average the replicas with allreduce first",
        "shares not named": "this is the {value}; name the tokens in get_activation(batches, shares=[...])",
        "shares not allowed": "this is the {value}; activations are split only where a layer can use a part",
        "sent to itself": "a rank cannot send to itself; store the value in a dictionary",
        "classic tag": "messages of the classic game have no tags; got tag {tag}, so leave it out",
        "record of no tier": "a record leaves out the memory tier if there is none; got None",
        "record of outer": "a record says 1 where an outer state is loaded; got {got!r}",
        "record of a step": "a record names a step from 1 on, as a number; got {step!r}",
    }
)
