"""What the reference solutions score at the sizes that are not shown: a schedule that works there should come near."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lib import Size

TOLERANCE = 1.25
"""A schedule at another size is noted if its timesteps times its memory are more than so many times the reference's.
The product leaves it free to trade one for the other; of the records none comes near."""

TOLERANCE_WITH_TRAFFIC = 2
"""The same for timesteps times memory times traffic. It is wider, because laps of a pipeline send more for less
memory."""


class ReferenceAt(NamedTuple):
    """What the reference of a puzzle scores at a size that is not shown: timesteps, peak memory in elements, and the
    elements that its busiest rank sends (None: not measured)."""

    size: Size
    timesteps: float
    peak_memory: int
    traffic: int | None = None

    def is_far_ahead_of(self, timesteps: float, peak_memory: int, traffic: int) -> bool:
        """True if these figures at the same size are much worse."""
        times = timesteps * peak_memory / (self.timesteps * self.peak_memory)
        sent = traffic / self.traffic if self.traffic else 1
        return times > TOLERANCE or times * sent > TOLERANCE_WITH_TRAFFIC


REFERENCE_FIGURES: Mapping[str, Mapping[tuple[int, int, int], tuple[float, int, int]]] = {
    "basic": {
        (3, 2, 1): (13.0, 2_621_440, 0),
        (5, 6, 1): (62.0, 7_340_032, 0),
    },
    "grad_accum": {
        (3, 6, 1): (37.0, 2_883_584, 0),
        (4, 2, 1): (17.5, 3_801_088, 0),
    },
    "ddp": {
        (3, 2, 2): (7.9, 2_621_440, 786_432),
        (5, 6, 6): (13.5, 4_194_304, 2_184_530),
    },
    "wsdp": {
        (3, 2, 2): (9.7, 1_966_080, 1_572_864),
        (4, 8, 8): (13.1, 1_703_936, 3_670_016),
    },
    "fsdp": {
        (3, 2, 2): (9.7, 1_966_080, 1_179_648),
        (4, 8, 8): (13.1, 1_572_864, 2_752_512),
    },
    "pipeline": {
        (6, 2, 3): (26.1, 2_097_152, 524_288),
        (4, 6, 2): (49.3, 4_194_304, 786_432),
    },
    "gpipe": {
        (6, 6, 3): (38.1, 5_767_168, 1_572_864),
        (4, 4, 2): (22.5, 4_194_304, 524_288),
    },
    "pipeline_fsdp": {
        (8, 4, 16): (29.1, 1_277_952, 6_160_384),
        (12, 4, 16): (42.7, 1_589_248, 9_109_504),
    },
    "zero1": {
        (3, 2, 2): (8.5, 1_835_008, 786_432),
        (2, 8, 8): (6.2, 1_114_112, 917_504),
    },
    "one_f_one_b": {
        (2, 8, 2): (27.0, 1_179_648, 1_048_576),
        (4, 12, 4): (45.0, 1_441_792, 1_671_168),
    },
    "interleaved": {
        (4, 8, 2): (51.0, 2_359_296, 2_162_688),
        (8, 12, 4): (81.0, 3_145_728, 3_342_336),
    },
    "breadth_first": {
        (8, 8, 4): (62.0, 8_290_304, 7_962_624),
        (4, 12, 4): (44.0, 5_685_248, 4_243_456),
    },
    "zb_h1": {
        (2, 8, 2): (25.0, 1_187_840, 1_048_576),
        (4, 12, 4): (39.0, 1_466_368, 1_671_168),
    },
    "zb_h2": {
        (2, 8, 2): (49.0, 1_327_104, 2_097_152),
        (4, 12, 4): (75.0, 1_884_160, 3_342_336),
    },
    "zb_v": {
        (4, 8, 2): (49.0, 2_244_608, 1_114_112),
        (8, 12, 4): (75.0, 2_768_896, 3_342_336),
    },
    "tensor_parallel": {
        (4, 1, 2): (6.9, 1_572_864, 917_504),
        (3, 2, 4): (7.0, 1_179_648, 1_966_080),
    },
    "sequence_parallel": {
        (8, 1, 2): (17.05, 7_340_032, 19_398_656),
        (6, 2, 4): (12.55, 7_077_888, 42_467_328),
    },
    "expert_parallel": {
        (2, 4, 2): (10.0, 3_670_016, 917_504),
        (2, 12, 4): (14.0, 2_883_584, 2_064_384),
    },
    "zero2": {
        (3, 4, 2): (15.1, 2_228_224, 1_179_648),
        (2, 16, 8): (11.0, 1_179_648, 1_376_256),
    },
    "checkpoint": {
        (6, 2, 1): (30.5, 11_534_336, 0),
        (12, 1, 1): (35.5, 12_582_912, 0),
    },
    "offload": {
        (6, 1, 1): (14.5, 6_291_456, 0),
        (10, 1, 1): (24.5, 8_388_608, 0),
    },
    "ddp_overlap": {
        (3, 2, 2): (7.0, 3_014_656, 786_432),
        (4, 6, 6): (11.8, 3_801_088, 1_747_624),
    },
    "fsdp_prefetch": {
        (3, 2, 2): (7.4, 2_097_152, 1_048_576),
        (4, 8, 8): (10.5, 1_605_632, 2_523_136),
    },
    "stream_inference": {
        (4, 2, 1): (7.0, 786_432, 0),
        (6, 3, 1): (16.0, 917_504, 0),
    },
    "three_d": {
        (8, 4, 8): (21.9, 6_946_816, 4_456_448),
        (4, 8, 8): (16.9, 3_801_088, 3_670_016),
    },
    "hybrid_shard": {
        (3, 8, 8): (10.9, 1_179_648, 1_966_080),
        (6, 8, 8): (22.3, 1_966_080, 3_932_160),
    },
    "local_sgd": {
        (3, 2, 2): (73.5, 2_228_224, 1_572_864),
        (2, 8, 8): (54.1, 1_572_864, 1_835_008),
    },
    "fsdp_bound": {
        (3, 16, 4): (7227.0, 159_383_552, 100_663_296),
        (6, 32, 8): (13624.0, 260_046_848, 249_561_088),
    },
    "axis_inside": {
        (6, 2, 8): (3980.0, 150_994_944, 301_989_888),
        (4, 4, 8): (4428.0, 167_772_160, 369_098_752),
    },
    "tp_limit": {
        (6, 4, 8): (2418.0, 159_383_552, 167_772_160),
        (4, 2, 8): (1084.0, 75_497_472, 104_857_600),
    },
    "hierarchy": {
        (2, 16, 16): (1844.0, 100_663_296, 62_914_560),
        (6, 16, 16): (5532.0, 268_435_456, 188_743_680),
    },
    "bucket_size": {
        (8, 8, 8): (1416.0, 92_274_688, 14_680_064),
        (12, 4, 4): (1830.0, 134_217_728, 18_874_368),
    },
    "park_or_recompute": {
        (6, 1, 1): (15551.0, 264_241_152, 0),
        (10, 1, 1): (27517.0, 339_738_624, 0),
    },
    "straggler": {
        (2, 12, 4): (31.0, 1_966_080, 786_432),
        (4, 12, 6): (38.0, 3_801_088, 1_747_624),
    },
    "uneven_stages": {
        (10, 4, 4): (54.0, 3_940_352, 557_056),
        (10, 12, 4): (126.0, 4_325_376, 1_671_168),
    },
    "vocab_parallel": {
        (9, 12, 4): (126.0, 4_079_616, 3_391_488),
        (9, 8, 2): (156.0, 6_832_128, 1_179_648),
    },
    "v_half": {
        (8, 8, 4): (59.0, 2_523_136, 2_228_224),
        (16, 16, 8): (119.0, 3_063_808, 4_456_448),
    },
    "weight_versions": {
        (4, 8, 4): (105.0, 1_572_864, 4_456_448),
        (2, 4, 2): (51.0, 1_310_720, 2_097_152),
    },
    "two_ways": {
        (4, 12, 4): (30.0, 2_236_416, 2_195_456),
        (6, 12, 6): (33.0, 2_498_560, 2_195_456),
    },
    "host_update": {
        (4, 2, 1): (77.0, 2_359_296, 0),
        (8, 2, 1): (149.0, 4_456_448, 0),
    },
    "seq_pipeline": {
        (4, 4, 4): (164.7, 6_815_744, 8_388_608),
        (2, 2, 2): (67.5, 6_815_744, 2_097_152),
    },
    "ring_context": {
        (4, 1, 4): (30.3, 3_866_624, 3_932_160),
        (2, 1, 2): (29.7, 3_145_728, 1_310_720),
    },
    "ulysses": {
        (4, 1, 4): (34.0, 6_815_744, 7_864_320),
        (2, 1, 2): (31.4, 6_291_456, 4_718_592),
    },
}
"""Of the shipped puzzles, by puzzle and size: timesteps, peak memory and traffic in elements."""


def shipped_at(slug: str, size: Size) -> ReferenceAt | None:
    """What the reference of a shipped puzzle scores at one of its other sizes; None if that is not known."""
    known = REFERENCE_FIGURES.get(slug, {}).get(size)
    return None if known is None else ReferenceAt(size, *known)
