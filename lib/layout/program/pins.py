"""Pinned layouts: tensors whose layout is given, as by GSPMD's in_shardings and out_shardings."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol

from lib.layout.errors import LayoutError
from lib.layout.layouts.checks import nearest_name
from lib.layout.layouts.device_matrix import DeviceMatrix
from lib.layout.layouts.mesh import P, mesh_split
from lib.layout.layouts.tensor_layout import TensorLayout
from lib.layout.redistribution.redistribution import redistribute
from lib.layout.redistribution.steps import Step

from ..words import SAYS
from .distributed import DistributedOperator


class PlacedProgram(Protocol):
    """What a graph has that layouts have to fit."""

    shapes: dict[str, tuple[int, ...]]
    devices: int
    mesh: DeviceMatrix | None
    uneven: bool | None


def layouts_of(graph: PlacedProgram, given: Any, what: str) -> dict[str, TensorLayout]:
    """The given layouts of tensors by name, each a layout or P(...) with the mesh axes of each dimension."""
    if not isinstance(given, Mapping):
        raise LayoutError(f"{what.split()[-1]}s are a dictionary of layouts by tensor name; got {given!r}")
    return {name: _layout_of(graph, name, layout, what) for name, layout in given.items()}


def _layout_of(graph: PlacedProgram, name: Any, given: Any, what: str) -> TensorLayout:
    if name not in graph.shapes:
        raise LayoutError(
            f"{what} names a tensor '{name}' that is not in the graph; {nearest_name(name, graph.shapes)}"
        )
    shape = graph.shapes[name]
    if not isinstance(given, TensorLayout):
        given = _of_axes(graph, name, given, what)
    whose = f"the {what.split()[-1]} of '{name}'"
    if given.shape != shape:
        raise LayoutError(f"'{name}' has shape {shape}; its {what.split()[-1]} is for {given.shape}")
    if given.devices != graph.devices:
        raise LayoutError(f"{whose} has {given.devices} devices, the graph {graph.devices}")
    if given.partial:
        raise LayoutError(f"{whose} is a partial sum; give the layout of the completed sum")
    if given.uneven and graph.uneven is False:
        raise LayoutError(SAYS("padded annotation", whose=whose, shape=given.shape, padded=given.padded_shape))
    layout: TensorLayout = given
    return layout


def _of_axes(graph: PlacedProgram, name: str, given: Any, what: str) -> TensorLayout:
    """A layout that is given as axes: P("data", None), or JAX's PartitionSpec; dimensions that it omits are whole."""
    whose, shape = f"the {what.split()[-1]} of '{name}'", graph.shapes[name]
    if not isinstance(given, P) and type(given).__name__ != "PartitionSpec":
        raise LayoutError(
            f"{whose} must be a layout, such as mesh_split returns; got {given!r}; P('data', None) is one on a mesh"
        )
    if graph.mesh is None:
        raise LayoutError(SAYS("axes without mesh", whose=whose))
    entries = [entry or None if isinstance(entry, tuple) else entry for entry in given]
    if len(entries) > len(shape):
        raise LayoutError(
            f"{whose} has {len(entries)} entries, the tensor of shape {shape} has {len(shape)} dimensions"
        )
    try:
        return mesh_split(shape, graph.mesh, [*entries, *[None] * (len(shape) - len(entries))])
    except LayoutError as why:
        raise why.at(whose) from None


def left_in(way: DistributedOperator, wanted: TensorLayout, reduced: bool) -> DistributedOperator:
    """The same operator with its output brought to a layout from its partial sums, or from what it has `reduced`."""
    before = way.reduction if reduced else ()
    steps = (*before, *_steps(way.output if reduced else way.local, wanted))
    return DistributedOperator(way.operator, way.inputs, way.local, steps)


@lru_cache(maxsize=8192)
def _steps(given: TensorLayout, wanted: TensorLayout) -> tuple[Step, ...]:
    return redistribute(given, wanted).named_steps
