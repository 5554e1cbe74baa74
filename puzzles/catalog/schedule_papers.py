"""The papers that published each schedule which `lib.pipelines` names."""

from __future__ import annotations

from collections.abc import Mapping

from lib.pipelines import Recognition
from lib.pipelines import schedule_names as names

from .puzzle import paper

PAPERS: Mapping[str, tuple[str, ...]] = {
    names.GPIPE: ("GPIPE",),
    names.ONE_F_ONE_B: ("PIPEDREAM",),
    names.INTERLEAVED: ("MEGATRON_CLUSTERS",),
    names.BREADTH_FIRST: ("BREADTH_FIRST_PIPELINE",),
    names.ZB_H1: ("ZERO_BUBBLE",),
    names.ZB_H2: ("ZERO_BUBBLE",),
    names.ZB_V: ("ZERO_BUBBLE",),
    names.INTERLEAVED_ZB: ("ZERO_BUBBLE",),
    names.V_MIN: ("CONTROLLABLE_MEMORY",),
    names.V_HALF: ("CONTROLLABLE_MEMORY",),
    names.DUALPIPE_V: ("DEEPSEEK_V3",),
    names.DUALPIPE: ("DEEPSEEK_V3",),
    names.CHIMERA: ("CHIMERA",),
    names.HANAYO: ("HANAYO",),
    names.EAGER: ("EAGER_1F1B",),
    names.SEQ_1F1B: ("SEQ_1F1B",),
    names.TWO_BW: ("PIPEDREAM_2BW",),
    names.DATA: ("PYTORCH_DDP",),
    names.ZERO_1: ("ZERO",),
    names.ZERO_2: ("ZERO",),
    names.ZERO_1_OR_2: ("ZERO",),
    names.ZERO_3: ("ZERO", "PYTORCH_FSDP"),
    names.HYBRID: ("PYTORCH_FSDP",),
    names.LOCAL_SGD: ("LOCAL_SGD",),
    names.DILOCO: ("DILOCO",),
    names.STREAMING_DILOCO: ("DILOCO", "STREAMING_DILOCO"),
    names.TENSOR: ("MEGATRON",),
    names.SEQUENCE: ("SEQUENCE_PARALLELISM",),
    names.EXPERT: ("GSHARD",),
    names.RING: ("RING_ATTENTION",),
    names.ZIGZAG: ("RING_ATTENTION", "STRIPED_ATTENTION"),
    names.GATHERED_KEYS: ("RING_ATTENTION",),
    names.ULYSSES: ("ULYSSES",),
    names.USP: ("USP",),
}


def with_papers(found: Recognition) -> str:
    """A schedule's name, with authors and year: '1F1B (Narayanan et al. 2019)'."""
    cited = dict.fromkeys(", ".join(paper(one).short for one in PAPERS[name]) for name in found.names if name in PAPERS)
    return f"{found.text} ({'; '.join(cited)})" if cited else found.text
