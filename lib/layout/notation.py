"""Writes a graph as plain data and reads it, strictly: its devices, its tensors, its operators in order."""

from collections.abc import Mapping, Sequence
from typing import Any

from lib.layout.graph import Graph
from lib.layout.layouts import DeviceMatrix, LayoutError, P, TensorLayout
from lib.layout.operators import KINDS, Operator
from lib.layout.training_step import training

FIELDS = (
    "devices", "mesh", "order", "itemsize", "uneven", "tensors", "operators", "repeats", "training", "configured",
    "pins",
)  # fmt: skip

ROLES = {"input": Graph.input, "parameter": Graph.parameter}


def graph_to_data(graph: Graph) -> dict[str, Any]:
    """A graph as numbers, texts, lists and dictionaries: `devices`, or the axes of its `mesh` and the `order` of their
    devices; `tensors`, each with its role, name and shape; `operators`, each with its kind, name, inputs and settings;
    by operator of a later step of a loop the one that it `repeats`; those that are `configured`; layouts as `pins`;
    whether splits may be `uneven`, if that is set. Of a training step, its program, and as `training` the name of its
    optimizer.
    """
    step = graph.step
    if foreign := [op.name for op in graph.operators.values() if op.kind == "opaque"]:
        raise LayoutError(
            f"'{foreign[0]}' is computed by jax, and cannot be written as data; keep the function instead"
        )
    place: dict[str, Any] = {"devices": graph.devices}
    if graph.mesh is not None:
        place = {"mesh": dict(zip(graph.mesh.names, graph.mesh.shape))}
        place |= {"order": list(graph.mesh.devices)} if graph.mesh.devices else {}
    operators = [
        {op.kind: op.name, "inputs": list(op.inputs)}
        | {name: list(value) if isinstance(value, tuple) else value for name, value in op.settings}
        | _sizes(op)
        for op in graph.operators.values()
        if not step or op.name in step.forward
    ]
    configured = {
        name: {"strategy": [list(parts) for parts in strategy]}
        | ({"out": list(graph.outs[name])} if name in graph.outs else {})
        for name, strategy in graph.strategies.items()
    }
    tensors = [
        {role: name, "shape": list(graph.shapes[name])}
        for name, role in graph.sources.items()
        if not step or (role in ROLES and name != step.target)
    ]
    place |= {"uneven": graph.uneven} if graph.uneven is not None else {}
    program = {**place, "itemsize": graph.itemsize, "tensors": tensors, "operators": operators}
    program |= {"repeats": dict(graph.repeats)} if graph.repeats else {}
    pins = {name: _axes(layout, graph.mesh) for name, layout in graph.pins.items()}
    trained = {"training": step.optimizer} if step else {}
    return {**program, **trained, "configured": configured, **({"pins": pins} if pins else {})}


def _axes(layout: TensorLayout, mesh: DeviceMatrix | None) -> dict[str, Any]:
    """The axes that split each dimension of a layout, by number, and the device matrix where it is not the mesh."""
    matrix = layout.matrix
    split: dict[str, Any] = {"split": [list(axes) for axes in layout.tensor_map]}
    return split if matrix == mesh else {**split, "on": list(matrix.shape), "order": list(matrix.devices)}


def _sizes(operator: Operator) -> dict[str, Any]:
    shape = operator.output_shape
    match operator.kind:
        case "reshape":
            return {"shape": list(shape)}
        case "repeat":
            return {"size": shape[dict(operator.settings)["axis"]]}
        case "scatter":
            return {"size": shape[0]}
    return {}


def graph_from_data(data: Mapping[str, Any]) -> Graph:
    """The graph that `graph_to_data` wrote, or that somebody wrote in that form; all but `tensors` and `operators` has
    a default, except that either `devices` or a `mesh` is given.
    """
    if unknown := set(data) - set(FIELDS):
        raise LayoutError(f"a graph has no {', '.join(sorted(unknown))}; it has {', '.join(FIELDS)}")
    graph = Graph(data.get("devices"), _mesh(data), data.get("itemsize", 4), data.get("uneven"))
    for row in _rows(data, "tensors"):
        role, name, rest = _head(row, tuple(ROLES), "a tensor")
        _require_fields(name, rest, "shape")
        ROLES[role](graph, name, _sequence(name, rest["shape"]))
    for row in _rows(data, "operators"):
        kind, name, rest = _head(row, KINDS, "an operator")
        inputs = rest.pop("inputs", None)
        if not isinstance(inputs, list):
            raise LayoutError(f"{name}: its inputs are a list of names; got {inputs!r:.60}")
        graph.operator(kind, name, *inputs, **rest)
    for name, first in _mapping(data.get("repeats", {}), "repeats").items():
        earlier, later = graph.operator_named(first), graph.operator_named(name)
        is_alike = (earlier.kind, earlier.input_shapes) == (later.kind, later.input_shapes)
        if not is_alike or first in graph.repeats or first == name:
            raise LayoutError(f"'{name}' cannot repeat '{first}': it repeats an earlier one of its kind and shapes")
        graph.repeats[name] = first
    if "training" in data:
        graph = training(graph, data["training"])
    for name, given in _mapping(data.get("configured", {}), "configured").items():
        given = {"strategy": given} if isinstance(given, list) else _mapping(given, name)
        _require_fields(name, given, "strategy", "out")
        graph.shard(name, _sequence(name, given["strategy"]), given.get("out"))
    for name, given in _mapping(data.get("pins", {}), "pins").items():
        graph.pin(name, _pin(graph, name, given))
    return graph


def _pin(graph: Graph, name: str, given: Any) -> Any:
    """A layout as `_axes` writes it, or a list with an axis, several axes, or "" for each dimension."""
    if isinstance(given, list):
        return P(*(None if axes == "" else tuple(axes) if isinstance(axes, list) else axes for axes in given))
    given = _mapping(given, name)
    _require_fields(name, given, "split", "on", "order")
    split = tuple(tuple(_sequence(name, axes)) for axes in _sequence(name, given["split"]))
    if "on" not in given:
        return P(*split)
    return TensorLayout(graph.shapes.get(name, ()), DeviceMatrix(tuple(given["on"]), tuple(given["order"])), split)


def _mesh(data: Mapping[str, Any]) -> DeviceMatrix | None:
    if "mesh" not in data:
        return None
    axes = _mapping(data["mesh"], "mesh")
    return DeviceMatrix(tuple(axes.values()), tuple(data.get("order", ())), tuple(axes))


def _head(row: Mapping[str, Any], kinds: Sequence[str], what: str) -> tuple[str, str, dict[str, Any]]:
    """The kind of a row and its name, which is the value of that key, and the other fields."""
    present = [kind for kind in kinds if kind in row]
    if len(present) != 1:
        raise LayoutError(f"{what} begins with one of {', '.join(kinds)}, and its name; got {dict(row)!r:.80}")
    return present[0], row[present[0]], {name: value for name, value in row.items() if name != present[0]}


def _rows(data: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    rows = data.get(name)
    if not isinstance(rows, list) or not rows:
        raise LayoutError(f"a graph needs {name}, a list with at least one entry")
    return [_mapping(row, name) for row in rows]


def _mapping(given: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise LayoutError(f"{name}: expected names with values; got {given!r:.60}")
    return given


def _sequence(name: str, given: Any) -> list[Any]:
    if not isinstance(given, list):
        raise LayoutError(f"{name}: expected a list of whole numbers; got {given!r:.60}")
    return given


def _require_fields(name: str, given: Mapping[str, Any], needed: str, *allowed: str) -> None:
    if needed not in given:
        raise LayoutError(f"{name}: its {needed} is missing")
    if unknown := set(given) - {needed, *allowed}:
        raise LayoutError(f"{name}: there is no {', '.join(sorted(unknown))} here")
