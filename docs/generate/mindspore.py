"""Writes docs/generate/mindspore.json: what MindSpore's Sharding Propagation chooses for random networks of 8 devices.

    mpirun -n 8 python -P docs/generate/mindspore.py SEED

Asks about the networks of one seed, and replaces them in the file. Each seed has a process of its own, because
MindSpore remembers the cost of a redistribution by its layouts, without the shape of the tensor: in networks of one
shape that changes nothing.

Needs MindSpore 2.10 with 8 devices; its frontend runs before any kernel, so a machine works whose driver and NCCL only
answer. This file imports nothing of the project, because MindSpore's environment does not have it. Tests read the
answers, and build the same networks as graphs (`tests/oracles/mindspore_networks.py`).
"""

from __future__ import annotations

import importlib.util
import json
import random
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_suffix(".json")
DEVICES = 8
PARTS = (1, 2, 4, 8)

Network = dict[str, Any]


class Draw(NamedTuple):
    """How many networks are drawn, and the shape of all their tensors; without one, each has shapes of its own."""

    count: int
    shape: tuple[int, int, int] | None = None
    """The batch of those that are batched, rows and columns."""


DRAWS = {7: Draw(50, (4, 32, 64)), 61: Draw(50, (8, 128, 128)), 99: Draw(50, (8, 64, 256)), 2024: Draw(100)}
"""By seed."""

CELLS = """\
import numpy as np
import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops


class Layer(nn.Cell):
    def __init__(self, op, strategy, weight):
        super().__init__()
        self.op = op if strategy is None else op.shard(strategy)
        self.weight = None if weight is None else Parameter(Tensor(np.ones(weight), ms.float32))


class Weighted(Layer):
    def construct(self, x):
        return self.op(x, self.weight)


class Unary(Layer):
    def construct(self, x):
        return self.op(x)


class Binary(Layer):
    def construct(self, x, y):
        return self.op(x, y)


class Reduced(Layer):
    def construct(self, x):
        return self.op(x, -1)

"""


def network(rng: random.Random, shape: tuple[int, int, int] | None = None) -> Network:
    """A random network with one configured product, or two: layers in the order of the program.

    A layer has its kind, its inputs by name, and the shape of its weight, if it has one.
    """
    size = int(rng.random() < 0.25)  # of the batch
    batches, heights, widths = [[each] for each in shape] if shape else ([4, 8], [32, 64, 128], [64, 128])
    batch = (rng.choice(batches),) * size
    rows, width = rng.choice(heights), rng.choice(widths)
    shapes: dict[str, tuple[int, ...]] = {"x": (*batch, rows, width)}
    layers: list[Network] = []

    def layer(kind: str, inputs: list[str], shape: tuple[int, ...], weight: tuple[int, ...] | None = None, **more: Any):
        name = f"{kind}{sum(each['kind'] == kind for each in layers)}"
        layers.append({"name": name, "kind": kind, "inputs": inputs, "weight": weight, **more})
        shapes[name] = shape
        return name

    def product_of(x: str) -> str:
        columns = width if shape else rng.choice([64, 128, 256])
        *before, inner = shapes[x]
        transposed = rng.random() < 0.3
        weight = (columns, inner) if transposed else (inner, columns)
        more = {"transposed": True} if transposed else {}
        return layer("matmul", [x], (*before, columns), (*batch, *weight), **more)

    def maps(x: str) -> str:
        if rng.random() < 0.5:
            x = layer("add", [x], shapes[x], shapes[x][-1:])
        if rng.random() < 0.5:
            x = layer("relu", [x], shapes[x])
        if rng.random() < 0.15:
            x = layer("softmax", [x], shapes[x])
        return x

    at = "x"
    for _ in range(rng.randint(2, 4)):
        at = maps(product_of(at))
    if shapes[at] == shapes["x"] and rng.random() < 0.4:
        at = layer("plus", [at, "x"], shapes[at])
    elif rng.random() < 0.4:  # two consumers of one tensor that meet again
        fork = at
        left = layer("relu", [fork], shapes[fork]) if rng.random() < 0.5 else product_of(fork)
        right = product_of(fork)
        while shapes[right] != shapes[left]:
            layers.pop()
            right = product_of(fork)
        at = maps(layer("plus", [left, right], shapes[left]))
    if rng.random() < 0.15:
        at = layer(rng.choice(["reduce_sum", "reduce_mean"]), [at], shapes[at][:-1])
    products = [each for each in layers if each["kind"] == "matmul"]
    strategies = {}
    for chosen in rng.sample(products, 2 if rng.random() < 0.25 else 1):
        cuts = [cut for cut in product(PARTS, repeat=size + 3) if _uses(cut) == DEVICES]
        *first, m, k, n = rng.choice([cut for cut in cuts if not size or batch[0] % cut[0] == 0])
        strategies[chosen["name"]] = [[*first, m, k], [*first, *([n, k] if chosen.get("transposed") else [k, n])]]
    return {"x": list(shapes["x"]), "layers": layers, "strategies": strategies}


def _uses(cut: tuple[int, ...]) -> int:
    used = 1
    for each in cut:
        used *= each
    return used


def code(net: Network, number: int) -> str:
    """The network as a cell of MindSpore, with a cell for each layer, so that its strategy is found by name."""
    batched = len(net["x"]) == 3
    made, calls = [], []
    for each in net["layers"]:
        name, kind, weight = each["name"], each["kind"], each["weight"]
        op = {
            "matmul": f"ops.{'Batch' * batched}MatMul(transpose_b={each.get('transposed', False)})",
            "add": "ops.Add()",
            "plus": "ops.Add()",
            "relu": "ops.ReLU()",
            "softmax": "ops.Softmax(-1)",
            "reduce_sum": "ops.ReduceSum()",
            "reduce_mean": "ops.ReduceMean()",
        }[kind]
        cell = "Weighted" if weight else "Binary" if kind == "plus" else "Reduced" if "reduce" in kind else "Unary"
        strategy = tuple(map(tuple, net["strategies"][name])) if name in net["strategies"] else None
        made.append(f"        self.{name} = {cell}({op}, {strategy}, {tuple(weight) if weight else None})")
        calls.append(f"        {name} = self.{name}({', '.join(each['inputs'])})")
    last = net["layers"][-1]["name"]
    return (
        f"class Network{number}(nn.Cell):\n    def __init__(self):\n        super().__init__()\n"
        + "\n".join(made)
        + "\n\n    def construct(self, x):\n"
        + "\n".join(calls)
        + f"\n        return {last}\n\n\n"
    )


def ask(nets: list[Network], full: bool) -> list[dict[str, Any]]:
    """MindSpore's strategy of every layer by name."""
    import mindspore as ms
    import numpy as np
    from mindspore.common.api import _cell_graph_executor

    ms.set_algo_parameters(fully_use_devices=full)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cells.py"
        path.write_text(CELLS + "".join(code(net, i) for i, net in enumerate(nets)), encoding="utf-8")
        spec = importlib.util.spec_from_file_location("cells", path)
        cells = importlib.util.module_from_spec(spec)
        sys.modules["cells"] = cells
        spec.loader.exec_module(cells)
        answers: list[dict[str, Any]] = []
        for i, net in enumerate(nets):
            cell = getattr(cells, f"Network{i}")()
            cell.set_train()
            x = ms.Tensor(np.ones(net["x"]), ms.float32)
            try:
                _cell_graph_executor.compile(cell, x, phase="train", do_convert=False)
            except RuntimeError as why:  # without devices some fail later; the strategies are chosen by then
                print(i, str(why)[:150].replace("\n", " "), file=sys.stderr, flush=True)
            found = _cell_graph_executor._get_shard_strategy(cell)
            by_layer: dict[str, Any] = {}
            for key, strategy in found.items():
                for part in key.split("/"):
                    name = part.partition("-")[0]
                    if any(each["name"] == name for each in net["layers"]):
                        by_layer[name] = strategy
            answers.append(by_layer)
    return answers


def drawn(seed: int) -> list[Network]:
    """The networks of a seed."""
    count, shape = DRAWS[seed]
    rng = random.Random(seed)
    nets: list[Network] = json.loads(json.dumps([network(rng, shape) for _ in range(count)]))
    return nets


def main(seed: int) -> None:
    import mindspore as ms
    import mindspore.communication as communication

    ms.set_context(mode=ms.GRAPH_MODE, device_target="GPU")
    communication.init()
    ms.set_auto_parallel_context(
        parallel_mode="auto_parallel",
        search_mode="sharding_propagation",
        device_num=DEVICES,
        global_rank=communication.get_rank(),
        full_batch=True,
    )
    nets = [{"seed": seed, **net} for net in drawn(seed)]
    for net, full, some in zip(nets, ask(nets, True), ask(nets, False)):
        net["full"], net["some"] = full, some
    if communication.get_rank() == 0:
        known = json.loads(FILE.read_text(encoding="utf-8"))["networks"] if FILE.exists() else []
        write([net for net in known if net["seed"] != seed] + nets, ms.__version__)


def write(nets: list[Network], version: str) -> None:
    """The file, a line for each network."""
    lines = ",\n".join(json.dumps(net, separators=(",", ":")) for net in nets)
    FILE.write_text(f'{{"mindspore": "{version}", "networks": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main(int(sys.argv[1]))
