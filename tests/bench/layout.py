"""The speed of the layout track: `make bench` prints it in sorts of a million numbers, to compare machines.

A line ends in OK when it keeps the promise in brackets. Nothing here fails: times are for people to look at.
"""

from math import exp, log
from random import Random
from time import perf_counter

import numpy as np

from lib.layout import DeviceMatrix, Graph, TensorLayout, plan, propagate, redistribute, training
from lib.layout.choices import Choices
from lib.layout.examples import feed_forward, megatron_mlp
from tests.bench.runtime import best, show
from tests.support.layout_examples import transformer
from tests.support.layout_strategies import cube_with_summands, eight_devices, least_memory, values


def parameters_capped(graph: Graph, parts: int) -> dict[str, int]:
    """Caps that hold every weight to its size divided by `parts`, on each device."""
    sizes = {name: int(np.prod(graph.shapes[name])) * graph.itemsize for name in graph.sources}
    return {name: sizes[name] // parts for name, role in graph.sources.items() if role == "parameter"}


def every_pair() -> None:
    layouts = eight_devices()
    for a in layouts:
        for b in layouts:
            if a != b:
                assert redistribute(a, b).sent.sum() >= 0  # counting the bytes makes the plan


def every_partial_pair() -> None:
    layouts = cube_with_summands()
    for a in layouts:
        for b in layouts:
            if a.partial and not b.partial:
                assert redistribute(a, b).sent.sum() > 0


def named_ratio() -> float:
    """Geometric mean of the bytes of named collectives over the bound."""
    layouts = eight_devices()
    ratios = []
    for a in layouts:
        for b in layouts:
            if a != b:
                least = redistribute(a, b).bytes
                ratios.append(log(redistribute(a, b, named_only=True).bytes / least) if least else 0.0)
    return exp(sum(ratios) / len(ratios))


def thousand(devices: int) -> None:
    line = DeviceMatrix((devices,))
    rows, columns = (TensorLayout((4096, 4096), line, m) for m in (((0,), ()), ((), (0,))))
    assert redistribute(rows, columns).bytes


def timed_plan(layers: int, mesh: DeviceMatrix) -> float:
    graph = transformer(layers, mesh)
    caps = parameters_capped(graph, min(mesh.shape))
    start = perf_counter()
    assert plan(graph, tensor_caps=caps).bytes > 0
    return perf_counter() - start


def timed_step(layers: int) -> tuple[float, float]:
    """The plan of a training step, and its text."""
    graph = transformer(layers, DeviceMatrix((8, 8)))
    caps = parameters_capped(graph, 8)
    start = perf_counter()
    found = plan(training(graph), tensor_caps=caps)
    between = perf_counter()
    assert found.explain()
    return between - start, perf_counter() - between


def timed_explain() -> tuple[float, float]:
    """A plan of a layer, and its text."""
    graph = transformer(1, DeviceMatrix((8, 8)))
    start = perf_counter()
    found = plan(graph, tensor_caps=parameters_capped(graph, 8))
    between = perf_counter()
    assert found.explain()
    return between - start, perf_counter() - between


def named_pairs() -> float:
    rng = Random(1)
    start = perf_counter()
    for shape in ((8, 8), (16, 4), (4, 4, 4)):
        matrix = DeviceMatrix(shape)
        for _ in range(33):
            assert redistribute(*(placed(rng, matrix) for _ in range(2)), named_only=True).cheapest
    return perf_counter() - start


def placed(rng: Random, matrix: DeviceMatrix) -> TensorLayout:
    """A random layout of a matrix."""
    entries: list[tuple[int, ...]] = [(), (), ()]
    for axis in rng.sample(range(len(matrix.shape)), len(matrix.shape)):
        entries[rng.randrange(3)] += (axis,)
    return TensorLayout((128, 128), matrix, tuple(entries[:2]))


def timed_capped_plan(layers: int, mesh: DeviceMatrix, part: float = 0.1) -> float:
    """Under a cap on all memory, that far between the least that is possible and what the freest plan holds."""
    graph = transformer(layers, mesh)
    smallest = least_memory(Choices(graph, {}, scatter=True))
    cap = smallest + int((plan(graph).memory - smallest) * part)
    start = perf_counter()
    assert plan(graph, memory_cap=cap).memory <= cap
    return perf_counter() - start


def timed_peak_cap() -> float:
    """A training step on 8 devices under a cap on its peak, nine tenths of what the freest plan holds."""
    step = training(megatron_mlp())
    cap = plan(step).peak * 9 // 10
    start = perf_counter()
    assert plan(step, peak=cap).peak <= cap
    return perf_counter() - start


def timed_run(devices: int) -> float:
    """The feed-forward network on the engine, planned before."""
    graph = feed_forward(devices=devices, batch=256, width=256, hidden=256)
    graph.shard("matmul1", ((devices // 4, 1), (1, 4)))
    found, given = propagate(graph), values(graph)
    found.on_engine(given)
    return best(lambda: found.on_engine(given), 5)


def main() -> None:
    numbers = np.random.default_rng(0).permutation(1_000_000)
    yardstick = best(lambda: np.sort(numbers), 5)
    print(f"{'sorting a million numbers, the yardstick':<52} {yardstick * 1e3:8.2f} ms")

    def tell(what: str, seconds: float, limit: float) -> None:
        show(f"{what} ({seconds / yardstick:,.1f} sorts)", seconds, "s", limit)

    tell("2,352 redistributions on 2x2x2", best(every_pair, 1), 5)
    tell("2,107 redistributions of partial sums on 2x2x2", best(every_partial_pair, 1), 5)
    show("  named collectives, bytes over the bound", named_ratio(), "x", 1.15)
    for devices in (64, 256, 1024):
        tell(f"redistribution among {devices:,} devices", best(lambda n=devices: thousand(n), 2), 1)
    tell("named collectives, 100 random pairs on 64 devices", named_pairs(), 10)
    planned, explained = timed_explain()
    tell("exact plan, 1 layer on 8x8", planned, 10)
    tell("  its explain, within the plan's time", explained, planned)
    for layers in (1, 12):
        planned, explained = timed_step(layers)
        tell(f"exact plan of a training step, {layers} layers on 8x8", planned, 10)
        tell("  its explain, within the plan's time", explained, planned)
    for layers in (6, 12, 24, 48):
        tell(f"exact plan, {layers} layers on 8x8", timed_plan(layers, DeviceMatrix((8, 8))), 10)
    for layers in (6, 12, 24, 48):
        mesh = DeviceMatrix((8, 8))
        tell(f"  all memory capped, {layers} layers", timed_capped_plan(layers, mesh), 10)
    tell("  all memory capped, 4 layers on 4x4x4", timed_capped_plan(4, DeviceMatrix((4, 4, 4))), 10)
    tell("a training step under a cap on the peak", timed_peak_cap(), 1)
    for devices in (8, 32, 128):
        tell(f"a network on the engine, {devices} devices", timed_run(devices), 1)
    for shape in ((2, 2), (4, 4), (2, 2, 2), (4, 4, 4)):
        tell(f"exact plan, 1 layer on {DeviceMatrix(shape)}", timed_plan(1, DeviceMatrix(shape)), 10)


if __name__ == "__main__":
    main()
