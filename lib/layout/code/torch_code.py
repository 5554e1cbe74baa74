"""A plan in the terms of PyTorch's DTensor: placements of tensors, and parallelize_module plans of products."""

from lib.layout.errors import LayoutError
from lib.layout.layouts.tensor_layout import TensorLayout
from lib.layout.planning.plan import GraphPlan

HEAD = """\
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

mesh = init_device_mesh("cuda", {shape}, mesh_dim_names={names})
"""


def torch_code(plan: GraphPlan) -> str:
    """`PLACEMENTS` by tensor, with an entry for each mesh dimension; `INPUTS` with those in which operators take their
    inputs; for each mesh dimension, the modules that `parallelize_module` splits over it.

    A product with a weight is a module of that weight's name; nn.Linear stores its weight transposed. A dimension that
    two axes split is split over the earlier mesh dimension first, as DTensor does.
    """
    mesh = plan.graph.mesh
    if mesh is None:
        raise LayoutError("DTensor needs a mesh; plan a Graph(mesh=mesh(data=2, model=4))")
    lines = [HEAD.format(shape=mesh.shape, names=mesh.names), "PLACEMENTS = {"]
    lines += [f"    {name!r}: {placements(plan.layout(name), name)}," for name in plan.graph.shapes]
    lines += ["}", "INPUTS = {"]
    for name, op in plan.operators.items():
        taken = ", ".join(placements(layout, x) for x, layout in zip(op.operator.inputs, op.inputs))
        lines.append(f"    {name!r}: [{taken}],")
    lines.append("}")
    for axis, called in enumerate(mesh.names):
        styles = dict(filter(None, (_style(plan, name, axis) for name in plan.operators)))
        if styles:
            lines += ["", f"PLAN_{called.upper()} = {{"]
            lines += [f"    {module!r}: {style}," for module, style in styles.items()]
            lines += ["}", f'# parallelize_module(model, mesh["{called}"], PLAN_{called.upper()})']
    return "\n".join(lines) + "\n"


def placements(layout: TensorLayout, name: str) -> str:
    """The placement on each mesh dimension: [Shard(0), Replicate()]."""
    if any(list(axes) != sorted(axes) for axes in layout.tensor_map):
        raise LayoutError(f"'{name}' is split over axes in the order {layout}; DTensor has only the order of the mesh")
    return f"[{', '.join(_placement(layout, axis) for axis in range(len(layout.matrix.shape)))}]"


def _placement(layout: TensorLayout, axis: int) -> str:
    if axis in layout.partial:
        return "Partial()"
    return next((f"Shard({dim})" for dim, axes in enumerate(layout.tensor_map) if axis in axes), "Replicate()")


def _style(plan: GraphPlan, name: str, axis: int) -> tuple[str, str] | None:
    """The module of a product with a weight, and how it is split over one mesh dimension, if it is."""
    op = plan.operators[name]
    if not op.operator.is_product or len(op.inputs) != 2 or op.operator.inputs[1] not in plan.graph.sources:
        return None
    weight, turned = op.inputs[1], dict(op.operator.settings).get("transpose_b", False)
    split = [axis in axes for axes in weight.tensor_map]
    if len(split) != 2 or not any(split):
        return None
    style = "ColwiseParallel" if split[1] != turned else "RowwiseParallel"
    given = _placement(plan.layout(op.operator.inputs[0]), axis)
    produced = _placement(op.output, axis)
    return op.operator.inputs[1], f"{style}(input_layouts={given}, output_layouts={produced})"
