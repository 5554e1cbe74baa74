"""docs/field.md is written by its generator; docs/variants.md: its figures are measured, and it has every variant."""

import re
from functools import cache
from pathlib import Path

import pytest

from docs.generate import field
from lib import Report, referee, run
from lib.engine.collectives import bytes_sent
from puzzles.catalog.engine import ENGINE_PUZZLES, trials_of
from puzzles.catalog.engine.puzzle import FIGURES
from puzzles.catalog.path import PATH, VARIANTS
from puzzles.catalog.schedule import PUZZLES
from puzzles.content.engine.shards.trials import bytes_per_device
from tests.support import CLASSICS
from tests.support.engine_trials import perform, reference
from tests.support.solved import reference_of
from tests.support.unmeasured_figures import Fact, unmeasured, wrong

PAGE = Path(__file__).parents[2] / "docs" / "variants.md"
TEXT = " ".join(PAGE.read_text(encoding="utf-8").split())
N, W, A, S = 4, 2 * 16 * 64 * 4, 8 * 16 * 4, 8192
FIELD_W, FIELD_A, L, B = 8 * 4096**2, 4096 * 2048, field.LAYERS, field.BATCHES
CLASSIC_OF = {classic.slug: classic for classic in CLASSICS}


@cache
def measured(slug: str, figure: str, trial: int = 0) -> str:
    """A figure of a reference solution, as the page writes it."""
    made = trials_of(ENGINE_PUZZLES[slug])[trial]()
    return f"{FIGURES[figure].of(perform(made, reference(slug))):,}"


def sent(slug: str) -> str:
    """Bytes that the busiest rank of a reference schedule sends in its puzzle."""
    goal = PUZZLES[slug].goal
    trace = run(reference_of(slug), *goal.size, setting=goal.setting).trace
    return f"{max(rank.bytes_sent for rank in referee(trace).ranks):,} B"


@cache
def schedule(slug: str, layers: int = 0, batches: int = 0) -> Report:
    classic = CLASSIC_OF[slug]
    size = (layers or classic.size.layers, batches or classic.size.batches, classic.size.ranks)
    return referee(run(classic.solution, *size).trace)


def idle(slug: str, batches: int = 0) -> str:
    return f"{schedule(slug, 0, batches).bubble:.0%}"


def bubble(stages: int, microbatches: int) -> str:
    return f"{(stages - 1) / (microbatches + stages - 1):.0%}"


def peak(slug: str, layers: int = 0) -> str:
    return f"{schedule(slug, layers).peak.memory:,}"


def gigabytes(stage: int) -> str:
    return f"{bytes_per_device(7_500_000_000, stage, 64) / 1e9:.3g} GB"


def fetched(f: int, c: int, layers: int) -> tuple[int, int]:
    """With and without prefetching, by playing it through: the link and the device, each busy with one thing."""
    loaded = computed = 0
    for _ in range(layers):
        loaded = loaded + f
        computed = max(loaded, computed) + c
    return computed, layers * (f + c)


SENT = {
    "all-reduce | 2(N-1)/N S": bytes_sent("all_reduce", S, N),
    "reduce-scatter, all-to-all | (N-1)/N S": bytes_sent("reduce_scatter", S, N),
    "all-gather, of a shard of S | (N-1) S": bytes_sent("all_gather", S, N),
    "send | S": bytes_sent("send", S, 2),
}
TIMES = [fetched(4, c, 8) for c in (1, 2, 4, 8)]
STACK = "batch 8, model_dim 16, hidden_dim 64, float32, on N = 4 devices, so that W is 8,192 B and A is 512 B"


@cache  # when a test asks, and not in every process that collects tests
def facts() -> list[Fact]:
    return [
        (STACK, (W, A) == (8192, 512)),
        f"2(N-1)/N W | {measured('DataParallel', 'sent')} B",
        ("nothing | everything | nothing | 0 B", schedule("basic").ranks[0].bytes_sent == 0),
        ("| 12,288 B |", measured("ZeRO2", "sent") == "12,288" == f"{2 * (N - 1) * W // N:,}"),
        ("the same | 12,288 B", measured("ZeRO1", "sent") == f"{2 * 12_288:,}"),  # it is tried for two steps
        "(ZeRO-1)",
        "(ZeRO-2)",
        "(ZeRO-3, FSDP)",
        ("3(N-1)/N W, 1.5 times as much | 18,432 B", measured("FSDP", "sent") == f"{3 * (N - 1) * W // N:,}"),
        (
            "4(N-1)/N A, independent of W | 1,536 B",
            measured("TensorParallel", "sent") == f"{4 * (N - 1) * A // N:,}",
        ),
        ("all-gathers and reduce-scatters: the same | 1,536 B", measured("SequenceParallel", "sent") == "1,536"),
        f"keys and values, N-1 hops forward | {measured('RingAttention', 'sent')} B",
        f"A at each boundary, each way | {measured('LayerSplit', 'sent')} B",
        f"two all-to-alls forward | {measured('SwitchDispatch', 'sent')} B",
        ("infrequent and compressed | 1,032 B", measured("Subsample", "sent") == "1,032"),
        f"an all-reduce of activations for each token | {measured('PrefillDecode', 'sent')} B",
        "| attention, 3 prompts |",
        f"of gradients along dp | {measured('MegatronMesh', 'sent')} B",
        "| one layer, 8 tokens |",
        f"gathered after each fetch, forward | {measured('Stream', 'sent')} B",
        f"the moves that the planner chooses, here forward | {measured('AnnotatedMLP', 'sent')} B",
        (
            f"sums of gradients once | {sent('three_d')}",
            PUZZLES["three_d"].goal.size == (4, 4, 8),
        ),
        (f"every four steps | {sent('local_sgd')}", PUZZLES["local_sgd"].goal.size == (2, 4, 4)),
        ("everything but most activations | nothing | 0 B", sent("checkpoint") == sent("offload") == "0 B"),
        "(3D)",
        (
            f"A between stages | {max(rank.bytes_sent for rank in schedule('pipeline_fsdp').ranks):,} B",
            CLASSIC_OF["pipeline_fsdp"].size[:] == (4, 4, 16),
        ),
        "| attention, 32 tokens |",
        "| 4 layers |",
        ("| 4 layers, 16 ranks |", PUZZLES["pipeline_fsdp"].goal.size == (4, 4, 16)),
        ("| 4 layers, 8 ranks |", (PUZZLES["three_d"].goal.size.layers, PUZZLES["three_d"].goal.size.ranks) == (4, 8)),
        (
            "| 2 layers, 4 ranks |",
            (PUZZLES["local_sgd"].goal.size.layers, PUZZLES["local_sgd"].goal.size.ranks) == (2, 4),
        ),
        "| 32 tokens, 4 experts |",
        "| a layer of 64 x 64 |",
        "| 8 layers of 16 x 16 |",
        "| an MLP on a 2 x 2 mesh |",
        ("S = 8,192 B, N = 4", (S, N) == (8192, 4)),
        *(f"{words} | {sent:,} B" for words, sent in SENT.items()),
        "ZeRO-1 and ZeRO-2 put the update between the two",
        "ZeRO-1 still sends once. ZeRO-2 keeps only shards, so it reduce-scatters for each microbatch",
        ("second all-gather is unnecessary: 15,360 B", 18_432 - 3 * 1_024 == 15_360),
        f"takes {measured('MegatronLayer', 'collectives')} all-reduces, {measured('MegatronLayer', 'sent')} B",
        f"{measured('VocabParallelLoss', 'sent')} B instead of {bytes_sent('all_gather', 8 * 16 * 4, N):,} B",
        ("at factor 1.25 a device sends 1,152 B", "1,152" in {measured("SwitchDispatch", "sent", i) for i in (1, 2)}),
        f"sends {measured('ExactDispatch', 'sent')} B where padding that loses nothing would send 1,920 B",
        f"With six local epochs, {measured('FedAvg', 'uplink')} B reach the loss",
        ("for which FedSGD needs 30,160 B, and the examples would be 66,560 B", 29 * 4 * 65 * 4 == 30_160),
        ("the examples would be 66,560 B", 256 * (64 + 1) * 4 == 66_560),
        f"An update of {64 * 64 * 4:,} B fits into {measured('Subsample', 'sent')} B",
        f"into {measured('LowRank', 'sent')} B by a low rank",
        f"into {measured('Quantize', 'sent')} B with a bit for each number",
        f"into {4096 // 16 * 2 // 8 + 8 + 8} B with all of it composed",
        "2 bytes of weight, 2 of gradient, 12 of optimizer state. With 7.5e9 parameters on 64 devices",
        f"| 16 P | {gigabytes(0)} |",
        f"| 1, the state | 4 P + 12 P/N | {gigabytes(1)} |",
        f"| 2, and the gradients | 2 P + 14 P/N | {gigabytes(2)} |",
        f"| 3, and the weights | 16 P/N | {bytes_per_device(7_500_000_000, 3, 64) / 1e9:.1f} GB |",
        (
            f"DataParallel {measured('DataParallel', 'peak')} B, ZeRO2 {measured('ZeRO2', 'peak')} B, "
            f"FSDP {measured('FSDP', 'peak')} B, and {measured('SequenceParallel', 'peak')} B for SequenceParallel"
        ),
        f"data parallel {peak('ddp', 6)} elements, `wsdp` {peak('wsdp')}, `fsdp` {peak('fsdp')}",
        f"stores {measured('GPipeRemat', 'stored')} B and not {4 * 4 * 2 * 16 * 4:,} B",
        f"for {measured('GPipeRemat', 'flops')} flops instead of {4 * 4 * 3 * 2 * 2 * 16 * 16:,}",
        (
            f"peaks at {measured('RingAttention', 'peak')} B on 2, 4 and 8 devices",
            len({measured("RingAttention", "peak", i) for i in range(3)}) == 1,
        ),
        ("would be 2,048, 4,096 and 8,192 B", [n * 2 * 8 * 16 * 4 for n in (2, 4, 8)] == [2048, 4096, 8192]),
        f"Stream holds {measured('Stream', 'peak')} B of a model of {8 * 16 * 16 * 4:,} B",
        "a share of (p-1)/(m+p-1) of the time",
        f"everything at once | {bubble(4, 1)} | {idle('pipeline')} |",
        *(f"{m} microbatches | {bubble(4, m)} | {idle('gpipe', m)} |" for m in (4, 16, 32)),
        f"LayerSplit takes {measured('LayerSplit', 'clock')} flops of time",
        (f"`pipeline_fsdp`, 16 ranks, is idle {idle('pipeline_fsdp')} of the time, and holds {peak('pipeline_fsdp')}"),
        "f + (L-1) max(f, c) + c instead of L (f + c). With L = 8, f = 4 and c = 1, 2, 4, 8",
        (
            f"that is {', '.join(str(a) for a, _ in TIMES)} instead of {', '.join(str(b) for _, b in TIMES)}",
            [a for a, _ in TIMES] == [4 + 7 * max(4, c) + c for c in (1, 2, 4, 8)],
        ),
    ]


REFERENCES = r"\[\w+\]\([\w./]+\)|`\w+`|(?:^| )\d+\. "
"""Digits that are not figures: links, names of puzzles, numbered lists."""


def test_every_quoted_fact_holds() -> None:
    assert wrong(TEXT, facts()) == []


def test_every_figure_on_the_page_is_measured() -> None:
    assert unmeasured(TEXT, facts(), REFERENCES) == []


@pytest.mark.slow
def test_the_ten_steps_are_those_of_the_core_path_with_the_figures_of_one_model() -> None:
    page = field.page()
    assert field.FILE.read_text(encoding="utf-8") == page, "out of date: make docs"
    assert re.findall(r"^## \d+\. (.+)$", page, re.MULTILINE) == [step.title for step in PATH]
    for step, section in zip(PATH, page.split("\n## ")[1:], strict=False):
        assert (
            tuple(re.findall(r"`(\w+)`", section.partition("**Puzzles:**")[2].partition("**Papers:**")[0]))
            == step.slugs
        )


@pytest.mark.parametrize(
    ("number", "label", "time", "memory", "sent"),
    [
        (0, "`basic`", 1.0, 2 * FIELD_W + L * B * FIELD_A, 0),
        (0, "`grad_accum`", 1.0, 3 * FIELD_W + L * FIELD_A, 0),
        (1, "`ddp`", 1 / N, 3 * FIELD_W, 2 * (N - 1) / N * FIELD_W),
        (2, "`zero1`", 1 / N, FIELD_W + FIELD_W / N + L * FIELD_A + FIELD_W / L, 2 * (N - 1) / N * FIELD_W),
        (2, "`fsdp`", 1 / N, 2 * FIELD_W / N + L * FIELD_A + 2 * FIELD_W / L, 3 * (N - 1) / N * FIELD_W),
        (3, "`checkpoint`", 4 / 3, 2 * FIELD_W + 2 * L**0.5 * B * FIELD_A, 0),
        (4, "GPipe", (B + N - 1) / B / N, 3 * FIELD_W / N + L / N * B * FIELD_A, 2 * B * FIELD_A),
        (6, "`tensor_parallel`", 1 / N, 2 * FIELD_W / N + L * B * FIELD_A, 4 * (N - 1) / N * L * B * FIELD_A),
        (
            6,
            "`sequence_parallel`",
            1 / N,
            2 * FIELD_W / N + (L / N + 1) * B * FIELD_A,
            5 * (N - 1) / N * L * B * FIELD_A,
        ),
        (8, "`expert_parallel`", 1 / N, 3 * FIELD_W / N + L * B * FIELD_A / N, 4 * (N - 1) / N * L * B * FIELD_A / N),
    ],
)
def test_the_formulas_are_near_what_is_measured(
    number: int, label: str, time: float, memory: float, sent: float
) -> None:
    """Memory and traffic within a sixth; the time at least the formula's, which leaves out what is sent."""
    report, alone = field.measured(number)[label], field.measured(0)["`basic`"].makespan
    assert memory == pytest.approx(report.peak.memory, rel=1 / 6)
    assert sent == pytest.approx(report.traffic, rel=1 / 6)
    assert report.makespan >= time * alone * 0.87


def test_every_variant_names_the_model_of_its_figure() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = [line for line in page[page.index("| split |") :].split("\n\n")[0].splitlines() if line.startswith("|")]
    assert [row.split("|")[1].strip() for row in rows[2:]] == [*VARIANTS]
    assert {row.count("|") for row in rows} == {6}
    assert all(row.split("|")[5].strip() for row in rows)
