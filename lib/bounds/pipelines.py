"""A lower bound on the time of pipelines with given stages. It holds for schedules of this kind only: each layer is
computed by the ranks of its stage, and activations travel in messages.

The first microbatch reaches a stage after all layers before it (the ramp), the ranks of the stage share its work, and
the last microbatch goes back through the layers before (the way home).
"""

from collections.abc import Collection, Sequence
from fractions import Fraction
from math import ceil

from lib.errors import RuleError
from lib.game.setting import Setting, Size
from lib.values.algebra import named

from .prices import Prices
from .timesteps import Bound

Stage = tuple[Collection[int], int]
"""The layers of a stage, and the ranks that compute them."""


def pipeline_time_bound(size: Size, setting: Setting, stages: Sequence[Stage]) -> Bound:
    """The least timesteps of a pipeline in which the stages have these layers and ranks.

    Raises:
        RuleError: there is no such size, or the stages are not its layers, each once.
    """
    prices = Prices(size, setting)
    held = sorted(layer for layers, _ in stages for layer in layers)
    if held != list(range(prices.size.layers)) or any(ranks < 1 for _, ranks in stages):
        raise RuleError(
            f"stages have each of the layers 0 to {prices.size.layers - 1} once, and at least one rank each; "
            f"these have the layers {held}"
        )
    if not prices.can_train or setting.task == "infer":
        return Bound(0, "")
    ticks, stage = max(((_stage_ticks(prices, stages, stage), stage) for stage in stages), key=lambda found: found[0])
    return Bound(setting.costs.steps(ticks), _reason(prices, stage))


def _reason(prices: Prices, stage: Stage) -> str:
    """'a rank has 16 steps of computing for layers 6, 7, between layers 0-5 forward and back'."""
    layers, first = sorted(stage[0]), _first(prices, stage)
    work = prices.setting.steps * _work(prices, stage)[0]
    before = f", between {named('layer', range(first))} forward and back" if first else ""
    late = "; weight gradients may come later" if first and prices.has_halves else ""
    return f"a rank has {prices.steps(work)} of computing for {named('layer', layers)}{before}{late}"


def _work(prices: Prices, stage: Stage) -> tuple[Fraction, Fraction]:
    """A rank's share of a stage's computing in a step, and of that what other stages wait for."""
    layers, ranks = stage
    share = prices.microbatches / prices.together(ranks)
    work = share * sum(prices.both(layer, prices.backward(layer)) for layer in layers)
    return work, share * sum(prices.both(layer, prices.at_once(layer)) for layer in layers)


def _stage_ticks(prices: Prices, stages: Sequence[Stage], stage: Stage) -> int:
    """The ramp, the work of a rank, and the way home; for several steps, with or without a pause between them."""
    steps, (work, urgent) = prices.setting.steps, _work(prices, stage)
    before = range(_first(prices, stage))
    hops = _changes(stages, len(before)) * _message(prices)
    ramp = hops + sum(prices.stage(prices.forward(layer)) for layer in before)
    home = hops + sum(prices.stage(prices.at_once(layer), summed=layer > 0) for layer in before)
    one = ramp + max(ceil(work), ceil(urgent) + home)
    if prices.setting.task != "train":
        return max(one, ramp + ceil(steps * work))
    each = ramp + ceil(urgent) + home + prices.update
    return max((prices.rounds - 1) * each + one, ramp + ceil(steps * work))


def _first(prices: Prices, stage: Stage) -> int:
    """The first layer of a stage; 0 where a microbatch has shares, since the first of them is there almost at once."""
    return min(stage[0]) if prices.setting.shares == 1 else 0


def _changes(stages: Sequence[Stage], until: int) -> int:
    """How often a microbatch changes ranks before it reaches a layer."""
    where = {layer: place for place, (layers, _) in enumerate(stages) for layer in layers}
    return sum(where[layer] != where[layer + 1] for layer in range(until))


def _message(prices: Prices) -> int:
    """The least from the end of one stage to the start of the next one."""
    names = ("pass_to", "receive")
    return prices.between(*names, elements=prices.activation) if all(map(prices.costs.priced, names)) else 0
