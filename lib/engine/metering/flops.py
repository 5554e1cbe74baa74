"""Counts the floating point operations of matrix products from shapes alone: two for each multiply-add.

There is one rule for each numpy function that multiplies matrices, from its arguments and result to its flops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt, prod
from typing import Any

import numpy as np

Shape = tuple[int, ...]


def matmul(args: Sequence[Any], result: Any) -> int:
    """(..., m, k) @ (..., k, n), and all other products that contract the first operand's last axis."""
    a, b = np.shape(args[0]), np.shape(args[1])
    return 2 * a[-1] * int(np.size(result)) if a and b else 0


def vdot(args: Sequence[Any], result: Any) -> int:
    """All elements of both operands, which have the same number."""
    return 2 * int(np.size(args[0]))


def tensordot(args: Sequence[Any], result: Any) -> int:
    """The contracted sizes c and the others m, n: a has m c elements, b has c n, the result m n."""
    a, b, out = (int(np.size(x)) for x in (args[0], args[1], result))
    return 2 * out * isqrt(a * b // out) if out else 0


def einsum(args: Sequence[Any], result: Any) -> int:
    """Two or more operands: 2 x the product of all index sizes. One operand is only moved or summed: none."""
    if isinstance(args[0], str):
        terms = args[0].replace(" ", "").partition("->")[0].split(",")
        operands = [np.shape(x) for x in args[1:]]
        labels: list[Sequence[Any]] = [_text_labels(term, shape) for term, shape in zip(terms, operands)]
    else:
        operands = [np.shape(x) for x in args[0 : len(args) // 2 * 2 : 2]]
        labels = [_list_labels(list(x), shape) for x, shape in zip(args[1::2], operands)]
    if len(operands) < 2:
        return 0
    sizes: dict[Any, int] = {}
    for term, shape in zip(labels, operands):
        for label, size in zip(term, shape):
            sizes[label] = max(size, sizes.get(label, 1)) if size else 0
    return 2 * prod(sizes.values())


def _text_labels(term: str, shape: Shape) -> Sequence[Any]:
    if "..." not in term:
        return term
    before, _, after = term.partition("...")
    return [*before, *_ellipsis_labels(len(shape) - len(before) - len(after)), *after]


def _list_labels(term: list[Any], shape: Shape) -> Sequence[Any]:
    if Ellipsis not in term:
        return term
    at = term.index(Ellipsis)
    return [*term[:at], *_ellipsis_labels(len(shape) - len(term) + 1), *term[at + 1 :]]


def _ellipsis_labels(count: int) -> list[str]:
    """Labels for the axes that an ellipsis covers: counted from the right, as they are broadcast."""
    return [f"axis {i}" for i in range(-count, 0)]


FLOPS_OF_FUNCTION: dict[Any, Callable[[Sequence[Any], Any], int]] = {
    np.einsum: einsum,
    np.dot: matmul,
    np.inner: matmul,
    np.vdot: vdot,
    np.tensordot: tensordot,
}
"""Functions of numpy that multiply matrices, with the rule for their flops."""

FLOPS_OF_UFUNC: dict[Any, Callable[[Sequence[Any], Any], int]] = {np.matmul: matmul}
for _name in ("vecdot", "matvec", "vecmat"):  # of numpy 2
    if hasattr(np, _name):
        FLOPS_OF_UFUNC[getattr(np, _name)] = matmul
