"""The mathematics of each kind of layer, for one device and for many, on arrays of numpy or torch.

A dense layer takes the gradient of its product, before relu. So the weight half of backward needs no weight (Qi et al.
2024, section 2), and the input half masks with the input, which relu has left positive or zero.
"""

from collections.abc import Mapping

from lib.engine.collectives import Array
from lib.engine.libraries.numpy_library import cast_like, namespace, numbers
from lib.errors import TraceError
from lib.game.costs import EMBEDDING, HEAD

from .attention import Attention

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
