"""What the tables share: their type, data parallelism by messages, and the all-reduce in place of a reduce-scatter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lib import Model
from lib.pipelines.orders import one_f_one_b
from tests.catalog.lessons.families.grid import grid
from tests.catalog.lessons.families.orders import Order
from tests.catalog.lessons.families.replicas import replicas

Skip = tuple[Callable[[Model], Any], set[str]]
"""A schedule, and the targets that it misses: "time", "memory", "traffic", "drift", "host" or "steady" (the peak in
steady state, or a step that cannot be repeated). "record": it meets all, but does not get three stars."""

Skips = Mapping[str, Mapping[str, Skip]]
"""By puzzle, by name."""

CUT = "all-reduce and cut"

SEND, SEND_AT_ONCE = replicas("s"), replicas("s", at_once=True)
HOLD, HOLD_AT_ONCE = replicas("h"), replicas("h", at_once=True)
AGAIN, AGAIN_AT_ONCE = replicas("a"), replicas("a", at_once=True)

MESSAGES = {
    "owners send, all microbatches together": SEND_AT_ONCE,
    "owners send": SEND,
    "whole weights stay, all microbatches together": HOLD_AT_ONCE,
    "whole weights stay, owners send new ones": HOLD,
    "load again, all microbatches together": AGAIN_AT_ONCE,
    "load again": AGAIN,
}


def all_messages(*missed: str) -> dict[str, Skip]:
    """Data parallelism by messages in its six forms, with the targets that each misses, as in "time traffic"."""
    assert len(missed) == len(MESSAGES)
    return {name: (schedule, set(each.split())) for (name, schedule), each in zip(MESSAGES.items(), missed)}


def two_by_two(order: Order = one_f_one_b) -> Callable[[Model], Any]:
    """Two pipelines of two stages, with full weights on both."""
    return grid(2, 1, 2, order, in_messages=True)
