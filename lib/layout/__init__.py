"""The layout track: where tensors live. Needs numpy; `import lib` does not import it.

from lib.layout import Graph, TensorLayout, redistribute, propagate, plan, complete
"""

from .breadth_first import propagate
from .candidates import candidates
from .completion import Completion, Conflict, complete
from .device_matrix import DeviceMatrix
from .distributed import DistributedOperator, distribute, strategy_text
from .errors import LayoutError
from .exact import plan
from .exchange import bound, exchange
from .graph import Graph
from .graph_plan import Edge, GraphPlan
from .mesh import mesh, mesh_split, replicate, shard, split
from .operators import Operator
from .pieces import Pieces, cut, join
from .redistribution import Redistribution, least_bytes, redistribute
from .steps import Step
from .tensor_layout import TensorLayout, same_placement

__all__ = [
    "Completion",
    "Conflict",
    "DeviceMatrix",
    "DistributedOperator",
    "Edge",
    "Graph",
    "GraphPlan",
    "LayoutError",
    "Operator",
    "Pieces",
    "Redistribution",
    "Step",
    "TensorLayout",
    "bound",
    "candidates",
    "complete",
    "cut",
    "distribute",
    "exchange",
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
]
