"""Defines the training steps that a schedule performs on real tensors: data, loss, optimizer.

The loss is half the squared distance to a target, the optimizer SGD with momentum; the layers are in `layers`. With a
hidden width h and a length n, a weight is (h, h) and an activation (n, h) per batch: as many numbers as the game counts
elements, 4 bytes each.
"""

from math import lcm
from typing import Any

import numpy as np

from lib.engine.collectives import Array
from lib.engine.metering.meter import unmetered
from lib.errors import TraceError
from lib.game.costs import EMBEDDING, HEAD, Costs, Kind
from lib.game.setting import Setting, Size

from .layers import layer_of

SMALL = 16, 8
"""Width and tokens for tests, 32 times smaller than in the game; with 16 ranks, each still holds a row."""

VOCABULARY = (EMBEDDING, HEAD)
"""The kinds of layers whose weight has a row for each token number."""


class Shapes:
    """Widths, rows and tokens. An embedding and a head have V rows, a multiple of the width; other layers have as many
    rows as their width."""

    def __init__(self, setting: Setting, small: bool, width: int = 0) -> None:
        costs, self.kinds, self.lengths = setting.costs, setting.kinds, setting.lengths
        self.hidden, self.length = SMALL if small else (costs.hidden, costs.length)
        if width:
            self.hidden, self.length = width, max(1, width * costs.length // costs.hidden)
        if small or width:
            denominators = [length.denominator for length in self.lengths] or [1]
            self.length = lcm(self.length, *[setting.shares * denominator for denominator in denominators])
        kinds = {name: self._kind(name, kind, costs) for name, kind in costs.kinds.items() if name in self.kinds}
        self.costs = Costs(
            "tensors", self.hidden, self.length, kinds=kinds, keys_values=self.hidden * self.length
        ).for_game(self.kinds, self.lengths)

    def _kind(self, name: str, kind: Kind, costs: Costs) -> Kind:
        if name not in VOCABULARY or kind.weight is None:
            if {kind.inp, kind.out} - {None, costs.activation} or name in VOCABULARY:
                raise TraceError(
                    f"a replay knows no tensors for the kind {name!r}: an {EMBEDDING} and a {HEAD} have a weight of V "
                    "rows, other kinds make and take what a layer does"
                )
            return Kind()
        rows, left = divmod(kind.weight, costs.hidden)
        times, odd = divmod(rows, costs.hidden)
        sizes = (costs.length, None) if name == EMBEDDING else (None, costs.length * rows)
        if left or odd or (kind.inp, kind.out) != sizes:
            raise TraceError(
                f"a replay's {name} has a weight of V x {costs.hidden:,}, V a multiple of {costs.hidden:,}, and "
                f"{'takes a number for each token' if name == EMBEDDING else 'makes V logits for each token'}"
            )
        rows = times * self.hidden
        return Kind(rows * self.hidden, *((self.length, None) if name == EMBEDDING else (None, self.length * rows)))

    def rows(self, layer: int) -> int:
        return self.hidden if self.costs.unequal is None else self.costs.unequal.weight(layer) // self.hidden

    def width(self, layer: int) -> int | None:
        """The width of a layer's input, or of the output if `layer` is past the last; None if it is hidden."""
        if self.kinds and layer == 0 and self.kinds[0] == EMBEDDING:
            return 1
        of_head = self.kinds and layer == len(self.kinds) and self.kinds[-1] == HEAD
        return self.rows(layer - 1) if of_head else None

    def tokens(self, batch: int) -> int:
        return int(self.length * self.lengths[batch]) if self.lengths else self.length


def odd_kinds(setting: Setting) -> list[str]:
    """The kinds whose weight differs in size from its tensor in a replay."""
    kinds, usual = setting.costs.kinds, (None, setting.costs.hidden**2)
    odd = {name for name in setting.kinds if name in kinds and kinds[name].weight not in usual}
    return sorted(odd - {*VOCABULARY})


TOLERANCE = 1e-4
"""Relative to the largest weight: float32 sums in another order differ a little. Where such a difference makes a number
negative, relu drops one token's part of a gradient that it passed before."""


class Workload:
    """Weights, momenta, and the inputs and targets of every step.

    The small workload uses whole numbers modulo 2**32, whose sums are exact in any order; the full one uses float32.
    Inputs and weights are drawn on demand, and targets beforehand, since losses are timed. Neither is charged to a
    device.
    """

    def __init__(self, size: Size, setting: Setting, small: bool, width: int = 0) -> None:
        self.size = size
        self.setting = setting
        self.shapes = Shapes(setting, small, width)
        kinds, rows = setting.kinds or ("",) * size.layers, self.shapes.rows
        hidden, length = self.shapes.hidden, self.shapes.length
        self.layers = [layer_of(setting.layer, kind, rows(i), hidden, length) for i, kind in enumerate(kinds)]
        self.exact = small
        tokens = sum(map(self.shapes.tokens, range(size.batches)))
        # In float32 momenta begin about as large as gradients, and one token's part of a gradient, which a number close
        # to 0 may turn on or off, changes a weight by less than TOLERANCE.
        numbers: tuple[Any, Any] = (3, 5) if small else (0.001 / tokens, 0.9)
        self.rate, self.decay = numbers
        self.momentum = float(tokens)
        self.largest_norm = self.momentum * hidden
        every = [(batch, step) for batch in range(size.batches) for step in range(setting.steps)]
        self._targets = {pair: self._data([3, *pair], size.layers) for pair in every}

    @property
    def dtype(self) -> Any:
        return np.int32 if self.exact else np.float32

    @property
    def costs(self) -> Costs:
        """The sizes of the tensors, as costs."""
        return self.shapes.costs

    def weight(self, layer: int) -> Array:
        scale = (self.layers[layer].variance / self.shapes.hidden) ** 0.5
        return self._drawn([0, layer], self.shapes.rows(layer), scale)

    def state(self, layer: int) -> Array:
        return self._drawn([1, layer], self.shapes.rows(layer), self.momentum)

    def outer_state(self, layer: int) -> Array:
        return self._drawn([4, layer], self.shapes.rows(layer), 1.0 if self.exact else 0.01)

    def input(self, batch: int, step: int = 0) -> Array:
        return self._data([2, batch, step], 0)

    def target(self, batch: int, step: int = 0) -> Array:
        return self._targets[batch, step]

    def squares(self, grad: Array) -> Array:
        """The sum of the squares of a gradient, as a tensor of (1, 1)."""
        return grad.reshape(1, -1) @ grad.reshape(-1, 1)

    def update(self, grad: Array, weight: Array, state: Array, norm: Array | None = None) -> tuple[Array, Array]:
        """With a `norm`, the sum of the squares of all gradients, the gradient is scaled to a norm of its own; of whole
        numbers it is multiplied."""
        if norm is not None:
            grad = grad * norm if self.exact else grad * (self.largest_norm / norm**0.5)
        state = self.decay * state + grad
        return weight - self.rate * state, state

    def outer_update(self, before: Array, total: Array, n: int, state: Array) -> tuple[Array, Array]:
        """SGD with Nesterov momentum (Douillard et al. 2023, section 3.1) on the mean of `n` changes."""
        rate, decay = (3, 5) if self.exact else (0.7, 0.9)
        mean = self.average(total, n)
        state = decay * state + mean
        return before - rate * (mean + decay * state), state

    def mixed(self, copy: Array, agreed: Array) -> Array:
        """A copy mixed with its share of the agreed weight; whole numbers are rounded down."""
        share, of = self.setting.mix.as_integer_ratio()
        return self.average(share * copy + (of - share) * agreed, of)

    def average(self, total: Array, n: int) -> Array:
        """The average from a sum of `n`. Whole numbers are rounded down, which keeps the average as exact as the
        sum."""
        return total // n if self.exact else total / n

    def error(self, result: Any, right: Array) -> float:
        """The largest difference of a tensor from the right one, relative to the largest right entry."""
        if self.exact:
            return 0.0 if np.array_equal(result, right) else float("inf")
        scale = float(np.abs(right).max())
        return float(np.abs(result - right).max()) / scale if np.isfinite(result).all() else float("inf")

    def _data(self, key: list[int], layer: int) -> Array:
        """A microbatch's input for layer 0, or its target for the layer past the last. An embedding's input and a
        head's target are token numbers."""
        tokens, looked_up = self.shapes.tokens(key[1]), self.shapes.width(layer) is not None
        if not looked_up:
            return self._drawn(key, tokens, 1.0)
        with unmetered():
            vocabulary = self.shapes.rows(min(layer, self.size.layers - 1))
            return np.random.default_rng(key).integers(0, vocabulary, (tokens, 1)).astype(self.dtype)

    def _drawn(self, key: list[int], rows: int, scale: float) -> Array:
        with unmetered():
            draw = np.random.default_rng(key)
            shape = (rows, self.shapes.hidden)
            drawn = draw.integers(-2, 3, shape) if self.exact else draw.standard_normal(shape) * scale
            return drawn.astype(self.dtype)
