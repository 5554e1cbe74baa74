"""A lower bound on the time of any legal schedule of a size, in any order and on any ranks.

In every schedule, each microbatch goes forward through all layers and back, in every step. Its weight gradients go into
updates, and an update starts after the backwards that it needs. So timesteps, the start of the last event, includes all
of that. Everything else that a schedule does is left out, so the bound need not be reached.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from lib import RuleError, Setting, Size
from lib.values.algebra import named

from .prices import Prices


class Bound(NamedTuple):
    """The lower bound in steps or in elements, and its reason; in ticks while it is computed."""

    least: float
    reason: str


def time_bound(size: Size, setting: Setting) -> Bound:
    """A lower bound on the timesteps of any legal schedule of this size and setting."""
    prices = Prices(size, setting)
    ways = list(_inference(prices) if setting.task == "infer" else _training(prices))
    best = max(ways, default=Bound(0, "nothing takes time"))
    return Bound(setting.costs.steps(round(best.least)), best.reason)


def _inference(prices: Prices) -> Iterator[Bound]:
    """Inference. The last layer's forwards may all be last events, of which only the start counts."""
    layers = prices.size.layers
    if prices.can_infer:
        before, sharing = [prices.forward(layer) for layer in range(layers - 1)], _sharing(prices)
        work = prices.microbatches * sum(before)
        yield Bound(sum(map(prices.stage, before)), "a microbatch goes through all layers but the last")
        yield Bound(
            ceil(work / prices.together(sharing)),
            f"{_shared(sharing)} {prices.steps(work)} of forwards, before the forwards of the last layer",
        )


def _training(prices: Prices) -> Iterator[Bound]:
    if not prices.can_train:
        return
    layers, _, ranks = prices.size
    steps, rounds = prices.setting.steps, prices.rounds
    work = prices.microbatches * prices.step()
    step, why = max(_one_step(prices, work))
    yield Bound(step, why)
    if steps > 1 and prices.setting.task == "train" and not prices.first:
        before = max(_one_step(prices, prices.microbatches * prices.urgent())).least + prices.update
        yield Bound((rounds - 1) * before + step, f"{rounds} times: {why}, and layer 0 is updated before the next step")
    if steps > 1:
        chain = _chain(prices) - sum(prices.stage(prices.forward(layer)) for layer in range(prices.first))
        yield Bound(
            rounds * chain + (rounds - 1) * prices.update, f"{rounds} times: a microbatch goes forward and back"
        )
        sharing = _sharing(prices, prices.setting.lag + 1)
        reason = f"{_shared(sharing)} {prices.steps(steps * work)} of computing"
        yield Bound(ceil(steps * work / prices.together(sharing)), reason)
    layers = len(prices.trained)
    updates = max(0, layers * steps - ranks) * prices.least_update
    if updates and ranks > 1:
        yield Bound(
            ceil((steps * work + updates) / prices.together(ranks)),
            f"{_shared(ranks)} {prices.steps(steps * work)} of computing and {layers * steps} updates",
        )
    elif updates:
        reason = f"one rank computes for {prices.steps(steps * work)} and updates"
        yield Bound(ceil((steps * work + updates) / prices.speeds[0]), reason)


def _one_step(prices: Prices, work: Fraction) -> list[Bound]:
    """The time from the start of a step to the start of its last update, given the work before that."""
    _, batches, ranks = prices.size
    chain, sharing = _chain(prices), _sharing(prices)
    bounds = [
        Bound(chain, "a microbatch goes forward through all layers and back"),
        Bound(ceil(work / prices.together(sharing)), f"{_shared(sharing)} {prices.steps(work)} of computing"),
    ]
    # Ranks that each have a part of every layer need no exchange for their updates.
    together = min(batches, ranks) > 1 and prices.setting.task == "train" and not prices.is_cut
    exchange = prices.exchange() if together else Fraction(0)
    if exchange and not prices.has_halves:
        # An update of layer 0 waits for the last work of all ranks. It is on one of them; from the others there is an
        # exchange before it, so they have less time for their work. If ranks share the update, each keeps its share of
        # what it has to send: together they send as much as all ranks but one.
        ways = [(active, prices.together(active)) for active in range(1, ranks + 1)]
        least = min((ceil((work + (speed - prices.speeds[0]) * exchange) / speed), active) for active, speed in ways)
        if least[1] > 1:
            reason = f"{_shared(least[1])} {prices.steps(work)} of computing, and then exchange gradients"
            bounds.append(Bound(least[0], reason))
    if exchange:
        # Rounded up once: one operation may take all microbatches.
        alone = prices.microbatches * prices.urgent()
        reason = f"one rank has {prices.steps(alone)} of computing, and an exchange with another takes longer"
        meeting = "a microbatch goes forward and back, and its gradient is summed with the others"
        # Of two ranks that share the update, one has to send half of its gradient at least.
        half = prices.exchange(Fraction(1, 2))
        bounds.append(min(Bound(ceil(chain + half), meeting), Bound(ceil(alone / prices.speeds[0]), reason)))
    return bounds


def _chain(prices: Prices) -> int:
    """One microbatch, forward through all layers and back to the update of the first trained one."""
    layers = prices.size.layers
    back = sum(prices.stage(prices.at_once(layer)) for layer in range(prices.first + 1, layers))
    there = sum(prices.stage(prices.forward(layer)) for layer in range(layers))
    return there + back + prices.stage(prices.at_once(prices.first), summed=False)


def _sharing(prices: Prices, steps: int = 1) -> int:
    """The most ranks that can compute at once. A microbatch is in one layer at a time, unless layers or backwards can
    be split."""
    _, batches, ranks = prices.size
    apart = prices.is_cut or (prices.has_halves and prices.setting.task != "infer")
    return ranks if apart else min(ranks, steps * batches)


def _shared(ranks: int) -> str:
    return "one rank has" if ranks == 1 else f"at most {ranks} ranks share"


Stage = tuple[Collection[int], int]
"""The layers of a stage, and the ranks that compute them."""


def pipeline_time_bound(size: Size, setting: Setting, stages: Sequence[Stage]) -> Bound:
    """A lower bound on the timesteps of a pipeline whose stages have these layers and ranks."""
    prices = Prices(size, setting)
    require_stages(prices.size.layers, stages)
    if not prices.can_train or setting.task == "infer":
        return Bound(0, "")
    ticks, stage = max(((_stage_ticks(prices, stages, stage), stage) for stage in stages), key=lambda bound: bound[0])
    return Bound(setting.costs.steps(ticks), _reason(prices, stage))


def require_stages(layers: int, stages: Sequence[Stage]) -> None:
    """Refuses stages that do not have each layer once, on ranks."""
    placed = sorted(layer for some, _ in stages for layer in some)
    if placed != list(range(layers)) or any(ranks < 1 for _, ranks in stages):
        raise RuleError(
            f"stages have each of the layers 0 to {layers - 1} once, and at least one rank each; "
            f"these have the layers {placed}"
        )


def _reason(prices: Prices, stage: Stage) -> str:
    """'a rank has 16 steps of computing for layers 6, 7, after the forward and before the backward of layers 0-5'."""
    layers, first = sorted(stage[0]), _first(prices, stage)
    work = prices.setting.steps * _work(prices, stage)[0]
    before = f", after the forward and before the backward of {named('layer', range(first))}" if first else ""
    late = "; weight gradients may come later" if first and prices.has_halves else ""
    after = "; then its last microbatch goes through the other layers and back" if layers[-1] < prices.first else ""
    return f"a rank has {prices.steps(work)} of computing for {named('layer', layers)}{before}{late}{after}"


def _work(prices: Prices, stage: Stage) -> tuple[Fraction, Fraction]:
    """A rank's share of a stage's computation in a step, and the part of it for which other stages wait."""
    layers, ranks = stage
    share = prices.microbatches / prices.together(ranks)
    work = share * sum(prices.both(layer, prices.backward(layer)) for layer in layers)
    return work, share * sum(prices.both(layer, prices.at_once(layer)) for layer in layers)


def _stage_ticks(prices: Prices, stages: Sequence[Stage], stage: Stage) -> int:
    """The ramp, the work of a rank, and the way back; for several steps, with or without a pause between them."""
    steps, (work, urgent) = prices.setting.steps, _work(prices, stage)
    before = range(_first(prices, stage))
    # How often a microbatch changes ranks before it reaches the stage.
    where = {layer: place for place, (layers, _) in enumerate(stages) for layer in layers}

    def hops(layers: Iterable[int]) -> int:
        return sum(where[layer] != where[layer + 1] for layer in layers) * _message(prices)

    def back(layers: Iterable[int]) -> int:
        layers = [layer for layer in layers if layer >= prices.first]
        return hops(layers) + sum(prices.stage(prices.at_once(layer), layer > prices.first) for layer in layers)

    ramp = hops(before) + sum(prices.stage(prices.forward(layer)) for layer in before)
    home, last = back(before), max(stage[0])
    if last < prices.first and not prices.setting.lengths:  # a frozen stage: its last microbatch goes up, and back
        above = range(last + 1, prices.size.layers)
        home = hops(range(last, above[-1])) + sum(prices.stage(prices.forward(layer)) for layer in above)
        home += back(above[:-1]) + prices.stage(prices.at_once(above[-1]), above[-1] > prices.first)
    last_step = ramp + max(ceil(work), ceil(urgent) + home)
    if prices.setting.task != "train" or prices.first:
        return max(last_step, ramp + ceil(steps * work))
    step = ramp + ceil(urgent) + home + prices.update
    return max((prices.rounds - 1) * step + last_step, ramp + ceil(steps * work))


def _first(prices: Prices, stage: Stage) -> int:
    """The first layer of a stage; 0 if a microbatch has shares, since the first share arrives almost at once."""
    return min(stage[0]) if prices.setting.shares == 1 else 0


def _message(prices: Prices) -> int:
    """A lower bound on the time from the end of one stage to the start of the next."""
    names = ("pass_to", "receive")
    return prices.between(*names, elements=prices.activation) if all(map(prices.costs.priced, names)) else 0
