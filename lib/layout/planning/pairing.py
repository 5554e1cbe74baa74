"""Pairing of forward and backward: backward operators split as the operator of forward that they belong to.

Alpa (Zheng et al. 2022) couples them like this, and so does a compiler that propagates annotations. The choices of a
training step are then those of its forward, which keeps the search as small; only reductions and optimizer remain free.
"""

from __future__ import annotations

from collections.abc import Sequence

from lib.layout.layouts.device_matrix import DeviceMatrix
from lib.layout.layouts.tensor_layout import Axes, TensorLayout
from lib.layout.program.candidates import arranged
from lib.layout.program.distributed import DistributedOperator
from lib.layout.program.graph import Graph
from lib.layout.program.operators import Operator

Aligned = list[list[DistributedOperator]]
"""For each value of a variable, the ways to complete an operator's sums."""


def paired_choices(
    graph: Graph, forward: Sequence[DistributedOperator], names: Sequence[str], scatter: bool
) -> dict[str, Aligned]:
    """For the backward operators of one operator of forward, in order: their ways for each way of that one."""
    found: dict[str, Aligned] = {name: [] for name in names}
    for way in forward:
        known = _layouts(graph, way, names)
        for name in names:
            operator = graph.operators[name]
            ways = arranged(operator, way.local.matrix, _split(operator, way.local.matrix, known))
            found[name].append(ways if scatter else ways[-1:])
            known[name] = ways[-1].output
    return found


def along_tensor(graph: Graph, layouts: Sequence[TensorLayout], name: str) -> Aligned:
    """The same for a sum of gradients, or a difference, that is laid out like the tensor that it belongs to."""
    operator = graph.operators[name]
    return [[DistributedOperator(operator, (each,) * len(operator.inputs), each, ())] for each in layouts]


def _layouts(graph: Graph, way: DistributedOperator, names: Sequence[str]) -> dict[str, TensorLayout]:
    """The layouts of a forward operator's tensors, and of their gradients."""
    known = dict(zip(way.operator.inputs, way.inputs))
    known[way.operator.name] = way.local.full()
    slopes = [x for name in names for x in graph.operators[name].inputs if x not in known and x not in names]
    # what is neither an input, an output nor made on the way is the gradient of the output, or the rows of a table
    known |= {x: way.local.full() for x in slopes if graph.shapes[x] == way.operator.output_shape}
    return known


def _split(operator: Operator, matrix: DeviceMatrix, known: dict[str, TensorLayout]) -> dict[str, Axes]:
    """The axes of each letter, from the first tensor that splits it; an axis that is taken does not split twice."""
    split: dict[str, Axes] = {}
    for tensor, letters in zip(operator.inputs, operator.input_letters):
        for letter, axes in zip(letters, known[tensor].tensor_map):
            taken = {axis for mine in split.values() for axis in mine}
            parts = 1
            for axis in axes:
                parts *= matrix.shape[axis]
            if (
                axes
                and letter != "1"
                and letter not in split
                and not taken & set(axes)
                and operator.splits(letter, parts)
            ):
                split[letter] = axes
    return split
