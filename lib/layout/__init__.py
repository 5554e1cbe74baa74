"""Tensor layouts, redistributions and plans of graphs. Needs numpy; `import lib` does not load it.

from lib.layout import Graph, TensorLayout, redistribute, propagate, plan, complete
"""

from typing import TYPE_CHECKING, Any

from lib.layout.code.plain import code_of
from lib.layout.layouts.device_matrix import DeviceMatrix
from lib.layout.layouts.mesh import P, mesh, mesh_split, replicate, shard, split
from lib.layout.layouts.pieces import Pieces, cut, join
from lib.layout.layouts.tensor_layout import TensorLayout, same_placement
from lib.layout.planning.breadth_first import propagate
from lib.layout.planning.decisions import Candidate, Decision, compared
from lib.layout.planning.placed_graph import Edge
from lib.layout.planning.plan import GraphPlan
from lib.layout.program.candidates import candidates
from lib.layout.program.distributed import DistributedOperator, distribute, strategy_text
from lib.layout.program.from_jax import from_jax
from lib.layout.program.graph import Graph
from lib.layout.program.imported_graph import ImportedGraph
from lib.layout.program.operators import Operator
from lib.layout.program.training import training
from lib.layout.redistribution.exchange import bound, exchange
from lib.layout.redistribution.redistribution import Redistribution, least_bytes, redistribute
from lib.layout.redistribution.steps import Step

from .errors import LayoutError

if TYPE_CHECKING:
    from .planning.completion import Completion, Conflict, complete
    from .planning.exact import plan

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
    """Loads the planners on demand: a layout puzzle is graded without them."""
    if name == "plan":
        from .planning.exact import plan  # noqa: F401  # it is returned by its name
    elif name in ("Completion", "Conflict", "complete"):
        from .planning.completion import Completion, Conflict, complete  # noqa: F401  # as above
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return locals()[name]
