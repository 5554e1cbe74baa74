"""Runs of the extended games that are replayed on tensors."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from lib import COSTS, Model, Setting, Trace
from lib import pipelines as schedules
from solutions.fsdp_prefetch import fsdp_prefetch
from tests.catalog.lessons.families.replicas import buckets, passes
from tests.ledger.test_altered_traces import TAGGED, ring
from tests.pipelines.test_player import KNOWN
from tests.support import finished
from tests.support.schedules import groups, tiers
from tests.support.step_costs import STEP_COSTS


class Game(NamedTuple):
    """A schedule, at a size and in a setting."""

    schedule: Callable[[Model], Any]
    size: tuple[int, int, int]
    setting: Setting

    def trace(self) -> Trace:
        return finished(self.schedule, *self.size, setting=self.setting).trace


OVERLAP = Setting(STEP_COSTS["overlap"])
ISLANDS = Setting(STEP_COSTS["islands"], mesh=(("replica", 2), ("shard", 2)))
LANES = Setting(replace(STEP_COSTS["overlap"], name="lanes", lanes="group"), mesh=(("all", 3),))


async def tangle(model: Model) -> None:
    """Data parallel training of one layer on three ranks, after calls that could not all block where they are made,
    nor where they are awaited."""

    def zero() -> Any:
        return model.fake_grad(0, [])

    if model.rank == 0:
        first, second = model.allreduce(zero(), 0, group=[0, 1]), model.allreduce(zero(), 0, group=[0, 2])
        third = model.allreduce(zero(), 0)
        await model.receive(2)
        for call in (third, second, first):
            await call
    elif model.rank == 1:
        await model.receive(2)  # sent after rank 2 has met rank 0
        await model.allreduce(zero(), 0, group=[0, 1])
        await model.allreduce(zero(), 0)
    else:
        await model.allreduce(zero(), 0, group=[0, 2])
        await model.pass_to(1, zero())
        await model.allreduce(zero(), 0)
        await model.pass_to(0, zero())  # read by rank 0 before it awaits what it meets this rank in
    weight, state = model.load_weights(0)
    inp = model.get_activation([model.rank])
    grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
    model.set_final_weight(0, model.update(0, await model.allreduce(grad, 0), weight, state)[0])


GAMES: dict[str, Game] = {
    **{name: Game(schedule, size, setting) for name, schedule, size, setting, *_ in KNOWN},
    "gpipe": Game(schedules.pipeline(schedules.gpipe), (3, 4, 3), Setting(COSTS["stages"], steps=2)),
    "ddp_overlap": Game(buckets(1, 2, 1), (4, 4, 4), OVERLAP),
    "fsdp_prefetch": Game(fsdp_prefetch, (4, 4, 4), OVERLAP),
    "fsdp_prefetch_late": Game(passes(1, prefetch=False), (3, 4, 4), OVERLAP),
    "hybrid_shard": Game(groups.hybrid_shard, (3, 4, 4), ISLANDS),
    "hybrid_shard_kept": Game(groups.hybrid_shard_keeping_the_last, (3, 4, 4), ISLANDS),
    "ring": Game(ring, (3, 2, 2), TAGGED),
    "moved": Game(tiers.moved, (1, 2, 1), Setting(tiers.TWO_TIERS)),
    "tangle": Game(tangle, (1, 3, 3), LANES),
}
"""Every schedule of `tests.support.schedules`, by name."""


@cache
def trace_of(name: str) -> Trace:
    return GAMES[name].trace()
