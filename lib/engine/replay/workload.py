"""What a replay computes: layers, data, loss and optimizer on arrays, and which part of them each value of the game is.

Operations of the game are played on matrices of the sizes that the game counts. Small replays use whole numbers, whose
sums are exact in any order, so a wrong schedule cannot hide behind rounding; the others use float32. Layers are simple
where the game's figures do not depend on them: attention has no softmax.

In which order ranks compute is left to `rank`, and what a single device trains to `comparison`.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from math import lcm
from typing import Any, NamedTuple

import numpy as np

from lib.engine.collectives import Array
from lib.engine.metering import unmetered
from lib.engine.transport import cast_like, namespace, numbers
from lib.errors import Sentences, TraceError
from lib.ledger.costs import EMBEDDING, HEAD, PRODUCTS, Costs, Kind
from lib.ledger.setting import Setting, Size
from lib.ledger.trace import Op
from lib.ledger.values import Activation, ActivationGrad, Batched, Parked, Scalar, Sharded, Value

# --- An attention layer, on arrays of numpy or torch: some tokens attend to some keys, head by head ---
#
# With z = x V as both keys and values, the output for n tokens is x + (x z' masked) z / n in each head. There is no
# softmax: its two numbers per token change neither the order of operations nor sizes. Without the division, numbers
# would overflow after a few layers; without x, they would vanish. x and its gradient are added where a token meets its
# own keys.

HEADS = 8

Places = Sequence[int]
"""Positions of some tokens in their sequence; the next sequence of a tensor begins at the next multiple of the full
length."""


class Attention:
    """Activations, keys and values are (batches, tokens, h). A tensor of some heads has only the columns of these
    heads."""

    variance = 1.0

    def __init__(self, hidden: int, length: int) -> None:
        self.width, self.length = hidden // HEADS, length

    # --- Of some tokens and keys ---

    def keys(self, inp: Array, weight: Array) -> Array:
        return inp @ weight

    def attend(self, inp: Array, queries: Places, keys: Array, places: Places) -> Array:
        q, z, mask = self._heads(inp), self._heads(keys), self._mask(inp, queries, places)
        seen = self._together(((q @ z.swapaxes(-1, -2)) * mask) @ z)
        out: Array = self._divided(seen) + inp * self._own(inp, queries, places)
        return out

    def attend_backward(
        self, inp: Array, queries: Places, keys: Array, places: Places, grad: Array
    ) -> tuple[Array, Array]:
        """The gradients of the queries and of the keys."""
        q, z, g = self._heads(inp), self._heads(keys), self._heads(grad)
        mask = self._mask(inp, queries, places)
        scores, back = (q @ z.swapaxes(-1, -2)) * mask, (g @ z.swapaxes(-1, -2)) * mask
        of_queries = self._divided(self._together(back @ z)) + grad * self._own(inp, queries, places)
        of_keys = self._together(scores.swapaxes(-1, -2) @ g + back.swapaxes(-1, -2) @ q)
        return of_queries, self._divided(of_keys)

    def keys_backward(self, inp: Array, grad: Array, weight: Array, through: Array) -> tuple[Array, Array]:
        """The weight gradient, and the gradient of the input."""
        h = inp.shape[-1]
        return inp.reshape(-1, h).T @ grad.reshape(-1, h), through + grad @ weight.T

    # --- Of a whole sequence on one device ---

    def forward(self, inp: Array, weight: Array) -> Array:
        all_places = range(inp.shape[1])
        return self.attend(inp, all_places, self.keys(inp, weight), all_places)

    def loss(self, out: Array, target: Array) -> Array:
        return out - target

    def backward_input(self, inp: Array, grad: Array, weight: Array) -> Array:
        return self._backward(inp, grad, weight)[1]

    def backward_weight(self, inp: Array, grad: Array, weight: Array | None = None) -> Array:
        if weight is None:
            raise TraceError("the weight half of a layer of attention needs its weight")
        return self._backward(inp, grad, weight)[0]

    def _backward(self, inp: Array, grad: Array, weight: Array) -> tuple[Array, Array]:
        all_places = range(inp.shape[1])
        through, of_keys = self.attend_backward(inp, all_places, self.keys(inp, weight), all_places, grad)
        return self.keys_backward(inp, of_keys, weight, through)

    # --- Parts ---

    def _heads(self, value: Array) -> Array:
        """(batches, heads, tokens, width of a head)."""
        batches, tokens, _ = value.shape
        split: Array = value.reshape(batches, tokens, -1, self.width).swapaxes(1, 2)
        return split

    def _together(self, value: Array) -> Array:
        batches, _, tokens, _ = value.shape
        joined: Array = value.swapaxes(1, 2).reshape(batches, tokens, -1)
        return joined

    def _mask(self, like: Array, queries: Places, places: Places) -> Array:
        """(queries, keys): 1 where a query sees a key, of its own sequence."""
        q, k = self._of(like, queries)[:, None], self._of(like, places)[None]
        return cast_like(like, (q >= k) & (q // self.length == k // self.length))

    def _own(self, like: Array, queries: Places, places: Places) -> Array:
        """(queries, 1): 1 where the keys have the query's token."""
        there = self._of(like, queries)[:, None] == self._of(like, places)[None]
        return cast_like(like, there.any(-1))[:, None]

    def _of(self, like: Array, places: Places) -> Array:
        chosen: Array = numbers(max(places) + 1, like)[list(places)]
        return chosen

    def _divided(self, value: Array) -> Array:
        """Whole numbers are not divided: they do not overflow."""
        return value if "int" in str(value.dtype) else value / self.length


# --- The mathematics of each kind of layer, for one device and for many, on arrays of numpy or torch ---
#
# A dense layer takes the gradient of its product, before relu. So the weight half of backward needs no weight (Qi et
# al. 2024, section 2), and the input half masks with the input, which relu has left positive or zero.

EXPERTS = 8
"""Experts in a layer of experts. Expert i takes the i-th share of every microbatch's tokens, so that all have equal
work, and the i-th share of the weight's rows. A device's shard of a weight may hold several experts."""


class Dense:
    """relu(x W), with an unsharded weight."""

    variance = 2.0

    def forward(self, inp: Array, weight: Array) -> Array:
        return relu(inp @ weight)

    def loss(self, out: Array, target: Array) -> Array:
        return (out - target) * (out > 0)

    def backward_input(self, inp: Array, grad: Array, weight: Array) -> Array:
        return (grad @ weight.T) * (inp > 0)

    def backward_weight(self, inp: Array, grad: Array, weight: Array | None = None) -> Array:
        h = inp.shape[-1]
        if weight is not None:  # a whole backward: its own weight leaves the gradient as it is, another does not
            grad = grad * (inp @ weight > 0)
        return inp.reshape(-1, h).T @ grad.reshape(-1, h)


class Block:
    """relu(x V') V, where a shard of the rows of V yields one summand of the output (Shoeybi et al. 2019, section
    3)."""

    variance = 1.15

    def forward(self, inp: Array, weight: Array) -> Array:
        x, v = self.by_expert(inp, weight)
        return (relu(x @ turned(v)) @ v).reshape(inp.shape)

    def loss(self, out: Array, target: Array) -> Array:
        return out - target

    def backward_input(self, inp: Array, grad: Array, weight: Array) -> Array:
        x, v = self.by_expert(inp, weight)
        g, _ = self.by_expert(grad, weight)
        return (((g @ turned(v)) * (x @ turned(v) > 0)) @ v).reshape(inp.shape)

    def backward_weight(self, inp: Array, grad: Array, weight: Array | None = None) -> Array:
        if weight is None:
            raise TraceError("the weight half of a layer that can be cut needs its weight")
        x, v = self.by_expert(inp, weight)
        g, _ = self.by_expert(grad, weight)
        reached = x @ turned(v)
        back = (g @ turned(v)) * (reached > 0)
        gradients = turned(relu(reached)) @ g + turned(back) @ x
        total: Array = gradients.sum(axis=0, dtype=gradients.dtype).reshape(weight.shape)
        return total

    def by_expert(self, tokens: Array, weight: Array) -> tuple[Array, Array]:
        """Tokens as (batches, experts, tokens of each, h), and a weight as (experts, rows of each, h)."""
        return tokens[:, None], weight[None]


class ExpertBlocks(Block):
    """A block in which each token meets only the rows of its own expert (Lepikhin et al. 2020, section 3.2)."""

    variance = 4.0

    def by_expert(self, tokens: Array, weight: Array) -> tuple[Array, Array]:
        (rows, h), (batches, count, _) = weight.shape, tokens.shape
        experts, left = divmod(rows * EXPERTS, h)
        if left or not experts or count % experts:
            raise TraceError(f"{count} tokens do not go to {rows} rows: a layer has {EXPERTS} experts of {h} rows")
        return tokens.reshape(batches, experts, -1, h), weight.reshape(experts, -1, h)


class Embedding(Dense):
    """relu(W[token]): the rows of W that the token numbers select, as a product with one-hot tokens."""

    def __init__(self, rows: int, hidden: int) -> None:
        self.rows = rows
        self.variance = float(hidden)

    def forward(self, inp: Array, weight: Array) -> Array:
        return relu(self.one_hot(inp, weight) @ weight)

    def backward_input(self, inp: Array, grad: Array, weight: Array) -> Array:
        raise TraceError("token numbers have no gradient")

    def backward_weight(self, inp: Array, grad: Array, weight: Array | None = None) -> Array:
        return self.one_hot(inp, grad).reshape(-1, self.rows).T @ grad.reshape(-1, grad.shape[-1])

    def one_hot(self, tokens: Array, like: Array) -> Array:
        """One-hot tokens (batches, tokens, V) for token numbers (batches, tokens, 1)."""
        return cast_like(like, numbers(self.rows, tokens) == tokens)


class Head(Dense):
    """Logits x W' for the V rows of W. The loss is V times the cross entropy with the target token numbers, so that
    gradients have the size of other losses' gradients. In whole numbers it is half the squared distance to one-hot
    targets."""

    variance = 2.0

    def forward(self, inp: Array, weight: Array) -> Array:
        return inp @ weight.T

    def loss(self, out: Array, target: Array) -> Array:
        right = cast_like(out, numbers(out.shape[-1], out) == target)
        if "int" in str(out.dtype):
            return out - right
        xp = namespace(out)
        scores = xp.exp(out - xp.max(out, axis=-1, keepdims=True))
        change: Array = (scores / xp.sum(scores, axis=-1, keepdims=True) - right) * out.shape[-1]
        return change

    def backward_input(self, inp: Array, grad: Array, weight: Array) -> Array:
        return (grad @ weight) * (inp > 0)

    def backward_weight(self, inp: Array, grad: Array, weight: Array | None = None) -> Array:
        return grad.reshape(-1, grad.shape[-1]).T @ inp.reshape(-1, inp.shape[-1])


Layer = Dense | Block | Attention
"""What one layer computes. `inp`, `grad` and the results are (batches, tokens, h); weights are (rows, h). `variance`
divided by the width is the variance of a weight's initial numbers, which keeps the size of activations."""

LAYERS: Mapping[str, Layer] = {"dense": Dense(), "block": Block(), "experts": ExpertBlocks()}


def layer_of(name: str, kind: str, rows: int, hidden: int, length: int) -> Layer:
    """One layer of a setting, by the setting's `name` of its layers and the layer's kind; its weight is (rows,
    hidden)."""
    if name == "attention":
        return Attention(hidden, length)
    return Embedding(rows, hidden) if kind == EMBEDDING else Head() if kind == HEAD else LAYERS[name]


def relu(x: Array) -> Array:
    return x.clip(0)


def turned(matrices: Array) -> Array:
    return matrices.swapaxes(-1, -2)


# --- Defines the training steps that a schedule performs on real tensors: data, loss, optimizer ---
#
# The loss is half the squared distance to a target, the optimizer SGD with momentum. With a hidden width h and a length
# n, a weight is (h, h) and an activation (n, h) per batch: as many numbers as the game counts elements, 4 bytes each.

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
        self.costs = Costs(  # the sizes of the tensors
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


# --- What each tensor holds: the rows of a weight or the tokens of microbatches that a value of the game stands for ---


class Content(NamedTuple):
    """What a tensor holds. Its `places` are rows of a weight in a tensor of (rows, hidden), or tokens in a tensor of
    (batches, tokens, width). Where microbatches have lengths, their tokens follow each other: (1, tokens, width). The
    tokens of each begin at a multiple of the full length."""

    value: Value
    places: tuple[int, ...]
    shape: tuple[int, ...]
    vocabulary: tuple[int, ...] = ()
    """Of scores of a split head: the rows of the head that they belong to."""
    tier: str = ""
    """The tier where it is parked; empty for a tensor on the device."""

    @property
    def axis(self) -> int:
        """The axis along which the tensor is split: its rows or its tokens."""
        return 0 if len(self.shape) == 2 else 1

    @property
    def batches(self) -> list[int]:
        """The microbatches of an activation or its gradient, in the order of the tensor."""
        assert isinstance(self.value, Batched)
        return sorted(self.value.batches)


Result = tuple[int | None, Content, Array]
"""A result that a rank has declared: the layer of a final weight, ~layer of a final copy, or None for an output; its
content; the tensor."""


class TensorExchange(NamedTuple):
    """One tensor's part in a collective: the group, this rank's position in it, and all ranks' inputs and results."""

    group: tuple[int, ...]
    place: int
    inputs: Sequence[Content]
    results: Sequence[Content]


def content_of(value: Value, shapes: Shapes) -> Content:
    """What the tensor of a value holds.

    Raises:
        TraceError: the rows or tokens cannot be cut into the value's shards.
    """
    if isinstance(value, Parked):
        return content_of(value.value, shapes)._replace(tier=value.tier)
    if isinstance(value, Scalar):
        return Content(value, (0,), (1, 1))
    if isinstance(value, Sharded):
        rows = _places(shapes.rows(value.layer), value.shards, value.total)
        return Content(value, rows, (len(rows), shapes.hidden))
    assert isinstance(value, Batched)
    reader = value.layer + isinstance(value, ActivationGrad)
    counts = [shapes.tokens(batch) for batch in sorted(value.batches)] if shapes.lengths else [shapes.length]
    width = shapes.width(reader) or shapes.hidden
    scored: tuple[int, ...] = ()
    if value.vocabulary and reader == value.layers:
        scored = _places(shapes.rows(value.layers - 1), value.shards, value.total)
        share, width = (frozenset((0,)), 1), len(scored)
    else:
        share = value.shards, value.total
        if value.vocabulary:
            width = width_with_sums(shapes.hidden)
    tokens = tuple([i * shapes.length + at for i, count in enumerate(counts) for at in _places(count, *share)])
    heads = 1 if value.heads is None else value.heads[1]
    batches = 1 if shapes.lengths else len(value.batches)
    return Content(value, tokens, (batches, len(tokens), width // heads), scored)


def is_output(content: Content) -> bool:
    """True for an output of inference, which has microbatches; other results are weights."""
    return isinstance(content.value, Activation)


def width_with_sums(hidden: int) -> int:
    """Numbers per token in the input gradient that a split head makes."""
    return 2 * hidden + 1


@cache
def _places(count: int, shards: frozenset[int], total: int) -> tuple[int, ...]:
    """Positions of some of `total` equal shards, out of `count` rows or tokens."""
    if count % total:
        raise TraceError(SAYS("no equal shards", count=count, total=total))
    size = count // total
    return tuple([place for shard in sorted(shards) for place in range(shard * size, (shard + 1) * size)])


def index_of(have: tuple[int, ...], wanted: tuple[int, ...]) -> Any:
    """The index of the wanted numbers among those that exist: a slice if they are adjacent."""
    if have == wanted:
        return slice(None)
    place = {number: i for i, number in enumerate(have)}
    places = [place[number] for number in wanted]
    return slice(places[0], places[-1] + 1) if places == [*range(places[0], places[-1] + 1)] else places


def taken(tensor: Array, content: Content, wanted: tuple[int, ...]) -> Array:
    """The wanted rows or tokens of a tensor, as a view where possible."""
    return tensor[(*[slice(None)] * content.axis, index_of(content.places, wanted))]


def joined(tensors: Sequence[Array], contents: Sequence[Content], wanted: Content, result: Array) -> Array:
    """Writes the rows or tokens of all tensors into `result`."""
    for tensor, content in zip(tensors, contents):
        result[(*[slice(None)] * wanted.axis, index_of(wanted.places, content.places))] = tensor
    return result


# --- A head that is split by vocabulary (Yeung et al. 2024, algorithm 2), on arrays of numpy or torch ---
#
# A shard of the head computes exp(z) for its scores z, negative at the target. Its part of the input gradient has three
# columns: the weight's rows times exp(z), the row of the target, and the sum of exp(z). Parts are added; the gradient
# is the first column divided by the third, minus the second. Scores are small here, so the maximum need not be
# subtracted. In whole numbers the loss is half the squared distance to one-hot targets, and the first column is enough.


def layer_with(workload: Workload, op: Op, contents: Sequence[Content]) -> Layer:
    """The layer of an operation whose inputs have these contents; a loss belongs to the last layer."""
    for content in contents:
        if content.vocabulary:
            return CutHead(content.vocabulary, workload.shapes.rows(workload.size.layers - 1))
    return workload.layers[-1 if op.layer is None else op.layer]


def settled(workload: Workload, op: Op, content: Content, grad: Array) -> Array:
    """An input of an operation. The sum that a split head makes is turned into the gradient for the layers before
    it."""
    head = workload.size.layers - 1
    from_cut_head = isinstance(content.value, ActivationGrad) and content.value.vocabulary
    if not from_cut_head or op.name not in PRODUCTS or op.layer == head:
        return grad
    hidden = grad.shape[-1] // 2
    weighted: Array = grad[..., :hidden]
    if "int" in str(grad.dtype):
        return weighted
    return (weighted / grad[..., -1:] - grad[..., hidden : 2 * hidden]) * workload.shapes.rows(head)


class CutHead(Head):
    """Some rows of a head's vocabulary."""

    def __init__(self, vocabulary: Sequence[int], rows: int) -> None:
        self.vocabulary, self.rows = list(vocabulary), rows

    def loss(self, out: Array, target: Array) -> Array:
        """The gradient, as far as these rows determine it."""
        right = cast_like(out, numbers(self.rows, out)[self.vocabulary] == target)
        if "int" in str(out.dtype):
            return out - right
        known: Array = namespace(out).exp(out) * (1 - 2 * right)
        return known

    def backward_input(self, inp: Array, grad: Array, weight: Array) -> Array:
        xp, right = namespace(grad), cast_like(grad, grad < 0)
        scores = grad if "int" in str(grad.dtype) else xp.abs(grad)
        reached = inp > 0
        total = xp.sum(scores, axis=-1, keepdims=True, dtype=scores.dtype)
        joined: Array = xp.concatenate([(scores @ weight) * reached, (right @ weight) * reached, total], -1)
        return joined

    def backward_weight(self, inp: Array, grad: Array, weight: Array | None = None) -> Array:
        """The weight gradient of these rows. The argument `weight` is the sum of all parts of the input gradient."""
        assert weight is not None
        if "int" not in str(grad.dtype):
            xp, right = namespace(grad), cast_like(grad, grad < 0)
            grad = (xp.abs(grad) / weight[..., -1:] - right) * self.rows
        return super().backward_weight(inp, grad)


SAYS = Sentences(
    {
        "no equal shards": "{count} rows or tokens cannot be cut into {total} equal shards; replay a count that divides",
    }
)
"""The refusals of this chapter: a reason, and a sentence over its facts."""
