"""Random members of the families, and random mixes of their ways layer by layer, without the idea of a puzzle."""

import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from lib import Goal, Model
from lib.pipelines.orders import gpipe, one_f_one_b, zb_h1, zb_h2
from tests.catalog.lessons.families.grid import Order, grid, in_halves, long_warm_up, one_by_one
from tests.catalog.lessons.families.replicas import IN_COLLECTIVES, IN_MESSAGES, replicas

ORDERS: tuple[Order, ...] = (gpipe, one_f_one_b, long_warm_up, one_by_one)
HALVES: tuple[Order, ...] = (zb_h1, zb_h2, in_halves(gpipe), in_halves(one_f_one_b))

WAYS = {"zero1": "d3sa", "zero2": "d13sa", "fsdp_prefetch": "d12sha"}
"""By puzzle, the ways that are not its idea; for others all are."""

UNSTOPPED = {"zero1", "zero2"}
"""Puzzles that replicas pass which hold full weights and exchange gradients in messages (`tables.py`)."""


class Mix(NamedTuple):
    """A schedule, and what it is."""

    schedule: Callable[[Model], Awaitable[None]]
    what: str


def random_mix(goal: Goal, choice: random.Random) -> Mix:
    """A schedule without the idea of the goal's puzzle; it may be refused."""
    return choice.choice((_of_replicas, _of_a_grid))(goal, choice)


def _flip(choice: random.Random) -> bool:
    return choice.random() < 0.5


def _of_replicas(goal: Goal, choice: random.Random) -> Mix:
    """Up to three ways, each for some layers."""
    ways = [way for way in WAYS.get(goal.slug, IN_COLLECTIVES + IN_MESSAGES) if _is_priced(goal, way)]
    few = choice.sample(ways, min(len(ways), choice.choice((1, 2, 3))))
    letters = "".join(choice.choice(few) for _ in range(goal.size.layers))
    options = {name: _flip(choice) for name in ("at_once", "early", "sum_first", "prefetch")}
    owners = choice.choice((None, None, 1, 2))
    return Mix(replicas(letters, owners=owners, **options), f"replicas({letters!r}, owners={owners}, {options})")


def _is_priced(goal: Goal, way: str) -> bool:
    needed = {"d": ("allreduce",)} | dict.fromkeys("123", ("allgather", "scatterreduce"))
    return all(map(goal.costs.priced, needed.get(way, ("pass_to",))))


def _of_a_grid(goal: Goal, choice: random.Random) -> Mix:
    """Stages, rows and replicas other than those that the puzzle is about."""
    layers, batches, ranks = goal.size
    stages = choice.choice([n for n in _divisors(ranks) if not layers % n])
    rows = choice.choice(_divisors(ranks // stages)) if goal.setting.layer == "block" else 1
    shape = (stages, rows, ranks // stages // rows)
    if batches % shape[2] or shape == OWN_SHAPE.get(goal.slug):
        return _of_replicas(goal, choice)
    together = choice.choice(_divisors(batches // shape[2]))
    halves = goal.costs.priced("backward_weight")
    order = choice.choice(ORDERS + HALVES if halves else ORDERS)
    zero = choice.choice((0, 1, 3)) if goal.slug not in WAYS else choice.choice((0, 3))
    in_messages = zero == 0 and goal.slug not in UNSTOPPED and _flip(choice)
    schedule = grid(*shape, order, zero=zero, in_messages=in_messages, together=together)
    return Mix(schedule, f"grid{shape}, {order.__qualname__}, {zero=}, {in_messages=}, {together=}")


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if not number % n]


OWN_SHAPE = {
    "one_f_one_b": (4, 1, 1),
    "interleaved": (4, 1, 1),
    "zb_h1": (4, 1, 1),
    "zb_h2": (4, 1, 1),
    "zb_v": (4, 1, 1),
    "tensor_parallel": (1, 4, 1),
    "three_d": (2, 2, 2),
    "axis_inside": (1, 4, 2),
    "tp_limit": (1, 2, 4),
}
"""By puzzle, the stages, rows and replicas that it is about."""
