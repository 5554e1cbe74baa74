"""What a recording may name: functions of numpy without input, output or callbacks, methods of arrays, the engine."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lib.engine.metering import bases_of

UFUNCS: dict[str, Any] = {name: found for name, found in vars(np).items() if isinstance(found, np.ufunc)}

UFUNC_METHODS = ("__call__", "reduce", "accumulate", "reduceat", "outer", "at")

_NAMES = (
    "all amax amin any append argmax argmin argpartition argsort argwhere around array array_split asarray "
    "ascontiguousarray asfortranarray atleast_1d atleast_2d atleast_3d average bincount block broadcast_arrays "
    "broadcast_to choose clip column_stack compress concatenate convolve copy copyto corrcoef correlate count_nonzero "
    "cov cross cumprod cumsum cumulative_sum delete diag diag_indices_from diagflat diagonal diff digitize dot dsplit "
    "dstack ediff1d einsum empty_like expand_dims extract fill_diagonal flatnonzero flip fliplr flipud full full_like "
    "hsplit hstack identity in1d inner insert interp isclose isin kron lexsort linspace matrix_transpose max mean "
    "median meshgrid min moveaxis nan_to_num nanmax nanmean nanmin nansum nonzero ones_like outer packbits pad "
    "partition percentile permute_dims place prod ptp put put_along_axis putmask quantile ravel repeat require reshape "
    "resize roll rollaxis rot90 round searchsorted select sort split squeeze stack std sum swapaxes take "
    "take_along_axis tensordot tile trace transpose tri tril triu unique unpackbits unstack unwrap vdot vsplit vstack "
    "var where zeros_like"
).split()

FUNCTIONS: dict[str, Any] = {
    **{name: getattr(np, name) for name in _NAMES if hasattr(np, name)},
    **{
        f"{module.__name__.removeprefix('numpy.')}.{name}": getattr(module, name)
        for module in (np.linalg, np.fft)
        for name in module.__all__
        if callable(getattr(module, name)) and not isinstance(getattr(module, name), type)
    },
}

NAME_OF = {id(function): name for name, function in FUNCTIONS.items()}

FUNCTIONS["empty_like"] = np.zeros_like
"""In memory that nothing has written, there may be what another device has left in the repeating process."""

METHODS = (
    "__getitem__ __int__ __setitem__ all any argmax argmin argpartition argsort astype choose clip compress copy "
    "cumprod cumsum diagonal dot fill flatten item max mean min nonzero partition prod ptp put ravel repeat reshape "
    "round searchsorted sort std sum take trace var"
).split()

DRAWS = (
    "bytes choice exponential integers normal permutation permuted random shuffle standard_exponential standard_normal "
    "uniform"
).split()
"""Methods of numpy's generators, which draw by numbers and shapes, or choose from an array."""

COMMUNICATION = ("send receive symmetric send_async barrier all_gather all_reduce reduce_scatter all_to_all").split()

TIER = ("put", "fetch", "fetch_async", "drop")


class UnrepeatableError(Exception):
    """A run that cannot be recorded, or a recording that cannot be repeated; the message is a clause for the player."""


def require_written(kind: str, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuses operations whose result has numbers that nothing has written, as `empty_like` would have."""
    out = kwargs.get("out")
    lacks_out = any(array is None for array in (out if isinstance(out, tuple) else (out,)))
    is_masked = "where" in kwargs and (name == "clip" or (kind == "ufunc" and not name.endswith(".reduce")))
    mode = kwargs.get("mode", args[2] if len(args) > 2 else "")
    if (is_masked and lacks_out) or (name == "pad" and isinstance(mode, str) and mode == "empty"):
        raise UnrepeatableError(f"it reads memory in which {name} has written nothing")


def root_of(array: Any) -> Any:
    *_, root = bases_of(array)
    return root


def memory_of(root: Any) -> Any:
    """The bytes of an array that owns its memory, in the order of memory."""
    plain = np.ndarray.view(root, np.ndarray)
    if plain.dtype.hasobject:
        raise UnrepeatableError("it has arrays of Python objects")
    order = sorted(range(plain.ndim), key=lambda axis: -plain.strides[axis])
    flat = plain.transpose(order)
    if not flat.flags.c_contiguous:
        raise UnrepeatableError("it has arrays in memory with gaps")
    return flat.reshape(-1).view(np.uint8)


def arrays_in(tree: Any) -> list[Any]:
    """The arrays in nested dictionaries, lists and tuples, in order."""
    if isinstance(tree, np.ndarray):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [array for part in tree for array in arrays_in(part)] if isinstance(tree, list | tuple) else []


def whole_numbers_in(tree: Any) -> list[int]:
    """The whole numbers in nested dictionaries, lists and tuples, in order."""
    if type(tree) is int:
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [number for part in tree for number in whole_numbers_in(part)] if isinstance(tree, list | tuple) else []
