"""`python -m tests.support.plans_in_jax` runs programs that plans were written as, on 8 devices of this processor.

Prints, for each, the bytes that were predicted and those of the collectives in the compiled text.
"""

import json
import os
from typing import Any

import numpy as np

from lib.layout import Graph, GraphPlan, P, code_of, mesh, plan, training
from lib.layout.xla import collectives
from tests.layout.test_propagation import CASES
from tests.support.layout_examples import mixture_of_experts


def embedding() -> GraphPlan:
    """A table that is split by rows, each of which one device has."""
    graph = Graph(mesh=mesh(data=2, model=4))
    graph.input("tokens", (8, 32))
    graph.gather("rows", graph.parameter("table", (64, 64)), "tokens")
    return plan(graph, layouts={"tokens": P("data"), "table": P("model"), "rows": P("data", "model")})


def exchange() -> GraphPlan:
    """The rows and the columns of a matrix change places."""
    graph = Graph(mesh=mesh(data=2, model=4))
    graph.relu("y", graph.input("x", (64, 64)))
    return plan(graph, layouts={"x": P("data", "model"), "y": P("model", "data")})


def step_of_every_kind() -> GraphPlan:
    """A training step with Adam: all kinds that have a gradient, with it."""
    graph = Graph(mesh=mesh(data=2, model=4))
    graph.input("tokens", (8, 32))
    rows = graph.gather("rows", graph.parameter("table", (64, 16)), "tokens")
    raised = x = graph.exp("exp", graph.top_k("top", rows, 12))
    for kind in ("relu", "tanh", "gelu", "silu", "sqrt", "log", "sin", "cos", "erf", "logistic", "reciprocal", "rsqrt"):
        x = graph.add(f"with {kind}", x, getattr(graph, kind)(kind, raised))
    x = graph.softmax("softmax", x)
    x = graph.pad("pad", graph.slice("slice", x, 1, 4, 20), 1, 2, 6)
    x = graph.concat("concat", x, graph.negative("negative", x), axis=1)
    x = graph.divide("divide", x, graph.add("more", graph.exp("again", x), graph.multiply("square", x, x)))
    x = graph.transpose("transpose", graph.matmul("product", x, graph.parameter("w", (16, 8))), (0, 2, 1))
    graph.reduce_mean("mean", graph.reduce_sum("sum", x, 2), 1)
    step = training(graph, "adam")
    step.shard("product", ((2, 1, 1), (1, 1)))

    return plan(step, layouts={"table.grad": P("model")})


def rest_of_the_kinds() -> GraphPlan:
    """What has no gradient, after a product of which devices hold summands."""
    graph = Graph(mesh=mesh(data=2, model=4))
    x = graph.matmul("product", graph.input("x", (16, 32)), graph.parameter("w", (32, 16)))
    other = graph.input("other", (16, 16))
    graph.select("select", x, graph.maximum("maximum", x, other), graph.compare("compare", x, other, "less"))
    graph.largest("numbers", graph.minimum("minimum", x, other), 3, numbers=True)
    graph.largest("values", graph.subtract("subtract", x, graph.reduce_max("highest", x, 0)), 3)
    return plan(graph, layouts={"x": P(None, "model"), "w": P("model")})


def experts() -> GraphPlan:
    return plan(mixture_of_experts().copied(mesh(data=2, model=4)), layouts={"up": P("model"), "x": P("data")})


def run(found: GraphPlan) -> tuple[int, int]:
    """The bytes predicted and compiled; the results have to be those of one device."""
    import jax

    scope: dict[str, Any] = {}
    text = code_of(found, "jax")
    exec(text, scope)
    rng = np.random.default_rng(0)
    given = {name: (rng.standard_normal(found.graph.shapes[name]) / 4).astype("f4") for name in found.graph.sources}
    given |= {name: rng.integers(0, 64, (8, 32)) for name in given if name == "tokens"}
    given |= {name: abs(array) for name, array in given.items() if name.endswith((".state", "epsilon"))}
    compiled = scope["step"].lower(given).compile()
    alone = found.graph.run(given)
    for name, array in compiled(jax.device_put(given, scope["in_shardings"][0])).items():
        np.testing.assert_allclose(array, alone[name], rtol=1e-3, atol=1e-3)
    moved = sum(sum(each.sent) for each in collectives(compiled.as_text(), 8))
    assert text.startswith(f'"""{moved:,} bytes move')
    return found.bytes, moved


if __name__ == "__main__":
    os.environ |= {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    found = {name: run(plan(build(), layouts=pins)) for name, (build, pins, _) in CASES.items()}
    for build in (embedding, exchange, step_of_every_kind, rest_of_the_kinds, experts):
        found[build.__name__] = run(build())
    print(json.dumps(found))
