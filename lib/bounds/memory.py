"""Lower bounds on memory and traffic: the peak of any legal schedule of a size, and the traffic of its busiest rank."""

from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction

from lib.game.costs import PAIR
from lib.game.setting import Setting, Size

from .prices import Prices
from .timesteps import Bound, Stage, require_stages


def memory_bound(size: Size, setting: Setting) -> Bound:
    """A lower bound on the peak memory of any legal schedule of this size and setting, in elements."""
    prices = Prices(size, setting)
    ways = list(_inference(prices) if setting.task == "infer" else _training(prices))
    return max(ways, key=lambda bound: bound.least, default=Bound(0, "no value has to be kept"))


def _inference(prices: Prices) -> Iterator[Bound]:
    if prices.setting.layer == "dense":
        used = [prices.weight(layer) + prices.data(layer, gradient=False) for layer in range(prices.size.layers)]
        yield Bound(max(used), "a forward uses a weight and an activation")


def _training(prices: Prices) -> Iterator[Bound]:
    costs, layers, ranks, first = prices.costs, prices.trained, prices.size.ranks, prices.first
    if not prices.can_train:
        return
    weights, data = [*map(prices.weight, layers)], [*map(prices.data, layers)]
    yield Bound(
        -(-sum(weights) // ranks),
        "at the end the ranks hold all final weights" if ranks > 1 else "at the end there are all weights",
    )
    dense = prices.setting.layer == "dense"
    if dense or prices.setting.layer == "block":
        needs_weight = [dense and (layer > first or not prices.has_halves) for layer in layers]
        used = [data[i] + (weights[i] if needs else 0) for i, needs in enumerate(needs_weight)]
        last = used.index(max(used))
        with_weight = "a weight, " if needs_weight[last] else ""
        yield Bound(used[last], f"a backward uses {with_weight}an activation and its gradient")
    if ranks == 1 and not costs.tiers and dense:
        yield _at_last_backward(prices, layers)


def _at_last_backward(prices: Prices, layers: Collection[int]) -> Bound:
    """The memory of one rank that computes these layers alone."""
    return Bound(
        sum(map(prices.weight, layers)) + min(_at_last(prices, layer) - prices.weight(layer) for layer in layers),
        "at the last backward, one rank holds its inputs, and the gradient or the new weight of each layer",
    )


def _at_last(prices: Prices, layer: int) -> int:
    """The inputs of the last backward, if it is of this layer: of each microbatch, or of the last one and the
    gradient."""
    weight, shares = prices.weight(layer), prices.lengths
    by_share = [int(prices.data(layer) * share / max(shares)) for share in shares]
    return (0 if prices.has_halves else weight) + min(weight + min(by_share), sum(by_share))


def pipeline_memory_bound(size: Size, setting: Setting, stages: Sequence[Stage], timesteps: float) -> Bound:
    """A lower bound on the peak memory of a pipeline whose stages have these layers and ranks, if it takes at most so
    many timesteps, computes one microbatch at a time, and keeps a stage's input from its forward to its backward, and
    gradients until they are added.

    0 where nothing is known: where layers can be split or values offloaded, and without training.

    Raises:
        RuleError: there is no such size, or the stages do not have each of its layers once.
    """
    prices = Prices(size, setting)
    require_stages(prices.size.layers, stages)
    is_plain = setting.layer == "dense" and setting.task == "train" and not setting.frozen
    if not is_plain or setting.costs.tiers or not prices.can_train:
        return Bound(0, "")
    # A step ends before the next begins, or with a lag none does: then all microbatches are one step.
    steps = 1 if setting.lag else setting.steps
    ticks = Fraction(round(timesteps * prices.costs.unit, 6)) / steps
    bounds = [Bound(0, "")]
    for layers, ranks in stages:
        if ranks == 1:
            bounds.append(_at_last_backward(prices, layers))
        for layer in sorted({*layers} - {0} - {layer + 1 for layer in layers}):
            microbatches = -(-prices.size.batches * setting.steps // (steps * ranks))
            if microbatches > 1:
                in_flight = _in_flight(prices, layer, microbatches, ticks)
                used = prices.weight(layer) + prices.data(layer, True, min)
                used += (in_flight - 1) * prices.data(layer, False, min)
                has_gradients = ranks == 1 and not setting.lag
                left = sum(_after_first(prices, other) for other in layers if other >= layer) if has_gradients else 0
                many = f"{in_flight} microbatches" if in_flight > 1 else "a microbatch"
                bounds.append(
                    Bound(used + left, f"in that time a rank keeps {many} for layer {layer} at some backward")
                )
    return max(bounds, key=lambda bound: bound.least)


def _in_flight(prices: Prices, layer: int, batches: int, ticks: Fraction) -> int:
    """The fewest inputs of a layer that a rank holds at some backward after its first, if a step takes so many ticks.
    With c of them, microbatch k + c goes forward after the backward of k, and returns `away` later."""
    least = min(prices.lengths) / prices.speeds[0]
    layers = range(prices.size.layers)
    back = prices.at_once(layer) * least
    ramp = least * sum(map(prices.forward, layers[:layer]))
    home = least * sum(map(prices.at_once, layers[:layer]))
    away = least * (sum(map(prices.forward, layers[layer:])) + sum(map(prices.at_once, layers[layer + 1 :])))

    def until_end(in_flight: int) -> Fraction:
        rounds, rest = divmod(batches - 2, in_flight)
        return ramp + away + back + rounds * (back + away) + rest * back + back + home

    return next(
        (in_flight for in_flight in range(1, batches - 1) if until_end(in_flight) <= ticks), max(1, batches - 1)
    )


def _after_first(prices: Prices, layer: int) -> int:
    """What the first backward of a layer leaves: its gradient, or the inputs of the weight half."""
    gradient, needed = prices.weight(layer), prices.data(layer, True, min)
    return min(gradient, needed) if prices.has_halves else gradient


def traffic_bound(size: Size, setting: Setting, timesteps: float) -> Bound:
    """A lower bound on the elements sent by the busiest rank of any schedule that takes at most so many timesteps.

    0 where nothing is known: on one rank, without synchronous steps, and where layers or backwards can
    be split or a forward paired with a backward, since a rank may then do more alone.
    """
    prices = Prices(size, setting)
    layers, batches, ranks = prices.size
    is_apart = prices.has_halves or prices.costs.priced(PAIR)
    is_whole = setting.layer == "dense" and not is_apart and not setting.lag
    if ranks == 1 or not is_whole or setting.task != "train" or not prices.can_train:
        return Bound(0, "")
    weights = [*map(prices.weight, range(layers))]
    ticks = Fraction(round(timesteps * prices.costs.unit, 6)) * prices.speeds[0]
    forward = sum(map(prices.forward, range(layers)))

    def received(lowest: int) -> int:
        """The fewest microbatches of which a rank receives something, if it computes this layer's gradients of all."""
        alone, least = forward + sum(map(prices.backward, range(lowest, layers))), prices.backward(lowest)
        works = [((batches - x) * alone + x * least) * min(prices.lengths) for x in range(batches)]
        return next((x for x, work in enumerate(works) if work <= ticks), batches)

    ways = [sum(weights[:lowest]) + received(lowest) * prices.activation for lowest in range(layers)]
    total = min(*ways, sum(weights))
    return Bound(-(-total // ranks), "no rank can compute everything in that time; at best all send equally")
