"""Replays in which one result is zero: the weights must differ, or the comparison is blind."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lib.engine.replay import rank as playing


@contextmanager
def zeroed(monkeypatch: pytest.MonkeyPatch, operation: str, nth: int) -> Iterator[None]:
    """The nth result of an operation that has one, counted from 1 over all ranks, is zero."""
    right, calls = playing.PERFORM[operation], [0]

    def wrong(engine: Any, op: Any, used: Any) -> Any:
        calls[0] += bool(op.outputs)
        this = calls[0]
        made = right(engine, op, used)  # other ranks may go on meanwhile
        return [array * array.dtype.type(0) for array in made] if this == nth and op.outputs else made

    with monkeypatch.context() as changed, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a sum that is divided by may be zero
        changed.setattr(playing, "PERFORM", {**playing.PERFORM, operation: wrong})
        yield
        assert calls[0] >= nth
