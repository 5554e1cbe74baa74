"""The mathematics of a head that is split by vocabulary (Yeung et al. 2024, algorithm 2), on arrays of numpy or torch.

A shard of the head computes exp(z) for its scores z, negative at the target. Its part of the input gradient has three
columns: the weight's rows times exp(z), the row of the target, and the sum of exp(z). Parts are added; the gradient is
the first column divided by the third, minus the second. Scores are small here, so the maximum need not be subtracted.
In whole numbers the loss is half the squared distance to one-hot targets, and the first column is enough.
"""

from collections.abc import Sequence

from lib.engine.collectives import Array
from lib.engine.libraries.numpy_library import cast_like, namespace, numbers
from lib.game.costs import PRODUCTS
from lib.trace.ops import Op
from lib.values.kinds import ActivationGrad

from .contents import Content
from .layers import Head, Layer
from .workload import Workload


def layer_of(workload: Workload, op: Op, contents: Sequence[Content]) -> Layer:
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
