"""A plan as a program of JAX, or as JSON, by name."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from lib.layout.errors import LayoutError
from lib.layout.layouts.checks import nearest_name
from lib.layout.layouts.tensor_layout import TensorLayout
from lib.layout.planning.plan import GraphPlan

from ..words import SAYS
from .jax_code import jax_code


def plan_to_data(plan: GraphPlan) -> dict[str, Any]:
    """Numbers, texts, lists and dictionaries: the mesh; the axes that split each tensor, as it is stored and as each
    operator takes it; the moves with their steps and bytes; and what all of it costs."""
    mesh = plan.graph.mesh
    moves = [
        {"tensor": edge.tensor, "for": edge.operator, "steps": _steps(plan.redistribution(edge).named_steps, plan)}
        for edge in plan.edges
        if edge.bytes
    ]
    summed = {name: op.reduction for name, op in plan.operators.items() if op.reduction}
    return {
        "mesh": dict(zip(mesh.names, mesh.shape)) if mesh else {"devices": plan.graph.devices},
        "tensors": {
            name: {"layout": _layout(plan.layout(name)), "shape": list(shape)}
            for name, shape in plan.graph.shapes.items()
        },
        "operators": {
            name: {"kind": op.operator.kind, "strategy": op.strategy, "inputs": list(map(_layout, op.inputs))}
            for name, op in plan.operators.items()
        },
        "moves": moves,
        "sums": [{"tensor": name, "steps": _steps(steps, plan)} for name, steps in summed.items()],
        "bytes": plan.bytes,
        "memory": plan.memory,
        "peak": plan.peak,
        "flops": plan.flops,
    }


def plan_json(plan: GraphPlan) -> str:
    """The same as text."""
    return json.dumps(plan_to_data(plan), indent=1) + "\n"


def _layout(layout: TensorLayout) -> dict[str, Any]:
    description: dict[str, Any] = {"split": [[layout.matrix.names[a] for a in axes] for axes in layout.tensor_map]}
    description["piece"] = list(layout.local_shape)
    return description | ({"partial": [layout.matrix.names[a] for a in layout.partial]} if layout.partial else {})


def _steps(steps: Any, plan: GraphPlan) -> list[dict[str, Any]]:
    return [{"name": step.name, "bytes": step.total * plan.graph.itemsize} for step in steps]


WRITERS: Mapping[str, Callable[[GraphPlan], str]] = {
    "jax": jax_code,
    "json": plan_json,
}
"""By name."""


def code_of(plan: GraphPlan, framework: str) -> str:
    """The plan as a program of "jax", or as "json".

    Raises:
        LayoutError: there is no such framework, or the plan cannot be written for it.
    """
    if framework not in tuple(WRITERS):
        raise LayoutError(SAYS("no such framework", framework=framework, advice=nearest_name(str(framework), WRITERS)))
    return WRITERS[framework](plan)
