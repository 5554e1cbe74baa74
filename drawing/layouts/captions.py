"""Words about a plan that pictures, pages and terminals share."""

from math import inf

from lib.layout import Edge, GraphPlan, TensorLayout


def limits_text(plan: GraphPlan, target: float = inf, cap: float = inf) -> tuple[str, str]:
    """What moves and what each device holds, each with its limit, if any."""
    most = f" (target: {target:,})" if target < inf else ""
    room = f" (cap: {cap:,})" if cap < inf else ""
    return f"{plan.bytes:,} bytes moved{most}", f"{plan.memory:,} bytes on each of {plan.graph.devices} devices{room}"


def held_text(plan: GraphPlan, tensor: str) -> str:
    """The bytes of a tensor on each device, its padding, and whether the bytes count."""
    layout = plan.layout(tensor)
    padded = f", padded to {'x'.join(map(str, layout.padded_shape))}" if layout.uneven else ""
    counted = "" if is_counted(plan, tensor) else ", not counted"
    return f"{layout.elements * plan.graph.itemsize:,} bytes{padded}{counted}"


def held_number(plan: GraphPlan, tensor: str) -> str:
    """`held_text` for a column of numbers: numbers that do not count are in brackets."""
    held = f"{plan.layout(tensor).elements * plan.graph.itemsize:,}"
    return held if is_counted(plan, tensor) else f"({held})"


def memory_text(plan: GraphPlan, cap: float = inf) -> str:
    words = f"{plan.memory:,} bytes on each device" + (f" of at most {cap:,}" if cap < inf else "")
    counted = all(is_counted(plan, tensor) for tensor in (*plan.storage_layouts, *plan.operators))
    return words if counted else f"{words}; those in brackets are not counted"


def is_counted(plan: GraphPlan, tensor: str) -> bool:
    """True if a plan's memory counts this tensor."""
    return tensor in plan.storage_layouts or plan.graph.keeps(tensor)


def move_text(plan: GraphPlan, edge: Edge) -> str:
    """What it takes to move a tensor to an operator: collectives and bytes."""
    if edge.moved_for:
        return f"{edge.tensor}: as moved for {edge.moved_for}"
    source = f" from the copy of {edge.copied_from}" if edge.copied_from else ""
    steps = ", ".join(plan.redistribution(edge).names)
    return f"{edge.tensor}: {steps}{source}, {edge.bytes:,} bytes" if steps else f"{edge.tensor}: as it is"


def piece_text(layout: TensorLayout, device: int) -> str:
    """The piece of a device: the number of its part along each split dimension; 'all' if none is split."""
    parts = [str(i) for i, n in zip(layout.part(device), layout.splits) if n > 1]
    return ",".join(parts) or "all"
