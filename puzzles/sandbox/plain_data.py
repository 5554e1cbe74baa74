"""Arrays, numbers, texts and collections of them as JSON and back, without pickle: nothing that is read can run."""

from __future__ import annotations

import base64
from math import prod
from typing import Any

import numpy as np

KINDS = "biufc"
"""Of arrays that are carried: booleans, integers, floats, complex numbers."""

MOST_DIMENSIONS = 32


class Foreign:
    """What stands for anything else: it tells only what it was."""

    def __init__(self, what: str) -> None:
        self.what = what


def pack(tree: Any) -> Any:
    """What `json` can write. Types are taken exactly: a thing that only says it is a list is carried as Foreign."""
    kind = type(tree)
    if tree is None or kind in (bool, int, float, str):
        return tree
    if kind in (list, tuple):
        return {kind.__name__: [pack(part) for part in tree]}
    if kind is dict:
        return {"dict": [[pack(key), pack(value)] for key, value in tree.items()]}
    if isinstance(tree, np.ndarray | np.generic) and tree.dtype.kind in KINDS:
        bare = np.ndarray.view(tree, np.ndarray) if isinstance(tree, np.ndarray) else np.array(tree)
        data = base64.b64encode(bare.tobytes()).decode("ascii")
        name = "array" if isinstance(tree, np.ndarray) else "number"
        return {name: [bare.dtype.str, list(bare.shape), data]}
    return {"other": str(getattr(kind, "__name__", "object"))[:80]}


def unpack(data: Any) -> Any:
    """The tree that was packed.

    Raises:
        ValueError: it was packed by somebody else.
    """
    match data:
        case None | bool() | int() | float() | str():
            return data
        case {"list": list(parts)}:
            return [unpack(part) for part in parts]
        case {"tuple": list(parts)}:
            return tuple(unpack(part) for part in parts)
        case {"dict": list(pairs)}:
            return dict(_pair(pair) for pair in pairs)
        case {"array": [str(dtype), list(shape), str(text)]}:
            return _array(dtype, shape, text)
        case {"number": [str(dtype), [], str(text)]}:
            return _array(dtype, [], text)[()]
        case {"other": str(what)}:
            return Foreign(what[:80])
    raise ValueError(f"there is a {type(data).__name__} where data should be")


def _pair(pair: Any) -> tuple[Any, Any]:
    match pair:
        case [key, value]:
            name = unpack(key)
            if isinstance(name, str | int | float | None):
                return name, unpack(value)
    raise ValueError("a dictionary has an entry that cannot be read")


def _array(dtype: str, shape: list[Any], text: str) -> Any:
    try:
        kind = np.dtype(dtype)
    except (TypeError, SyntaxError):
        raise ValueError("an array has an unknown type") from None
    sizes = all(type(n) is int and 0 <= n <= 1 << 40 for n in shape)
    raw = base64.b64decode(text, validate=True)
    if kind.kind not in KINDS or not sizes or len(shape) > MOST_DIMENSIONS or prod(shape) * kind.itemsize != len(raw):
        raise ValueError("an array is not as long as it says")
    return np.frombuffer(raw, kind).reshape(shape).copy()  # one that owns its memory, as what it was packed from
