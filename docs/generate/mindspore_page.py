"""Writes docs/mindspore.md, propagation beside MindSpore's: `make docs`.

MindSpore's side is data, which `mindspore.py` wrote; ours is computed.
"""

from __future__ import annotations

from pathlib import Path

from docs.generate import mindspore
from tests.oracles.mindspore_networks import SETTINGS, Agreement, agreement, data, remembering_costs

FILE = Path(__file__).parents[1] / "mindspore.md"

HEAD = """\
# MindSpore beside this

MindSpore's documentation is where Sharding Propagation is defined. This page compares the choices of MindSpore
{version} itself with `propagate`, on random networks. [Layouts](layout.md) has the same for Tensor Redistribution.

`propagate(graph)` chooses strategies as MindSpore does with `fully_use_devices=True`, the default of version 2.1: an
operator uses all devices or one. `propagate(graph, full=False)` allows any number of devices, as version 2.10 does by
default.

## The rule

- **Order.** From one configured operator after the other, in the order of the program, the rule goes breadth first: to
  the consumers, the last one first, then to the producers. It does not go beyond another configured operator.
- **Waiting.** A consumer with several inputs, weights included, waits until all of them are settled, or until nothing
  else is left to visit. Then the first one that waits is settled by the edges from its settled inputs.
- **Costs of an edge.** A redistribution gathers and slices. Communication comes first: half of what each gather yields
  in forward, half of its pieces in backward. Each sum up to 2,048 bytes counts as 3,072; a longer one gets 1,024 more.
  Then comes copying: the pieces that are sliced, gathered and reshaped.
- **Equal edges.** Along an edge, the least all-reduce of the operator's own sums wins, then the most parts, then more
  parts of the first dimensions. An operator that waited compares its computation first, the bytes of its inputs; then
  its sums, then fewer parts of the first dimensions.
- **Kept layouts.** An operator that maps elements may keep a neighbor's layout, on the same device matrix.

## What was compared

The networks are random chains on 8 devices with one or two configured products: products, some of them batched or
with a transposed weight, biases, relu, softmax, residuals, branches that meet again, and reductions. Layer
normalization is missing: here it consists of several operators.

| tensors | setting | operators as MindSpore | networks as MindSpore |
|---|---|---|---|
"""

DIFFERENCES = """
All differences are in networks whose tensors have different shapes, and have one reason. MindSpore remembers what a
redistribution costs by its two layouts, without the shape of the tensor, as long as the process lives. So its answer
for a network depends on the networks that it was asked about before. Where all tensors have one shape, that changes
nothing. Imitated here, in the same order of networks, it explains the differences:

| setting | operators as MindSpore | networks as MindSpore |
|---|---|---|
"""

TAIL = """
One network is left. Asked about it in a process of its own, MindSpore chooses as `propagate` does.

## Ask MindSpore again

`docs/generate/mindspore.py SEED` asks about the networks of a seed, and writes them to its file. It needs MindSpore for
GPUs and 8 ranks, but no GPU: a preloaded library that answers CUDA and NCCL with "8 devices" and "done" is enough,
because strategies are chosen before any kernel is compiled. Then `make docs` writes this page.
"""


def row(found: Agreement, *head: str) -> str:
    """A line of a table."""
    operators = f"{found.operators:,} of {found.of_operators:,} ({found.operators / found.of_operators:.1%})"
    networks = f"{found.networks} of {found.of_networks} ({found.networks / found.of_networks:.1%})"
    return f"| {' | '.join((*head, operators, networks))} |\n"


def page() -> str:
    """The page, from the file."""
    read = data()
    by_seed = {seed: [each for each in read["networks"] if each["seed"] == seed] for seed in mindspore.DRAWS}
    text = HEAD.format(version=read["mindspore"])
    for seed, (_, shape) in mindspore.DRAWS.items():
        tensors = f"{shape[1]} by {shape[2]}, some with a batch of {shape[0]}" if shape else "different shapes"
        for setting, full in SETTINGS.items():
            text += row(agreement(setting, by_seed[seed]), tensors, f"`full={full}`")
    text += DIFFERENCES
    mixed = [each for seed, (_, shape) in mindspore.DRAWS.items() if shape is None for each in by_seed[seed]]
    with remembering_costs():
        for setting, full in SETTINGS.items():
            text += row(agreement(setting, mixed), f"`full={full}`")
    return text + TAIL


def main() -> None:
    FILE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
