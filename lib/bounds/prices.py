"""Lower bounds on the ticks of a game's indispensable operations: one layer of one microbatch, an update, an
exchange."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate
from math import ceil

from lib import RuleError, Setting, Size
from lib.game.costs import PAIR, PRODUCTS

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
