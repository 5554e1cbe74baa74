"""Where tensors live: layouts, redistributions, and plans of graphs. Needs numpy; `import lib` does not load it.

from lib.layout import Graph, TensorLayout, redistribute, propagate, plan, complete
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lib.layout.exchanges import Step, bound, exchange
from lib.layout.graph import DistributedOperator, Graph, candidates, distribute, strategy_text
from lib.layout.layouts import (
    DeviceMatrix,
    LayoutError,
    P,
    Pieces,
    TensorLayout,
    cut,
    join,
    mesh,
    mesh_split,
    replicate,
    same_placement,
    shard,
    split,
)
from lib.layout.operators import Operator
from lib.layout.plans import Decision, Edge, GraphPlan
from lib.layout.propagation import Candidate, compared, propagate
from lib.layout.redistribution import Redistribution, least_bytes, redistribute
from lib.layout.training_step import training

if TYPE_CHECKING:
    from lib.layout.code import code_of
    from lib.layout.completion import Completion, Conflict, complete
    from lib.layout.exact import plan
    from lib.layout.jax_functions import ImportedGraph, from_jax

_MODULES = {
    "code": "code_of",
    "completion": "Completion Conflict complete",
    "exact": "plan",
    "jax_functions": "ImportedGraph from_jax",
}
"""The names that are loaded with their module when they are asked for: a layout is graded without planners, and the
rest works where one of these modules is not installed."""

_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "Candidate",
    "Completion",
    "Conflict",
    "Decision",
    "DeviceMatrix",
    "DistributedOperator",
    "Edge",
    "Graph",
    "GraphPlan",
    "ImportedGraph",
    "LayoutError",
    "Operator",
    "P",
    "Pieces",
    "Redistribution",
    "Step",
    "TensorLayout",
    "bound",
    "candidates",
    "code_of",
    "compared",
    "complete",
    "cut",
    "distribute",
    "exchange",
    "from_jax",
    "join",
    "least_bytes",
    "mesh",
    "mesh_split",
    "plan",
    "propagate",
    "redistribute",
    "replicate",
    "same_placement",
    "shard",
    "split",
    "strategy_text",
    "training",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
