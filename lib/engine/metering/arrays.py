"""An ndarray subclass that meters unmodified player code: it counts flops and live bytes.

numpy passes every operation on a subclass to its `__array_ufunc__` or `__array_function__` (NEP 13 and 18). Products
are counted by their shapes, and each new block of memory is charged to the device until nothing refers to it. Views
share their block, which counts once. Arrays that start as plain ones (np.zeros and the like) are handled by
`numpy_patch`. This costs a few microseconds per call. Tracing the allocator (tracemalloc) would also count numpy's
temporary memory, which differs between versions.
"""

from collections.abc import Iterator
from typing import Any

from numpy import float32, float64, inexact, ndarray, void

from lib.engine.collectives import Array
from lib.errors import RuleError
from lib.masked_arrays import is_masked

from . import flops
from .meter import Life, Meter, current


class ChargedBlock:
    """A block of memory, charged to a meter for as long as this object lives."""

    __slots__ = ("__weakref__", "_life", "_meter")
    _life: Life | None

    def __init__(self, meter: Meter, nbytes: int) -> None:
        self._meter = meter
        self._life = meter.hold(nbytes)

    def touch(self) -> None:
        """Called when an operation reads the block."""
        life = self._life
        if life is not None:
            life.read = self._meter.lives.time

    def __del__(self) -> None:
        if self._life is not None:
            self._meter.release(self._life)


class LentBlock(ChargedBlock):
    """A block that belongs to no device until `charge` charges it."""

    __slots__ = ("_nbytes",)

    def __init__(self, meter: Meter, nbytes: int) -> None:
        self._meter = meter
        self._life = None
        self._nbytes = nbytes

    def charge(self) -> None:
        if self._life is None:
            self._life = self._meter.hold(self._nbytes)


_base_of: Any = ndarray.base.__get__
_view: Any = ndarray.view
"""The attributes of numpy's own class; `MeteredArray` overrides them."""


def _is_widened(inputs: list[Any]) -> bool:
    """True for an array of float32 and a number of numpy in float64, whose result is twice as large as the array. A
    number of Python leaves the array as it is."""
    return any(isinstance(x, float64) for x in inputs) and any(getattr(x, "dtype", None) == float32 for x in inputs)


class MeteredArray(ndarray[Any, Any]):
    """An array of a device, whose memory and products are counted."""

    __slots__ = ("_block", "_is_base")
    _block: ChargedBlock | None
    _is_base: bool

    def __array_finalize__(self, source: Any) -> None:
        base = _base_of(self)
        # Indexing with a list gives a view of a new plain array, whose block is also new.
        if base is None or (type(base) is ndarray and base is not source and base is not source.base):
            meter = current.meter
            self._block = None if meter is None else ChargedBlock(meter, self.nbytes)
        else:
            self._block = source._block if type(source) is MeteredArray else None
        if base is None and type(source) is MeteredArray and source._block is not None:
            source._block.touch()  # this is a copy

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out")
        if out is not None:
            kwargs["out"] = tuple([plain_view(array) for array in out])
        if type(kwargs.get("where")) is MeteredArray:
            kwargs["where"] = plain_view(kwargs["where"])
        bare = [plain_view(array) for array in inputs]
        result = getattr(ufunc, method)(*bare, **kwargs)
        meter = current.meter
        if meter is not None:
            count_ufunc(meter, ufunc, method, bare, kwargs, result)
        if out is not None:
            return out[0] if len(out) == 1 else out
        if type(result) is ndarray:
            if meter is not None and result.dtype == float64 and _is_widened(bare):
                meter.widen()
            return result if meter is None else as_metered_result(result, meter)
        return tuple([charge_results(part) for part in result]) if isinstance(result, tuple) else result

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        count = flops.FLOPS_OF_FUNCTION.get(function)
        if count is None:
            touch_all(args)
            return charge_results(super().__array_function__(function, types, args, kwargs))
        return metered_product(function, count, args, kwargs)

    def dot(self, other: Any, out: Any = None) -> Any:
        return DOT(self, other, out)

    @property
    def base(self) -> Any:
        """The array that this is a view of, also metered."""
        base = _base_of(self)
        if type(base) is not ndarray:
            return base
        if getattr(self, "_is_base", False):
            return None  # else the bases of an array would never end
        metered: Any = restore_block(base, self)
        metered._is_base = True
        return metered

    def view(self, *given: Any, **named: Any) -> Any:
        """A view stays metered, even if a plain array is requested."""
        plain = _view(self, *given, **named)
        if not isinstance(plain, MeteredArray) and not is_masked(plain) and type(plain) is not ndarray:
            raise RuleError(UNCOUNTED.format(type(plain).__name__))
        return restore_block(plain, self) if type(plain) is ndarray else plain

    def __getitem__(self, place: Any) -> Any:
        return number_out(super().__getitem__(place))

    def __setitem__(self, place: Any, value: Any) -> None:
        super().__setitem__(place, plain_view(value))

    def item(self, *place: Any) -> Any:
        return number_out(super().item(*place))

    def tolist(self) -> Any:
        if self.dtype.kind in "fc" and current.meter is not None:
            current.meter.take_out(self.size)
        return super().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __repr__(self) -> str:
        return repr(plain_view(self))

    def __reduce__(self) -> Any:
        return plain_view(self).__reduce__()


MAX_SCALAR = 32
"""Bytes of numpy's longest number, and letters of a text that may be taken out of an array."""


def number_out(item: Any) -> Any:
    """Returns what was taken out of an array, and counts it if it is a floating-point number.

    Raises:
        RuleError: it is a record or a long text, so a tensor in disguise.
    """
    if current.meter is None:
        return item
    if isinstance(item, float | complex | inexact):
        current.meter.take_out(1)
    elif isinstance(item, void | tuple) or (isinstance(item, bytes | str) and len(item) > MAX_SCALAR):
        raise RuleError(
            f"a {type(item).__name__} that is taken out of an array holds numbers that no meter charges; keep them in "
            "arrays, and slice these"
        )
    return item


UNCOUNTED = "a device computes with plain arrays, because no meter counts products of {}; use arrays, @ and *"

DOT = next(function for function in flops.FLOPS_OF_FUNCTION if function.__name__ == "dot")


def count_ufunc(meter: Meter, ufunc: Any, method: str, operands: Any, kwargs: Any, result: Any) -> None:
    """Counts the flops of a call of a ufunc with plain arrays and numbers."""
    products = flops.real_products(operands[0] if result is None else result)
    if ufunc in flops.FLOPS_OF_MATMUL:
        meter.compute(products * flops.FLOPS_OF_MATMUL[ufunc](operands, kwargs, result))
    elif ufunc in flops.ELEMENTWISE:
        meter.multiply(products * flops.elementwise(ufunc, method, operands, result, meter.scales))
    elif ufunc not in flops.OTHER_UFUNCS:  # a function of Python, by np.vectorize or np.frompyfunc
        meter.multiply(flops.outer(operands, kwargs, result))


def metered_product(function: Any, count: Any, args: Any, kwargs: Any) -> Any:
    """Calls a numpy function that multiplies matrices, and counts its flops with the rule `count`."""
    out = kwargs.get("out")
    bare = [plain_view(array) for array in args]
    result = function(*bare, **{name: plain_view(value) for name, value in kwargs.items()})
    if current.meter is not None:
        products = 1 if count is flops.fourier else flops.real_products(result)
        current.meter.compute(products * count(flops.operands_of(bare, kwargs), kwargs, result))
    if out is None and args and any(result is array for array in bare):
        return next(array for array, plain in zip(args, bare) if result is plain)  # `out` as the third argument
    return charge_results(result) if out is None else out


def plain_view(array: Any) -> Any:
    """Views a metered array as an ordinary one, and records that its block is read; returns anything else unchanged."""
    if type(array) is not MeteredArray:
        return array
    block = array._block
    if block is not None:
        block.touch()
    return _view(array, ndarray)


def touch_all(args: Any) -> None:
    for arg in args:
        if isinstance(arg, list | tuple):
            touch_all(arg)
        else:
            plain_view(arg)


def as_metered_result(array: Array, meter: Meter) -> Array:
    """Charges the result of a numpy operation to `meter`; a view stays with its block."""
    block = block_of(array) if array.base is not None else ChargedBlock(meter, array.nbytes)
    counted = array.view(MeteredArray)
    counted._block = block
    return counted


def as_metered(array: Array, meter: Meter) -> Array:
    """Charges the whole memory of an array to `meter`, even if it is a view, as of an array that a transport
    delivered."""
    counted = array.view(MeteredArray)
    counted._block = ChargedBlock(meter, array.nbytes)
    return counted


def is_stripped_view(result: Any, given: Any) -> bool:
    """True if `result` is the memory of `given` as a plain array: `asarray` strips the subclass."""
    return (
        isinstance(given, MeteredArray)
        and type(result) is ndarray
        and any(result.base is source for source in (given, _base_of(given)) if source is not None)
    )


def restore_block(result: Array, given: MeteredArray) -> Array:
    """Makes a stripped view metered again, in the block of the array that it is a view of."""
    counted = result.view(MeteredArray)
    counted._block = given._block
    return counted


def lend(array: Array, meter: Meter) -> tuple[Array, LentBlock]:
    """A read-only view of an array that does not belong to the device, and its block, which is not charged yet."""
    block = LentBlock(meter, array.nbytes)
    counted = array.view(MeteredArray)
    counted._block = block
    counted.flags.writeable = False
    return counted, block


def bases_of(array: Any) -> Iterator[Any]:
    """An array, the array that it is a view of, and so on."""
    while isinstance(array, ndarray):
        yield array
        array = _base_of(array)


def address_of(array: Any) -> int:
    """The address of an array's first element."""
    address: int = array.__array_interface__["data"][0]
    return address


def block_of(array: Any) -> ChargedBlock | None:
    """The block that an array is a view of; None if it belongs to no device."""
    return next((a._block for a in bases_of(array) if isinstance(a, MeteredArray) and a._block is not None), None)


def charge_results(result: Any) -> Any:
    """Charges the new plain arrays in a numpy result, also inside lists and tuples, to the running device."""
    meter = current.meter
    if meter is None:
        return result
    if type(result) is ndarray:
        return as_metered_result(result, meter)
    if type(result) is list or type(result) is tuple:
        return type(result)([charge_results(part) for part in result])
    return result
