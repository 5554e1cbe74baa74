"""The figures of the feed-forward network, derived again with boolean masks and loops, without the library.

A device's piece is a mask over the 64 x 64 elements. What a tensor costs on its way is the number of elements that
devices need and do not hold; a sum over b devices of pieces of S bytes costs each 2 (b-1)/b S, or (b-1)/b S if
each keeps only its part.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from lib.layout import plan
from lib.layout.examples import feed_forward

N, DEVICES, ITEM = 64, 8, 4
WHOLE = N * N * ITEM
TRIPLES = [(a, b, c) for a, b, c in product((1, 2, 4, 8), repeat=3) if a * b * c == DEVICES]
PAIRS = [(p, q) for p, q in product((1, 2, 4, 8), repeat=2) if p * q == DEVICES]


def block(row: int, rows: int, column: int, columns: int) -> np.ndarray:
    mask = np.zeros((N, N), dtype=bool)
    mask[row * N // rows : (row + 1) * N // rows, column * N // columns : (column + 1) * N // columns] = True
    return mask


def elementwise(p: int, q: int) -> list[np.ndarray]:
    """Strategy ((p, q)): devices count columns first."""
    return [block(d // q, p, d % q, q) for d in range(DEVICES)]


def matmul(a: int, b: int, c: int) -> tuple[list, dict[str, tuple[list, int]]]:
    """Strategy ((a, b), (b, c)): what it needs of its input; by what is done with sums, its output and their bytes."""
    places = [(d // (b * c), d // c % b, d % c) for d in range(DEVICES)]
    needs = [block(i, a, k, b) for i, k, _ in places]
    piece = WHOLE // (a * c)
    once = DEVICES * (b - 1) * piece // b
    ways = {"all-reduce": ([block(i, a, j, c) for i, _, j in places], 2 * once)}
    if b > 1:
        ways["to rows"] = ([block(i * b + k, a * b, j, c) for i, k, j in places], once)
        ways["to columns"] = ([block(i, a, j * b + k, c * b) for i, k, j in places], once)
    return needs, ways


def moved(held: list, needed: list) -> int:
    return ITEM * sum(int((need & ~hold).sum()) for hold, need in zip(held, needed))


def least(weight_cap: int, scatter: bool) -> int:
    """All strategies of add1, relu, matmul2 and add2 after matmul1 as ((2, 1), (1, 4)); biases live where needed."""
    first = elementwise(2, 4)  # what matmul1 leaves: nothing is summed up
    reached = {
        pq: min(moved(first, elementwise(*before)) + moved(elementwise(*before), elementwise(*pq)) for before in PAIRS)
        for pq in PAIRS
    }
    best = []
    for a, b, c in TRIPLES:
        if WHOLE // (b * c) > weight_cap:
            continue
        needs, ways = matmul(a, b, c)
        arrive = min(cost + moved(elementwise(*pq), needs) for pq, cost in reached.items())
        for way, (output, summed) in ways.items():
            if scatter or way == "all-reduce":
                best.append(arrive + summed + min(moved(output, elementwise(*pq)) for pq in PAIRS))
    return min(best)


FIGURES = [
    (WHOLE, 12_288, 12_288),
    (WHOLE // 2, 24_576, 24_576),
    (WHOLE // 4, 49_152, 32_768),
    (WHOLE // 8, 90_112, 73_728),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("cap", "all_reduced", "scattered"), FIGURES)
def test_exact_plans_cost_what_masks_and_loops_find(cap: int, all_reduced: int, scattered: int) -> None:
    assert (least(cap, scatter=False), least(cap, scatter=True)) == (all_reduced, scattered)
    graph = feed_forward()
    graph.shard("matmul1", ((2, 1), (1, 4)))
    assert plan(graph, tensor_caps={"weight2": cap}, scatter=False).bytes == all_reduced
    assert plan(graph, tensor_caps={"weight2": cap}).bytes == scattered


def test_the_rule_that_never_moves_an_activation_pays_an_all_reduce() -> None:
    """Everything keeps ((2, 4)) up to matmul2, which sums over 4; add2 then finds what it needs."""
    needs, ways = matmul(2, 4, 1)
    output, summed = ways["all-reduce"]
    assert moved(elementwise(2, 4), needs) + summed + moved(output, elementwise(2, 4)) == 98_304
