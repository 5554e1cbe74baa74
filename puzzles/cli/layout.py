"""`puzzles layout`: what XLA moves for a function of JAX on a mesh, what a plan moves, and what brings XLA closer.

The function is traced once. XLA compiles it for as many devices of the processor as the mesh has, and its collectives
are counted in the compiled program; nothing is run. Then constraints from the plan are compiled one by one, and kept
while they help: at most two, since each costs a compilation.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from math import prod
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from lib import PuzzleError
from puzzles.text_lines import print_table

from .params import Parsed, mesh_text, terminal, usage_errors, write_text
from .plan import amount_text

if TYPE_CHECKING:
    from lib.layout import GraphPlan, ImportedGraph, TensorLayout
    from lib.layout.xla import Compiled

PATIENCE = 2.0
"""Seconds after which a terminal is told what is being done."""
PRICES = (1000, 100, 10)
"""Flops for a byte, until no product is computed twice."""
MAX_DEVICES = 4096
"""Of a mesh: this processor has to play them all."""
MAX_PAYERS, MAX_TRIED = 6, 12
"""Lines that are shown, and values for which a constraint is compiled."""
Axes = tuple[tuple[str, int], ...]
Spec = tuple[str, tuple[Any, ...]]
"""A pattern of names, and the mesh axes of each dimension."""


@partial(Parsed, "glob=spec")
def spec_text(value: Any) -> Spec:
    """Names and axes as *.w1=,model or x=data+model."""
    glob, equals, dims = value.partition("=")
    if not equals or not glob:
        raise ValueError(f"'{value}' has no '='; write names and the axes of each dimension: '*.w1=,model'")
    axes = [tuple(filter(None, dim.strip().split("+"))) for dim in dims.split(",")]
    return glob, tuple(names or None for names in axes)


@click.command()
@click.argument("program", metavar="FILE.py:FUNCTION")
@click.option("--mesh", "axes", type=mesh_text, required=True, metavar="data=2,model=4", help="The mesh's axes.")
@click.option(
    "--in", "given", type=spec_text, multiple=True, metavar="GLOB=SPEC",
    help="Mesh axes of each dimension of arguments, by name: '*.w1=,model'; the last that fits counts.",
)  # fmt: skip
@click.option("--out", "wanted", type=spec_text, multiple=True, metavar="GLOB=SPEC", help="The same for results.")
@click.option("--memory", type=amount_text, metavar="BYTES", help="What a device can hold at any time, such as 40G.")
@click.option("--effort", type=int, help="Steps of the solver, for a longer search.")
@click.option(
    "--code", type=click.Choice(("jax", "json")), help="Print the best plan as a program, instead of the report."
)
@click.option("-o", "output", metavar="FILE.html", help="Write a page with the picture of the plan.")
def layout(
    program: str, axes: Axes, given: tuple[Spec, ...], wanted: tuple[Spec, ...], memory: int | None,
    effort: int | None, code: str | None, output: str | None,
) -> None:  # fmt: skip
    """Show how XLA lays out a function of JAX, and a layout that moves less.

    The file defines the function and `args`, its arguments: shapes or ShapeDtypeStructs, in any pytree. Arguments that
    no --in names have the sharding of their struct, or are whole on every device. Results that no --out names are free.
    """
    if output and not output.endswith(".html"):
        raise click.UsageError(f"-o writes a page; '{output}' does not end in .html")
    with usage_errors():
        report = LayoutReport(*_loaded(program, axes), memory, effort)
        report.place(given, wanted)
        if code:
            from lib.layout import code_of

            click.echo(code_of(report.best, code), nl=False)
        else:
            report.show()
        if output:
            write_text(report.page(program), output)


def _loaded(program: str, axes: Axes) -> tuple[Callable[..., Any], tuple[Any, ...], Any]:
    """The function, its arguments, and the mesh."""
    from lib.layout import mesh
    from lib.layout.xla import require_devices

    name, colon, function = program.rpartition(":")
    if not colon or not name.endswith(".py"):
        raise click.UsageError(f"'{program}' names no function; write FILE.py:FUNCTION, such as model.py:step")
    if not Path(name).is_file():
        raise click.UsageError(f"there is no file '{name}'")
    if (devices := prod(size for _, size in axes)) > MAX_DEVICES:
        raise click.UsageError(f"the mesh has {devices:,} devices; XLA compiles for at most {MAX_DEVICES:,} here")
    grid = mesh(**dict(axes))
    require_devices(grid.size)
    names: dict[str, Any] = {"__name__": "program", "__file__": name}
    sys.path.insert(0, str(Path(name).resolve().parent))
    try:
        exec(compile(Path(name).read_text(encoding="utf-8"), name, "exec"), names)
    except Exception as why:
        raise click.UsageError(f"'{name}' cannot be loaded: {type(why).__name__}: {why}") from None
    if not callable(names.get(function)):
        known = ", ".join(key for key, value in names.items() if getattr(value, "__module__", "") == "program")
        raise click.UsageError(f"'{name}' has no function '{function}'; it has {known or 'none'}")
    if "args" not in names:
        raise click.UsageError(f"'{name}' has no 'args'; define them: args = ({{'w': (64, 64)}}, (8, 64))")
    args = names["args"]
    is_one = not isinstance(args, tuple) or all(isinstance(n, int) for n in args)
    return names[function], (args,) if is_one else args, grid


@dataclass
class Row:
    """What one way moves: bytes of all devices, how often the function's flops are computed, collectives, peak."""

    name: str
    bytes: int
    share: float
    collectives: str
    peak: int
    proof: str = ""

    def cells(self) -> tuple[str, ...]:
        share = f"{self.share:.2f}" if self.share else "-"
        return self.name, f"{self.bytes:,}", share, f"{self.peak:,}", self.collectives or "none", self.proof


class LayoutReport:
    """A function on a mesh: its graph, its plans, and what XLA makes of it."""

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], grid: Any, memory: int | None, effort: int | None
    ) -> None:
        from lib.layout import from_jax

        self.doing = LayoutProgress()
        self.doing("importing the function")
        self.function, self.args, self.grid = function, args, grid
        self.options = {"peak": memory, "effort": effort}
        self.graph: ImportedGraph = from_jax(function, *args, mesh=grid)

    def place(self, given: Sequence[Spec], wanted: Sequence[Spec]) -> None:
        """Pins arguments and results, and finds the best plan."""
        from lib.layout import P, plan

        own = [getattr(getattr(leaf, "sharding", None), "spec", None) for leaf in self.leaves()]
        layouts: dict[str, Any] = {name: P(*(spec or ())) for name, spec in zip(self.graph.arguments, own, strict=True)}
        for name, spec in _matching(given, self.graph.arguments, "argument").items():
            layouts[name] = P(*spec)
        for name, spec in _matching(wanted, self.graph.results, "result").items():
            layouts[name] = P(*spec)
        for name, laid in layouts.items():
            self.graph.pin(name, laid)
        self.doing("searching the best plan")
        self.best: GraphPlan = plan(self.graph, **self.options)  # type: ignore[arg-type]

    def leaves(self) -> list[Any]:
        """The arguments as they were given, in the order of the graph's."""
        import jax

        return list(
            jax.tree_util.tree_leaves(self.args, is_leaf=lambda x: type(x) is tuple and all(type(n) is int for n in x))
        )

    def show(self) -> None:
        """Prints the table, what pays by line, and the constraints."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        from lib.layout import complete, plan
        from lib.layout.xla import TracedFunction

        traced = TracedFunction(self.function, self.graph.structs, self.grid)
        self.doing("compiling with XLA")
        alone = traced.on_one_device()
        ends = [self.graph.pins[name] for name in self.graph.arguments]
        results = [self.graph.pins.get(name) for name in self.graph.results]
        compiled = partial(traced.compiled, ends, results)
        xla = compiled()
        rows = [self._of_xla("XLA", xla, alone), self._of_plan("propagation", complete(self.graph, {}).plan)]
        rows.append(self._of_plan("best plan", self.best))
        once = self.best
        for price in PRICES:
            if once.redundancy <= 1.005:
                break
            self.doing("searching a plan that computes nothing twice")
            once = plan(self.graph, flops=price, **self.options)  # type: ignore[arg-type]
        rows.append(self._of_plan("best without recomputing", once))
        constraints = self._constraints(compiled, xla)
        self.doing.end()
        console = terminal()
        table = Table("", box=SIMPLE_HEAD)
        for column in ("bytes moved", "flops", "peak"):
            table.add_column(column, justify="right")
        for column in ("collectives", ""):
            table.add_column(column)
        for row in rows:
            table.add_row(*row.cells())
        print_table(console, table)
        lines = [
            "Bytes are what all devices send together. Flops are those of all devices, divided by those of one device",
            "that computes everything. A peak is of each device. XLA's figures are of its compiler for processors.",
            f"A plan counts {self.graph.itemsize} bytes for each value; XLA's figures are of the types that it sends.",
        ]
        if any(
            merges(op.input_shapes[0], op.output_shape) for op in self.graph.operators.values() if op.kind == "reshape"
        ):
            lines.append(
                "Of dimensions that a reshape merges or divides, plans split the first only; others may move less."
            )
        lines += ["", "What pays in the best plan:", *(f"  {text}" for text in self._paying())]
        lines += ["", *constraints]
        for line in lines:
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _of_xla(self, name: str, found: Compiled, alone: float) -> Row:
        share = found.flops * self.graph.devices / alone if alone else 0.0
        return Row(
            name, found.bytes, share, counted_names(one.name for one in found.collectives if sum(one.sent)), found.peak
        )

    def _of_plan(self, name: str, found: GraphPlan) -> Row:
        alone = sum(op.flops({}) for op in self.graph.operators.values())
        steps = [step for op in found.operators.values() for step in op.reduction]
        steps += [step for edge in found.edges if edge.bytes for step in found.redistribution(edge).named_steps]
        names = counted_names(step.name for step in steps if step.total)
        share = found.flops * self.graph.devices / alone if alone else 0.0
        proof = "" if name == "propagation" else proof_of(found)
        return Row(name, found.bytes, share, names, found.peak, proof)

    def _paying(self) -> Iterator[str]:
        """Bytes by line of the function, most first."""
        paid: Counter[str] = Counter()
        of_line: dict[str, Counter[str]] = {}
        plan = self.best
        for edge in plan.edges:
            if edge.bytes:
                line = self.graph.lines.get(edge.operator, edge.operator)
                paid[line] += edge.bytes
                of_line.setdefault(line, Counter()).update(plan.redistribution(edge).names)
        for name, op in plan.operators.items():
            if op.moved:
                line = self.graph.lines.get(name, name)
                paid[line] += plan.collective_bytes(name)
                of_line.setdefault(line, Counter()).update(step.name for step in op.reduction)
        if not paid:
            yield "nothing moves"
        for line, size in paid.most_common(MAX_PAYERS):
            yield f"{size:>15,}  {line}: {counted_names(of_line[line].elements())}"
        if rest := [size for _, size in paid.most_common()[MAX_PAYERS:]]:
            yield f"{sum(rest):>15,}  {len(rest)} other lines"

    def _constraints(self, compiled: Callable[[Mapping[Any, TensorLayout]], Compiled], xla: Compiled) -> list[str]:
        """One or two values inside whose layouts in the best plan bring XLA closest to it."""
        if xla.bytes <= self.best.bytes:
            return ["XLA moves no more than the best plan; no constraint is needed."]
        differ = [
            name for name in self.graph.places if name in self.best.operators and not self.best.layout(name).partial
        ]
        moving = {edge.tensor for edge in self.best.edges if edge.bytes}
        moving |= {name for name, op in self.best.operators.items() if op.moved}
        differ.sort(key=lambda name: (name not in moving, -self.best.layout(name).elements))
        chosen: dict[str, TensorLayout] = {}
        least = xla
        for _ in range(2):
            tried: list[tuple[int, str, Compiled]] = []
            for number, name in enumerate(differ[:MAX_TRIED], 1):
                if name in chosen or least.bytes <= self.best.bytes:
                    continue
                self.doing(f"compiling with constraint {number} of {min(len(differ), MAX_TRIED)}")
                inside = {self.graph.places[x]: self.best.layout(x) for x in (*chosen, name)}
                found = compiled(inside)
                tried.append((found.bytes, name, found))
            if not tried or min(tried)[0] >= least.bytes:
                break
            _, name, least = min(tried, key=lambda row: row[0])
            chosen[name] = self.best.layout(name)
        if not chosen:
            return [f"No single constraint of {min(len(differ), MAX_TRIED)} that were compiled makes XLA move less."]
        lines = [
            f"With {'this constraint' if len(chosen) == 1 else 'these constraints'} XLA moves {least.bytes:,} bytes:"
        ]
        for name, laid in chosen.items():
            named = [tuple(laid.matrix.names[axis] for axis in dim) for dim in laid.tensor_map]
            axes = ", ".join(repr(names[0] if len(names) == 1 else names or None) for names in named)
            lines.append(
                f"  {self.graph.lines.get(name, name)}: jax.lax.with_sharding_constraint(..., P({axes}))  # {name}"
            )
        lines.append("In a gradient, a constraint holds for the gradient of its value too: compile again with it.")
        return lines

    def page(self, title: str) -> str:
        """A page that needs nothing else: the plan as a picture and as text."""
        from html import escape

        import drawing
        from drawing.layout_graph import draw_plan

        picture = drawing.svg(draw_plan(self.best, title))
        return (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>\n'
            f"<style>body{{margin:2em;font-family:sans-serif}}svg{{display:block}}</style>\n<h1>{escape(title)}</h1>\n"
            f"{picture}\n<pre>{escape(self.best.explain())}</pre></html>\n"
        )


class LayoutProgress:
    """Says on a terminal what is being done, once that takes a while."""

    def __init__(self) -> None:
        self.start, self.shown = monotonic(), 0

    def __call__(self, what: str) -> None:
        if sys.stderr.isatty() and monotonic() - self.start > PATIENCE:
            click.echo(f"\r{what:<{self.shown}}", nl=False, err=True)
            self.shown = len(what)

    def end(self) -> None:
        if self.shown:
            click.echo("\r" + " " * self.shown + "\r", nl=False, err=True)


def merges(before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether a reshape between these shapes changes dimensions, rather than only adds or removes some of size 1."""
    return [n for n in before if n > 1] != [n for n in after if n > 1]


def counted_names(names: Iterable[str]) -> str:
    """Collectives with how many there are: 2 all-gather, reduce-scatter."""
    return ", ".join(f"{n} {name}" if n > 1 else name for name, n in sorted(Counter(names).items()))


def proof_of(found: GraphPlan) -> str:
    """Whether a plan is proven to move the fewest bytes."""
    if found.tied:
        return "identical layers alike"
    return "proven" if found.at_least is None else f"gap {found.gap:.1%}"


def _matching(specs: Sequence[Spec], names: Sequence[str], what: str) -> dict[str, tuple[Any, ...]]:
    """By name: the last spec whose pattern fits."""
    found: dict[str, tuple[Any, ...]] = {}
    for glob, spec in specs:
        fitting = [name for name in names if fnmatchcase(name, glob)]
        if not fitting:
            raise PuzzleError(f"no {what} is called '{glob}'; there are {', '.join(names)}")
        found |= dict.fromkeys(fitting, spec)
    return found
