"""SPMD: a numpy function with a few annotations, traced, completed to a plan, and run by every device.

The annotations are completed to a plan (`completion`), and the plan is lowered to engine calls (`planned_device`), as
GSPMD does within a compiler (Xu et al. 2021, "GSPMD: General and Scalable Parallelization for ML Computation
Graphs"). The planning itself is not part of any device's work and is not metered.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lib.engine import ShardedEngine, unmetered
from lib.layout.errors import LayoutError
from lib.layout.layouts.device_matrix import DeviceMatrix
from lib.layout.layouts.mesh import mesh
from lib.layout.layouts.pieces import Array
from lib.layout.planning.completion import complete
from lib.layout.planning.planned_device import run_operator
from lib.layout.program.tracing import follow, mesh_split, replicate, split
from lib.masked_arrays import refuse_masked
from lib.values.algebra import counted

from .words import SAYS


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


__all__ = ["Spmd", "mesh", "mesh_split", "replicate", "split"]
