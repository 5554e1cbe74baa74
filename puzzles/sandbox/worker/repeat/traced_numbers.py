"""Floats of numpy that stay known to a recorder: what is computed with them is recorded as what is done with arrays."""

from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from lib.engine.metering import count_ufunc, current

from .recording_meter import recorder_here


def _traced_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """What numpy makes of a traced number is recorded, too."""

    def call(*inputs: Any, **kwargs: Any) -> Any:
        bare = [_untraced(one) for one in inputs]
        result = getattr(ufunc, method)(*bare, **kwargs)
        count_numbers(ufunc, method, bare, kwargs, result)
        return result

    recorder = recorder_here()
    if recorder is None:
        return call(*inputs, **kwargs)
    return recorder.perform("ufunc", f"{ufunc.__name__}.{method}", call, (), inputs, kwargs)


def count_numbers(ufunc: Any, method: str, operands: Any, kwargs: Any, result: Any) -> None:
    """Counts products of numbers, as those of arrays count themselves."""
    if current.meter is not None and not any(isinstance(one, np.ndarray) for one in operands):
        count_ufunc(current.meter, ufunc, method, operands, kwargs, result)


def _traced_type(kind: Any) -> Any:
    """A subclass of a type of numpy's floats. A second base would make its dtype object, so it has the operators of the
    mixin as its own."""
    operators = {
        name: value
        for name, value in vars(NDArrayOperatorsMixin).items()
        if callable(value) and not (name.startswith("__i") and name != "__invert__")  # a number cannot change in place
    }
    return type(
        kind.__name__,
        (kind,),
        {**operators, "__slots__": (), "__hash__": kind.__hash__, "__array_ufunc__": _traced_ufunc},
    )


TRACED = {kind: _traced_type(kind) for kind in (np.float16, np.float32, np.float64)}

UNTRACED = {traced: kind for kind, traced in TRACED.items()}


def traced(result: Any) -> Any:
    """A result with traced numbers, also in tuples and lists."""
    if type(result) in (list, tuple):
        return type(result)(map(traced, result))
    return TRACED[type(result)](result) if type(result) in TRACED else result


def _untraced(number: Any) -> Any:
    if type(number) in (list, tuple):
        return type(number)(map(_untraced, number))
    return UNTRACED[type(number)](number) if type(number) in UNTRACED else number
