"""Reads the server's result: in this chapter device 0 is a server, and the other devices are its clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from puzzles.catalog.engine.trial import Performed, WrongResultError

CLIENTS = 4
DEVICES = 1 + CLIENTS

Targets = Mapping[str, int] | None


def server_result(performed: Performed, shape: tuple[int, ...], call: int = 0) -> Any:
    """The array of this shape that the server returned in a call.

    Raises:
        WrongResultError: it returned something else; the message names its shape or type.
    """
    got = performed.results[call][0]
    if not isinstance(got, np.ndarray) or got.shape != shape:
        given = f"one of shape {got.shape}" if isinstance(got, np.ndarray) else f"of type {type(got).__name__}"
        raise WrongResultError(f"device 0, forward() should return an array of shape {shape}; it is {given}")
    return got
