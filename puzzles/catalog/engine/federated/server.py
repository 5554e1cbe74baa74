"""The server of this chapter, device 0, its clients, and what it returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from puzzles.catalog.engine.trial import Performed, Wrong

CLIENTS = 4
DEVICES = 1 + CLIENTS

Targets = Mapping[str, int] | None


def returned(performed: Performed, shape: tuple[int, ...], call: int = 0) -> Any:
    """What the server returned in a call, an array of this shape.

    Raises:
        Wrong: saying what there is instead.
    """
    got = performed.results[call][0]
    if not isinstance(got, np.ndarray) or got.shape != shape:
        given = f"one of shape {got.shape}" if isinstance(got, np.ndarray) else f"of type {type(got).__name__}"
        raise Wrong(f"device 0, forward() should return an array of shape {shape}; it is {given}")
    return got
