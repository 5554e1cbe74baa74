"""A lower bound on the peak memory of any legal schedule of a size, as the referee counts it.

Weights may be read late and dropped early, and messages weigh nothing under way; so what must be there at once is
little: what an operation uses while it runs, and the final weights at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

from lib.game.setting import Setting, Size

from .prices import Prices
from .timesteps import Bound


def memory_bound(size: Size, setting: Setting) -> Bound:
    """The least peak memory of any legal schedule of a puzzle of this size and setting, in elements.

    Raises:
        RuleError: there is no such size.
    """
    prices = Prices(size, setting)
    ways = list(_inference(prices) if setting.task == "infer" else _training(prices))
    return max(ways, key=lambda bound: bound.least, default=Bound(0, "nothing has to be held"))


def _inference(prices: Prices) -> Iterator[Bound]:
    if prices.setting.layer == "dense":
        costs = prices.costs
        yield Bound(costs.weight + costs.activation, "a forward uses a weight and an activation")


def _training(prices: Prices) -> Iterator[Bound]:
    costs, (layers, batches, ranks) = prices.costs, prices.size
    weight, data = costs.weight, costs.activation + costs.activation_grad
    if not prices.can_train:
        return
    share = -(-layers * weight // ranks)
    yield Bound(
        share, "at the end the ranks hold all final weights" if ranks > 1 else "at the end there are all weights"
    )
    dense = prices.setting.layer == "dense"
    needs_weight = dense and (layers > 1 or not prices.has_halves)
    if dense or prices.setting.layer == "block":
        used = data + (weight if needs_weight else 0)
        with_weight = "a weight, " if needs_weight else ""
        yield Bound(used, f"a backward uses {with_weight}an activation and its gradient")
    if ranks == 1 and not costs.tiers and dense:
        in_use = 0 if prices.has_halves else weight
        last = min(weight + data, batches * data)
        others = (layers - 1) * weight
        yield Bound(
            others + in_use + last,
            "at the last backward one rank has what that uses, and of each layer the gradient or the new weight",
        )
