"""A lower bound on what the busiest rank sends in any correct schedule that ends in a given time.

Weights and states are loaded anywhere and any computing may be repeated, so only time makes ranks send: one rank cannot
do all. Take the lowest layer k of which one rank computes the gradient of every microbatch. Each layer below has
gradients from several ranks, and the size of a gradient is sent for it. For layer k that rank goes through a microbatch
forward and back by itself, or another sends it an activation or its gradient; time decides how many it can do by
itself. The bound is the least over all k. It counts what is sent once, shared by all ranks, so it is far from what
schedules reach.
"""

from fractions import Fraction

from lib.game.costs import PAIR
from lib.game.setting import Setting, Size

from .prices import Prices
from .timesteps import Bound


def traffic_bound(size: Size, setting: Setting, timesteps: float) -> Bound:
    """The least elements sent by the busiest rank of any schedule that takes at most so many timesteps.

    0 where nothing is known: on one rank, in folded games, without synchronous steps, and where layers or backwards can
    be taken apart or a forward paired with a backward, since a rank may then do more alone.

    Raises:
        RuleError: there is no such size.
    """
    prices = Prices(size, setting)
    layers, batches, ranks = prices.size
    is_apart = prices.has_halves or prices.costs.priced(PAIR)
    is_whole = setting.layer == "dense" and not is_apart and not setting.fold and not setting.lag
    if ranks == 1 or not is_whole or setting.task != "train" or not prices.can_train:
        return Bound(0, "")
    weights = [*map(prices.weight, range(layers))]
    ticks = Fraction(round(timesteps * prices.costs.unit, 6)) * prices.speeds[0]
    forward = sum(map(prices.forward, range(layers)))

    def received(lowest: int) -> int:
        """The fewest microbatches of which a rank receives something, if it computes this layer's gradient of all."""
        alone, least = forward + sum(map(prices.backward, range(lowest, layers))), prices.backward(lowest)
        works = [((batches - x) * alone + x * least) * min(prices.lengths) for x in range(batches)]
        return next((x for x, work in enumerate(works) if work <= ticks), batches)

    ways = [sum(weights[:lowest]) + received(lowest) * prices.activation for lowest in range(layers)]
    total = min(*ways, sum(weights))
    return Bound(-(-total // ranks), "no rank can compute everything in that time; at best all send equally")
