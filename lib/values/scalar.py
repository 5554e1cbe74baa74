"""Defines the one value of the game that is a number: the norm of gradients."""

from dataclasses import dataclass

from lib.errors import RuleError
from lib.game.costs import CLASSIC, Costs

from . import algebra
from .base import Summed
from .label_text import norm_text, step_text
from .words import SAYS


@dataclass(frozen=True, slots=True, repr=False)
class Scalar(Summed):
    """One element: the sum of the squares of a step's gradient, whose root is its norm.

    Shard i of n of layer l, of L layers, is shard l * n + i of `total` = L * n.
    """

    layers: int
    step: int
    shards: frozenset[int]
    total: int
    version: int | None = None

    kind = "a norm"

    def __post_init__(self) -> None:
        owner = type(self).__name__
        layers = algebra.whole_number(self.layers, "layers", owner, least=1)
        total = algebra.whole_number(self.total, "total", owner, least=layers)
        step = algebra.whole_number(self.step, "step", owner, least=0)
        shards = algebra.numbers(self.shards, total, "shard", owner)
        if total % layers or not shards:
            raise RuleError(SAYS("no norm", owner=owner, layers=layers, shards=self.shards, total=total))
        version = algebra.version(self.version, step, owner)
        self._freeze(layers=layers, total=total, step=step, shards=shards, version=version)

    @property
    def layer(self) -> int:  # type: ignore[override]  # here it is no field
        """The layer that a collective's record names: a norm is of several."""
        return 0

    def memory(self, costs: Costs = CLASSIC) -> int:
        return 1

    def is_complete(self) -> bool:
        return len(self.shards) == self.total

    def __str__(self) -> str:
        return f"norm of {norm_text(self)}{step_text(self)}"
