"""Functions of JAX under vmap over each axis, all functions of jax.lax, jax.numpy and jax.nn, all types of elements: a
graph computes what JAX does, or one sentence says what it cannot and what to do.

Run as `from_jax_checks.py` is.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from math import prod
from typing import Any

import jax
import numpy as np
import pytest

from lib.layout import LayoutError, from_jax, mesh, plan
from tests.oracles.blocks_in_jax import attention
from tests.support.from_jax_checks import NETWORKS, SMALL, X, all_expected, arguments, assert_close, expected

jnp, nn, lax = jax.numpy, jax.nn, jax.lax
jax.config.update("jax_traceback_filtering", "off")  # it takes longer than the checks where much is refused

PLAIN = {name: case for name, case in SMALL.items() if name != "a scan"}  # which takes a dictionary
MAPPED = PLAIN | {name: NETWORKS[name] for name in ("mlp", "layer norm", "swiglu", "embedding")}


def wider(shape: Any, axis: int | None) -> Any:
    """A shape with one more axis, of size 3."""
    if axis is None:
        return shape
    known = getattr(shape, "shape", shape)
    more = (*known[:axis], 3, *known[axis:])
    return jax.ShapeDtypeStruct(more, shape.dtype) if hasattr(shape, "dtype") else more


def axes(shapes: tuple[Any, ...]) -> Iterator[tuple[int | None, ...]]:
    """Each axis of each argument alone, and the first and the last of all."""
    ranks = [len(getattr(shape, "shape", shape)) for shape in shapes]
    for which, rank in enumerate(ranks):
        yield from (tuple(axis if i == which else None for i in range(len(ranks))) for axis in range(rank + 1))
    if len(ranks) > 1:
        yield (0,) * len(ranks)
        yield tuple(ranks)


CASES = [(name, over) for name, (_, shapes) in MAPPED.items() for over in axes(shapes)]


@lru_cache(maxsize=1)
def under_vmap(name: str) -> dict[tuple[int | None, ...], tuple[list[Any], list[Any]]]:
    """By axes: arguments, and what JAX computes from them."""
    function, shapes = MAPPED[name]
    calls = {
        over: (jax.vmap(function, in_axes=over), arguments(tuple(map(wider, shapes, over)))) for over in axes(shapes)
    }
    return {over: (given, wanted) for (over, (_, given)), wanted in zip(calls.items(), all_expected(calls.values()))}


@pytest.mark.parametrize(("name", "over"), CASES)
def test_under_vmap_a_graph_computes_what_jax_does(name: str, over: tuple[int | None, ...]) -> None:
    function, shapes = MAPPED[name]
    given, wanted = under_vmap(name)[over]
    graph = from_jax(jax.vmap(function, in_axes=over), *map(wider, shapes, over), devices=2)
    done = graph.run(graph.values(*given))
    assert_close([done[result] for result in graph.results], wanted)


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    for module in (lax, jnp, nn):
        for name in dir(module):
            found = getattr(module, name)
            if not name.startswith("_") and callable(found) and not isinstance(found, type):
                yield f"{module.__name__}.{name}", found


PUBLIC = [*public()]
MAX_RUN = 2000
"""Operators of a graph that is run: the loop of a histogram has many more, and takes minutes."""
MAX_ELEMENTS = 10**6
"""Elements of a tensor of a graph that is run: a histogram over 8 dimensions has 430 million bins."""
TOGETHER = 20
"""Functions that are compiled as one program."""


def called(function: Callable[..., Any]) -> Iterator[tuple[tuple[Any, ...], Callable[..., Any]]]:
    """Shapes of arguments, and the function of them; if JAX takes these arguments."""
    for shapes, each in (
        ((X,), lambda x: function(x)),
        ((X, X), lambda x, y: function(x, y)),
        (((3, *X),), jax.vmap(lambda x: function(x))),
        (((*X, 3),), jax.vmap(lambda x: function(x), in_axes=2)),
    ):
        with suppress(Exception):
            jax.make_jaxpr(each)(*arguments(shapes))
            yield shapes, each


@lru_cache(maxsize=1)
def imported(part: int) -> dict[str, list[tuple[str | list[Any], list[Any]]]]:
    """By function: why it is refused, or what its graph computes, and what JAX does; for each kind of call."""
    found: dict[str, list[tuple[str | list[Any], list[Any]]]] = {}
    calls = []
    for name, function in PUBLIC[part : part + TOGETHER]:
        found[name] = []
        for shapes, each in called(function):
            given = arguments(shapes)
            try:
                graph = from_jax(each, *shapes, devices=2)
            except LayoutError as why:
                found[name].append((str(why), []))
                continue
            if len(graph.operators) > MAX_RUN or max(map(prod, graph.shapes.values()), default=0) > MAX_ELEMENTS:
                continue
            done = graph.run(graph.values(*given))
            found[name].append(([done[result] for result in graph.results], wanted := []))
            calls.append((each, given, wanted))
    for (_, _, wanted), computed in zip(calls, all_expected([call[:2] for call in calls]) if calls else ()):
        wanted += computed
    return found


@pytest.mark.filterwarnings("ignore")  # what JAX warns of, for what it is asked here
@pytest.mark.parametrize("number", range(len(PUBLIC)), ids=[name for name, _ in PUBLIC])
def test_every_function_of_jax_is_computed_or_refused(number: int) -> None:
    for made, wanted in imported(number - number % TOGETHER)[PUBLIC[number][0]]:
        if isinstance(made, str):
            assert "jax's '" in made
            assert ";" in made, "it says what to do"
        else:
            assert_close(made, wanted)


TYPES = [
    *"bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64".split(),
    *"float8_e4m3fn float8_e5m2 complex64 complex128".split(),
]


@pytest.mark.parametrize("name", TYPES)
def test_every_type_is_computed_or_refused(name: str) -> None:
    dtype = jnp.dtype(name)
    for function in (lambda x: x + x, lambda x: x * 2, lambda x: x.sum(0), lambda x: x.max(1)):
        if name.startswith("complex"):
            with pytest.raises(LayoutError, match=f"0 has the type {name}.*; keep"):
                from_jax(function, jax.ShapeDtypeStruct(X, dtype), devices=2)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without 64 bits, JAX takes 32
            graph = from_jax(function, jax.ShapeDtypeStruct(X, dtype), devices=2)
            given = (np.arange(32).reshape(X) % 3).astype(dtype)
            (wanted,) = expected(function, [given])
        found = graph.run(graph.values(given))[graph.results[0]]
        np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64))


def test_grouped_queries_with_rotary_embedding_are_planned_to_the_end_under_a_cap() -> None:
    """Eight sequences of 16 tokens, 8 heads of queries, 2 of keys and values, on 2x4 devices."""
    shapes = {"wq": (64, 64), "wk": (64, 16), "wv": (64, 16), "wo": (64, 64)}
    found = plan(from_jax(attention, shapes, (8, 16, 64), mesh=mesh(data=2, model=4)), memory_cap=140_000, effort=5_000)
    assert (found.bytes, found.at_least, found.redundancy) == (31_232, None, 1)
    assert found.memory <= 140_000
