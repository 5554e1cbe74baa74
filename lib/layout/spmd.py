"""SPMD: a numpy function with a few annotations, traced, completed to a plan, and run by every device.

The annotations are completed to a plan (`completion`), and the plan is lowered to engine calls (`execution`), as
GSPMD does within a compiler (Xu et al. 2021, "GSPMD: General and Scalable Parallelization for ML Computation
Graphs"). The planning itself is not part of any device's work and is not metered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from lib.engine import ShardedEngine, unmetered
from lib.errors import refuse_masked
from lib.layout.completion import complete
from lib.layout.execution import run_operator
from lib.layout.graph import Graph
from lib.layout.layouts import Array, DeviceMatrix, LayoutError, Mapped, TensorLayout, mesh
from lib.layout.layouts import mesh_split as layout_of
from lib.layout.words import SAYS
from lib.ledger.algebra import counted

__all__ = ["Spmd", "mesh", "mesh_split", "replicate", "split"]

# --- Tracing: a numpy function is called with tensors that have a shape but no values; the result is its graph ---
#
# `mesh_split`, `split` and `replicate` annotate a tensor within the program and return it, unlike the functions of the
# same names in `layouts`, which return a layout. They work as in GShard (Lepikhin et al. 2020) and GSPMD (Xu et
# al. 2021), and return arrays unchanged, so the same function also runs on one device. A tensor that is annotated again
# moves from the first layout to the second.

T = TypeVar("T")
KNOWN = "einsum, @, +, maximum(x, 0), sum over one axis, transpose and reshape"


@dataclass(frozen=True)
class TracedProgram:
    """A traced function: `copies` are the tensors that only move; `output` is the name of the result."""

    graph: Graph
    annotations: Mapping[str, TensorLayout]
    copies: frozenset[str]
    output: str


class GraphRecorder:
    """The graph and the annotations so far."""

    def __init__(self, mesh: DeviceMatrix) -> None:
        self.graph = Graph(mesh=mesh)
        self.annotations: dict[str, TensorLayout] = {}
        self.copies: set[str] = set()

    def add(self, kind: str, *inputs: Tensor, **settings: Any) -> Tensor:
        """One more operator, named by its kind and number."""
        name = f"{kind}{1 + sum(op.kind == kind for op in self.graph.operators.values())}"
        return Tensor(self, self.graph.operator(kind, name, *(x.name for x in inputs), **settings))

    def annotate(self, tensor: Tensor, layout: TensorLayout) -> Tensor:
        """The tensor in this layout; a copy of it, if it already has one."""
        if tensor.name in self.annotations:
            tensor = self.add("reshape", tensor, shape=tensor.shape)
            self.copies.add(tensor.name)
        self.annotations[tensor.name] = layout
        return tensor


class Tensor(np.lib.mixins.NDArrayOperatorsMixin):
    """A tensor of a program that is being traced: a shape, and a name in the graph."""

    def __init__(self, recorder: GraphRecorder, name: str) -> None:
        self.recorder = recorder
        self.name = name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.recorder.graph.shapes[self.name]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def T(self) -> Tensor:
        return self.transpose()

    def transpose(self, *axes: Any) -> Tensor:
        return self.recorder.add("transpose", self, order=_as_tuple(axes) or tuple(range(self.ndim))[::-1])

    def reshape(self, *shape: Any) -> Tensor:
        return self.recorder.add("reshape", self, shape=_as_tuple(shape))

    def sum(self, axis: int) -> Tensor:
        return self.recorder.add("reduce_sum", self, axis=axis)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Tensor:
        name = ufunc.__name__  # not the function itself: a metered run replaces some of numpy's functions
        if method == "__call__" and not kwargs and len(inputs) == 2:
            if name == "maximum" and not isinstance(inputs[1], Tensor) and np.ndim(inputs[1]) == 0 == inputs[1]:
                return self.recorder.add("relu", self._mine(inputs[0]))
            if name in ("add", "matmul"):
                return self.recorder.add(name, *map(self._mine, inputs))
        raise self._unknown(name)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Tensor:
        name = function.__name__
        if name == "einsum" and not kwargs and isinstance(args[0], str):
            return self.recorder.add(name, *map(self._mine, args[1:]), spec=args[0])
        if name in ("transpose", "reshape", "sum"):
            result: Tensor = getattr(self._mine(args[0]), name)(*args[1:], **kwargs)
            return result
        raise self._unknown(name)

    def __repr__(self) -> str:
        return f"tensor '{self.name}' of shape {self.shape}"

    def __getitem__(self, index: Any) -> Any:
        raise LayoutError(f"'{self.name}' is indexed with {index!r}; the planner supports {KNOWN}")

    def __bool__(self) -> bool:
        raise LayoutError(f"'{self.name}' has no values yet: a planned program cannot depend on values")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise LayoutError(f"'{self.name}' has no values yet; the planner supports {KNOWN}")

    def _mine(self, x: Any) -> Tensor:
        if isinstance(x, Tensor) and x.recorder is self.recorder:
            return x
        what = f"an array of shape {x.shape}" if isinstance(x, np.ndarray) else repr(x)
        raise LayoutError(
            f"'{self.name}' is combined with {what}, which is not part of the program; make it an input or a parameter"
        )

    def _unknown(self, name: str) -> LayoutError:
        return LayoutError(f"the planner does not support numpy.{name} with these arguments; it supports {KNOWN}")


def follow(
    function: Callable[..., Any],
    inputs: Mapping[str, Sequence[int]],
    parameters: Mapping[str, Sequence[int]],
    mesh: DeviceMatrix,
) -> TracedProgram:
    """The program of a function, traced with tensors of these names and shapes."""
    recorder = GraphRecorder(mesh)
    for name, shape in inputs.items():
        recorder.graph.input(name, shape)
    for name, shape in parameters.items():
        recorder.graph.parameter(name, shape)
    result = function(**{name: Tensor(recorder, name) for name in (*inputs, *parameters)})
    if not isinstance(result, Tensor) or result.name not in recorder.graph.operators:
        raise LayoutError(f"the program must return one tensor that it has computed; it returned {result!r}")
    recorder.graph.results = (result.name,)
    return TracedProgram(recorder.graph, recorder.annotations, frozenset(recorder.copies), result.name)


def mesh_split(tensor: T, device_mesh: DeviceMatrix, dims_mapping: Sequence[Mapped] | Mapping[int, Mapped]) -> T:
    """The tensor with dimension i split over the mesh axis (or axes) dims_mapping[i], -1 or None for not split.

    Axes are given by number or name: mesh_split(w, mesh, ("data", None)). Accepts a tensor of any shape. Raises
    LayoutError if the mesh is not the program's, or a dimension cannot be split into that many equal parts.
    """
    if not isinstance(tensor, Tensor):
        return tensor
    planned_mesh = tensor.recorder.graph.mesh
    if device_mesh != planned_mesh:
        raise LayoutError(
            f"'{tensor.name}' is annotated on a mesh {device_mesh}; the program is planned for {planned_mesh}"
        )
    try:
        layout = layout_of(tensor.shape, device_mesh, dims_mapping)
    except LayoutError as why:
        raise why.at(f"'{tensor.name}' of shape {tensor.shape}") from None
    for dim, (size, parts) in enumerate(zip(layout.shape, layout.splits)):
        if size % parts:
            raise LayoutError(
                f"'{tensor.name}' of shape {tensor.shape}: dimension {dim} of size {size} cannot be split into {parts} "
                "equal parts"
            )
    annotated: Any = tensor.recorder.annotate(tensor, layout)
    return annotated  # type: ignore[no-any-return]


def split(tensor: T, split_dimension: int, num_partitions: int) -> T:
    """The tensor in equal parts along one dimension: over the mesh axis with that many devices, or over all
    devices."""
    if not isinstance(tensor, Tensor):
        return tensor
    mesh = tensor.recorder.graph.mesh
    assert mesh is not None
    axes: list[tuple[int, ...]] = [(axis,) for axis, size in enumerate(mesh.shape) if size == num_partitions]
    if mesh.size == num_partitions:
        axes = [tuple(range(len(mesh.shape)))]
    if len(axes) != 1:
        raise LayoutError(
            f"'{tensor.name}' cannot be split into {num_partitions} parts: of the axes of the mesh {mesh} "
            f"{len(axes) or 'none'} have that many devices; use mesh_split to choose the axis"
        )
    return mesh_split(tensor, mesh, {split_dimension: axes[0]})


def replicate(tensor: T) -> T:
    """The whole tensor on every device."""
    if not isinstance(tensor, Tensor):
        return tensor
    assert tensor.recorder.graph.mesh is not None
    return mesh_split(tensor, tensor.recorder.graph.mesh, {})


def _as_tuple(given: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], Sequence) else given


# --- Programs with annotations ---


class Spmd:
    """A program on one device of many. `inputs` and `parameters` are the shapes of the function's arguments, by name.

    Without a `device_mesh` the devices are in a row. `plan` has the layouts of all operators.
    """

    def __init__(
        self,
        device: ShardedEngine,
        function: Callable[..., Any],
        inputs: Mapping[str, Sequence[int]],
        parameters: Mapping[str, Sequence[int]],
        device_mesh: DeviceMatrix | None = None,
    ) -> None:
        device_mesh = device_mesh or mesh(devices=int(device.num_devices))
        if device_mesh.size != device.num_devices:
            devices = counted(device_mesh.size, "device")
            raise LayoutError(
                SAYS("other number of devices", mesh=device_mesh, devices=devices, run=device.num_devices)
            )
        self.device = device
        with unmetered():
            self.program = follow(function, inputs, parameters, device_mesh)
            completion = complete(self.program.graph, self.program.annotations)
            self.plan = completion.plan
            self.plan.prepare()
        self.conflicts = [c for c in completion.conflicts if c.place not in self.program.copies]
        """Claims of annotations that contradict each other."""
        self.parameters: dict[str, Array] = {}

    def load_checkpoint(self, params: Mapping[str, Any]) -> None:
        """Copies this device's pieces of the parameters, given full arrays by name."""
        for name, role in self.program.graph.sources.items():
            if role == "parameter":
                self.parameters[name] = params[name][self.plan.storage_layouts[name].box(self.device.device_id)].copy()

    def forward(self, inputs: Mapping[str, Array]) -> Array:
        """Maps this device's pieces of the inputs, by name, to its piece of the result."""
        pieces = self._sources(inputs)
        copies: dict[int, Array] = {}
        for name in self.plan.operators:
            run_operator(self.device, self.plan, name, pieces, copies)
        return pieces[self.program.output]

    def _sources(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        pieces = {**self.parameters, **inputs}
        for name, role in self.program.graph.sources.items():
            wanted = self.plan.storage_layouts[name].local_shape
            if name not in pieces:
                raise LayoutError(
                    f"{role} '{name}' is missing; parameters come with load_checkpoint, inputs with forward"
                )
            refuse_masked(pieces[name], f"{role} '{name}'")
            if pieces[name].shape != wanted:
                raise LayoutError(
                    f"by the program's annotations, a device has a piece of shape {wanted} of {role} '{name}'; "
                    f"got {pieces[name].shape}"
                )
        return pieces

    def explain(self) -> str:
        """The plan as text, with bytes, preceded by the conflicts."""
        with unmetered():
            return "\n".join([*map(str, self.conflicts), self.plan.explain()])
