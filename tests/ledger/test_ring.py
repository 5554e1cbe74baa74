"""What a rank sends in each operation, by the formulas of the ring, written down."""

from __future__ import annotations

import pytest

from lib.ledger.costs import elements_sent, hops

SENT = {
    "allreduce": {1: 0, 2: 120, 4: 180},
    "scatterreduce": {1: 0, 2: 60, 4: 90},
    "dispatch": {1: 0, 2: 60, 4: 90},
    "allgather": {1: 0, 2: 120, 4: 360},
    "broadcast": {1: 0, 2: 120, 4: 120},
    "reduce": {1: 0, 2: 120, 4: 120},
    "pass_to": {2: 120},
    "forward": {1: 0, 4: 0},
}
"""Of 120 elements, by the number of ranks."""


@pytest.mark.parametrize("operation", SENT)
def test_a_rank_sends_what_the_ring_says(operation: str) -> None:
    assert {ranks: elements_sent(operation, 120, ranks) for ranks in SENT[operation]} == SENT[operation]


def test_hops_follow_each_other() -> None:
    assert [hops(operation, 4) for operation in ("allreduce", "allgather", "pass_to", "receive")] == [6, 3, 1, 0]
