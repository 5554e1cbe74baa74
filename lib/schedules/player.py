"""One coroutine that plays any timetable: layers in stages, stages on ranks, microbatch after microbatch."""

from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import Any

from lib import CLASSIC_SETTING, Model
from lib.errors import RuleError
from lib.values.base import object_text

from .feasibility import untagged
from .rank_kinds import TokenShareRank, UnflushedRank
from .timetable import Timetable
from .timetable_rank import TimetableRank

Order = Callable[..., Timetable]
"""From ranks, microbatches and what else an order is made of: its timetable."""


def pipeline(
    order: Timetable | Order,
    *,
    recompute: bool = False,
    sharded: bool = False,
    buffered: bool = False,
    flush: bool = True,
    **sizes: int,
) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """The schedule that plays an order, such as `pipeline(one_f_one_b)` or `pipeline(interleaved, v=2)`.

    An order is asked for the ranks and microbatches of the game, and gets `sizes` besides. Each stage has equally many
    layers. In a game of several steps the order is repeated, and nothing waits between two steps. Without `flush` one
    order has the microbatches of all steps, and weights are as old as the game allows (`Setting.lag`): 2BW is
    `pipeline(one_f_one_b, flush=False)` (Narayanan et al. 2021). Where layers are attention, an order of several times
    the microbatches computes shares of their tokens, as `pipeline(seq1f1b, shares=4)` does.

    `recompute` keeps only a stage's input, and computes the rest again before its backward (Chen et al. 2016).
    On a mesh with the axes pp and dp each replica is a pipeline with its part of the microbatches; gradients are summed
    along dp at the end. `sharded` cuts weights and states along dp, and a rank holds the whole weights of one stage at
    a time (ZeRO-3): each time that it goes to another stage, gradients are scattered and weights gathered.
    `buffered` gives each message a tag of its own, so that none waits until the one before it is read. Where costs have
    overlap, messages then travel while their sender goes on.

    Raises:
        RuleError: what is given is no order, or a timetable, which has its sizes, with others. In a run: the game has
            another size than the timetable, or the order is refused.
    """
    if not isinstance(order, Timetable) and not callable(order):
        raise RuleError(f"pipeline takes an order, such as one_f_one_b, or a timetable; got {object_text(order)}")
    if isinstance(order, Timetable) and sizes:
        raise RuleError(f"a timetable has its sizes already; leave out {', '.join(sizes)}")

    async def schedule(model: Model) -> None:
        setting = model.dist.setting
        axes = dict(setting.mesh) or {"pp": model.RANKS}
        ranks, replicas = axes.get("pp", 1), axes.get("dp", 1)
        batches, left = divmod(model.BATCHES, replicas)
        if left:
            raise RuleError(f"{model.BATCHES} microbatches cannot be dealt to {replicas} replicas; take a multiple")
        in_order = batches if flush else batches * setting.steps
        table = order if isinstance(order, Timetable) else _made(order, ranks, in_order, **sizes)
        shares = table.batches // in_order if setting.layer == "attention" else 1
        _require_fit(table, model.LAYERS, ranks, in_order * max(shares, 1))
        if shares > setting.shares:
            raise RuleError(f"this order cuts a sequence into {shares} shares; the game has {setting.shares}")
        if not flush and (sharded or setting.layer == "attention"):
            raise RuleError("an order without a flush is played with full weights and layers that are not attention")
        if (buffered or table.tag is not untagged) and setting == CLASSIC_SETTING:
            raise RuleError(
                "this order needs messages with tags, which the classic costs lack; take others, such as stages"
            )
        kind = TokenShareRank if setting.layer == "attention" else TimetableRank if flush else UnflushedRank
        await kind(model, table, recompute, sharded, buffered).train()

    return schedule


@lru_cache(16)
def _made(order: Order, ranks: int, batches: int, **sizes: int) -> Timetable:
    return order(ranks, batches, **sizes)


def _require_fit(table: Timetable, layers: int, ranks: int, batches: int) -> None:
    if (table.ranks, table.batches) != (ranks, batches):
        raise RuleError(
            f"this timetable is for {table.ranks} ranks and {table.batches} microbatches; the game has {ranks} and "
            f"{batches}"
        )
    if layers % table.stages:
        raise RuleError(
            f"{layers} layers cannot be cut into {table.stages} equal stages; take a multiple of {table.stages} layers"
        )
