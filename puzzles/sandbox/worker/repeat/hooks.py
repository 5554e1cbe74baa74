"""Lets numpy's functions, methods of arrays and the calls of the engine tell a recorder what a device does."""

from collections.abc import Sequence
from functools import wraps
from typing import Any

import numpy as np

from lib.engine import ShardedEngine, metering
from lib.engine.devices import OutputStream
from lib.engine.engine import Fetch, MemoryTier
from lib.engine.metering import MeteredArray, current

from .functions import COMMUNICATION, DRAWS, METHODS, NAME_OF, TIER
from .recording_meter import recorder_here


def _wrapped(kind: str, name: str, function: Any, with_self: bool = False, if_known: bool = False) -> Any:
    """A function that is recorded where a device records. `with_self`: its first argument is the engine or a memory
    tier, which stays the same; a tier has the `kind`, if that is empty. `if_known`: it is recorded only with arrays of
    the device."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        recorder = recorder_here()
        if recorder is None or current.meter is None or (if_known and not recorder.is_known((*args, *kwargs.values()))):
            return function(*args, **kwargs)
        split = 1 if with_self else 0
        return recorder.perform(kind or args[0].kind, name, function, args[:split], args[split:], kwargs)

    return call


def _generator(seed: Any = None) -> Any:
    """`np.random.default_rng`, recorded: its seed may be a number that the device was given."""
    recorder = recorder_here()
    if recorder is None or current.meter is None:
        return _default_rng(seed)
    return recorder.perform("generator", "default_rng", _default_rng, (), (seed,), {})


def _draw_of(generator: metering.MeteredGenerator, name: str) -> Any:
    """A method of a generator; its draws are recorded if the generator is."""
    method = _attribute_of(generator, name)
    if name not in DRAWS:
        return method

    @wraps(method)
    def draw(*args: Any, **kwargs: Any) -> Any:
        recorder = recorder_here()
        if recorder is None or current.meter is None or not recorder.is_known(generator):
            return method(*args, **kwargs)
        return recorder.perform(
            "draw", name, lambda _, *args, **kwargs: drawn(*args, **kwargs), (), (generator, *args), kwargs
        )

    def drawn(*args: Any, **kwargs: Any) -> Any:
        number = method(*args, **kwargs)
        return np.float64(number) if type(number) is float else number  # which a recorder can follow

    return draw


_, _default_rng = metering.RANDOM_STAND_INS["default_rng"]
_attribute_of = metering.MeteredGenerator.__getattribute__


def install() -> None:
    """Wraps the functions once; where nothing is recorded, they do what they did."""
    array_ufunc, array_function = MeteredArray.__array_ufunc__, MeteredArray.__array_function__

    def ufunc_of(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        recorder = recorder_here()
        if recorder is None:
            return array_ufunc(self, ufunc, method, *inputs, **kwargs)
        name = f"{ufunc.__name__}.{method}"
        return recorder.perform("ufunc", name, array_ufunc, (self, ufunc, method), inputs, kwargs)

    def function_of(self: Any, function: Any, types: Any, args: Sequence[Any], kwargs: Any) -> Any:
        recorder = recorder_here()
        if recorder is None:
            return array_function(self, function, types, args, kwargs)

        def call(*args: Any, **kwargs: Any) -> Any:
            return array_function(self, function, types, args, kwargs)

        return recorder.perform("numpy", NAME_OF.get(id(function), function.__name__), call, (), args, kwargs)

    named: Any = MeteredArray
    named.__array_ufunc__, named.__array_function__ = ufunc_of, function_of
    for name in METHODS:
        if hasattr(MeteredArray, name):
            setattr(named, name, _wrapped("method", name, getattr(MeteredArray, name)))
    for name in COMMUNICATION:
        setattr(ShardedEngine, name, _wrapped("communication", name, getattr(ShardedEngine, name), with_self=True))
    for name in TIER:
        setattr(MemoryTier, name, _wrapped("", name, getattr(MemoryTier, name), with_self=True))
    write = OutputStream.write

    def written(stream: OutputStream, item: Any) -> None:
        if recorder := recorder_here():
            recorder.returned(item, "write")
        write(stream, item)

    named = OutputStream
    named.write = written
    wait = _wrapped("wait", "wait", Fetch.wait)
    named = Fetch
    named.wait = named.result = wait
    named = metering.MeteredGenerator
    named.__getattribute__ = _draw_of
    metering.RANDOM_STAND_INS["default_rng"] = (metering._RNG, _generator)
    for name, (function, stand_in) in list(metering.STAND_INS.items()):
        kind, called = ("ufunc", f"{name}.__call__") if isinstance(function, np.ufunc) else ("numpy", name)
        metering.STAND_INS[name] = (function, _wrapped(kind, called, stand_in, if_known=True))
