"""Counts the floating point operations of matrix products from shapes alone: two for each multiply-add.

There is one rule for each numpy function that multiplies matrices, from its arguments and result to its flops.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isqrt, prod
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Rule = Callable[[Sequence[Any], Mapping[str, Any], Any], int]
"""From the arguments, the keywords and the result to the flops."""


def matmul(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """(..., m, k) @ (..., k, n), and all other products that contract the first operand's last axis, or the one that
    `axes` or `axis` says."""
    a, b = np.shape(args[0]), np.shape(args[1])
    axis = kwargs["axes"][0] if "axes" in kwargs else kwargs.get("axis", -1)
    contracted = axis[-1] if isinstance(axis, Sequence) else axis
    return 2 * a[contracted] * int(np.size(result)) if a and b else 0


def vdot(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """All elements of both operands, which have the same number."""
    return 2 * int(np.size(args[0]))


def tensordot(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """The contracted sizes c and the others m, n: a has m c elements, b has c n, the result m n."""
    a, b, out = (int(np.size(x)) for x in (args[0], args[1], result))
    return 2 * out * isqrt(a * b // out) if out else 0


def einsum(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """Two or more operands: 2 x the product of all index sizes; with `optimize`, that of each step of numpy's path. One
    operand is only moved or summed: none."""
    if isinstance(args[0], str):
        given, arrow, out = args[0].replace(" ", "").partition("->")
        shapes = [np.shape(x) for x in args[1:]]
        terms: list[Sequence[Any]] = [_text_labels(term, shape) for term, shape in zip(given.split(","), shapes)]
        result_term: Sequence[Any] | None = _text_labels(out, np.shape(result)) if arrow else None
    else:
        shapes = [np.shape(x) for x in args[0 : len(args) // 2 * 2 : 2]]
        terms = [_list_labels(list(x), shape) for x, shape in zip(args[1::2], shapes)]
        result_term = _list_labels(list(args[-1]), np.shape(result)) if len(args) % 2 else None
    sizes: dict[Any, int] = {}
    for term, shape in zip(terms, shapes):
        for label, size in zip(term, shape):
            sizes[label] = max(size, sizes.get(label, 1)) if size else 0
    optimize = kwargs.get("optimize", False)
    if len(terms) < 3 or optimize is False or optimize is None:
        return _step(terms, sizes)
    path = np.einsum_path(*args, optimize=optimize)[0][1:]
    return _steps(terms, result_term if result_term is not None else _implicit_labels(terms), path, sizes)


def _step(terms: Sequence[Sequence[Any]], sizes: Mapping[Any, int]) -> int:
    """One contraction of all these operands."""
    return 2 * prod(sizes[label] for label in set().union(*terms)) if len(terms) > 1 else 0


def _steps(
    terms: list[Sequence[Any]], result: Sequence[Any], path: Sequence[tuple[int, ...]], sizes: Mapping[Any, int]
) -> int:
    """Contractions one after another: each takes the operands at some positions, and appends what it makes of them."""
    flops = 0
    for positions in path:
        taken = [terms[i] for i in positions]
        terms = [term for i, term in enumerate(terms) if i not in positions]
        flops += _step(taken, sizes)
        terms.append([label for label in set().union(*taken) if label in result or any(label in t for t in terms)])
    return flops


def _implicit_labels(terms: Sequence[Sequence[Any]]) -> list[Any]:
    """The result's labels where none are given: those that occur once, and the axes of an ellipsis."""
    every = [label for term in terms for label in term]
    return [label for label in every if every.count(label) == 1 or str(label).startswith("axis ")]


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


FLOPS_OF_FUNCTION: dict[Any, Rule] = {
    np.einsum: einsum,
    np.dot: matmul,
    np.inner: matmul,
    np.vdot: vdot,
    np.tensordot: tensordot,
}
"""Functions of numpy that multiply matrices, with the rule for their flops."""

FLOPS_OF_UFUNC: dict[Any, Rule] = {np.matmul: matmul}
for _name in ("vecdot", "matvec", "vecmat"):  # of numpy 2
    if hasattr(np, _name):
        FLOPS_OF_UFUNC[getattr(np, _name)] = matmul
