"""The classic interface in a live kernel, cell by cell: a notebook written for the original runs unchanged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kernel import Kernel, live_kernel


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with live_kernel() as kernel:
        yield kernel


CELLS: list[tuple[str, str, list[str]]] = [
    (
        "the imports of old",
        """
import asyncio
import chalk
from typing import List
from chalk import vcat
from lib import Model, Dist, WeightGrad
from drawing import draw, draw_group
chalk.set_svg_height(300)
chalk.set_svg_draw_height(500)
""",
        [],
    ),
    (
        "a model and its five dictionaries",
        """
model = Model(layers=3, batches=6)
weights, opt_states, activations, grad_activations, grad_weights = model.storage()
activations[0] = model.get_activation(batches=[1, 4, 5])
activations[0]
""",
        ["text/html"],
    ),
    (
        "weights are loaded and shown",
        """
for i in range(model.LAYERS):
    weights[i], opt_states[i] = model.load_weights(i)
weights[2]
""",
        ["text/html"],
    ),
    (
        "forward, by name",
        """
for i in range(model.LAYERS):
    activations[i + 1] = model.forward(layer=i, inp=activations[i], weight=weights[i])
draw_group(activations)
""",
        ["text/html"],
    ),
    (
        "loss and backward",
        """
grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
for i in (2, 1, 0):
    grad_weights[i], grad_activations[i] = model.backward(i, activations[i], grad_activations[i + 1], weights[i])
print(model.log[-1].typ, model.log[-1].layer, model.time, sorted(grad_weights[0].batches))
""",
        ["backward 0 18.0 [1, 4, 5]"],
    ),
    (
        "del frees memory",
        """
before = model.memory()
del grad_activations[1]
print(before - model.memory())
model.status()
draw_group(grad_weights)
""",
        ["393216", "rank 0, t=18", "weights[0]: weight of layer 0", "text/html"],
    ),
    (
        "an update without all batches is refused, as an AssertionError",
        """
try:
    model.update(0, weight_grad=grad_weights[0], weight=weights[0], opt_state=opt_states[0])
except AssertionError as e:
    print("Refused:", e)
""",
        ["Refused: rank 0, t=18, update(layer=0): ", "only batches 1, 4, 5 of 6", "first add batches 0, 2, 3"],
    ),
    (
        "pretending to have the others, and the update",
        """
for i in range(model.LAYERS):
    grad_weights[i, 0] = model.fake_grad(i, [0, 2, 3])
    grad_weights[i] = grad_weights[i] + grad_weights[i, 0]
    weights[i], opt_states[i] = model.update(i, weight_grad=grad_weights[i], weight=weights[i],
                                             opt_state=opt_states[i])
    model.set_final_weight(i, weights[i])
Model.check([model])
""",
        ["Correct! 19 timesteps", "fake_grad", "you may explore with it, but a puzzle refuses it"],
    ),
    ("the picture of the run", "draw([model])", ["Timesteps: 19", "Maximum Memory:", "at GPU: 0", "text/html"]),
    ("the final weights", "draw_group(model.final_weights)", ["text/html"]),
    (
        "hand-made gradients add up",
        """
ranks = 3
made = [WeightGrad(0, 1, {i}, ranks) for i in range(ranks)]
print((made[0] + made[1] + made[2]).is_complete())
""",
        ["True"],
    ),
    (
        "allreduce with top-level await",
        """
async def reduce_mine(model):
    return await model.allreduce(made[model.rank], 0)

dist = Dist(ranks)
out = await asyncio.gather(*[reduce_mine(Model(layers=1, batches=1, rank=i, dist=dist)) for i in range(ranks)])
print([sorted(grad.batches) for grad in out])
out[0]
""",
        ["[[0, 1, 2], [0, 1, 2], [0, 1, 2]]", "text/html"],
    ),
    (
        "shards of another model, combined and gathered",
        """
other = Model(layers=2, batches=1, rank=0, dist=Dist(1))
parts = [other.load_weights(0, shard=i, total=ranks)[0] for i in range(ranks)]
print(sorted(parts[0].combine(parts[2]).shards), parts[0].is_complete())

async def gather_mine(model):
    return await model.allgather(parts[model.rank], 0)

dist = Dist(ranks)
out = await asyncio.gather(*[gather_mine(Model(layers=1, batches=1, rank=i, dist=dist)) for i in range(ranks)])
print(out[1].is_complete())
""",
        ["[0, 2] False", "True"],
    ),
    (
        "scatterreduce",
        """
grads = {i: WeightGrad(0, 1, batches={i}, total_batches=ranks, shards={0, 1, 2}, total=3) for i in range(ranks)}

async def scatter_mine(model):
    return await model.scatterreduce(grads[model.rank], 0)

dist = Dist(ranks)
out = await asyncio.gather(*[scatter_mine(Model(layers=1, batches=1, rank=i, dist=dist)) for i in range(ranks)])
print([(sorted(grad.shards), len(grad.batches)) for grad in out])
""",
        ["[([0], 3), ([1], 3), ([2], 3)]"],
    ),
    (
        "two ranks talk",
        """
async def talk(model):
    if model.rank == 0:
        await model.pass_to(1, "which size?")
        print(await model.receive())
    else:
        print(await model.receive())
        await model.pass_to(0, ("large", [model.get_activation([0])]))

dist = Dist(2)
result = await asyncio.gather(*[talk(Model(layers=1, batches=1, rank=i, dist=dist)) for i in range(2)])
""",
        ["which size?\n('large', [Activation(0, 1, {0}, 1)])"],
    ),
    (
        "a whole puzzle in the classic style",
        """
async def train(model):
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    activations[0] = model.get_activation([model.rank])
    for l in range(model.LAYERS):
        weights[l], opt_states[l] = model.load_weights(l)
        activations[l + 1] = model.forward(l, activations[l], weights[l])
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    for l in reversed(range(model.LAYERS)):
        grad_weights[l], grad_activations[l] = model.backward(l, activations[l], grad_activations[l + 1], weights[l])
        grad_weights[l] = await model.allreduce(grad_weights[l], l)
        weights[l], opt_states[l] = model.update(l, grad_weights[l], weights[l], opt_states[l])
        model.set_final_weight(l, weights[l])
    return model

dist = Dist(ranks)
out = await asyncio.gather(*[train(Model(layers=2, batches=ranks, rank=i, dist=dist)) for i in range(ranks)])
Model.check(out)
""",
        ["Correct! 5.1 timesteps"],
    ),
    ("its picture", "draw(out)", ["Timesteps: 5.1", "at GPU: 0 time:", "text/html"]),
    (
        "a rank that returns early hangs nobody",
        """
async def early(model):
    if model.rank != 1:
        await model.allgather(model.load_weights(0, model.rank, model.RANKS)[0], 0)

dist = Dist(ranks)
await asyncio.gather(*[early(Model(layers=1, batches=1, rank=i, dist=dist)) for i in range(ranks)])
""",
        [
            "DeadlockError: rank 0, t=0, allgather(layer=0): nobody can move: ranks 0, 2 wait in allgather(layer=0) "
            "on line"
        ],
    ),
    (
        "no task is left running",
        "print(sum('early' in repr(task) for task in asyncio.all_tasks()))",
        ["0"],
    ),
]


@pytest.mark.slow
def test_the_tour_runs_cell_by_cell(kernel: Kernel) -> None:
    for title, cell, expected in CELLS:
        shown = kernel.run(cell)
        assert [part for part in expected if part not in shown] == [], f"{title}: {shown}"
        assert expected or not shown, f"{title}: {shown}"
