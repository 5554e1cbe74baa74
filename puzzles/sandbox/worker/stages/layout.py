"""Layout puzzles in the worker: calls the function on the graph, and returns only the strategies that it has set."""

import inspect
from collections.abc import Mapping
from typing import Any

from lib.layout import Graph
from lib.layout.program.notation import graph_from_data
from puzzles.sandbox.plain_data import pack

from .stage import DefinitionSite, StageResult, UnplayableError, require_function


def prepare(request: Mapping[str, Any]) -> Graph:
    """The puzzle's graph, with the given strategies set."""
    return graph_from_data(request["graph"])


def run_definition(slug: str, function: Any, graph: Graph, site: DefinitionSite) -> StageResult:
    """The strategies that the function has set."""
    _require_playable(slug, function)
    returned = function(graph)
    if returned is not None and returned is not graph:
        raise UnplayableError(
            f"{slug} returns a {type(returned).__name__}, which is not used; configure operators of the graph, "
            "such as with graph.shard('matmul', ((2, 1), (1, 4)))"
        )
    return StageResult({"strategies": pack(graph.strategies), "outs": pack(graph.outs)})


def _require_playable(slug: str, function: Any) -> None:
    require_function(slug, function, "graph")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise UnplayableError(
            f"{slug} has to be a plain function, because nothing waits here; write 'def {slug}(graph):'"
        )
    try:
        inspect.signature(function, follow_wrapped=False).bind(None)
    except (TypeError, ValueError):
        raise UnplayableError(f"{slug} is called with one argument, the graph; write 'def {slug}(graph):'") from None
