"""The header of a message: its number, the sender's clock, shape and dtype, and the elements of a small array."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from lib.engine.collectives import Array

HEADER_BYTES = 1024
"""Bytes of a header together with a small array."""

_NUMBER_BYTES = 8

_CLOCK_PLACE_LENGTH = Struct("<qqi")
"""The sender's clock, the place of its ring, and the length of the description."""

_DESCRIPTION = _NUMBER_BYTES + _CLOCK_PLACE_LENGTH.size


class Form(NamedTuple):
    """A kind of array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    description: bytes
    """In a header: numpy's short dtype and the shape."""
    start: int
    """Where the elements begin in a header's buffer."""
    fits: bool
    """They are in the header."""


@lru_cache(maxsize=4096)
def form_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Form:
    """The form of arrays of a shape and dtype."""
    description = " ".join([dtype.str, *map(str, shape)]).encode()
    start = -(-(_DESCRIPTION + len(description)) // 16) * 16
    return Form(shape, dtype, description, start, start + prod(shape) * dtype.itemsize <= HEADER_BYTES)


class Header:
    """A header in HEADER_BYTES of memory. Its last form is kept: the next message is often of the same."""

    __slots__ = ("buffer", "bytes", "content", "form", "numbers")

    def __init__(self, buffer: Array) -> None:
        self.buffer = buffer
        self.bytes = buffer.data
        self.numbers = self.bytes[:_NUMBER_BYTES].cast("q")
        """The message's number, from 1: how many the sender has sent to this receiver. Zero: none yet."""
        self.form: Form | None = None
        self.content: Array | None = None
        """The place of a small array of this form."""

    def _set_form(self, form: Form) -> None:
        self.form = form
        self.content = ndarray(form.shape, form.dtype, self.bytes, form.start) if form.fits else None

    def takes(self, arr: Array) -> bool:
        """Writes the form of an array if it is another one than before; False if the elements do not fit."""
        form = self.form
        if form is None or form.shape != arr.shape or form.dtype != arr.dtype:
            form = form_of(arr.shape, arr.dtype)
            self._set_form(form)
            self.bytes[_DESCRIPTION : _DESCRIPTION + len(form.description)] = form.description
        return self.content is not None

    def write(self, arr: Array, clock: int, place: int) -> None:
        """Writes what changes from one array of the same form to the next, except the number."""
        assert self.form is not None, "takes comes first"
        _CLOCK_PLACE_LENGTH.pack_into(self.bytes, _NUMBER_BYTES, clock, place, len(self.form.description))
        if self.content is not None:
            self.content[...] = arr

    def read(self) -> tuple[int, int, Form]:
        """The clock, the place of the sender's ring, and the form of the message that is in the buffer."""
        clock, place, length = _CLOCK_PLACE_LENGTH.unpack_from(self.bytes, _NUMBER_BYTES)
        form, description = self.form, self.bytes[_DESCRIPTION : _DESCRIPTION + length]
        if form is None or description != form.description:
            dtype, *shape = description.tobytes().decode().split()
            form = form_of(tuple(map(int, shape)), np.dtype(dtype))
            self._set_form(form)
        return clock, place, form
