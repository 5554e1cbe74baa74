"""Where tensors live: layouts, redistributions, and plans of graphs. Needs numpy; `import lib` does not load it.

from lib.layout import Graph, TensorLayout, redistribute, propagate, plan, complete
"""

from typing import TYPE_CHECKING

from lib import late
from lib.layout.code import code_of
from lib.layout.exchanges import Step, bound, exchange
from lib.layout.graph import DistributedOperator, Graph, candidates, distribute, strategy_text
from lib.layout.jax_functions import from_jax
from lib.layout.jax_primitives import ImportedGraph
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
    from lib.layout.completion import Completion, Conflict, complete
    from lib.layout.exact import plan

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

if not TYPE_CHECKING:  # a type checker should still refuse unknown names
    # a layout puzzle is graded without the planners
    __getattr__, __dir__ = late(__name__, {".exact": "plan", ".completion": "Completion Conflict complete"})
