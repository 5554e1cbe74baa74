"""Lower bounds, with reasons: no legal schedule of a size beats them in time, in memory or, within a time, in traffic.

In every schedule, each microbatch goes forward through all layers and back, in every step. Its weight gradients go into
updates, and an update starts after the backwards that it needs. So timesteps, the start of the last event, includes all
of that. Everything else that a schedule does is left out, so the bound need not be reached.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from lib import RuleError, Setting, Size
from lib.ledger.algebra import named
from lib.ledger.costs import PAIR, PRODUCTS

# --- Prices: lower bounds on the ticks of one layer of one microbatch, an update, an exchange ---

NEVER = Fraction(10**12)
"""Ticks of an operation that does not exist in a game."""

SUMMING = (("allreduce",), ("scatterreduce", "allgather"), ("reduce", "broadcast"))
"""How partial activations are summed: in one collective, or in two."""


ATTENTION = {"forward": ("keys", "attend"), "backward": ("keys_backward", "attend_backward")}
"""The operations of an attention layer that replace another layer's operation."""


class Prices:
    """Ticks, each a lower bound: for a full-length microbatch on the fastest rank. For backward, the `first` trained
    layer needs no gradient of its input, and layers below it need no backward; a frozen layer has no weight half."""

    def __init__(self, size: Size, setting: Setting) -> None:
        if len(size) != 3 or not all(type(n) is int and n > 0 for n in size):
            raise RuleError(f"a size is layers, batches and ranks, each a whole number from 1 on; got {size!r}")
        self.size, self.setting, self.costs = Size(*size), setting, setting.costs
        self.is_cut = setting.layer != "dense" and size.ranks > 1
        """True if ranks can share a layer of one microbatch."""
        layers, slow = range(self.size.layers), self.costs.slow
        products = {name: [self._product(name, layer) for layer in layers] for name in sorted(PRODUCTS)}
        self._forward, self._whole = products["forward"], products["backward"]
        self._input, self._weight = products["backward_input"], products["backward_weight"]
        self.has_halves = any(min(pair) < NEVER for pair in zip(self._input, self._weight))
        on_device = self.costs.priced("update") and not self.costs.priced("tier_update")
        updates = [self._price("update", layer) if on_device else Fraction(0) for layer in layers]
        self.speeds = sorted((Fraction(1, slow.get(rank, 1)) for rank in range(self.size.ranks)), reverse=True)
        """The speed of each rank, the fastest first; 1 if it is not slow."""
        self._sums = [*accumulate(self.speeds, initial=Fraction(0))]
        self.trained = [layer for layer in layers if layer not in setting.frozen]
        self.first = self.trained[0]
        self.least_update = min(updates[layer] for layer in self.trained)
        self.update = ceil(updates[self.first] / self.speeds[0])
        """The update of the first trained layer, on the fastest rank."""
        self.lengths = setting.lengths or (Fraction(1),) * self.size.batches
        if setting.layer == "attention" and self.can_infer:
            linear = Fraction(self.costs.duration("keys"), max(1, int(self._forward[0])))
            self.lengths = tuple(linear * length + (1 - linear) * length**2 for length in self.lengths)
        self.microbatches = sum(self.lengths, Fraction(0))
        """All microbatches, counted in full-length ones."""

    def _product(self, name: str, layer: int) -> Fraction:
        needed = ATTENTION.get(name, ()) if self.setting.layer == "attention" else (name,)
        return self._price(name, layer) if needed and all(map(self.costs.priced, needed)) else NEVER

    def _price(self, name: str, layer: int) -> Fraction:
        if name in ATTENTION and self.setting.layer == "attention":
            return Fraction(sum(self.costs.duration(part) for part in ATTENTION[name]))
        unequal = self.costs.unequal
        return self.costs.product(name) if unequal is None else unequal.price(name, layer)

    @property
    def rounds(self) -> int:
        """Steps that must follow each other. With a lag, a step need not wait for the updates of the previous one."""
        return -(-self.setting.steps // (self.setting.lag + 1))

    def together(self, ranks: int) -> Fraction:
        """The speed of so many ranks together, the fastest ones, counted in ranks that are not slow."""
        return self._sums[min(ranks, len(self.speeds))]

    @property
    def can_infer(self) -> bool:
        return max(self._forward) < NEVER

    @property
    def can_train(self) -> bool:
        layers = range(self.size.layers)
        return self.can_infer and all(
            max(self.at_once(i), min(self._whole[i], self._weight[i])) < NEVER for i in layers
        )

    def forward(self, layer: int) -> Fraction:
        return self._forward[layer]

    def backward(self, layer: int) -> Fraction:
        """Both halves of a layer's backward, for one microbatch."""
        if layer < self.first or layer in self.setting.frozen:
            return self.at_once(layer)
        halves = self._weight[layer] + (self._input[layer] if layer > self.first else 0)
        return min(self._whole[layer], halves)

    def at_once(self, layer: int) -> Fraction:
        """The part of a layer's backward for which the previous layer waits; of the first trained layer, for which its
        update waits."""
        if layer < self.first:
            return Fraction(0)
        return min(self._whole[layer], (self._input if layer > self.first else self._weight)[layer])

    def steps(self, ticks: Fraction) -> str:
        """'16 steps', '1,032 us'."""
        return f"{float(ticks / self.costs.unit):,.9g} {self.costs.time_unit}"

    def step(self) -> Fraction:
        """All computation of a full-length microbatch."""
        return sum((self.both(layer, self.backward(layer)) for layer in range(self.size.layers)), Fraction(0))

    def urgent(self) -> Fraction:
        """The part of `step` for which the update of the first trained layer waits."""
        return sum((self.both(layer, self.at_once(layer)) for layer in range(self.size.layers)), Fraction(0))

    def both(self, layer: int, back: Fraction) -> Fraction:
        """A layer's forward and a part of its backward, each perhaps paired with another microbatch's."""
        apart = self.forward(layer) + back
        return min(apart, Fraction(self.costs.ticks[PAIR])) if self.costs.priced(PAIR) else apart

    def stage(self, product: Fraction, summed: bool = True) -> int:
        """One layer of the longest microbatch; if layers can be split, on all ranks together, and then the parts are
        summed."""
        product = product * max(self.lengths) / self.speeds[0]
        if not self.is_cut:
            return ceil(product)
        more = self._sum() if summed and self.setting.layer == "block" else 0
        return min(ceil(product), ceil(product / self.size.ranks) + more)

    def _sum(self) -> int:
        """A lower bound on the time to sum parts of a microbatch's activation, or of its gradient, on two ranks."""
        return min(
            (self.between(*names, elements=self.activation) for names in SUMMING if all(map(self.costs.priced, names))),
            default=0,
        )

    @property
    def activation(self) -> int:
        """A lower bound on the time from one layer of a microbatch to the next."""
        unequal, between = self.costs.unequal, range(1, self.size.layers)
        if unequal is None:
            return min(self.costs.activation, self.costs.activation_grad)
        sizes = [size for layer in between for size in (unequal.input(layer), unequal.gradient(layer - 1))]
        return int(min(sizes, default=0) * min(self.lengths))

    def data(self, layer: int, gradient: bool = True, of: Callable[[Sequence[Fraction]], Fraction] = max) -> int:
        """Elements of a layer's input and of its output's gradient, for the longest or the shortest microbatch."""
        costs, unequal = self.costs, self.costs.unequal
        if unequal is None:
            return costs.activation + gradient * costs.activation_grad
        return int((unequal.input(layer) + gradient * unequal.gradient(layer)) * of(self.lengths))

    def weight(self, layer: int) -> int:
        """Elements of a layer's weight."""
        return self.costs.weight if self.costs.unequal is None else self.costs.unequal.weight(layer)

    def between(self, *names: str, elements: int = 0) -> int:
        """The least communication between two ranks that brings so many elements from one to the other. An all-gather
        after a reduce-scatter brings half of them, since each rank has reduced half."""
        islands = self.costs.islands
        pairs = [(0, 1), *([(0, islands)] if 0 < islands < self.size.ranks else [])]
        halves = len(names) > 1
        return sum(
            min(
                self.costs.transfer(name, 1, elements // 2 if halves and name == "allgather" else elements, pair)
                for pair in pairs
            )
            for name in names
        )

    def exchange(self, share: Fraction = Fraction(1)) -> Fraction:
        """A lower bound on the time until one rank's last result is on other ranks: a call, and the time to send the
        gradient of the first trained layer, of which only `share` may have to be sent, or the gradient of an
        activation. If nothing is sent, another rank has to compute it too, which takes a backward."""
        ways = [("allreduce",), ("scatterreduce",), ("allgather",), ("broadcast",), ("reduce",), ("pass_to", "receive")]
        if self.setting.layer == "experts":
            ways += [("dispatch",), ("collect",)]
        ways = [way for way in ways if all(map(self.costs.priced, way))]
        sent = min(share * self.weight(self.first), Fraction(self.activation))
        call = Fraction(min((self.between(*way) for way in ways), default=0))
        exchanged = call + sent * min(map(self._beta, ways), default=Fraction(0))
        again = min(map(self.at_once, range(self.size.layers))) * min(self.lengths) / self.speeds[0]
        return max(call, min(exchanged, again))

    def _beta(self, way: tuple[str, ...]) -> Fraction:
        """The least ticks per element sent; 0 where several lanes could share the element."""
        if self.costs.lanes != "one":
            return Fraction(0)
        inside = min(self.costs.beta.get(name, Fraction(0)) for name in way if name != "receive")
        between = [self.costs.beta_between.get(name, inside) for name in way if name != "receive"]
        return min(inside, *between) if self.costs.islands else inside


# --- Time, in any order and on any ranks ---


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


# --- Memory, and the traffic of the busiest rank ---


def memory_bound(size: Size, setting: Setting) -> Bound:
    """A lower bound on the peak memory of any legal schedule of this size and setting, in elements."""
    prices = Prices(size, setting)
    ways = list(_memory_of_inference(prices) if setting.task == "infer" else _memory_of_training(prices))
    return max(ways, key=lambda bound: bound.least, default=Bound(0, "no value has to be kept"))


def _memory_of_inference(prices: Prices) -> Iterator[Bound]:
    if prices.setting.layer == "dense":
        used = [prices.weight(layer) + prices.data(layer, gradient=False) for layer in range(prices.size.layers)]
        yield Bound(max(used), "a forward uses a weight and an activation")


def _memory_of_training(prices: Prices) -> Iterator[Bound]:
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
