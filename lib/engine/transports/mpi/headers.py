"""The header of a message: its number, the sender's clock, shape and dtype, and the elements of a small array."""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from lib.engine.collectives import Array

from .shared_blocks import Block

HEADER_BYTES = 1024
"""Bytes of a header together with a small array."""

NUMBER, CLOCK, PLACE, STAMP, LENGTH, BLOCK, FILE, SIZE = range(8)
"""Its words: the message's number, from 1 on (how many the sender has sent to this receiver); the sender's clock; the
place of its ring; the stamp of the form; the length of the description, which follows; and of a large array the block
that it is in, with its file and size, or 0 if its bytes follow through MPI."""

_DESCRIPTION = 64


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
    stamp: int
    """Tells whether a header has the same form as the one before it from this process."""


_stamps = count(1)


@lru_cache(maxsize=4096)
def form_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Form:
    """The form of arrays of a shape and dtype."""
    description = " ".join([dtype.str, *map(str, shape)]).encode()
    start = -(-(_DESCRIPTION + len(description)) // 16) * 16
    fits = start + prod(shape) * dtype.itemsize <= HEADER_BYTES
    return Form(shape, dtype, description, start, fits, next(_stamps))


class Header:
    """A header in HEADER_BYTES of memory. Its last form is kept: the next message is often of the same."""

    __slots__ = ("_stamp", "buffer", "content", "form", "words")

    def __init__(self, buffer: Array) -> None:
        self.buffer = buffer
        self.words = buffer.data[:_DESCRIPTION].cast("q")
        self.form: Form | None = None
        self.content: Array | None = None
        """The place of a small array of this form."""
        self._stamp = 0

    def write(self, arr: Array, clock: int, block: Block | None = None) -> None:
        """Writes all but the number and the place: the clock, the form if it is another one than before, and the
        elements if they fit; otherwise the block that they are in."""
        form = self.form
        if form is None or form.shape != arr.shape or form.dtype != arr.dtype:
            self._write_form(form_of(arr.shape, arr.dtype))
        self.words[CLOCK] = clock
        if self.content is not None:
            self.content[...] = arr
        elif block is None:
            self.words[BLOCK] = 0
        else:
            self.words[BLOCK], self.words[FILE], self.words[SIZE] = block.number, block.file, block.size

    def _write_form(self, form: Form) -> None:
        self._set_form(form)
        self.words[STAMP], self.words[LENGTH] = form.stamp, len(form.description)
        self.buffer.data[_DESCRIPTION : _DESCRIPTION + len(form.description)] = form.description

    def read(self) -> Form:
        """The form of the message that is in the buffer."""
        form = self.form
        if form is None or self.words[STAMP] != self._stamp:
            self._stamp = self.words[STAMP]
            description = self.buffer[_DESCRIPTION : _DESCRIPTION + self.words[LENGTH]].tobytes()
            dtype, *shape = description.decode().split()
            form = form_of(tuple(map(int, shape)), np.dtype(dtype))
            self._set_form(form)
        return form

    def _set_form(self, form: Form) -> None:
        self.form = form
        self.content = ndarray(form.shape, form.dtype, self.buffer.data, form.start) if form.fits else None
