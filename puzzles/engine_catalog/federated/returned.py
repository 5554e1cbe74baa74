"""What the server returned, once it is an array of the shape that was asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..trial import Performed, Wrong


def returned(performed: Performed, shape: tuple[int, ...], call: int = 0) -> Any:
    """The array.

    Raises:
        Wrong: saying what there is instead.
    """
    got = performed.results[call][0]
    if not isinstance(got, np.ndarray) or got.shape != shape:
        given = f"one of shape {got.shape}" if isinstance(got, np.ndarray) else f"of type {type(got).__name__}"
        raise Wrong(f"device 0, forward() should return an array of shape {shape}; it is {given}")
    return got
