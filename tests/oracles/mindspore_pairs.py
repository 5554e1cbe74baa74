"""The pairs of layouts of docs/generate/mindspore_pairs.json, and what MindSpore moves between them."""

import json
from collections import Counter
from typing import Any

from docs.generate import mindspore_pairs
from lib.layout import DeviceMatrix, TensorLayout, least_bytes


def pairs() -> list[dict[str, Any]]:
    """The file."""
    found: list[dict[str, Any]] = json.loads(mindspore_pairs.FILE.read_text(encoding="utf-8"))["pairs"]
    return found


def layouts(pair: dict[str, Any]) -> tuple[TensorLayout, TensorLayout]:
    """The source and the target of a pair. MindSpore's axes count from the right."""

    def layout(given: mindspore_pairs.Layout) -> TensorLayout:
        matrix, tensor_map = given
        axes = tuple(-1 if entry < 0 else len(matrix) - 1 - entry for entry in tensor_map)
        return TensorLayout(tuple(pair["shape"]), DeviceMatrix(tuple(matrix)), axes)  # type: ignore[arg-type]

    return layout(pair["source"]), layout(pair["target"])


def least_of_mindspore(pair: dict[str, Any]) -> int:
    """The elements that MindSpore moves in its better mode, of those that end with the right pieces."""
    return min(moved for moved in (pair["plain"], pair["optimized"]) if moved is not None)


def beside_ours() -> Counter[str]:
    """For how many pairs MindSpore moves more, fewer, or as many elements as the least."""
    found: Counter[str] = Counter()
    for pair in pairs():
        ours, theirs = least_bytes(*layouts(pair), 1), least_of_mindspore(pair)
        found["more" if theirs > ours else "fewer" if theirs < ours else "the same"] += 1
    return found
