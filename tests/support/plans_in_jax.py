"""`python -m tests.support.plans_in_jax` runs programs that plans were written as, on 8 devices of this processor.

Prints, for each, the bytes that were predicted and those of the collectives in the compiled text.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from lib.layout import Graph, GraphPlan, P, code_of, mesh, plan
from tests.layout.test_pins import CASES

from .xla_collectives import collectives


def embedding() -> GraphPlan:
    """A table that is split by rows, each of which one device has."""
    graph = Graph(mesh=mesh(data=2, model=4))
    graph.input("tokens", (8, 32))
    graph.gather("rows", graph.parameter("table", (64, 64)), "tokens")
    return plan(graph, layouts={"tokens": P("data"), "table": P("model"), "rows": P("data", "model")})


def run(found: GraphPlan) -> tuple[int, int]:
    """The bytes predicted and compiled; the results have to be those of one device."""
    import jax

    scope: dict[str, Any] = {}
    text = code_of(found, "jax")
    exec(text, scope)
    rng = np.random.default_rng(0)
    given = {name: (rng.standard_normal(found.graph.shapes[name]) / 4).astype("f4") for name in found.graph.sources}
    given |= {name: rng.integers(0, 64, (8, 32)) for name in given if name == "tokens"}
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
    print(json.dumps({**found, "embedding, words split": run(embedding())}))
