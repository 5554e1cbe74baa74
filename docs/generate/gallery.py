"""The pictures of README and docs/pictures.md: `make docs` draws them again, a test checks that they are current."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from docs.generate import architecture, field
from drawing import Attempt, Picture, draw, draw_compare, draw_group, draw_network, draw_pareto, save, svg
from drawing.layout_graph import draw_plan, draw_plans, draw_propagation
from drawing.layout_tensor import draw_holders, draw_layout, draw_redistribution
from lib import Activation, ActivationGrad, Model, OptState, Outcome, Weight, WeightGrad, referee, run
from lib.layout import complete, distribute, mesh, mesh_split, propagate, redistribute
from lib.layout.examples import one_matmul
from puzzles.catalog.schedule import PUZZLES
from puzzles.tracks.layout import LAYOUT_PUZZLES

FOLDER = Path(__file__).parents[1] / "pictures"


def solved(slug: str, module: str = "") -> Outcome:
    """A run of a reference solution, or of another module's schedule, at the puzzle's size."""
    schedule, goal = getattr(import_module(f"solutions.{module or slug}"), slug), PUZZLES[slug].goal
    return run(schedule, *goal.size, setting=goal.setting)


# --- Runs that are hard to draw ---


def idle_rank(model: Model) -> None:
    """Rank 1 has nothing to do, rank 2 has one event."""
    weight, _ = model.load_weights(0)
    for _ in range((3, 0, 1)[model.rank]):
        model.forward(0, model.get_activation([0]), weight)


def hidden_memory(model: Model) -> None:
    """Values that are not stored still count as memory, and are hatched."""
    weights = [model.load_weights(layer) for layer in range(model.LAYERS)]
    activations = [model.get_activation([0, 1])]
    for layer, (weight, _) in enumerate(weights):
        activations.append(model.forward(layer, activations[-1], weight))
        model.activations[layer] = activations[layer]
    grad = model.loss(activations[-1])
    for layer in reversed(range(model.LAYERS)):
        weight, state = weights[layer]
        weight_grad, grad = model.backward(layer, activations[layer], grad, weight)
        model.weights[layer], model.opt_states[layer] = model.update(layer, weight_grad, weight, state)
        model.set_final_weight(layer, model.weights[layer])
        del model.activations[layer]


async def without_memory(model: Model) -> None:
    """Messages without values take no memory; this text must be escaped."""
    if model.rank == 0:
        await model.pass_to(1, "<script>alert('pizza')</script>")
        await model.pass_to(2, '"extra" & cheese')
    else:
        await model.receive()


async def gathered(model: Model) -> None:
    """Forward through weights that all ranks share."""
    activation = model.get_activation([model.rank % model.BATCHES])
    for layer in range(model.LAYERS):
        shard, _ = model.load_weights(layer, model.rank, model.RANKS)
        weight = await model.allgather(shard, layer)
        activation = model.forward(layer, activation, weight)


def staircase(model: Model) -> None:
    """Every rank does more than the one before, so no two share a row."""
    weight, activation = model.load_weights(0)[0], model.get_activation([0])
    for _ in range(model.rank):
        model.forward(0, activation, weight)


def forward_often(model: Model) -> None:
    weight, _ = model.load_weights(0)
    activation = model.get_activation([0])
    for _ in range(10_000 // model.RANKS):
        model.forward(0, activation, weight)


def one_layer(model: Model) -> None:
    weight, state = model.load_weights(0)
    inp = model.get_activation([0])
    grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
    model.set_final_weight(0, model.update(0, grad, weight, state)[0])


ODD: dict[str, tuple[Callable[[Model], Any], tuple[int, int, int], str]] = {
    "idle_rank": (idle_rank, (1, 1, 3), "An idle rank, and one with a single event"),
    "hidden_memory": (hidden_memory, (3, 2, 1), "Values kept outside the dictionaries"),
    "without_memory": (without_memory, (1, 1, 3), "No memory; <script>alert('text')</script> & \"quotes\""),
    "one_layer": (one_layer, (1, 1, 1), "One layer"),
    "many_layers": (gathered, (130, 1, 2), "130 layers"),
}
"""By name: a schedule; its layers, batches and ranks; and a title."""


# --- The gallery ---

COLOURED = [
    ("one_f_one_b", "one_f_one_b_microbatches", "microbatch"),
    ("interleaved", "interleaved_microbatches", "microbatch"),
    ("zb_h2", "zb_h2_operations", "operation"),
    ("zb_v", "zb_v_operations", "operation"),
]
"""A puzzle, the file of its picture, and what the colours show."""


def pictures() -> Iterator[tuple[str, Picture]]:
    """Every picture with its file's name."""
    for slug, puzzle in PUZZLES.items():
        yield slug, draw(solved(slug), puzzle.title, goal=puzzle.goal)
    yield "architecture", architecture.picture()
    gpipe, fsdp = PUZZLES["gpipe"], PUZZLES["fsdp"]
    yield "critical", draw(solved("gpipe"), "The critical path of GPipe", critical=True, goal=gpipe.goal)
    yield "dark", draw(solved("fsdp"), fsdp.title, goal=fsdp.goal, dark=True)
    for slug, name, colour in COLOURED:
        puzzle = PUZZLES[slug]
        yield name, draw(solved(slug), puzzle.title, goal=puzzle.goal, colour=colour)
    yield "against", against()
    yield "pareto", pareto()
    yield "values", draw_group(values())
    yield "network", draw_network(solved("fsdp").models[2])
    yield from layouts()
    for name, (schedule, size, title) in ODD.items():
        yield name, draw(run(schedule, *size), title)
    yield from field.pictures()
    yield "many_ranks", draw(on_64_ranks(), "3D parallelism on 64 ranks: 4 replicas of 4 stages, each on 4 ranks")


def on_64_ranks() -> Outcome:
    """The puzzle three_d on a larger mesh, where ranks share rows."""
    setting = replace(PUZZLES["three_d"].goal.setting, mesh={"dp": 4, "pp": 4, "tp": 4})
    return run(import_module("solutions.three_d").three_d, 4, 16, 64, setting=setting)


def against() -> Picture:
    names = ("GPipe", "each batch in laps")
    other = solved("gpipe", "records.gpipe_laps")
    goal = PUZZLES["gpipe"].goal
    return draw_compare(solved("gpipe"), other, "Two orders of the same work", names, goal=goal)


def pareto() -> Picture:
    goal = PUZZLES["gpipe"].goal
    attempt = Attempt("the reference solution", referee(solved("gpipe").trace, goal))
    return draw_pareto(goal, [attempt], PUZZLES["gpipe"].title)


def values() -> dict[str, Any]:
    return {
        "weight": Weight(1, 4, 0),
        "its shard 2 of 4": Weight(1, 4, 0, {2}, 4),
        "updated": Weight(1, 4, 1),
        "optimizer state": OptState(1, 4, 0),
        "activation": Activation(2, 4, {0, 1}, 4),
        "its gradient": ActivationGrad(1, 4, {0, 1}, 4),
        "weight gradient": WeightGrad(1, 4, {0, 1}, 4),
        "scattered gradient": WeightGrad(1, 4, {0, 1, 2, 3}, 4, {3}, 4),
    }


def layouts() -> Iterator[tuple[str, Picture]]:
    """The layout track: where a tensor lives, how it moves, and what a graph pays, by the rule and solved."""
    matmul = one_matmul(devices=8).operators["matmul"]
    yield "layout_tensor", draw_layout(distribute(matmul, ((2, 1), (1, 4)), 8).inputs[1], "The second factor")
    source, target = (mesh_split((6, 6), mesh(x=n, y=6 // n), ("x", "y")) for n in (2, 3))
    yield "layout_moves", draw_redistribution(redistribute(source, target), "From 2x3 to 3x2 devices")
    ffn = LAYOUT_PUZZLES["ffn"]
    graph, limits = ffn.graph(), {"target": ffn.target, "cap": ffn.memory_cap}
    yield (
        "layout_propagated",
        draw_plan(propagate(graph), "The rule: the cheapest edge first", given=ffn.given, **limits),
    )
    yield "layout_steps", draw_propagation(propagate(graph))
    import_module("solutions.layout.ffn").ffn(graph)
    yield "layout_plan", draw_plan(propagate(graph), ffn.title, given=ffn.given, **limits)
    yield "layout_holders", draw_holders(propagate(graph), cap=ffn.memory_cap)
    for slug in ("fsdp_mlp", "sequence_ends", "vocabulary_ends"):
        puzzle = LAYOUT_PUZZLES[slug]
        graph = puzzle.graph()
        getattr(import_module(f"solutions.layout.{slug}"), slug)(graph)
        plans = {"Ends propagated as GSPMD does": complete(puzzle.graph(), {}).plan, puzzle.title: propagate(graph)}
        yield f"layout_{slug}", draw_plans(plans, f"{puzzle.title}, beside GSPMD", cap=puzzle.memory_cap)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, picture in pictures():
        with redirect_stdout(io.StringIO()):
            save(picture, FOLDER / f"{name}.svg")
        print(f"{name}.svg", len(svg(picture)), file=sys.stderr)


if __name__ == "__main__":
    main()
