"""What the reference solutions score at the sizes that are not shown: a schedule that works there should come near."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lib import Size

TOLERANCE = 1.25
"""A schedule at another size is noted if its timesteps times its memory are more than so many times the reference's.
The product leaves it free to trade one for the other; of the records none comes near."""


class ReferenceAt(NamedTuple):
    """What the reference of a puzzle scores at a size that is not shown: timesteps, and peak memory in elements."""

    size: Size
    timesteps: float
    peak_memory: int

    def is_far_ahead_of(self, timesteps: float, peak_memory: int) -> bool:
        """True if these figures at the same size are much worse."""
        return timesteps * peak_memory > TOLERANCE * self.timesteps * self.peak_memory


REFERENCE_FIGURES: Mapping[str, Mapping[tuple[int, int, int], tuple[float, int]]] = {
    "basic": {
        (3, 2, 1): (13.0, 2_621_440),
        (5, 6, 1): (62.0, 7_340_032),
    },
    "grad_accum": {
        (3, 6, 1): (37.0, 2_883_584),
        (4, 2, 1): (17.5, 3_801_088),
    },
    "ddp": {
        (3, 2, 2): (7.9, 2_621_440),
        (5, 6, 6): (13.5, 4_194_304),
    },
    "wsdp": {
        (3, 2, 2): (9.7, 1_966_080),
        (4, 8, 8): (13.1, 1_703_936),
    },
    "fsdp": {
        (3, 2, 2): (9.7, 1_966_080),
        (4, 8, 8): (13.1, 1_572_864),
    },
    "pipeline": {
        (6, 2, 3): (26.1, 2_097_152),
        (4, 6, 2): (49.3, 4_194_304),
    },
    "gpipe": {
        (6, 6, 3): (38.1, 5_767_168),
        (4, 4, 2): (22.5, 4_194_304),
    },
    "pipeline_fsdp": {
        (8, 4, 16): (29.1, 1_277_952),
        (12, 4, 16): (42.7, 1_589_248),
    },
    "zero1": {
        (3, 2, 2): (9.0, 1_835_008),
        (2, 8, 8): (5.9, 1_114_112),
    },
    "one_f_one_b": {
        (2, 8, 2): (27.0, 1_179_648),
        (4, 12, 4): (45.0, 1_441_792),
    },
    "interleaved": {
        (4, 8, 2): (51.0, 2_359_296),
        (8, 12, 4): (81.0, 3_145_728),
    },
    "breadth_first": {
        (8, 8, 4): (62.0, 3_571_712),
        (4, 12, 4): (44.0, 2_539_520),
    },
    "zb_h1": {
        (2, 8, 2): (25.0, 1_187_840),
        (4, 12, 4): (39.0, 1_466_368),
    },
    "zb_h2": {
        (2, 8, 2): (49.0, 1_327_104),
        (4, 12, 4): (75.0, 1_884_160),
    },
    "zb_v": {
        (4, 8, 2): (49.0, 2_244_608),
        (8, 12, 4): (75.0, 2_768_896),
    },
    "tensor_parallel": {
        (4, 1, 2): (7.9, 1_703_936),
        (3, 2, 4): (5.8, 1_441_792),
    },
    "sequence_parallel": {
        (8, 1, 2): (17.05, 7_340_032),
        (6, 2, 4): (12.55, 7_077_888),
    },
    "expert_parallel": {
        (2, 4, 2): (10.0, 1_703_936),
        (2, 12, 4): (14.0, 1_900_544),
    },
    "zero2": {
        (3, 4, 2): (15.9, 2_228_224),
        (2, 16, 8): (10.5, 1_179_648),
    },
    "checkpoint": {
        (6, 2, 1): (30.5, 11_534_336),
        (12, 1, 1): (35.5, 12_582_912),
    },
    "offload": {
        (6, 1, 1): (14.5, 6_291_456),
        (10, 1, 1): (24.5, 8_388_608),
    },
    "ddp_overlap": {
        (3, 2, 2): (7.0, 2_883_584),
        (4, 6, 6): (9.5, 3_932_160),
    },
    "fsdp_prefetch": {
        (3, 2, 2): (7.5, 2_097_152),
        (4, 8, 8): (10.0, 1_605_632),
    },
    "stream_inference": {
        (4, 2, 1): (7.0, 786_432),
        (6, 3, 1): (16.0, 917_504),
    },
    "three_d": {
        (8, 4, 8): (22.8, 2_228_224),
        (4, 8, 8): (18.8, 1_441_792),
    },
    "hybrid_shard": {
        (3, 8, 8): (13.3, 1_179_648),
        (6, 8, 8): (27.1, 1_966_080),
    },
    "local_sgd": {
        (3, 2, 2): (38.0, 2_097_152),
        (2, 8, 8): (24.0, 1_441_792),
    },
    "fsdp_bound": {
        (3, 16, 4): (7227.0, 159_383_552),
        (6, 32, 8): (13624.0, 260_046_848),
    },
    "axis_inside": {
        (6, 2, 8): (3980.0, 150_994_944),
        (4, 4, 8): (4428.0, 167_772_160),
    },
    "tp_limit": {
        (6, 4, 8): (2418.0, 159_383_552),
        (4, 2, 8): (1084.0, 75_497_472),
    },
    "hierarchy": {
        (2, 16, 16): (1844.0, 100_663_296),
        (6, 16, 16): (5532.0, 268_435_456),
    },
    "bucket_size": {
        (8, 8, 8): (1416.0, 92_274_688),
        (12, 4, 4): (1830.0, 134_217_728),
    },
    "park_or_recompute": {
        (6, 1, 1): (15551.0, 264_241_152),
        (10, 1, 1): (27517.0, 339_738_624),
    },
}
"""Of the shipped puzzles, by puzzle and size: timesteps, and peak memory in elements."""


def shipped_at(slug: str, size: Size) -> ReferenceAt | None:
    """What the reference of a shipped puzzle scores at one of its other sizes; None if that is not known."""
    known = REFERENCE_FIGURES.get(slug, {}).get(size)
    return None if known is None else ReferenceAt(size, *known)
