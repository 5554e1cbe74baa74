"""Computing costs time: no plan saves memory or bytes by doing the same product many times, unless that is quicker."""

from __future__ import annotations

import pytest

from lib.layout import Graph, LayoutError, P, mesh, plan
from tests.screens.texts import approved
from tests.support.layout_examples import transformer


def product(grid=None) -> Graph:
    graph = Graph(mesh=grid or mesh(data=2, model=4))
    graph.input("x", (64, 512))
    graph.parameter("w", (512, 512))
    graph.matmul("y", "x", "w")
    return graph


@pytest.mark.slow
def test_a_layer_of_8_billion_parameters_on_32_devices_does_its_work_once() -> None:
    graph = transformer(1, mesh(data=4, model=8), batch=8, length=4096, heads=32, width=4096)
    free = plan(graph)
    assert free.redundancy > 1
    for cap in (free.memory, free.memory // 2):
        found = plan(graph, memory_cap=cap)
        assert found.redundancy == 1
        assert "flops on each device" not in found.explain()


def test_what_computing_costs_decides_between_moving_and_computing_twice() -> None:
    whole = {"x": P(), "y": P()}
    graph = product()
    free, dear = plan(graph, layouts=whole), plan(graph, layouts=whole, flops=100)
    assert (free.bytes, free.redundancy) == (0, 8)
    approved(
        "computing",
        "what computing costs decides between moving and computing twice",
        free.explain(),
        "33,554,432 flops on each",
    )
    assert dear.redundancy < 8
    assert dear.bytes > 0
    # one more price: of all plans, none has a smaller sum of bytes and of what could be sent while all compute
    assert dear.bytes + 8 * dear.flops // 100 <= free.bytes + 8 * free.flops // 100


@pytest.mark.parametrize("flops", [0, -1, 2.5])
def test_a_price_that_is_none_is_refused(flops: object) -> None:
    with pytest.raises(LayoutError, match="flops are a whole"):
        plan(product(), flops=flops)  # type: ignore[arg-type]
