"""Where each schedule was published."""

from __future__ import annotations

from collections.abc import Mapping

GPIPE = "GPipe"
ONE_F_ONE_B = "1F1B"
INTERLEAVED = "interleaved 1F1B"
BREADTH_FIRST = "the breadth-first pipeline"
ZB_H1, ZB_H2, ZB_V = "ZB-H1", "ZB-H2", "ZB-V"
DUALPIPE_V = "DualPipeV"
ZERO_1, ZERO_2 = "ZeRO-1", "ZeRO-2"
ZERO_1_OR_2 = "ZeRO-1 and ZeRO-2, which are alike with one microbatch on each rank"
ZERO_3 = "ZeRO-3 (FSDP)"
HYBRID = "hybrid sharding (HSDP)"
DATA = "data parallelism"
WEIGHT_SHARDED = "weight-sharded data parallelism"
LOCAL_SGD = "local SGD"
TENSOR = "tensor parallelism"
SEQUENCE = "tensor and sequence parallelism"
EXPERT = "expert parallelism"

PAPERS: Mapping[str, str] = {
    GPIPE: "Huang et al. 2019",
    ONE_F_ONE_B: "Narayanan et al. 2019",
    INTERLEAVED: "Narayanan et al. 2021",
    BREADTH_FIRST: "Lamy-Poirier 2022",
    ZB_H1: "Qi et al. 2024",
    ZB_H2: "Qi et al. 2024",
    ZB_V: "Qi et al. 2024",
    DUALPIPE_V: "DeepSeek-AI 2024",
    DATA: "Li et al. 2020",
    ZERO_1: "Rajbhandari et al. 2020",
    ZERO_2: "Rajbhandari et al. 2020",
    ZERO_1_OR_2: "Rajbhandari et al. 2020",
    ZERO_3: "Rajbhandari et al. 2020, Zhao et al. 2023",
    HYBRID: "Zhao et al. 2023",
    LOCAL_SGD: "Stich 2019",
    TENSOR: "Shoeybi et al. 2019",
    SEQUENCE: "Korthikanti et al. 2022",
    EXPERT: "Lepikhin et al. 2020",
}
"""By name of a schedule: authors and year. `puzzles.catalog.papers` has the titles."""
