"""A program as a graph: tensors, operators between them, and strategies for some of the operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lib.layout.errors import LayoutError
from lib.layout.layouts.checks import nearest_name, require_int, require_ints, require_itemsize
from lib.layout.layouts.common_refinement import prime_factors
from lib.layout.layouts.device_matrix import DeviceMatrix
from lib.layout.layouts.pieces import Array
from lib.layout.layouts.tensor_layout import TensorLayout
from lib.masked_arrays import refuse_masked

from ..words import SAYS
from .distributed import distribute, require_even, strategy_of, with_out
from .operators import Operator
from .pins import layouts_of
from .rearranging import RearrangingBuilder

Strategy = tuple[tuple[int, ...], ...]
"""A Sharding Strategy: the number of parts for each dimension of each input."""

Out = tuple[int, ...]
"""An out-strategy: the number of parts for each dimension of the output."""

ROLES: Mapping[str, str] = {"parameter": "weights", "state": "optimizer state", "input": "inputs"}
DEVICES_WANTED = "a graph needs 1 device or more"


@dataclass(frozen=True)
class TrainingStep:
    """The roles of a training step's tensors, by name."""

    optimizer: str = ""
    target: str = ""
    """The input that the result is compared with."""
    forward: frozenset[str] = frozenset()
    """Operators of the program; all others are backward or the optimizer."""
    activations: frozenset[str] = frozenset()
    """Outputs of forward that backward uses: they are kept until then."""
    gradients: Mapping[str, str] = field(default_factory=dict)
    """By parameter: its gradient."""
    replaces: Mapping[str, str] = field(default_factory=dict)
    """By operator: the parameter or state that its output replaces, in the same layout."""
    weights: Mapping[str, str] = field(default_factory=dict)
    """By operator of the optimizer: the parameter that it belongs to."""

    @property
    def kept(self) -> frozenset[str]:
        """Outputs that take memory: activations that backward uses, and gradients of weights."""
        return self.activations | frozenset(self.gradients.values())


class Graph(RearrangingBuilder):
    """Operators in the order of the program, for `devices` devices or for a named `mesh`.

    A strategy may split a dimension into parts that its size does not have evenly; they are padded. With
    `uneven=True`, planners consider such strategies as well, as long as no part is padding only. With `uneven=False`,
    such strategies and annotations are refused.
    """

    def __init__(
        self,
        devices: int | None = None,
        mesh: DeviceMatrix | None = None,
        itemsize: int = 4,
        uneven: bool | None = None,
    ) -> None:
        if (devices is None) == (mesh is None):
            raise LayoutError("a graph takes either a number of devices or a mesh: give exactly one of them")
        if devices is not None and require_int(devices, DEVICES_WANTED) < 1:
            raise LayoutError(f"{DEVICES_WANTED}; got {devices}")
        if mesh is not None and not isinstance(mesh, DeviceMatrix):
            raise LayoutError(f"a graph takes a mesh, such as mesh(data=2, model=4); got {mesh!r}")
        if uneven is not None and not isinstance(uneven, bool):
            raise LayoutError(SAYS("uneven not boolean", got=uneven))
        super().__init__()
        self.uneven = uneven
        self.mesh = mesh
        self.devices = mesh.size if mesh is not None else int(devices or 1)
        self.itemsize = require_itemsize(itemsize)
        self.strategies: dict[str, Strategy] = {}
        """Strategies of the configured operators."""
        self.outs: dict[str, Out] = {}
        """Out-strategies of those that have one."""
        self.pins: dict[str, TensorLayout] = {}
        """Layouts of tensors that are given: as a source is stored, or as its operator leaves it to all readers."""
        self.results: tuple[str, ...] = ()
        """Tensors that are wanted at the end, in order. What nobody reads is there at the end as well."""
        self.repeats: dict[str, str] = {}
        """By operator of a later step of a loop: the same one of its first step, whose layouts hold for all steps."""
        self.step: TrainingStep | None = None
        """What `training` knows of its graph: which operators are backward, what is kept, what is replaced."""

    def shard(self, name: str, strategy: Iterable[Iterable[int]], out: Iterable[int] | None = None) -> None:
        """Configures an operator with a Sharding Strategy: for each input, the number of parts of each dimension.

        A dimension of size s in n parts has pieces of ceil(s / n), with padding at the end where n does not divide s.
        If the strategy leaves partial sums, they are all-reduced. `out`, the number of parts of each dimension of the
        output, asks for reduce-scatters instead, as MindSpore's out-strategy does.

        Raises:
            LayoutError: there is no such operator, or it cannot be distributed like that.
        """
        operator = self.operator_named(name)
        chosen = strategy_of(name, strategy)
        base = distribute(operator, chosen, self.devices)  # refuses an impossible strategy
        if out is not None:
            out = require_ints(out, f"{name}: an out-strategy is a whole number for each dimension of the output")
            base = with_out(base, out)[0]
        if self.uneven is False:
            require_even(base)
        for repeat in self._in_every_step(name):
            self.strategies[repeat] = chosen
            self.outs.pop(repeat, None)
            if out is not None:
                self.outs[repeat] = out

    def pin(self, name: str, layout: Any) -> None:
        """Fixes the layout of an input, a weight or an operator's output: P("data", None) on a mesh, or any layout.

        An operator's output is brought there from its partial sums, and all its readers get it from there.

        Raises:
            LayoutError: there is no such tensor, or the layout does not fit it.
        """
        self.pins |= layouts_of(self, dict.fromkeys(self._in_every_step(name), layout), "a layout")

    def pinned(self, layouts: Mapping[str, Any]) -> Graph:
        """The same program with further layouts given.

        Raises:
            LayoutError: as for `pin`.
        """
        same = copy(self)
        same.pins = dict(self.pins)
        for name, layout in layouts_of(self, layouts, "a layout").items():
            same.pin(name, layout)
        return same

    def on_prime_axes(self) -> Graph:
        """The same program on a mesh with an axis for each prime factor of its devices.

        A plan of it may split any dimension over any of these axes, parts of the original axes included, and may leave
        any of them unused, so that devices hold copies. Of dimensions that a reshape merges or divides, only the first
        is split.
        """
        devices = self.mesh.devices if self.mesh else ()
        sizes = self.mesh.shape if self.mesh else (self.devices,)
        axes = [factor for size in sizes for factor in prime_factors(size)]
        finer = self.copied(DeviceMatrix(tuple(axes), devices))
        finer.results, finer.step = self.results, self.step
        return finer

    def copied(self, mesh: DeviceMatrix | None = None) -> Graph:
        """The same program, perhaps on another mesh of as many devices, without its results."""
        mesh = mesh or self.mesh
        graph = Graph(None if mesh else self.devices, mesh, self.itemsize, self.uneven)
        for name in ("shapes", "sources", "operators", "strategies", "outs", "pins", "repeats"):
            getattr(graph, name).update(getattr(self, name))
        return graph

    def _in_every_step(self, name: str) -> list[str]:
        """A tensor, and the same one of the other steps of its loop."""
        first = self.repeats.get(name, name)
        return [first, *(repeat for repeat, of in self.repeats.items() if of == first)]

    def operator_named(self, name: str) -> Operator:
        """The operator of this name.

        Raises:
            LayoutError: there is none; the message names the closest match.
        """
        if isinstance(name, str) and name in self.operators:
            return self.operators[name]
        raise LayoutError(f"there is no operator named '{name}' in this graph; {nearest_name(name, self.operators)}")

    def keeps(self, operator: str) -> bool:
        """True if an operator's output takes memory that a plan counts: in a program, every output."""
        return self.step is None or operator in self.step.kept

    def bytes_by_role(self, elements: Mapping[str, int]) -> dict[str, int]:
        """Bytes of these tensors, given their elements, by the role that they have."""
        gradients = frozenset(self.step.gradients.values() if self.step else ())
        totals: dict[str, int] = {}
        for name, n in elements.items():
            role = ROLES.get(self.sources.get(name, ""), "gradients" if name in gradients else "activations")
            totals[role] = totals.get(role, 0) + n * self.itemsize
        return totals

    def phase(self, operator: str) -> int:
        """0 in forward, 1 in backward, 2 in the optimizer. A moved copy of a tensor lasts for one phase."""
        if self.step is None or operator in self.step.forward:
            return 0
        return 2 if operator in self.step.weights else 1

    def consumers(self, tensor: str) -> list[tuple[Operator, int]]:
        """The operators that take a tensor, each with the number of that input."""
        return [(op, i) for op in self.operators.values() for i, name in enumerate(op.inputs) if name == tensor]

    def run(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The program on one device, with numpy arrays: every tensor by name."""
        tensors = {name: np.asarray(values[name]) for name in self.check_values(values)}
        for op in self.operators.values():
            tensors[op.name] = op.compute([tensors[name] for name in op.inputs], op.output_shape)
        return tensors

    def check_values(self, values: Mapping[str, Array]) -> list[str]:
        """The names of the sources.

        Raises:
            LayoutError: the value of a source is missing or has the wrong shape.
        """
        if not isinstance(values, Mapping):
            raise LayoutError(f"values are a dictionary of arrays by source name; got {type(values).__name__}")
        for name in self.sources:
            if values.get(name) is None:
                raise LayoutError(SAYS("no value given", source=self.sources[name], name=name, shape=self.shapes[name]))
            refuse_masked(values[name], f"the value of {self.sources[name]} '{name}'")
            if np.shape(values[name]) != self.shapes[name]:
                raise LayoutError(
                    f"'{name}' has shape {self.shapes[name]}; the given value has {np.shape(values[name])}"
                )
        return list(self.sources)


def require_graph(graph: Any) -> None:
    """Refuses to plan anything except a Graph."""
    if not isinstance(graph, Graph):
        raise LayoutError(f"only a Graph can be planned; got {graph!r}")
