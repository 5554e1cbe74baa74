"""A lower bound on the time of pipelines with given stages. It holds for schedules of this kind only: each layer is
computed by the ranks of its stage, and activations travel in messages.

The first microbatch reaches a stage after all layers before it (the ramp), the ranks of the stage share its work, and
the last microbatch goes back through the layers before (the way home).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fractions import Fraction
from math import ceil

from lib.setting import Setting, Size

from .prices import Prices
from .timesteps import Bound

Stage = tuple[Collection[int], int]
"""The layers of a stage, and the ranks that compute them."""


def pipeline_time_bound(size: Size, setting: Setting, stages: Sequence[Stage]) -> Bound:
    """The least timesteps of a pipeline in which the stages have these layers and ranks."""
    prices = Prices(size, setting)
    if not prices.can_train or setting.task == "infer":
        return Bound(0, "")
    ticks, layers = max((_stage_ticks(prices, stages, stage), tuple(sorted(stage[0]))) for stage in stages)
    first = "" if layers[0] == 0 else f"wait for layer{'s 0 to' if layers[0] > 1 else ''} {layers[0] - 1}, "
    home = "" if layers[0] == 0 else ", and the way home"
    named = f"layer{'s' if len(layers) > 1 else ''} {', '.join(map(str, layers))}"
    return Bound(setting.costs.steps(ticks), f"the ranks of {named} {first}compute all microbatches{home}")


def _stage_ticks(prices: Prices, stages: Sequence[Stage], stage: Stage) -> int:
    (layers, ranks), steps = stage, prices.setting.steps
    share = Fraction(prices.size.batches, ranks)
    work = share * sum(prices.forward + prices.backward(layer) for layer in layers)
    urgent = share * sum(prices.forward + prices.at_once(layer) for layer in layers)
    before = range(min(layers))
    hops = _changes(stages, min(layers)) * _message(prices)
    ramp = hops + len(before) * prices.stage(prices.forward)
    home = hops + sum(prices.stage(prices.at_once(layer), summed=layer > 0) for layer in before)
    one = ramp + max(ceil(work), ceil(urgent) + home)
    if prices.setting.task != "train":
        return max(one, ramp + ceil(steps * work))
    each = ramp + ceil(urgent) + home + prices.update
    return max((steps - 1) * each + one, ramp + ceil(steps * work))


def _changes(stages: Sequence[Stage], until: int) -> int:
    """How often a microbatch changes ranks before it reaches a layer."""
    where = {layer: place for place, (layers, _) in enumerate(stages) for layer in layers}
    return sum(where[layer] != where[layer + 1] for layer in range(until))


def _message(prices: Prices) -> int:
    """The least from the end of one stage to the start of the next one."""
    names = ("pass_to", "receive")
    return prices.between(*names) if all(map(prices.costs.priced, names)) else 0
