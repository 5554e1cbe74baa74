"""What XLA's partitioner moves for plans of imported functions, on 8 devices of this machine's processor.

`python -m tests.oracles.xla_partitioner` prints the measurement as JSON. It has to be a process of its own, because JAX
decides on its devices when it starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

from lib.layout import GraphPlan, ImportedGraph, P, TensorLayout, candidates, from_jax, mesh, plan, propagate
from tests.test_imports import ROOT

DEVICES = 8
COLUMNS = (("same layouts", True, True), ("Shardy's choice", False, True), ("GSPMD's choice", False, False))
"""Whether all tensors have the layouts of the plan, and whether Shardy partitions, as by default, or GSPMD."""
GRID = mesh(data=2, model=4)
AXES = {None: (), "data": (0,), "model": (1,), "both": (0, 1), "turned": (1, 0)}


class Case(NamedTuple):
    """A program with its plan: a name for the table, the function, the shapes, and how the graph is planned."""

    name: str
    function: Callable[..., Any]
    shapes: tuple[Any, ...]
    planned: Callable[[ImportedGraph], GraphPlan]
    uneven: bool | None = None

    def plan(self) -> tuple[ImportedGraph, GraphPlan]:
        graph = from_jax(self.function, *self.shapes, mesh=GRID, uneven=self.uneven)
        return graph, self.planned(graph)


def rule(**strategies: Any) -> Callable[[ImportedGraph], GraphPlan]:
    """The breadth-first rule after these strategies; each is a strategy, or one with its out-strategy."""

    def planned(graph: ImportedGraph) -> GraphPlan:
        for name, given in strategies.items():
            strategy, out = given if isinstance(given[0][0], tuple) else (given, None)
            graph.shard(name, strategy, out)
        return propagate(graph)

    return planned


def exact(cap: int) -> Callable[[ImportedGraph], GraphPlan]:
    """The fewest bytes under a cap on the memory of each device."""
    return lambda graph: plan(graph, memory_cap=cap)


def ends(**layouts: P) -> Callable[[ImportedGraph], GraphPlan]:
    """The fewest bytes with these layouts of arguments and results; a name is for every argument that ends with it."""

    def planned(graph: ImportedGraph) -> GraphPlan:
        names = (*graph.sources, *graph.results)
        return plan(graph, layouts={name: layouts[x] for name in names if (x := name.rpartition(".")[2]) in layouts})

    return planned


def everything(layout: P) -> Callable[[ImportedGraph], GraphPlan]:
    """The fewest bytes with all arguments and results in this layout."""
    return lambda graph: plan(graph, layouts=dict.fromkeys((*graph.sources, *graph.results), layout))


def same_ends(**layouts: P) -> Callable[[ImportedGraph], GraphPlan]:
    """The fewest bytes with these layouts of arguments, and each result in the layout of its parameter."""

    def planned(graph: ImportedGraph) -> GraphPlan:
        named = {name: layouts[x] for name in graph.sources if (x := name.rpartition(".")[2]) in layouts}
        parameters = [layout for name, layout in named.items() if graph.sources[name] == "parameter"]
        return plan(graph, layouts=named | dict(zip(graph.results, parameters, strict=True)))

    return planned


def resharded(before: tuple[Any, ...], after: tuple[Any, ...]) -> Callable[[ImportedGraph], GraphPlan]:
    """A tensor that is stored in one layout and wanted in another: two copies, each in its own."""

    def planned(graph: ImportedGraph) -> GraphPlan:
        layouts = [TensorLayout((64, 64), GRID, tuple(AXES[name] for name in one)) for one in (before, after)]
        (operator,) = graph.operators.values()
        (way,) = [way for way in candidates(graph, operator) if way.output == layouts[1]]
        return GraphPlan(graph, {operator.name: way}, {"x": layouts[0]})

    return planned


def cases() -> list[Case]:
    """The rows of the table."""
    import jax
    import jax.numpy as jnp

    from . import blocks_in_jax as blocks

    def dense(p: Any, x: Any) -> Any:
        return jax.nn.relu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]

    def gradients(p: Any, x: Any, y: Any) -> Any:
        return jax.grad(lambda p: 0.5 * ((dense(p, x) - y) ** 2).sum())(p)

    def swiglu(p: Any, x: Any) -> Any:
        return (jax.nn.silu(x @ p["gate"]) * (x @ p["up"])) @ p["down"]

    def norm(p: Any, x: Any) -> Any:
        centered = x - x.mean(-1, keepdims=True)
        return centered * jax.lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * p["scale"]

    def attention(p: Any, x: Any) -> Any:
        batch, length, width = x.shape
        split = (batch, length, 8, width // 8)
        q, k, v = ((x @ p[name]).reshape(split).transpose(0, 2, 1, 3) for name in ("wq", "wk", "wv"))
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), q @ k.swapaxes(2, 3) / 8**0.5, -1e9)
        mixed = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(x.shape)
        return x + mixed @ p["wo"]

    def twice(p: Any, x: Any) -> Any:
        return x @ p["w1"] + x @ p["w2"]

    def head(p: Any, rows: Any) -> Any:
        return p["table"][rows] @ p["table"].T

    def plain(p: Any, x: Any) -> Any:
        return jax.nn.relu(x @ p["w1"]) @ p["w2"]

    def loss(p: Any, x: Any, labels: Any) -> Any:
        odds = jax.nn.log_softmax(x @ p["table"].T)
        return -jnp.take_along_axis(odds, labels[:, None], axis=-1).mean()

    def three(p: Any, q: Any, k: Any, v: Any) -> Any:
        return q @ p["wq"].T + k @ p["wk"].T + v @ p["wv"].T

    def learned(table: Any, rows: Any) -> Any:
        return jax.grad(lambda table: (table[rows] ** 2).sum())(table)

    def adam(p: Any, m: Any, v: Any, x: Any, y: Any) -> Any:
        grads = jax.grad(lambda p: ((plain(p, x) - y) ** 2).sum())(p)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, grads)
        return jax.tree.map(lambda p, m, v: p - 0.01 * m / (jnp.sqrt(v) + 1e-3), p, m, v), m, v

    def muon(p: Any, x: Any, y: Any) -> Any:
        def orthogonal(g: Any) -> Any:  # one step of Newton and Schulz
            square = g.T @ g
            return 3.44 * g - 4.77 * g @ square + 2.03 * g @ (square @ square)

        grads = jax.grad(lambda p: ((plain(p, x) - y) ** 2).sum())(p)
        return jax.tree.map(lambda p, g: p - 0.01 * orthogonal(g / 64), p, grads)

    def block_gradients(p: Any, x: Any, y: Any) -> Any:
        return jax.grad(lambda p: ((blocks.llama_block(p, x) - y) ** 2).mean())(p)

    def stack(p: Any, x: Any) -> Any:
        return jax.lax.scan(lambda h, w: (h + plain(w, h), None), x, p)[0]

    network = {"w1": (64, 256), "b1": (256,), "w2": (256, 64), "b2": (64,)}
    odd = {"w1": (64, 250), "b1": (250,), "w2": (250, 64), "b2": (64,)}
    gated = {"gate": (64, 128), "up": (64, 128), "down": (128, 64)}
    square = (64, 64)
    projections = dict.fromkeys(("wq", "wk", "wv", "wo"), square)
    grouped = {**projections, "wk": (64, 16), "wv": (64, 16)}
    gpt, long = {**projections, "up": (64, 256), "down": (256, 64)}, (4, 32, 64)
    llama = {**projections, **gated, "norm1": (64,), "norm2": (64,)}
    tokens = jax.ShapeDtypeStruct((8, 16), jnp.int32)
    columns, rows, whole = ((2, 1), (1, 4)), ((2, 4), (4, 1)), ((8, 1), (1, 1))
    heads, mixed = ((2, 1, 1), (1, 4)), ((2, 1, 4), (4, 1))
    wide = {"w1": (64, 256), "w2": (256, 64)}
    by_rows, sequence = P(("data", "model")), P("data", "model")
    by_columns = dict.fromkeys(("wq", "wk", "wv", "gate", "up"), P(None, "model"))
    block_ends = ends(x=sequence, result=sequence, wo=P("model"), down=P("model"), **by_columns)
    by_heads = rule(matmul1=heads, matmul2=heads, matmul3=heads, matmul6=mixed)
    moved = [
        (("data", None), ("model", None)),
        (("data", "model"), ("model", "data")),
        ((None, "model"), ("model", None)),
        (("both", None), ("turned", None)),
        (("data", "model"), (None, "both")),
    ]
    return [
        Case("MLP, tensor parallel", dense, (network, square), rule(matmul1=columns, matmul2=rows)),
        Case("MLP, sums scattered", dense, (network, square), rule(matmul1=columns, matmul2=(rows, (2, 4)))),
        Case("MLP, rows then columns", dense, (network, square), rule(matmul1=columns, matmul2=whole)),
        Case("MLP, exact plan", dense, (network, square), exact(60_000)),
        Case("MLP of 250 columns, tensor parallel", dense, (odd, square), rule(matmul1=columns, matmul2=rows), True),
        Case("MLP of 250 columns, rows then columns", dense, (odd, square), rule(matmul1=columns, matmul2=whole), True),
        Case("gradients of the MLP, exact plan", gradients, (network, square, square), exact(200_000)),
        Case("SwiGLU, tensor parallel", swiglu, (gated, square), rule(matmul1=columns, result=rows)),
        Case("LayerNorm, columns split", norm, ({"scale": (64,)}, square), rule(subtract1=((2, 4), (2, 1)))),
        Case("attention, heads split", attention, (projections, (4, 16, 64)), by_heads),
        Case(
            "sum of two products", twice, ({"w1": (64, 64), "w2": (64, 64)}, square), rule(matmul1=rows, matmul2=rows)
        ),
        Case("embedding and head, words split", head, ({"table": (512, 32)}, tokens), rule(gather1=((4, 1), (2, 1)))),
        Case(
            "MLP, all stored by rows", plain, (wide, (128, 64)), ends(x=by_rows, w1=by_rows, w2=by_rows, result=by_rows)
        ),
        Case(
            "MLP, tensor parallel, result by rows",
            plain,
            (wide, (128, 64)),
            ends(x=P("data"), w1=P(None, "model"), w2=P("model"), result=by_rows),
        ),
        Case(
            "attention, sequence split at the ends",
            attention,
            (projections, (4, 16, 64)),
            ends(x=sequence, result=sequence, wo=P("model"), **by_columns),
        ),
        Case(
            "loss of a split vocabulary",
            loss,
            ({"table": (128, 32)}, (64, 32), jax.ShapeDtypeStruct((64,), jnp.int32)),
            ends(x=P("data"), labels=P("data"), table=P("model")),
        ),
        Case(
            "gradients of queries, keys and values",
            three,
            (projections, *[square] * 3),
            ends(
                **dict.fromkeys(("wq", "wk", "wv"), P(None, "model")),
                **dict.fromkeys("qkv", P("data", "model")),
                result=P("data"),
            ),
        ),
        Case(
            "gradient of an embedding",
            learned,
            ((512, 32), tokens),
            ends(table=P("model"), rows=P("data"), result=P("model")),
        ),
        Case(
            "four MLPs by scan, tensor parallel",
            stack,
            ({"w1": (4, 64, 256), "w2": (4, 256, 64)}, square),
            ends(x=P("data", "model"), w1=P(None, None, "model"), w2=P(None, "model"), result=P("data", "model")),
        ),
        Case("grouped queries with RoPE, exact plan", blocks.attention, (grouped, (8, 16, 64)), exact(140_000)),
        Case("GPT block, sequence split at the ends", blocks.gpt_block, (gpt, long), block_ends),
        Case("Llama block, sequence split at the ends", blocks.llama_block, (llama, long), block_ends),
        Case("Adam step of an MLP, all stored by rows", adam, (*[wide] * 3, (128, 64), (128, 64)), everything(by_rows)),
        Case("Muon step of an MLP, all stored by rows", muon, (wide, (128, 64), (128, 64)), everything(by_rows)),
        Case(
            "gradients of a Llama block",
            block_gradients,
            (llama, long, long),
            same_ends(x=sequence, y=sequence, wo=P("model"), down=P("model"), norm1=P(), norm2=P(), **by_columns),
        ),
        *(Case(f"{_layout(a)} to {_layout(b)}", lambda x: x, (square,), resharded(a, b)) for a, b in moved),
    ]


def _layout(axes: tuple[Any, ...]) -> str:
    return str(TensorLayout((64, 64), GRID, tuple(AXES[name] for name in axes))).removesuffix(" on 2x4")


def measure() -> list[dict[str, Any]]:
    """For each case what each device sends in the plan, by which steps, and the collectives of XLA.

    The numbers that XLA computes have to be those of the graph.
    """
    import jax
    import numpy as np

    from lib.layout.xla import collectives

    from .graph_in_jax import in_jax

    found = []
    for case in cases():
        start = perf_counter()
        graph, planned = case.plan()
        seconds = perf_counter() - start
        rng = np.random.default_rng(0)
        leaves = jax.tree_util.tree_leaves(
            case.shapes, is_leaf=lambda x: isinstance(x, tuple) and isinstance(x[0], int)
        )
        rows = {name for name, leaf in zip(graph.arguments, leaves, strict=True) if hasattr(leaf, "dtype")}
        values = {
            name: rng.integers(0, 8, graph.shapes[name]).astype("i4" if name in rows else "f4")
            for name in graph.sources
        } | graph.constants
        alone = graph.run(values)
        steps = [step for op in planned.operators.values() for step in op.reduction]
        steps += [step for edge in planned.edges if edge.bytes for step in planned.redistribution(edge).named_steps]
        sent = tuple(int(n) for n in planned.sent)
        row: dict[str, Any] = {"name": case.name, "sent": sent, "steps": [s.name for s in steps if s.total]}
        once = sum(op.flops({}) for op in graph.operators.values())
        flops = [planned.flops * DEVICES / once if once else 1.0]
        undivided = flops_of(jax.jit(in_jax(planned, graph.results, False)[0]).lower(values).compile())
        for column, every, shardy in COLUMNS:
            jax.config.update("jax_use_shardy_partitioner", shardy)
            function, how = in_jax(planned, graph.results, every)
            program = jax.jit(function, **how).lower(values).compile()
            done = program(jax.device_put(values, how["in_shardings"][0]))
            for name, array in zip(graph.results, done):
                np.testing.assert_allclose(array, alone[name], rtol=1e-4, atol=1e-4 * abs(alone[name]).max())
            row[column] = collectives(program.as_text(), DEVICES)
            flops.append(flops_of(program) * DEVICES / undivided if undivided else 1.0)
        found.append(row | {"flops": [round(n, 2) for n in flops], "seconds": seconds})
    return found


def flops_of(program: Any) -> float:
    """The flops of a device in a compiled program."""
    return float((program.cost_analysis() or {}).get("flops", 0))


def measured() -> dict[str, Any]:
    """The measurement of a new process with 8 devices, and the version of jax."""
    command = [sys.executable, "-m", "tests.oracles.xla_partitioner"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    os.environ |= {"XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}", "JAX_PLATFORMS": "cpu"}
    import jax

    print(json.dumps({"jax": jax.__version__, "rows": measure()}))
