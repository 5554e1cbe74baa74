"""Writes docs/generate/mindspore_pairs.json: what MindSpore's Tensor Redistribution moves between random layouts.

    python -P docs/generate/mindspore_pairs.py

Needs MindSpore 2.10, for CPUs. Its operators are played on numbers, with all devices side by side, and what devices
receive is counted. This file imports nothing of the project, because MindSpore's environment does not have it.
"""

from __future__ import annotations

import json
import random
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_suffix(".json")
PAIRS = 1000
MATRICES = ([8], [2, 4], [4, 2], [2, 2, 2], [16], [4, 4], [2, 8], [2, 2, 4])

Layout = tuple[list[int], list[int]]
"""A device matrix, and a tensor map whose axes count from the right; -1 for a dimension that is not split."""
Arrays = list[Any]


def pair(rng: random.Random) -> tuple[Layout, Layout, list[int]]:
    """Two layouts on as many devices, and a shape."""
    one = rng.choice(MATRICES)
    equal = [each for each in MATRICES if each != one and prod(each) == prod(one)]
    other = one if rng.random() < 0.6 else rng.choice(equal)
    dims = rng.choice([2, 2, 3])
    shape = [rng.choice([16, 32, 64]) for _ in range(dims)]
    return (one, _map(rng, len(one), dims)), (other, _map(rng, len(other), dims)), shape


def _map(rng: random.Random, axes: int, dims: int) -> list[int]:
    left = list(range(axes))
    rng.shuffle(left)
    return [left.pop() if left and rng.random() < 0.65 else -1 for _ in range(dims)]


def boxes(shape: list[int], layout: Layout) -> list[tuple[slice, ...]]:
    """The piece of each device."""
    matrix, tensor_map = layout
    found = []
    for device in range(prod(matrix)):
        place = np.unravel_index(device, matrix)
        box = []
        for size, entry in zip(shape, tensor_map):
            axis = len(matrix) - 1 - entry
            n = 1 if entry < 0 else matrix[axis]
            at = 0 if entry < 0 else int(place[axis])
            box.append(slice(at * size // n, (at + 1) * size // n))
        found.append(tuple(box))
    return found


def received(source: Layout, target: Layout, shape: list[int], operators: list[list[Any]]) -> int | None:
    """The elements that devices receive, all together; None if they do not end with the target's pieces."""
    full = np.arange(prod(shape)).reshape(shape)
    pieces: Arrays = [full[box] for box in boxes(shape, source)]
    moved = 0
    for step in range(max(map(len, operators))):
        before = list(pieces)
        for device, mine in enumerate(operators):
            if step >= len(mine):
                continue
            name, given = mine[step]
            if name == "AllConcat":
                *group, axis = given
                pieces[device] = np.concatenate([before[each] for each in group], axis)
                moved += (len(group) - 1) * before[device].size
            elif name == "StridedSlice":
                n = len(given) // 3
                pieces[device] = before[device][tuple(slice(a, b or None) for a, b in zip(given[:n], given[n : 2 * n]))]
            elif name == "Reshape":
                pieces[device] = before[device].reshape(given)
            else:
                raise ValueError(f"what {name} moves is not counted here")
    right = all(np.array_equal(piece, full[box]) for piece, box in zip(pieces, boxes(shape, target)))
    return moved if right else None


def main() -> None:
    import mindspore
    from mindspore._c_expression import TensorTransform

    transform = TensorTransform.get_instance()
    rng = random.Random(2026)
    rows = []
    for _ in range(PAIRS):
        source, target, shape = pair(rng)
        counts = []
        for optimized in (False, True):
            ends = [[*source, shape], [*target, shape], list(range(prod(source[0]))), optimized]
            operators = [transform.transform_tensor_sharding(*ends, rank) for rank in range(prod(source[0]))]
            counts.append(received(source, target, shape, operators))
        rows.append({"source": source, "target": target, "shape": shape, "plain": counts[0], "optimized": counts[1]})
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    FILE.write_text(f'{{"mindspore": "{mindspore.__version__}", "pairs": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
