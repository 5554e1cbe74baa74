"""Layout puzzles in the worker: calls the function on the graph, and returns only the strategies that it has set."""

from collections.abc import Mapping
from typing import Any

from lib.layout import Graph
from lib.layout.notation import graph_from_data
from puzzles.sandbox.plain_data import pack

from . import DefinitionSite, StageResult, UnplayableError, require_function, require_plain


def prepare(request: Mapping[str, Any]) -> Graph:
    """The puzzle's graph, with the given strategies set."""
    return graph_from_data(request["graph"])


def run_definition(slug: str, function: Any, graph: Graph, site: DefinitionSite) -> StageResult:
    require_plain(slug, function, "graph", "because nothing waits here")
    require_function(slug, function, "graph", "graph")
    returned = function(graph)
    if returned is not None and returned is not graph:
        raise UnplayableError(
            f"{slug} returns a {type(returned).__name__}, which is not used; configure operators of the graph, "
            "such as with graph.shard('matmul', ((2, 1), (1, 4)))"
        )
    return StageResult({"strategies": pack(graph.strategies), "outs": pack(graph.outs)})
