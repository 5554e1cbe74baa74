"""A layout in the child: its function annotates a graph, and only the strategies are sent back."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from lib.layout import Graph
from puzzles.catalog.layout import LAYOUT_PUZZLES
from puzzles.sandbox.plain_data import pack

from .stage import Place, Told, Unplayable


def prepare(request: Mapping[str, Any]) -> Graph:
    """The puzzle's graph, with what is given configured."""
    return LAYOUT_PUZZLES[request["slug"]].graph()


def run_definition(slug: str, function: Any, graph: Graph, place: Place) -> Told:
    """What the function has configured."""
    _require_playable(slug, function)
    function(graph)
    return Told({"strategies": pack(graph.strategies)})


def _require_playable(slug: str, function: Any) -> None:
    if not callable(function):
        raise Unplayable(f"{slug} is of type {type(function).__name__}, not a function; write 'def {slug}(graph):'")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise Unplayable(f"{slug} has to be a plain function, for nothing waits here; write 'def {slug}(graph):'")
    try:
        inspect.signature(function).bind(None)
    except (TypeError, ValueError):
        raise Unplayable(f"{slug} is called with one argument, the graph; write 'def {slug}(graph):'") from None
