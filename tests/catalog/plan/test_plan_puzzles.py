"""The plan catalog: best plans confirmed by an independent enumeration and by published runs; wrong plans; refusals."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from importlib import import_module
from typing import Any, NamedTuple

import pytest

from lib.planning import Job, Split, plan
from lib.planning.estimate import estimate
from lib.planning.plans import family_of
from lib.planning.split import DOMINATES, Prediction, problems
from puzzles.catalog.plan import PlanPuzzle
from puzzles.failure import Failure
from puzzles.tracks import TRACKS
from puzzles.tracks.outcomes import Score
from puzzles.tracks.plan import PLAN_PUZZLES
from puzzles.tracks.plan.judge import dominating, score_split
from tests.oracles import published_runs
from tests.support.commands import ROOT

# --- Every split of a job, enumerated apart from the planner, with closed forms that no run can be better than ---
#
# The loops, the divisibility and both bounds are written anew: nothing of `lib.planning.split_search` is used. Only
# what these bounds leave over is asked for its time.

MICROBATCHES = (1, 2, 3, 4, 6, 8, 16)
REACHED = 0.8
ORDERS = [("1f1b", 1), *(("interleaved", v) for v in range(2, 11)), ("zb_h1", 1), ("zb_v", 2)]
MAX_PLAYED = 20_000


class Candidate(NamedTuple):
    """A split, with the least seconds and bytes that it can take."""

    seconds: float
    bytes: float
    split: Split


def candidates(job: Job, fixed: Mapping[str, Any]) -> Iterator[Candidate]:
    """All splits with tensor parallelism up to 16 and with these fields."""
    gpus, model = job.gpus, job.model
    for tp in (1, 2, 4, 8, 16):
        for pp in (n for n in range(1, model.layers + 3) if gpus % (tp * n) == 0):
            for cp in (
                n for n in (1, 2, 4, 8, 16, 32) if gpus % (tp * pp * n) == 0 and (n == 1 or job.sequence > 16384)
            ):
                dp = gpus // (tp * pp * cp)
                for ep in (n for n in range(1, (model.experts or 1) + 1) if dp * cp * tp % n == 0):
                    yield from _inner(job, Split(dp, tp, pp, cp, ep), fixed)


def _inner(job: Job, axes: Split, fixed: Mapping[str, Any]) -> Iterator[Candidate]:
    for microbatch in MICROBATCHES:
        if job.batch % (axes.dp * microbatch) or microbatch * job.sequence > 2**18:
            continue
        for schedule, chunks in ORDERS if axes.pp > 1 else ORDERS[:1]:
            for recompute in ("none", "ops", "full"):
                for zero in (0, 1, 2, 3) if axes.dp * axes.cp > 1 else (0,):
                    split = replace(
                        axes, microbatch=microbatch, schedule=schedule, chunks=chunks, recompute=recompute, zero=zero
                    )
                    if any(getattr(split, name) != given for name, given in fixed.items()):
                        continue
                    played = split.batches(job) * max(job.model.layers, split.stages)
                    if played <= MAX_PLAYED and next(problems(job, split), None) is None:
                        yield Candidate(least_seconds(job, split), least_bytes(job, split), split)


def least_seconds(job: Job, split: Split) -> float:
    """Products at the rate that they reach, what is computed again, tp's collectives, the bubble, and gathers."""
    model, gpu, m = job.model, job.gpu, split.batches(job)
    tokens = job.tokens / job.gpus
    linear = 2 * tokens * model.active_weights / (gpu.efficiency * (gpu.flops8 if job.fp8 else gpu.flops))
    core = tokens * model.layers * model.core_flops(job.sequence) / 2 / (gpu.flops * gpu.core_megatron)
    again = {"none": 0.0, "ops": 0.5, "full": 1.0}[split.recompute] * (linear + core)
    inside = split.tp <= gpu.machine
    rate = gpu.nvlink if inside else gpu.machine * gpu.network
    sent = 8 * (split.tp - 1) * tokens * model.hidden * 2 * model.layers  # of each GPU, in all layers of all ranks
    compute = 3 * linear + core * (1 + 1.25 * 3) + again + sent / split.tp * split.tp / (rate * REACHED) / 2
    compute += least_moved(job, split) / gpu.bandwidth
    ramp = {"1f1b": 1.0, "interleaved": 1 / split.chunks, "zb_h1": 1 / 3, "zb_v": 0.0}[split.schedule]
    compute *= 1 + 0.9 * ramp * (split.pp - 1) / m
    if split.zero < 3:
        return compute
    near = min(split.dp * split.cp, max(1, gpu.machine // split.tp))
    link = gpu.nvlink if near == split.dp * split.cp else min(gpu.nvlink, near * gpu.network)
    weights = (model.dense_weights + model.routed_weights / split.ep) / split.tp / split.pp
    return max(compute, m * weights * 8 * 0.9 / (link * REACHED))


def least_moved(job: Job, split: Split) -> float:
    """Bytes that experts move in a rank's memory, if routing is even: rows eight times in forward and in the input half
    of backward, each weight twice, and the sum of each gradient, which is read and written for every microbatch."""
    model, m = job.model, split.batches(job)
    rows = job.tokens / job.gpus * model.expert_layers * model.top_k * model.hidden
    weights = model.routed_weights / (split.ep if split.ep > 1 else split.tp) / split.pp
    return 2 * 8 * 2 * rows + m * 0.9 * weights * (2 * 2 + 2 * job.gradient)


def least_bytes(job: Job, split: Split) -> float:
    """Weights and states, and what the first rank of the pipeline keeps for backward once it is full."""
    model, shards = job.model, split.dp * split.cp
    routed = model.routed_weights / split.ep
    held = (model.dense_weights + routed) / split.tp / split.pp
    states = (model.dense_weights + model.routed_weights) / split.tp / split.pp / (shards if split.zero else 1)
    weights = 2 * (held / shards if split.zero == 3 else held)
    states = 12 * (states if split.zero else held)
    of_token = model.hidden * 2 if split.recompute == "full" else model.whole_bytes() + model.split_bytes()
    of_token -= sum(model.inputs_in_8_bits()) if job.fp8 and split.recompute != "full" else 0
    kept = of_token / split.tp * (0.5 if split.recompute == "ops" else 1.0)
    tokens = split.microbatch * job.sequence / split.cp
    in_flight = min(split.pp, split.batches(job))
    return 0.8 * (weights + states + in_flight * tokens * kept * model.layers / split.pp)


def fastest(job: Job, fixed: Mapping[str, Any], below: float) -> tuple[float, Split | None, int]:
    """The fastest split that fits and is faster than `below` seconds, and how many were asked for their time."""
    best, found, asked = below, None, 0
    for one in sorted(candidates(job, fixed), key=lambda candidate: candidate.seconds):
        if one.seconds >= best:
            break
        if one.bytes > job.gpu.usable:
            continue
        asked += 1
        ticks, peak = estimate(job, one.split)
        assert ticks / 10**6 >= one.seconds * 0.999, (one, ticks)
        assert peak >= one.bytes * 0.999, (one, peak)
        if peak <= job.gpu.usable and ticks / 10**6 < best:
            best, found = ticks / 10**6, one.split
    return best, found, asked


# --- The puzzles ---

QUICK = ("llama_8b_long",)
LONG = pytest.mark.skipif(not os.environ.get("PUZZLES_LONG"), reason="takes minutes; set PUZZLES_LONG=1")


def marks_of(slug: str) -> list[pytest.MarkDecorator]:
    """Of enumerations: those of two jobs take seconds, most 10 to 40 s."""
    if slug in QUICK:
        return []
    return [pytest.mark.slow, LONG] if slug in ("gpt3_384", "deepseek_2048") else [pytest.mark.slow]


every_puzzle = pytest.mark.parametrize("puzzle", [pytest.param(p, id=slug) for slug, p in PLAN_PUZZLES.items()])


def solution(puzzle: PlanPuzzle) -> tuple[Split, Prediction]:
    found = getattr(import_module(f"solutions.plan.{puzzle.slug}"), puzzle.slug)(puzzle.job)
    assert isinstance(found, tuple)
    return found


def scored(puzzle: PlanPuzzle, split: Split, prediction: Prediction | None = None) -> Score | Failure:
    return score_split(puzzle, {"split": asdict(split), "prediction": prediction and asdict(prediction)})


# --- The best known ---


@pytest.mark.sampled(2)
@every_puzzle
def test_the_reference_has_three_stars_and_predicts_right(puzzle: PlanPuzzle) -> None:
    split, prediction = solution(puzzle)
    score = scored(puzzle, split, prediction)
    assert isinstance(score, Score)
    assert (score.stars, score.missed) == (3, ())
    assert "within 10 %" in score.why[0]
    assert ". Right: " in score.why[1]
    assert score.figures["seconds"] <= puzzle.seconds
    assert score.figures["gib"] <= puzzle.gib


@pytest.mark.slow
@pytest.mark.parametrize(
    "puzzle",
    [pytest.param(p, id=slug, marks=marks_of(slug)) for slug, p in PLAN_PUZZLES.items()],
)
def test_no_split_of_an_independent_enumeration_is_faster_than_the_best_known(puzzle: PlanPuzzle) -> None:
    seconds, split, asked = fastest(puzzle.job, puzzle.fixed, 1.002 * puzzle.best)
    assert seconds >= 0.999 * puzzle.best, split
    assert asked > 0


@every_puzzle
def test_targets_leave_room_for_what_the_model_cannot_tell_apart(puzzle: PlanPuzzle) -> None:
    """Unless the target is stated, as `puzzles check --write` states it."""
    assert puzzle.target or puzzle.seconds >= 1.05 * puzzle.best - 0.001
    for family, seconds in puzzle.tied.items():
        assert puzzle.best < seconds <= 1.12 * puzzle.best, family
        assert seconds <= puzzle.seconds
        assert puzzle.third_star(seconds, family)
        assert not puzzle.third_star(1.02 * seconds, family)


TIED = [
    ("llama_8b_16", Split(dp=16, zero=3), "FSDP"),
    ("llama_8b_16", Split(dp=16, zero=3, shards=8), "HSDP"),
    ("mixtral_64", Split(dp=64, ep=8, zero=3, microbatch=2), "expert parallel + FSDP"),
    ("llama_8b_long", Split(dp=8, cp=8, tp=2), "tensor parallel + context parallel"),
    ("llama_70b_40gb", Split(dp=32, tp=2, zero=3, recompute="full"), "tensor parallel + FSDP"),
    ("llama_70b_64", Split(dp=64, zero=3, microbatch=2, recompute="full"), "FSDP"),
]


@pytest.mark.parametrize(("slug", "split", "family"), TIED)
def test_a_tied_kind_of_split_is_stated_as_it_is_measured_and_passes(slug: str, split: Split, family: str) -> None:
    puzzle = PLAN_PUZZLES[slug]
    score = scored(puzzle, split)
    assert isinstance(score, Score)
    assert score.stars == 3
    assert score.family == family_of(split) == family
    assert score.figures["seconds"] == pytest.approx(puzzle.tied[family], rel=0.002)


PUBLISHED = {
    "mixtral_64": "NVIDIA Megatron Core, README of its MoE: 468 TFLOPS; reference mapping: mixtral-8x7b, 64",
    "llama_405b_16384": "Grattafiori et al. 2024 (Llama 3), Table 4: 16384 GPUs, 8,192 tokens",
    "gpt3_384": "Narayanan et al. 2021, Table 2, PTD parallelism: gpt-3, 384",
}
"""The runs of docs/truth.md that trained the very job of a puzzle."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("slug", PUBLISHED)
def test_published_runs_are_those_of_the_truth_page(slug: str) -> None:
    puzzle = PLAN_PUZZLES[slug]
    (row,) = [run for run in published_runs.ALL if run.key == PUBLISHED[slug]]
    said = puzzle.published
    assert said is not None
    assert said.split == row.split
    assert replace(said.job or puzzle.job, flash=True, overlap=True) == replace(row.job, flash=True, overlap=True)
    ours = published_runs.seconds_of(row)
    assert said.predicted == pytest.approx(ours, rel=0.002)
    assert said.seconds == pytest.approx(ours * published_runs.in_unit(row, ours) / row.figure, rel=0.002)


def test_every_run_with_a_time_is_compared() -> None:
    assert {slug for slug, p in PLAN_PUZZLES.items() if p.published and p.published.seconds} == PUBLISHED.keys()


# --- What players write ---


@pytest.mark.parametrize(
    "row",
    [{}, {"split": 3}, {"split": {"gpus": 3}}, {"split": {"dp": [1]}}, {"split": {"dp": 1.5}}, {"split": {"sp": 1}},
     {"split": {"layers": "abc"}}, {"split": {"layers": [1] * 5000}}, {"split": {"dp": 10**40}}],
)  # fmt: skip
def test_a_forged_row_is_refused(row: dict[str, object]) -> None:
    found = score_split(PLAN_PUZZLES["llama_8b_16"], row)
    assert isinstance(found, Failure)
    assert found.reason == "split"


def test_the_published_split_has_three_stars_however_slow_the_model_takes_it_for() -> None:
    puzzle = replace(PLAN_PUZZLES["mixtral_64"], best=1.0, tied={})
    assert puzzle.published is not None
    assert puzzle.published.split is not None
    score = scored(puzzle, puzzle.published.split)
    assert isinstance(score, Score)
    assert (score.stars, score.missed) == (3, ())


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "split",
    [
        Split(dp=128, pp=16, ep=64, schedule="zb_v", chunks=2),
        Split(dp=128, pp=8, ep=32, tp=2, schedule="interleaved", chunks=4),
        Split(dp=64, pp=16, ep=32, tp=2, schedule="zb_v", chunks=2),
    ],
    ids=str,
)
def test_other_splits_whose_experts_share_machines_have_two_stars(split: Split) -> None:
    """The first is of the kind with which DeepSeek-AI trained its model."""
    score = scored(PLAN_PUZZLES["deepseek_2048"], split)
    assert isinstance(score, Score)
    assert score.stars == 2


def test_a_plan_that_depends_on_the_code_passes_and_is_told_so() -> None:
    puzzle = PLAN_PUZZLES["mixtral_64"]
    score = scored(puzzle, Split(dp=64, ep=8))
    assert isinstance(score, Score)
    assert score.figures["gib"] <= puzzle.gib < score.figures["gib_high"]
    assert any("fused" in line and "eager" in line for line in score.why)


# --- Words ---


def test_a_wrong_prediction_is_answered() -> None:
    puzzle = PLAN_PUZZLES["llama_8b_16"]
    score = scored(puzzle, Split(dp=2, tp=8), Prediction(60, "bubble"))
    assert isinstance(score, Score)
    assert all(fact in score.why[0] for fact in ("60 GiB", "16.2 to 18.1 GiB", "by 41.9 GiB"))
    assert all(fact in score.why[1] for fact in ("bubble", "tensor parallel", "37%"))
    failed = scored(puzzle, Split(dp=16, zero=0), Prediction(60, "bubble"))
    assert isinstance(failed, Failure)
    assert "174.6 to 194.2 GiB" in failed.sentence


@pytest.mark.slow
def test_what_dominates_is_the_largest_of_the_costs() -> None:
    job = PLAN_PUZZLES["llama_8b_16"].job
    assert dominating(plan(job, Split(pp=16)))[0] == "bubble"
    assert dominating(plan(job, Split(tp=16)))[0] == "tp"
    assert dominating(plan(job, Split(dp=16, zero=3, recompute="full")))[0] == "recomputation"


@pytest.mark.slow
def test_the_lines_of_a_plan_add_up_to_its_step() -> None:
    puzzle = PLAN_PUZZLES["llama_70b_256"]
    score = scored(puzzle, Split(dp=8, pp=8, tp=4, schedule="interleaved", chunks=5))
    assert isinstance(score, Score)
    seconds = [float(found[1]) for line in score.why if (found := re.match(r"\s*([\d.]+) s +[\d.]+%", line))]
    assert sum(seconds) == pytest.approx(score.figures["seconds"], abs=0.006)
    assert len(seconds) >= 7


ARITHMETIC = re.compile(r"^ {4}(\S.*?) {3,}(\S[^=]*) = ([\d.e]+)( .*)?$")


by_hand = pytest.mark.parametrize(
    "puzzle", [pytest.param(p, id=slug) for slug, p in PLAN_PUZZLES.items() if "By hand" in p.concept]
)


@by_hand
def test_the_arithmetic_by_hand_is_right(puzzle: PlanPuzzle) -> None:
    lines = [line for line in puzzle.concept.splitlines() if line.startswith("    ")]
    assert len(lines) == 6
    for line in lines:
        found = ARITHMETIC.match(line)
        assert found, line
        assert re.fullmatch(r"[\d.e+*/() -]+", found[2]), line
        assert float(found[3]) == pytest.approx(eval(found[2]), rel=0.02), line


def test_the_parameters_by_hand_are_those_of_the_model() -> None:
    for slug, text in (("llama_8b_16", "= 8.03e9"), ("gpt3_384", "= 1.75e11"), ("mixtral_64", "= 4.51e10")):
        assert text in PLAN_PUZZLES[slug].concept
    assert PLAN_PUZZLES["llama_8b_16"].job.model.weights == pytest.approx(8.03e9, rel=0.001)
    assert PLAN_PUZZLES["gpt3_384"].job.model.weights == pytest.approx(1.75e11, rel=0.01)
    assert PLAN_PUZZLES["mixtral_64"].job.model.routed_weights == pytest.approx(4.51e10, rel=0.001)


@by_hand
def test_the_flops_by_hand_are_those_of_the_job(puzzle: PlanPuzzle) -> None:
    job: Job = puzzle.job
    (line,) = [line for line in puzzle.concept.splitlines() if line.startswith("    flops ")]
    stated = float(line.split("=")[1].split()[0])
    peak = job.gpu.flops8 if job.fp8 else job.gpu.flops
    assert stated == pytest.approx(job.flops / job.gpus / peak, rel=0.02)


def test_show_says_what_to_predict_and_names_every_answer() -> None:
    track = TRACKS["plan"]
    words = str(track.words.sections(PLAN_PUZZLES["gpt3_384"]))
    assert all(name in words for name in DOMINATES)


def test_solutions_and_puzzles_have_the_same_names() -> None:
    assert {path.stem for path in (ROOT / "solutions" / "plan").glob("[a-z]*.py")} == set(PLAN_PUZZLES)
