"""Counts the floating point operations of products from shapes alone: two for each multiply-add.

Each numpy function that multiplies has one rule, from its arguments and result to its flops. An element-wise product
counts as much as one in a matrix product, because a sum turns it into one: `w * v[j]` for each j. Masks do not count as
factors, and neither do the few Python numbers by which a device scales.

When a function is counted is left to `metering`. Rejected: counting matrix products alone, because a class could then
multiply element by element and add up for nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from math import ceil, isqrt, log2, prod
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Rule = Callable[[Sequence[Any], Mapping[str, Any], Any], int]
"""A function of the arguments, the keywords and the result that returns the flops."""


OPERANDS = ("a", "b", "m", "y", "x", "v", "x1", "x2", "xp", "fp")
"""Names of operands that numpy's functions take by keyword."""


def operands_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The operands of a call, however they are passed."""
    return [*args, *(kwargs[name] for name in OPERANDS if kwargs.get(name) is not None)]


def matmul(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """(..., m, k) @ (..., k, n), and all other products that contract the first operand's last axis, or the axis that
    `axes` or `axis` names."""
    a, b = np.shape(args[0]), np.shape(args[1])
    axis = kwargs["axes"][0] if "axes" in kwargs else kwargs.get("axis", -1)
    contracted = axis[-1] if isinstance(axis, Sequence) else axis
    return 2 * a[contracted] * int(np.size(result)) if a and b else 0


def of_first(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """A product for each element of the first operand, as of a dot product of all elements or of a norm. A norm by
    singular values counts the same, since it makes no products of two arrays."""
    return 2 * int(np.size(args[0]))


def tensordot(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """With contracted sizes c and other sizes m and n, the operands have m c and c n elements and the result has m
    n."""
    a, b, out = (int(np.size(x)) for x in (args[0], args[1], result))
    return 2 * out * isqrt(a * b // out) if out else 0


def einsum(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """Two or more operands cost 2 x the product of all index sizes; with `optimize`, each step of numpy's path does. A
    single operand is only moved or summed, which costs nothing."""
    if isinstance(args[0], str):
        given, arrow, out = args[0].replace(" ", "").partition("->")
        shapes = [np.shape(x) for x in args[1:]]
        terms = [_labels(term, shape) for term, shape in zip(given.split(","), shapes)]
        result_term = _labels(out, np.shape(result)) if arrow else None
    else:
        shapes = [np.shape(x) for x in args[0 : len(args) // 2 * 2 : 2]]
        terms = [_labels(list(x), shape) for x, shape in zip(args[1::2], shapes)]
        result_term = _labels(list(args[-1]), np.shape(result)) if len(args) % 2 else None
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
    return 2 * prod(sizes[label] for label in set().union(*terms)) if len(terms) > 1 else 0


def _steps(
    terms: list[Sequence[Any]], result: Sequence[Any], path: Sequence[tuple[int, ...]], sizes: Mapping[Any, int]
) -> int:
    """The flops of contractions one after another. Each takes the operands at some positions, and appends its
    result."""
    flops = 0
    for positions in path:
        taken = [terms[i] for i in positions]
        terms = [term for i, term in enumerate(terms) if i not in positions]
        flops += _step(taken, sizes)
        terms.append([label for label in set().union(*taken) if label in result or any(label in t for t in terms)])
    return flops


def _implicit_labels(terms: Sequence[Sequence[Any]]) -> list[Any]:
    """The result's labels where none are given: labels that occur once, and the axes of an ellipsis."""
    every = [label for term in terms for label in term]
    return [label for label in every if every.count(label) == 1 or str(label).startswith("axis ")]


def _labels(term: str | list[Any], shape: Shape) -> Sequence[Any]:
    """The labels of an operand's axes. Those that an ellipsis covers are counted from the right, as they are
    broadcast."""
    if isinstance(term, str):
        before, dots, after = term.partition("...")
        term = [*before, *[Ellipsis] * bool(dots), *after]
    if Ellipsis not in term:
        return term
    at, covered = term.index(Ellipsis), len(shape) - len(term) + 1
    return [*term[:at], *(f"axis {i}" for i in range(-covered, 0)), *term[at + 1 :]]


def outer(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """One product for each element of the result."""
    return 2 * int(np.size(result))


def cross(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """Two products for each element of the result."""
    return 4 * int(np.size(result))


def convolve(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """Each element of one operand with each of the other, or as many products as the requested elements of the result
    need."""
    a, b, out = (int(np.size(x)) for x in (args[0], args[1], result))
    return 2 * min(a * b, out * min(a, b))


def covariance(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """The product of the variables' rows, of both operands if there are two, with themselves."""
    return 2 * sum(int(np.size(x)) for x in args[:2] if x is not None) * isqrt(int(np.size(result)))


def factorize(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """A factorization or inverse of (..., m, n): 2 m n min(m, n), up to a constant factor."""
    shape: Shape = np.shape(args[0])
    return 2 * prod(shape) * min(shape[-2:])


def solve(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """A factorization of (..., m, n), and a product of the inverse with each right-hand side of m numbers."""
    right = max(int(np.size(args[1])), int(np.size(result[0] if isinstance(result, tuple) else result)))
    return factorize(args, kwargs, result) + 2 * right * int(np.shape(args[0])[-1])


def factorize_all(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """A factorization of all elements as one square matrix; and a product with a right-hand side, if there is one."""
    right = sum(x.size for x in args[1:2] if isinstance(x, np.ndarray))
    return 2 * (int(np.size(args[0])) + right) * isqrt(int(np.size(args[0])))


def fourier(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """5 n log2(n) for n numbers."""
    n = int(np.size(result))
    return 5 * n * ceil(log2(max(n, 2)))


FLOPS_OF_NAMED: dict[Any, Rule] = {
    np.einsum: einsum,
    np.dot: matmul,
    np.inner: matmul,
    np.vdot: of_first,
    np.tensordot: tensordot,
    np.outer: outer,
    np.kron: outer,
    np.cross: cross,
    np.convolve: convolve,
    np.correlate: convolve,
    np.interp: outer,
    np.vander: outer,
    np.cov: covariance,
    np.corrcoef: covariance,
}
"""Functions of numpy that multiply arrays, with the rule for their flops."""

FLOPS_OF_FUNCTION: dict[Any, Rule] = {
    **FLOPS_OF_NAMED,
    **{
        getattr(np.linalg, name): rule
        for names, rule in {
            "inv det slogdet cholesky qr svd svdvals eig eigh eigvals eigvalsh pinv cond matrix_rank": factorize,
            "solve lstsq": solve,
            "tensorsolve tensorinv": factorize_all,
            "norm vector_norm matrix_norm": of_first,
        }.items()
        for name in names.split()
        if hasattr(np.linalg, name)
    },
    **{getattr(np.fft, name): fourier for name in np.fft.__all__ if "freq" not in name and "shift" not in name},
}
"""`FLOPS_OF_NAMED`, and the products of `numpy.linalg` and `numpy.fft`, which are counted if an argument is metered."""

FLOPS_OF_MATMUL: dict[Any, Rule] = {np.matmul: matmul}
for _name in ("vecdot", "matvec", "vecmat"):  # of numpy 2
    if hasattr(np, _name):
        FLOPS_OF_MATMUL[getattr(np, _name)] = matmul


def real_products(result: Any) -> int:
    """How many products of real numbers make one product of the result's type: a complex product consists of four."""
    return 4 if isinstance(result, np.ndarray | np.generic) and result.dtype.kind == "c" else 1


SCALING = frozenset((np.multiply, np.divide, np.floor_divide, np.remainder, np.fmod, np.divmod))
SHIFTS = {np.ldexp, np.left_shift, np.right_shift}
"""Products with powers of 2, by which sums of masks become any product."""

ELEMENTWISE = SCALING | SHIFTS | {np.square, np.power, np.float_power, np.hypot, np.lcm, np.reciprocal}
"""Ufuncs that make a product of each pair of elements."""

OTHER_UFUNCS = frozenset(
    member for module in (np, np.linalg, np.fft) for member in vars(module).values() if isinstance(member, np.ufunc)
)
"""Ufuncs of numpy. Those that are not in the tables above make no products."""

MAX_SCALES = 16
"""How many different Python numbers may scale arrays on a device for free, such as rates and roots of sizes."""


def elementwise(ufunc: Any, method: str, operands: Sequence[Any], result: Any, scales: set[Any]) -> int:
    """The flops of a ufunc of `ELEMENTWISE`, called directly or by one of its methods. `scales` collects the Python
    numbers by which a device scales; beyond `MAX_SCALES`, they count like any other factor."""
    if method == "at":
        return 2 * int(np.size(operands[0][operands[1]]))
    if method not in ("__call__", "outer"):  # reduce, accumulate, reduceat
        return 2 * int(np.size(operands[0]))
    factors = operands if ufunc is np.multiply else operands[1:] if ufunc in SCALING else ()
    for operand in factors:  # a number by which an array is divided; one that is divided by an array is no scale
        kind = operand.dtype.kind if isinstance(operand, np.ndarray | np.generic) else "number"
        if kind == "b":
            return 0
        if kind in ("number", "i", "u") and not np.ndim(operand):
            scales.add(operand if kind == "number" else operand.item())
            if len(scales) <= MAX_SCALES:
                return 0
    return 2 * int(np.size(result))
