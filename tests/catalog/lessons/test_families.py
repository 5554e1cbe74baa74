"""The families of skips are no straw men: of each family the member that has a puzzle's idea passes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from lib import Model
from lib.schedules.orders import dualpipev, interleaved, one_f_one_b, v_half, zb_h1, zb_h2, zb_v
from puzzles.catalog.schedule import PUZZLES
from tests.catalog.lessons.families.buckets import buckets
from tests.catalog.lessons.families.grid import grid
from tests.catalog.lessons.families.host_plans import host_plan
from tests.catalog.lessons.families.infer import infer
from tests.catalog.lessons.families.inputs import inputs
from tests.catalog.lessons.families.load_again import load_again
from tests.catalog.lessons.families.local import local
from tests.catalog.lessons.families.passes import passes
from tests.catalog.lessons.families.replicas import replicas
from tests.catalog.lessons.judged import judged, missed
from tests.support.schedules.splits import uneven

TAUGHT: Mapping[str, Callable[[Model], Any]] = {
    "ddp": replicas("d"),
    "wsdp": replicas("3", reduce="all-reduce and cut"),
    "fsdp": replicas("3"),
    "pipeline": grid(4, together=4),
    "gpipe": grid(4),
    "zero1": replicas("1"),
    "zero2": replicas("2"),
    "checkpoint": inputs("aaakaakkk"),
    "offload": inputs("apppppkk"),
    "one_f_one_b": grid(4, order=one_f_one_b),
    "interleaved": grid(4, order=interleaved, chunks=2),
    "zb_h1": grid(4, order=zb_h1),
    "zb_h2": grid(4, order=zb_h2),
    "zb_v": grid(4, order=zb_v),
    "ddp_overlap": buckets(2, 2, 2),
    "fsdp_prefetch": replicas("3", prefetch=True),
    "stream_inference": infer("hhhhhhhh"),
    "tensor_parallel": grid(1, 4),
    "three_d": grid(2, 2, 2),
    "hybrid_shard": replicas("3", axis="shard"),
    "local_sgd": local(4),
    "fsdp_bound": passes(4),
    "axis_inside": grid(1, 4, 2),
    "tp_limit": grid(1, 2, 4),
    "uneven_stages": uneven((3, 3, 3, 1)),
    "v_half": grid(8, order=v_half),
    "two_ways": grid(4, order=dualpipev),
    "bucket_size": buckets(4, 4, 4, 4),
    "park_or_recompute": host_plan("papapkk"),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("slug", [*TAUGHT])
def test_the_member_with_the_idea_meets_every_target(slug: str) -> None:
    report = judged(TAUGHT[slug], PUZZLES[slug].goal)
    assert missed(report) <= {"record"}
    assert report.status == "passed"


def test_a_schedule_that_loads_again_is_told_from_one_that_keeps_its_weights() -> None:
    goal = PUZZLES["zero1"].goal
    kept, again = judged(TAUGHT["zero1"], goal), judged(load_again(TAUGHT["zero1"]), goal)
    assert again.peak.memory < kept.peak.memory == kept.lasting_peak < again.lasting_peak
