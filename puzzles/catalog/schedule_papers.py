"""The papers that published each schedule which `lib.pipelines` names."""

from __future__ import annotations

from collections.abc import Mapping

from lib.pipelines import Recognition
from lib.pipelines.rank_work import Names

from .puzzle import paper

PAPERS: Mapping[str, tuple[str, ...]] = {
    Names.GPIPE: ("GPIPE",),
    Names.ONE_F_ONE_B: ("PIPEDREAM",),
    Names.INTERLEAVED: ("MEGATRON_CLUSTERS",),
    Names.BREADTH_FIRST: ("BREADTH_FIRST_PIPELINE",),
    Names.ZB_H1: ("ZERO_BUBBLE",),
    Names.ZB_H2: ("ZERO_BUBBLE",),
    Names.ZB_V: ("ZERO_BUBBLE",),
    Names.INTERLEAVED_ZB: ("ZERO_BUBBLE",),
    Names.V_MIN: ("CONTROLLABLE_MEMORY",),
    Names.V_HALF: ("CONTROLLABLE_MEMORY",),
    Names.DUALPIPE_V: ("DEEPSEEK_V3",),
    Names.DUALPIPE: ("DEEPSEEK_V3",),
    Names.CHIMERA: ("CHIMERA",),
    Names.HANAYO: ("HANAYO",),
    Names.EAGER: ("EAGER_1F1B",),
    Names.SEQ_1F1B: ("SEQ_1F1B",),
    Names.TWO_BW: ("PIPEDREAM_2BW",),
    Names.DATA: ("PYTORCH_DDP",),
    Names.ZERO_1: ("ZERO",),
    Names.ZERO_2: ("ZERO",),
    Names.ZERO_1_OR_2: ("ZERO",),
    Names.ZERO_3: ("ZERO", "PYTORCH_FSDP"),
    Names.HYBRID: ("PYTORCH_FSDP",),
    Names.LOCAL_SGD: ("LOCAL_SGD",),
    Names.DILOCO: ("DILOCO",),
    Names.STREAMING_DILOCO: ("DILOCO", "STREAMING_DILOCO"),
    Names.TENSOR: ("MEGATRON",),
    Names.SEQUENCE: ("SEQUENCE_PARALLELISM",),
    Names.EXPERT: ("GSHARD",),
    Names.RING: ("RING_ATTENTION",),
    Names.ZIGZAG: ("RING_ATTENTION", "STRIPED_ATTENTION"),
    Names.GATHERED_KEYS: ("RING_ATTENTION",),
    Names.ULYSSES: ("ULYSSES",),
    Names.USP: ("USP",),
}


def with_papers(found: Recognition) -> str:
    """A schedule's name, with authors and year: '1F1B (Narayanan et al. 2019)'."""
    cited = dict.fromkeys(", ".join(paper(one).short for one in PAPERS[name]) for name in found.names if name in PAPERS)
    return f"{found.text} ({'; '.join(cited)})" if cited else found.text
