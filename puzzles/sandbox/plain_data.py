"""Serializes arrays, numbers, texts and collections of them as JSON, without pickle: reading it executes nothing."""

import base64
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

ARRAY_KINDS = "biufc"
"""Kinds of numpy types that are carried: booleans, integers, floats, complex numbers."""

MAX_DIMENSIONS = 32


class Foreign:
    """Placeholder for an object of any other type; keeps only the name of that type."""

    def __init__(self, what: str) -> None:
        self.what = what


def _text(array: Any) -> list[Any]:
    """An array as JSON can write it: type, shape and base64."""
    return [array.dtype.str, list(array.shape), base64.b64encode(array.tobytes()).decode("ascii")]


def pack(tree: Any, write: Callable[[Any], list[Any]] = _text, kinds: str = ARRAY_KINDS) -> Any:
    """Returns a tree that `json` can write, with what `write` makes of each array of these `kinds`. Types are compared
    exactly: an instance of a subclass becomes Foreign."""
    kind = type(tree)
    if tree is None or kind in (bool, int, float, str):
        return tree
    if kind in (list, tuple):
        return {kind.__name__: [pack(part, write, kinds) for part in tree]}
    if kind is dict:
        return {"dict": [[pack(key, write, kinds), pack(value, write, kinds)] for key, value in tree.items()]}
    if isinstance(tree, np.ndarray | np.generic) and tree.dtype.kind in kinds:
        bare = np.ndarray.view(tree, np.ndarray) if isinstance(tree, np.ndarray) else np.array(tree)
        return {"array" if isinstance(tree, np.ndarray) else "number": write(bare)}
    return {"other": tree.what if kind is Foreign else str(getattr(kind, "__name__", "object"))[:80]}


def _array(dtype: str, shape: list[Any], text: str) -> Any:
    try:
        kind = np.dtype(dtype)
    except (TypeError, SyntaxError):
        raise ValueError("an array has an unknown type") from None
    sizes = all(type(n) is int and 0 <= n <= 1 << 40 for n in shape)
    raw = base64.b64decode(text, validate=True)
    if (
        kind.kind not in ARRAY_KINDS
        or not sizes
        or len(shape) > MAX_DIMENSIONS
        or prod(shape) * kind.itemsize != len(raw)
    ):
        raise ValueError("an array is not as long as it says")
    return np.frombuffer(raw, kind).reshape(shape).copy()  # one that owns its memory, as what it was packed from


def unpack(data: Any, read: Callable[[str, list[Any], str], Any] = _array) -> Any:
    """Returns the tree that was packed; `read` makes its arrays."""
    match data:
        case None | bool() | int() | float() | str():
            return data
        case {"list": list(parts)}:
            return [unpack(part, read) for part in parts]
        case {"tuple": list(parts)}:
            return tuple(unpack(part, read) for part in parts)
        case {"dict": list(pairs)}:
            return dict(_pair(pair, read) for pair in pairs)
        case {"array": [str(dtype), list(shape), str(text)]}:
            return read(dtype, shape, text)
        case {"number": [str(dtype), [], str(text)]}:
            return read(dtype, [], text)[()]
        case {"other": str(what)}:
            return Foreign(what[:80])
    raise ValueError(f"there is a {type(data).__name__} where data should be")


def _pair(pair: Any, read: Callable[[str, list[Any], str], Any]) -> tuple[Any, Any]:
    match pair:
        case [key, value]:
            name = unpack(key, read)
            if isinstance(name, str | int | float | None):
                return name, unpack(value, read)
    raise ValueError("a dictionary has an entry that cannot be read")
