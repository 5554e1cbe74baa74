"""Writes docs/mindspore.md, propagation and redistribution beside MindSpore's: `make docs`.

MindSpore's side is data, which `mindspore.py` and `mindspore_pairs.py` wrote; ours is computed.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from docs.generate import mindspore, mindspore_pairs
from lib.layout import DeviceMatrix, TensorLayout, least_bytes
from tests.support.mindspore_networks import SETTINGS, agreement, data

FILE = Path(__file__).parents[1] / "mindspore.md"

HEAD = """\
# MindSpore beside this

MindSpore's documentation is where Sharding Propagation and Tensor Redistribution are defined. This page compares
MindSpore {version} itself with this library, on random networks and random layouts.

## Sharding Propagation

`propagate(graph, full=True)` chooses strategies as MindSpore does with `fully_use_devices=True`, the default of version
2.1: an operator uses all devices or one. `propagate(graph, full=False)` does the same with any number of devices, the
default of version 2.10.

- The rule goes breadth first from the configured operators, producers first, then consumers, the last consumer first.
- An edge without communication is cheapest: the same layout before a slice. Otherwise the redistribution counts that
  MindSpore would make of gathers and slices: what it sends, then what it copies.
- Ties go to fewer bytes in the operator's own all-reduce, then less computation, then fewer parts of the rows.
- An operator with one input may keep its input's layout, on the same device matrix.

`propagate(graph)`, which completes the layout puzzles, is the rule of the documentation alone: bytes on the edge, then
computation, then memory, among the strategies that use the most devices.

The networks are random chains on 8 devices with one configured product: products, some of them batched or with a
transposed weight, biases, relu, softmax, residuals, branches that meet again, and reductions. MindSpore compiles most
of them; the others are left out. The rule was found with the first group of networks. The second group was kept apart.

| setting | networks | operators as MindSpore | networks as MindSpore |
|---|---|---|---|
"""

DIFFERENCES = """
Where a network first differs, the operator is one of these:

| operator | networks | why |
|---|---|---|
"""

REASONS = {
    "add": "Two branches meet in most of them, and both inputs have a layout already. Here the edge that is reached "
    "first decides. MindSpore also considers layouts that neither input has.",
    "softmax": "Its input is split along the axis of the softmax. Two ways to gather cost the same, and it is not "
    "known how MindSpore chooses between them.",
    "relu": "Several slices of the same input cost the same. MindSpore's order of such strategies for tensors of three "
    "dimensions is not known.",
    "matmul": "Several strategies cost the same on the edge; MindSpore sometimes prefers less computation to no "
    "all-reduce.",
}
OTHER = "The same as for relu: equal costs, in an order that is not known."

PAIRS_HEAD = """
## Tensor Redistribution

{count:,} random pairs of layouts on 8 and 16 devices, with equal and with different device matrices. MindSpore's
operators were played on numbers; they end with the right pieces in {right:,} pairs. The better of its two modes,
with and without its optimization, is compared with `redistribute`:

| MindSpore's bytes are | pairs |
|---|---|
"""

TAIL = """
MindSpore gathers and slices, so a device receives values that it drops again. Here each device receives only what it
needs and does not hold.

## Ask MindSpore again

`docs/generate/mindspore.py` and `docs/generate/mindspore_pairs.py` write the two files. The first one needs MindSpore
for GPUs and 8 ranks, but no GPU: a preloaded library that answers CUDA and NCCL with "8 devices" and "done" is enough,
because strategies are chosen before any kernel is compiled. The second one needs MindSpore for CPUs. Then `make docs`
writes this page.
"""


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


def pairs() -> list[dict[str, Any]]:
    """The file of pairs."""
    found: list[dict[str, Any]] = json.loads(mindspore_pairs.FILE.read_text(encoding="utf-8"))["pairs"]
    return found


def page() -> str:
    """The page, from the two files."""
    read = data()
    text = HEAD.format(version=read["mindspore"])
    first: Counter[str] = Counter()
    for apart in (False, True):
        networks = [each for each in read["networks"] if (each["seed"] != mindspore.FOUND_WITH) == apart]
        for setting, full in SETTINGS.items():
            found = agreement(setting, networks)
            first.update(found.first_differences)
            text += (
                f"| `full={full}` | {'kept apart' if apart else 'found with'} | "
                f"{found.operators:,} of {found.of_operators:,} ({found.operators / found.of_operators:.1%}) | "
                f"{found.networks} of {found.of_networks} ({found.networks / found.of_networks:.1%}) |\n"
            )
    text += DIFFERENCES
    text += "".join(f"| {kind} | {number} | {REASONS.get(kind, OTHER)} |\n" for kind, number in first.most_common())
    rows = pairs()
    compared: Counter[str] = Counter()
    for pair in rows:
        ours, theirs = least_bytes(*layouts(pair), 1), least_of_mindspore(pair)
        compared["more than here" if theirs > ours else "the same" if theirs == ours else "fewer"] += 1
    right = sum(pair["plain"] is not None for pair in rows)
    text += PAIRS_HEAD.format(count=len(rows), right=right)
    text += "".join(f"| {name} | {compared[name]} |\n" for name in ("more than here", "the same", "fewer"))
    return text + TAIL


def main() -> None:
    FILE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
