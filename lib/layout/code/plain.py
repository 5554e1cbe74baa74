"""A plan as code of a framework, by its name; here as JSON, and as MindSpore's `shard` calls."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from lib.layout.errors import LayoutError
from lib.layout.layouts.checks import nearest_name
from lib.layout.layouts.tensor_layout import TensorLayout
from lib.layout.planning.plan import GraphPlan

from .jax_code import jax_code
from .torch_code import torch_code

PRIMITIVES = {
    "matmul": "MatMul", "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "RealDiv", "relu": "ReLU",
    "gelu": "GeLU", "silu": "SiLU", "softmax": "Softmax", "transpose": "Transpose", "reshape": "Reshape", "exp": "Exp",
    "tanh": "Tanh", "rsqrt": "Rsqrt", "sqrt": "Sqrt", "log": "Log", "negative": "Neg", "logistic": "Sigmoid",
    "reduce_sum": "ReduceSum", "reduce_mean": "ReduceMean", "reduce_max": "ReduceMax", "gather": "Gather",
    "einsum": "Einsum", "concat": "Concat", "slice": "StridedSlice", "maximum": "Maximum", "minimum": "Minimum",
    "select": "Select", "top_k": "TopK", "erf": "Erf", "sin": "Sin", "cos": "Cos", "reciprocal": "Reciprocal",
}  # fmt: skip
"""MindSpore's primitives by kind of operator."""


def mindspore_code(plan: GraphPlan) -> str:
    """Every operator with its strategy, as a cell's __init__ has it; with an out-strategy where sums are scattered."""
    lines = ["from mindspore import ops", "", f"# mindspore.set_auto_parallel_context(device_num={plan.graph.devices})"]
    for name, op in plan.operators.items():
        kind = PRIMITIVES.get(op.operator.kind)
        settings = ", ".join(f"{key}={value!r}" for key, value in op.operator.settings if key.startswith("transpose_"))
        how = f"in_strategy={op.strategy}"
        if any(step.name == "reduce-scatter" for step in op.reduction):
            how += f", out_strategy=({op.output.splits},)"
        call = f"ops.{kind}({settings}).shard({how})" if kind else None
        lines.append(f"self.{name.replace('.', '_')} = {call}" if call else f"# {name}: {op.operator.kind}, {how}")
    return "\n".join(lines) + "\n"


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
    "torch": torch_code,
    "mindspore": mindspore_code,
    "json": plan_json,
}
"""By name."""


def code_of(plan: GraphPlan, framework: str) -> str:
    """The plan as a program of "jax", DTensor placements for "torch", `shard` calls for "mindspore", or "json".

    Raises:
        LayoutError: there is no such framework, or the plan cannot be written for it.
    """
    if framework not in tuple(WRITERS):
        raise LayoutError(f"there is no framework {framework!r}; {nearest_name(str(framework), WRITERS)}")
    return WRITERS[framework](plan)
