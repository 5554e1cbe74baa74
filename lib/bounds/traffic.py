"""A lower bound on what the busiest rank sends in any correct schedule that ends in a given time.

Weights and states are loaded anywhere and any computing may be repeated, so only time makes ranks send: one rank cannot
do all. Take the lowest layer k of which one rank computes the gradient of every microbatch. Each layer below has
gradients from several ranks, and the size of a gradient is sent for it. For layer k that rank goes through a microbatch
forward and back by itself, or another sends it an activation or its gradient; time decides how many it can do by
itself. The bound is the least over all k. It counts what is sent once, shared by all ranks, so it is far from what
schedules reach.
"""

from __future__ import annotations

from lib.game.setting import Setting, Size

from .prices import Prices
from .timesteps import Bound


def traffic_bound(size: Size, setting: Setting, timesteps: float) -> Bound:
    """The least elements sent by the busiest rank of any schedule that takes at most so many timesteps; 0 where nothing
    is known: on one rank, in folded games, where layers or backwards can be taken apart, where layers or microbatches are
    unequal, and without synchronous steps.

    Raises:
        RuleError: there is no such size.
    """
    prices = Prices(size, setting)
    layers, batches, ranks = prices.size
    is_equal = prices.costs.unequal is None and not setting.lengths and not setting.lag
    is_whole = setting.layer == "dense" and not prices.has_halves and not setting.fold and is_equal
    if ranks == 1 or not is_whole or setting.task != "train" or not prices.can_train:
        return Bound(0, "")
    costs, ticks = prices.costs, timesteps * prices.costs.unit
    forward, backward = prices.forward(0), min(map(prices.backward, range(layers)))

    def received(lowest: int) -> int:
        """The fewest microbatches of which a rank receives something, if it computes this layer's gradient of all."""
        alone = layers * forward + (layers - lowest) * backward
        return next((x for x in range(batches) if (batches - x) * alone + x * backward <= ticks), batches)

    ways = [lowest * costs.weight + received(lowest) * prices.activation for lowest in range(layers)]
    total = min(*ways, layers * costs.weight)
    return Bound(-(-total // ranks), "no rank can compute everything in that time; at best all send equally")
