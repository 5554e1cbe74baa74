"""The least that the indispensable operations of a game take: one layer of one microbatch, an update, an exchange."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from lib.errors import RuleError
from lib.game.costs import COMPUTING
from lib.game.setting import Setting, Size

NEVER = Fraction(10**12)
"""Ticks of an operation that does not exist in a game."""

SUMMING = (("allreduce",), ("scatterreduce", "allgather"))
"""How parts of an activation become a whole: in one collective, or in two."""


class Prices:
    """Ticks, each the least that is possible. For backward, `layer` 0 needs no gradient of its input, which is the
    model's."""

    def __init__(self, size: Size, setting: Setting) -> None:
        if len(size) != 3 or not all(type(n) is int and n > 0 for n in size):
            raise RuleError(f"a size is layers, batches and ranks, each a whole number from 1 on; got {size!r}")
        self.size, self.setting, self.costs = Size(*size), setting, setting.costs
        self.is_cut = setting.layer != "dense" and size.ranks > 1
        """Ranks can share a layer of one microbatch."""
        self.forward = self._product("forward")
        self.whole, self.input, self.weight = map(self._product, ("backward", "backward_input", "backward_weight"))
        self.has_halves = min(self.input, self.weight) < NEVER
        self.update = self.costs.duration("update") if self.costs.priced("update") else 0

    def _product(self, name: str) -> Fraction:
        assert name in COMPUTING
        return self.costs.product(name) if self.costs.priced(name) else NEVER

    @property
    def can_infer(self) -> bool:
        return self.forward < NEVER

    @property
    def can_train(self) -> bool:
        """False if some operation that training needs does not exist."""
        return max(self.forward, min(self.whole, self.input), min(self.whole, self.weight)) < NEVER

    def backward(self, layer: int) -> Fraction:
        """Both halves of a layer's backward, for one microbatch."""
        return min(self.whole, self.input + self.weight) if layer else min(self.whole, self.weight)

    def at_once(self, layer: int) -> Fraction:
        """The part of a layer's backward that the layer before it waits for; of layer 0, that its update waits for."""
        return min(self.whole, self.input) if layer else min(self.whole, self.weight)

    def steps(self, ticks: Fraction) -> str:
        """'16 steps', '1,032 us'."""
        return f"{float(ticks / self.costs.unit):,.9g} {self.costs.time_unit}"

    def step(self) -> Fraction:
        """All computing of one microbatch."""
        return sum(map(self.backward, range(self.size.layers)), self.size.layers * self.forward)

    def urgent(self) -> Fraction:
        """The part of it that the update of layer 0 waits for."""
        return sum(map(self.at_once, range(self.size.layers)), self.size.layers * self.forward)

    def stage(self, product: Fraction, summed: bool = True) -> int:
        """One layer of one microbatch, by all ranks together if the layers can be cut; then parts are summed."""
        if not self.is_cut:
            return ceil(product)
        more = self._sum() if summed and self.setting.layer == "block" else 0
        return min(ceil(product), ceil(product / self.size.ranks) + more)

    def _sum(self) -> int:
        """The least until parts of a microbatch's activation, or of its gradient, are a whole on two ranks."""
        return min(
            (self.between(*names, elements=self.activation) for names in SUMMING if all(map(self.costs.priced, names))),
            default=0,
        )

    @property
    def activation(self) -> int:
        """The least that goes from one layer of a microbatch to the next."""
        return min(self.costs.activation, self.costs.activation_grad)

    def between(self, *names: str, elements: int = 0) -> int:
        """Some communication between two ranks, one after the other, with which so many elements of one get to the
        other. An all-gather after a reduce-scatter has half of them, since each rank has reduced half."""
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
        """The least until what one rank has computed last is on other ranks: a call, and the time to send what it has.
        That is the gradient of layer 0, or of an activation; of the first only `share` may have to be sent. To send
        nothing, another rank has to compute it too, which takes a backward."""
        ways = [("allreduce",), ("scatterreduce",), ("allgather",), ("pass_to", "receive")]
        if self.setting.layer == "experts":
            ways += [("dispatch",), ("collect",)]
        ways = [way for way in ways if all(map(self.costs.priced, way))]
        sent = min(share * self.costs.weight, Fraction(self.activation))
        call = Fraction(min((self.between(*way) for way in ways), default=0))
        found = call + sent * min(map(self._beta, ways), default=Fraction(0))
        return max(call, min(found, self.at_once(0), self.at_once(1)))

    def _beta(self, way: tuple[str, ...]) -> Fraction:
        """The least ticks for each element sent; none where several lanes could share it."""
        if self.costs.lanes != "one":
            return Fraction(0)
        inside = min(self.costs.beta.get(name, Fraction(0)) for name in way if name != "receive")
        between = [self.costs.beta_between.get(name, inside) for name in way if name != "receive"]
        return min(inside, *between) if self.costs.islands else inside
