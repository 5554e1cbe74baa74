"""The C library, loaded once: workers inherit it from the server."""

from __future__ import annotations

import ctypes
from functools import cache


@cache
def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
