"""The mathematics of an attention layer, on arrays of numpy or torch: some tokens attend to some keys, head by head.

With z = x V as both keys and values, the output for n tokens is x + (x z' masked) z / n in each head. There is no
softmax: its two numbers per token change neither the order of operations nor sizes. Without the division, numbers would
overflow after a few layers; without x, they would vanish. x and its gradient are added where a token meets its own
keys.
"""

from collections.abc import Sequence

from lib.engine.collectives import Array
from lib.engine.libraries.numpy_library import cast_like, numbers
from lib.errors import TraceError

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
