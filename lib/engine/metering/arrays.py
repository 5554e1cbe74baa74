"""Arrays that know whose memory they are: how unmodified player code is metered.

A device's arrays are of an ndarray subclass, which numpy hands every operation to: products are counted by their
shapes, and each new block of memory is charged to the device from when it is made until nothing refers to it. What
begins as a plain array (np.zeros and its like) is caught by `watching`, which stands in for those functions while
a metered run is on. Views share their block; a block counts once.
"""

from __future__ import annotations

from typing import Any

from numpy import ndarray

from lib.engine.collectives import Array

from . import flops
from .meter import Meter, current


class Block:
    """One block of memory; charged from `charge` until it is gone."""

    __slots__ = ("__weakref__", "_charged", "_meter", "_nbytes")

    def __init__(self, meter: Meter, nbytes: int, charged: bool = True) -> None:
        self._meter = meter
        self._nbytes = nbytes
        self._charged = charged
        if charged:
            meter.live = live = meter.live + nbytes  # as `hold` does; here, for every array passes here
            if live > meter.peak:
                meter.peak = live

    def charge(self) -> None:
        if not self._charged:
            self._charged = True
            self._meter.hold(self._nbytes)

    def __del__(self) -> None:
        if self._charged:
            self._meter.live -= self._nbytes


class Counted(ndarray[Any, Any]):
    """An array whose memory and products are counted. Otherwise as any other."""

    __slots__ = ("_block",)
    _block: Block | None

    def __array_finalize__(self, source: Any) -> None:
        base = self.base
        # Indexing with a list gives a view of a new plain array: its block is new as well.
        if base is None or (type(base) is ndarray and base is not source and base is not source.base):
            meter = current.meter
            self._block = None if meter is None else Block(meter, self.nbytes)
        else:
            self._block = source._block if type(source) is Counted else None

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out")
        if out is not None:
            kwargs["out"] = tuple([plain(array) for array in out])
        if type(kwargs.get("where")) is Counted:
            kwargs["where"] = plain(kwargs["where"])
        bare = [array.view(ndarray) if isinstance(array, Counted) else array for array in inputs]
        result = getattr(ufunc, method)(*bare, **kwargs)
        meter = current.meter
        if meter is not None and method == "__call__" and ufunc in flops.UFUNCS:
            meter.compute(flops.UFUNCS[ufunc](bare, result))
        if out is not None:
            return out[0] if len(out) == 1 else out
        if type(result) is ndarray:
            return result if meter is None else adopt(result, meter)
        return tuple([charged(part) for part in result]) if isinstance(result, tuple) else result

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        count = flops.FUNCTIONS.get(function)
        if count is None:
            return charged(super().__array_function__(function, types, args, kwargs))
        return product(function, count, args, kwargs)

    def dot(self, other: Any, out: Any = None) -> Any:
        return DOT(self, other, out)

    def __repr__(self) -> str:
        return repr(plain(self))

    def __reduce__(self) -> Any:
        return plain(self).__reduce__()


DOT = next(function for function in flops.FUNCTIONS if function.__name__ == "dot")


def product(function: Any, count: Any, args: Any, kwargs: Any) -> Any:
    """A function of numpy that multiplies matrices, with its flops counted."""
    out = kwargs.get("out")
    bare = [plain(array) for array in args]
    result = function(*bare, **{name: plain(value) for name, value in kwargs.items()})
    if current.meter is not None:
        current.meter.compute(count(bare, result))
    if out is None and args and any(result is array for array in bare):
        return next(array for array, naked in zip(args, bare) if result is naked)  # given as the third argument
    return charged(result) if out is None else out


def plain(array: Any) -> Any:
    """The same memory as an ordinary array; anything else as it is."""
    return array.view(ndarray) if isinstance(array, Counted) else array


def adopt(array: Array, meter: Meter) -> Array:
    """A fresh array as one of the device's own; a view stays with the block that it is a view of."""
    block = block_of(array) if array.base is not None else Block(meter, array.nbytes)
    counted = array.view(Counted)
    counted._block = block
    return counted


def own(array: Array, meter: Meter) -> Array:
    """An array that a transport made for the device: all of its memory, whatever it is a view of."""
    counted = array.view(Counted)
    counted._block = Block(meter, array.nbytes)
    return counted


def is_view(result: Any, given: Any) -> bool:
    """Whether a plain array is the memory of one of the device's own: `asarray` strips it of what it knows."""
    return (
        isinstance(given, Counted)
        and type(result) is ndarray
        and any(result.base is one for one in (given, given.base) if one is not None)
    )


def same_memory(result: Array, given: Counted) -> Array:
    """A plain array as the device's own again."""
    counted = result.view(Counted)
    counted._block = given._block
    return counted


def lend(array: Array, meter: Meter) -> tuple[Array, Block]:
    """A view of an array that is not the device's, and its block, which is not charged unless someone does."""
    block = Block(meter, array.nbytes, charged=False)
    counted = array.view(Counted)
    counted._block = block
    counted.flags.writeable = False
    return counted, block


def block_of(array: Any) -> Block | None:
    """The block that an array is a view of, if it is a device's."""
    while array is not None:
        if isinstance(array, Counted) and array._block is not None:
            return array._block
        array = getattr(array, "base", None)
    return None


def charged(result: Any) -> Any:
    """A result of numpy with its plain new arrays charged to the device that runs; lists and tuples of them too."""
    meter = current.meter
    if meter is None:
        return result
    if type(result) is ndarray:
        return adopt(result, meter)
    if type(result) is list or type(result) is tuple:
        return type(result)([charged(part) for part in result])
    return result
