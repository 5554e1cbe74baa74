"""The papers that published each schedule which `lib.recognition` names."""

from __future__ import annotations

from collections.abc import Mapping

from lib.recognition import Recognition, names

from . import papers
from .paper import Paper

CHIMERA = Paper(
    "Shigang Li, Torsten Hoefler",
    2021,
    "Chimera: Efficiently Training Large-Scale Neural Networks with Bidirectional Pipelines",
    "SC 2021, arXiv 2107.06925",
)
HANAYO = Paper(
    "Ziming Liu, Shenggan Cheng, Haotian Zhou, Yang You",
    2023,
    "Hanayo: Harnessing Wave-like Pipeline Parallelism for Enhanced Large Model Training Efficiency",
    "SC 2023, arXiv 2308.15762",
)
EAGER_1F1B = Paper(
    "Yonghao Zhuang, Lianmin Zheng, Zhuohan Li et al.",
    2023,
    "On Optimizing the Communication of Model Parallelism",
    "MLSys 2023, arXiv 2211.05322",
)

PAPERS: Mapping[str, tuple[Paper, ...]] = {
    names.GPIPE: (papers.GPIPE,),
    names.ONE_F_ONE_B: (papers.PIPEDREAM,),
    names.INTERLEAVED: (papers.MEGATRON_CLUSTERS,),
    names.BREADTH_FIRST: (papers.BREADTH_FIRST_PIPELINE,),
    names.ZB_H1: (papers.ZERO_BUBBLE,),
    names.ZB_H2: (papers.ZERO_BUBBLE,),
    names.ZB_V: (papers.ZERO_BUBBLE,),
    names.INTERLEAVED_ZB: (papers.ZERO_BUBBLE,),
    names.V_MIN: (papers.CONTROLLABLE_MEMORY,),
    names.V_HALF: (papers.CONTROLLABLE_MEMORY,),
    names.DUALPIPE_V: (papers.DEEPSEEK_V3,),
    names.DUALPIPE: (papers.DEEPSEEK_V3,),
    names.CHIMERA: (CHIMERA,),
    names.HANAYO: (HANAYO,),
    names.EAGER: (EAGER_1F1B,),
    names.SEQ_1F1B: (papers.SEQ_1F1B,),
    names.TWO_BW: (papers.PIPEDREAM_2BW,),
    names.DATA: (papers.PYTORCH_DDP,),
    names.ZERO_1: (papers.ZERO,),
    names.ZERO_2: (papers.ZERO,),
    names.ZERO_1_OR_2: (papers.ZERO,),
    names.ZERO_3: (papers.ZERO, papers.PYTORCH_FSDP),
    names.HYBRID: (papers.PYTORCH_FSDP,),
    names.LOCAL_SGD: (papers.LOCAL_SGD,),
    names.DILOCO: (papers.DILOCO,),
    names.STREAMING_DILOCO: (papers.DILOCO, papers.STREAMING_DILOCO),
    names.TENSOR: (papers.MEGATRON,),
    names.SEQUENCE: (papers.SEQUENCE_PARALLELISM,),
    names.EXPERT: (papers.GSHARD,),
    names.RING: (papers.RING_ATTENTION,),
    names.ZIGZAG: (papers.RING_ATTENTION, papers.STRIPED_ATTENTION),
    names.GATHERED_KEYS: (papers.RING_ATTENTION,),
    names.ULYSSES: (papers.ULYSSES,),
}


def with_papers(found: Recognition) -> str:
    """A schedule's name, with authors and year: '1F1B (Narayanan et al. 2019)'."""
    cited = dict.fromkeys(", ".join(paper.short for paper in PAPERS[name]) for name in found.names if name in PAPERS)
    return f"{found.text} ({'; '.join(cited)})" if cited else found.text
