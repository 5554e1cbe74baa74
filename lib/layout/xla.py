"""A function of JAX as XLA compiles it for the devices of a mesh: its collectives and the bytes that they move.

They are read from the compiled text (HLO) and counted as the game counts: what all devices send together, by the ring
formulas; a device sends nothing to itself. A loop's collectives are counted once for each of its steps, where the text
says how many it has.

Which layouts XLA is given is left to the caller; where it is given none, XLA decides. A collective that cannot be
counted is an error: as zero bytes it would make a plan of XLA look cheaper than it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from lib.layout.jax_primitives import Place, called_jaxpr, jax_here
from lib.layout.layouts import DeviceMatrix, LayoutError, TensorLayout

SIZES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "f64": 8}
"""Bytes of an element, by the type's name."""

INSTRUCTION = re.compile(
    r"= (?P<shape>\(.*?\)|\S+) (?P<name>all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
    r"|collective-broadcast|ragged-all-to-all)(?P<start>-start)?\("
)
SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")
COMPUTATION = re.compile(r"(?:ENTRY )?%?([\w.-]+) .*\{$")
"""The first line of a computation."""


class Collective(NamedTuple):
    """A collective by its name, with the bytes that each device sends."""

    name: str
    sent: tuple[int, ...]


def collectives(text: str, devices: int) -> list[Collective]:
    """The collectives of a compiled program on so many devices.

    Raises:
        ValueError: there is one that this module cannot count.
    """
    found: list[Collective] = []
    calls = _calls(text)
    inside = ""
    for line in text.splitlines():
        inside = header[1] if (header := COMPUTATION.match(line)) else inside
        match = INSTRUCTION.search(line)
        if match is None:
            continue
        name = match["name"]
        if match["start"] or name in ("collective-broadcast", "ragged-all-to-all"):
            raise ValueError(f"a collective that cannot be counted: {line.strip()[:200]}")
        size = sum(
            prod(map(int, filter(None, dims.split(",")))) * SIZES[kind] for kind, dims in SHAPE.findall(match["shape"])
        )
        found += [Collective(name, _sent(name, size, line, devices))] * _times(inside, calls)
    return found


def _calls(text: str) -> dict[str, list[tuple[str, int]]]:
    """By computation: those that call it, with how often they do."""
    calls: dict[str, list[tuple[str, int]]] = {}
    inside = ""
    for line in text.splitlines():
        inside = header[1] if (header := COMPUTATION.match(line)) else inside
        steps = re.search(r'"known_trip_count":\{"n":"(\d+)"', line)
        for how, called in re.findall(r"\b(body|to_apply|calls|branch_computations)=\{?%?([\w.-]+)", line):
            calls.setdefault(called, []).append((inside, int(steps[1]) if steps and how == "body" else 1))
    return calls


def _times(name: str, calls: Mapping[str, Sequence[tuple[str, int]]]) -> int:
    return sum(_times(caller, calls) * steps for caller, steps in calls.get(name, ())) or 1


def _sent(name: str, size: int, line: str, devices: int) -> tuple[int, ...]:
    """Bytes that each device sends, given the bytes of what each has afterwards."""
    if name == "collective-permute":
        pairs = re.findall(r"\{(\d+),(\d+)\}", line.partition("source_target_pairs=")[2])
        return tuple(size * sum(a != b for a, b in pairs if int(a) == device) for device in range(devices))
    members = group_size(line, devices)
    passed = (members - 1) * size
    if name == "all-reduce":
        passed = 2 * passed // members
    elif name != "reduce-scatter":  # an all-gather or an all-to-all: each keeps one of its pieces
        passed //= members
    return (passed,) * devices


def group_size(line: str, devices: int) -> int:
    """The number of devices in each group of a collective; all groups have the same, and every device is in one.

    Written as {{0,1},{2,3}}, as [groups,members]<=..., or as axes of a mesh: mesh['a'=2,'b'=4] {'b'}.
    """
    text = line.partition("replica_groups=")[2]
    if text.startswith("{{"):
        rows = [row.split(",") for row in re.findall(r"\{([\d,]+)\}", text[: text.index("}}") + 2])]
        if len({len(row) for row in rows}) != 1 or sum(map(len, rows)) != devices:
            raise ValueError(f"groups of different sizes: {text[:100]}")
        return len(rows[0])
    if text.startswith("{}"):
        return devices
    if match := re.match(r"\[(\d+),(\d+)\]<=", text):
        return int(match[2])
    if text.startswith("mesh["):
        axes = dict(re.findall(r"'(\w+)'=(\d+)", text[: text.index("]")]))
        named = re.search(r"\{('[^}]*)\}", text)
        if named is not None:
            return prod(int(part or axes[axis]) for axis, part in re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", named[1]))
    raise ValueError(f"replica groups in an unknown form: {text[:100]}")


class Compiled(NamedTuple):
    """What XLA makes of a function: its collectives, flops of a device, and bytes that a device holds."""

    collectives: tuple[Collective, ...]
    flops: float
    peak: int

    @property
    def bytes(self) -> int:
        return sum(sum(one.sent) for one in self.collectives)


def require_devices(count: int) -> None:
    """Makes JAX simulate so many devices on this processor; it decides that once, when it is imported.

    Raises:
        LayoutError: JAX is not installed, or was started with fewer devices.
    """
    flag = f"--xla_force_host_platform_device_count={count}"
    os.environ |= {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip(), "JAX_PLATFORMS": "cpu"}
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # XLA warns of what its partitioner does badly, which is shown
    if (here := len(jax_here().devices())) < count:
        raise LayoutError(f"the mesh has {count} devices, and jax has been started with {here}; use a new process")


def sharding(layout: TensorLayout, grid: Any) -> Any:
    """A layout in JAX's terms, on the mesh of the same axes."""
    names = layout.matrix.names
    spec = jax_here().sharding.PartitionSpec(*(tuple(names[a] for a in axes) or None for axes in layout.tensor_map))
    return jax_here().sharding.NamedSharding(grid, spec)


def mesh_in_jax(mesh: DeviceMatrix) -> Any:
    """The same mesh in JAX, whose compiler chooses the layouts that are not given."""
    auto = (jax_here().sharding.AxisType.Auto,) * len(mesh.shape)
    return jax_here().make_mesh(mesh.shape, mesh.names, axis_types=auto)


class TracedFunction:
    """A function with its arguments as structs, compiled with given layouts of arguments, results and values inside."""

    def __init__(self, function: Callable[..., Any], structs: Sequence[Any], mesh: DeviceMatrix) -> None:
        jax = jax_here()
        self.closed = jax.make_jaxpr(function)(*structs)
        self.leaves = jax.tree_util.tree_leaves(list(structs))
        self.mesh, self.grid = mesh, mesh_in_jax(mesh)

    def compiled(
        self,
        arguments: Sequence[TensorLayout],
        results: Sequence[TensorLayout | None],
        inside: Mapping[Place, TensorLayout] | None = None,
    ) -> Compiled:
        """With the layouts of all arguments and of some results; XLA chooses all others."""
        jax = jax_here()

        def run(*leaves: Any) -> list[Any]:
            values = self._follow(self.closed.jaxpr, self.closed.consts, leaves, inside or {}, ())
            return [self._in(value, layout) for value, layout in zip(values, results)]

        given = tuple(sharding(layout, self.grid) for layout in arguments)
        program = jax.jit(run, in_shardings=given, keep_unused=True).lower(*self.leaves).compile()
        memory, cost = program.memory_analysis(), program.cost_analysis() or {}
        held = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
        moves = tuple(collectives(program.as_text(), self.mesh.size))
        return Compiled(moves, float(cost.get("flops", 0)), int(held - memory.alias_size_in_bytes))

    def on_one_device(self) -> float:
        """The flops of the function where nothing is divided."""
        jax = jax_here()
        call = jax.extend.core.jaxpr_as_fun(self.closed)
        return float((jax.jit(call).lower(*self.leaves).compile().cost_analysis() or {}).get("flops", 0))

    def _in(self, value: Any, layout: TensorLayout | None) -> Any:
        return value if layout is None else jax_here().lax.with_sharding_constraint(value, sharding(layout, self.grid))

    def _follow(
        self, jaxpr: Any, consts: Sequence[Any], given: Sequence[Any], inside: Mapping[Place, TensorLayout], at: Place
    ) -> list[Any]:
        known: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *given)))

        def read(var: Any) -> Any:
            return var.val if hasattr(var, "val") else known[var]

        for number, eqn in enumerate(jaxpr.eqns):
            here, inputs = (*at, number), [read(var) for var in eqn.invars]
            inner = called_jaxpr(eqn) if any(place[: len(here)] == here != place for place in inside) else None
            if inner is not None:
                outputs = self._follow(
                    getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), inputs, inside, here
                )
            else:
                made = eqn.primitive.bind(*inputs, **eqn.primitive.get_bind_params(eqn.params))
                outputs = list(made) if eqn.primitive.multiple_results else [made]
            if here in inside:
                outputs = [self._in(output, inside[here]) for output in outputs]
            known.update(zip(eqn.outvars, outputs))
        return [read(var) for var in jaxpr.outvars]
