"""Recognition: references, records, textbooks and what is like them have names; random schedules none that is wrong."""

import random
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from lib import Model, Record, Setting, Trace, run
from lib.pipelines import (
    Cell,
    Recognition,
    Timetable,
    breadth_first,
    ddp,
    gpipe,
    interleaved,
    one_f_one_b,
    pipeline,
    recognize,
    recomputed,
    sequence_parallel,
    tensor_parallel,
    zb_h1,
    zb_h2,
    zero1,
    zero2,
    zero3,
)
from lib.pipelines.rank_work import Names
from puzzles.catalog.puzzle import with_papers
from puzzles.catalog.schedule import PUZZLES
from solutions.records import fsdp_layer_by_layer
from tests.ledger.test_random_programs import Choices
from tests.oracles.textbook_definitions import DEFINITIONS, NECESSARY, ahead, holds, operations
from tests.screens.texts import approved
from tests.support import finished
from tests.support.schedules import shards
from tests.support.schedules.random_pipelines import TEXTBOOKS, played, random_pipeline, textbook
from tests.support.solved import RECORDS, reference_of, solved_by

WITHOUT = "a pipeline without microbatches"
RECOMPUTED = ", with activations recomputed"
ZERO_3, SHARDED = "ZeRO-3 (FSDP)", "weight-sharded data parallelism"
OWNERS_SEND = "data parallelism with weights sent by their owners"
REPEATED = "a pipeline whose stages repeat the forward of others"
IN_TURN = "gradient accumulation, one microbatch at a time"
STANDARD = "standard training: every microbatch forward, then every microbatch backward"
OVERLAPPED = ", with gradients summed during backward"
PARKED = f"{STANDARD}{RECOMPUTED}, prefetch and activations offloaded to the host"
INFERENCE = "inference on one rank, with "
TENSOR, SEQUENCE = "tensor parallelism", "tensor and sequence parallelism"

ALMOST_DDP = "like data parallelism, but layer {} is kept in shards, and each rank gets its shard of the gradient"


def by_layer(layers: str, plan: dict[str, Any]) -> str:
    """What a variant of fsdp_layer_by_layer is called."""
    gathered_once = plan["FULL"] + plan["REPLICATED"]
    once = gathered_once == {"two": 2, "four": 4, "six": 6, "eight": 8}[layers]
    also = ["activations recomputed"] * bool(plan["TWICE"]) + ["every weight gathered once"] * once
    text = f"{ZERO_3}{', with ' if also else ''}{' and '.join(also)}"
    return f"like {text}, but layer 0 is kept unsharded" if plan["REPLICATED"] else text


KNOWN = {
    "basic": STANDARD,
    "grad_accum": IN_TURN,
    "ddp": "data parallelism",
    "wsdp": f"{SHARDED}, with every weight gathered twice",
    "fsdp": f"{ZERO_3}, with every weight gathered twice",
    "pipeline": WITHOUT,
    "gpipe": "GPipe",
    "pipeline_fsdp": f"{WITHOUT} x {ZERO_3}, with every weight gathered twice",
    "zero1": Names.ZERO_1_OR_2,
    "zero2": "ZeRO-2",
    "checkpoint": STANDARD + RECOMPUTED,
    "offload": f"{STANDARD}, with prefetch and activations offloaded to the host",
    "one_f_one_b": "1F1B",
    "interleaved": "interleaved 1F1B",
    "breadth_first": f"the breadth-first pipeline x {ZERO_3}",
    "zb_h1": "ZB-H1",
    "zb_h2": "ZB-H2",
    "zb_v": "ZB-V",
    "ddp_overlap": f"data parallelism{OVERLAPPED} and buckets",
    "fsdp_prefetch": f"{ZERO_3}, with prefetch and gradients summed during backward",
    "stream_inference": f"{INFERENCE}prefetch and weights fetched from the host",
    "tensor_parallel": TENSOR,
    "sequence_parallel": SEQUENCE,
    "expert_parallel": "expert parallelism",
    "three_d": "1F1B x tensor parallelism x data parallelism",
    "two_dimensions": f"Ulysses inside a ring (USP){OVERLAPPED}",
    "packing": f"data parallelism{OVERLAPPED}",
    "frozen_encoder": "1F1B",
    "whole_update": f"{OWNERS_SEND}{OVERLAPPED}",
    "hybrid_shard": "hybrid sharding (HSDP), with every weight gathered twice",
    "local_sgd": "local SGD",
    "records.basic_batch_by_batch": IN_TURN,
    "records.gpipe_sums_at_once": "GPipe",
    "records.pipeline_output_not_kept": WITHOUT,
    "records.zero1_update_early": Names.ZERO_1_OR_2,
    "records.ddp_sharded: every_layer": f"{ZERO_3}, with every weight gathered once",
    "records.ddp_sharded: above_the_first": f"like {ZERO_3}, with every weight gathered once, but "
    "layer 0 is kept unsharded",
    "records.ddp_update_before_next_backward": "data parallelism",
    "records.fsdp_one_activation_twice": ZERO_3 + RECOMPUTED,
    "records.fsdp_owners_send: six_layers_four_twice": OWNERS_SEND,
    "records.gpipe_laps: a_batch_per_rank": "like interleaved 1F1B, but rank 3 runs the forward of microbatch 2 in "
    "stage 7 instead of the backward of microbatch 1 in stage 7",
    "records.fsdp_owners_send: eight_layers_seven_twice": OWNERS_SEND,
    "records.fsdp_owners_send: eight_layers_two_gradients_wait": OWNERS_SEND,
    "records.fsdp_owners_send: eight_layers_once": OWNERS_SEND,
    "records.gpipe_recompute_while_waiting": "1F1B" + RECOMPUTED,
    "records.gpipe_sharded: four_inputs_twice": ZERO_3 + RECOMPUTED,
    "records.gpipe_sharded: one_input_twice": ZERO_3 + RECOMPUTED,
    "records.gpipe_sharded: three_inputs_twice": ZERO_3 + RECOMPUTED,
    "records.gpipe_sharded: two_inputs_twice": ZERO_3 + RECOMPUTED,
    "records.pipeline_fsdp_gather: twice_forward_everywhere": REPEATED,
    "records.pipeline_fsdp_gather: once_forward_everywhere": REPEATED,
    "records.pipeline_fsdp_replicas: one_owner_first": f"{WITHOUT} x data parallelism of another kind",
    "records.pipeline_fsdp_replicas: two_owners_first": f"{WITHOUT} x data parallelism of another kind",
    "records.pipeline_fsdp_replicas: every_replica": f"{WITHOUT} x data parallelism of another kind",
    "records.pipeline_fsdp_replicas: two_stages": "1F1B x data parallelism of another kind",
    "records.pipeline_fsdp_gather: twice": f"{WITHOUT} x {ZERO_3}",
    "records.pipeline_fsdp_owners_send": OWNERS_SEND,
    "records.gpipe_laps: three_batches": "an interleaved pipeline",
    "records.gpipe_sharded: five_inputs_again": ZERO_3 + RECOMPUTED,
    "records.gpipe_sharded: no_input_kept": ZERO_3 + RECOMPUTED,
    "records.pipeline_timetable": "a pipeline",
    "records.fsdp_owners_send: six_layers_two_twice": OWNERS_SEND,
    "records.breadth_first_only_backward": f"like the breadth-first pipeline x {ZERO_3}, with every weight gathered "
    "once, but rank 0 runs the forward of microbatch 0 in stage 2 instead of the forward of microbatch 2 in stage 0",
    "records.checkpoint_binomial: eight_slots": STANDARD,
    "records.checkpoint_binomial: seven_slots": STANDARD + RECOMPUTED,
    "records.checkpoint_binomial: six_slots": STANDARD + RECOMPUTED,
    "records.checkpoint_binomial: five_slots": STANDARD + RECOMPUTED,
    "records.checkpoint_binomial: three_slots": STANDARD + RECOMPUTED,
    "records.checkpoint_binomial: two_slots": STANDARD + RECOMPUTED,
    "records.checkpoint_binomial: one_slot": STANDARD + RECOMPUTED,
    "fsdp_bound": f"{ZERO_3}, with prefetch and gradients summed during backward",
    "axis_inside": f"{TENSOR} x data parallelism",
    "tp_limit": f"{TENSOR} x data parallelism",
    "records.tp_limit_states_in_shards": f"{TENSOR} x {Names.ZERO_1_OR_2}",
    "records.axis_inside_states_in_shards": f"like {TENSOR} x ZeRO-1, but layer 0 is kept unsharded, and only its "
    "state in shards",
    "records.three_d_states_by_layer": "1F1B x tensor parallelism x data parallelism of another kind",
    "hierarchy": "data parallelism of another kind",
    "records.hierarchy_input_again": "data parallelism of another kind",
    "bucket_size": f"data parallelism{OVERLAPPED} and buckets",
    "records.bucket_size_growing": f"data parallelism{OVERLAPPED} and buckets",
    "straggler": "data parallelism",
    "uneven_stages": "1F1B",
    "records.uneven_stages_other_counts: less_time": "1F1B",
    "records.uneven_stages_other_counts: less_memory": "1F1B",
    **dict.fromkeys(
        (
            "vocab_parallel",
            *(f"records.vocab_parallel_other_orders: {name}" for name in ("scores_first", "more_in_flight")),
        ),
        "a pipeline with a head cut by vocabulary",
    ),
    "v_half": "V-Half",
    "two_ways": "DualPipeV",
    "records.two_ways_from_both_ends": "a pipeline in two directions",
    "weight_versions": "2BW",
    "host_update": f"{STANDARD}, with prefetch, weight gradients offloaded to the host and weights fetched from the "
    "host",
    "streaming_diloco": "Streaming DiLoCo",
    "seq_pipeline": "Seq1F1B",
    "records.seq_pipeline_longer_first_shares: six_shares": "Seq1F1B",
    "records.seq_pipeline_longer_first_shares: seven_shares": "Seq1F1B",
    "records.seq_pipeline_longer_first_shares: long_second": "Seq1F1B",
    "ring_context": f"ring attention in zigzag{OVERLAPPED}",
    "ulysses": f"Ulysses, which exchanges tokens for heads{OVERLAPPED}",
    "park_or_recompute": PARKED,
    "records.park_or_recompute_waits_once": PARKED,
    "records.ddp_overlap_update_early: one_layer_early": f"data parallelism{OVERLAPPED} and buckets",
    "records.ddp_overlap_update_early: two_layers_early": f"data parallelism{OVERLAPPED} and buckets",
    "records.ddp_overlap_update_early: two_calls_early": f"data parallelism{OVERLAPPED} and buckets",
    "records.ddp_overlap_update_early: two_layers_earlier": f"data parallelism{OVERLAPPED} and buckets",
    "records.ddp_overlap_update_early: three_layers_early": f"data parallelism{OVERLAPPED} and buckets",
    "records.local_sgd_input_again": "local SGD",
    "records.expert_parallel_loss_at_the_experts": "expert parallelism",
    "records.expert_parallel_one_after_the_other": "expert parallelism",
    "records.hybrid_shard_one_full_weight: within_a_machine": "hybrid sharding (HSDP)",
    "records.hybrid_shard_one_full_weight: over_all_ranks": ZERO_3,
    "records.interleaved_short_warm_up": "an interleaved pipeline",
    "records.one_f_one_b_input_again": "1F1B",
    "records.sequence_parallel_last_stays_whole": SEQUENCE,
    "records.stream_inference_nothing_ahead": f"{INFERENCE}weights fetched from the host",
    "records.sequence_parallel_whole_activations": TENSOR,
    "records.zb_h2_weight_gradients_last": "like ZB-H2, but rank 0 runs the forward of microbatch 7 instead of the "
    "weight gradient of microbatch 0",
    "records.zb_v_timetable": "a pipeline in a V",
    "records.zero2_sum: shards": "ZeRO-2",
    "records.zero2_sum: full_gradients": "ZeRO-1",
    "records.fsdp_layer_by_layer: six_layers_six_replicated": "data parallelism",
    "records.fsdp_layer_by_layer: six_layers_five_replicated": ALMOST_DDP.format(5),
    "records.fsdp_layer_by_layer: six_layers_four_replicated": ALMOST_DDP.format(4),
} | {
    f"records.fsdp_layer_by_layer: {name}": by_layer(name.partition("_")[0], plan)
    for name, plan in fsdp_layer_by_layer.VARIANTS.items()
    if plan["REPLICATED"] < 4
}


def module_name(record: Record) -> str:
    """'records.fsdp_layer_by_layer: six_layers_one_full': the module below `solutions`, and the variant."""
    file, variant = record.file_and_variant
    module = file.removeprefix("solutions/").removesuffix(".py").replace("/", ".")
    return ": ".join(filter(None, [module, variant]))


def recognized(trace: Trace) -> Recognition:
    found = recognize(trace)
    assert found is not None
    return found


def known(schedule: Callable[[Model], Any], size: tuple[int, int, int], setting: Setting | None = None) -> Recognition:
    outcome = finished(schedule, *size, setting=setting or Setting())
    return recognized(outcome.trace)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("module", KNOWN)
def test_references_and_records_have_their_names(module: str) -> None:
    played = [solved for record in RECORDS if module_name(record) == module for solved in solved_by(record)]
    for puzzle, schedule in played or [(PUZZLES[module], reference_of(module))]:
        assert known(schedule, puzzle.goal.size, puzzle.goal.setting).text == KNOWN[module]


def test_every_record_is_in_the_table() -> None:
    assert KNOWN.keys() - PUZZLES.keys() == {module_name(record) for record in RECORDS} - PUZZLES.keys()


NAMES = dict(
    zip(
        TEXTBOOKS,
        ("GPipe", "1F1B", "ZB-H1", "ZB-H2", "interleaved 1F1B", "the breadth-first pipeline", "ZB-V", "DualPipeV")
        + ("eager 1F1B", "Hanayo", "V-Half", "V-Min"),
        strict=True,
    )
)


ALIKE = {("zb_h2", 0): "ZB-H1", ("eager_1f1b", 0): "1F1B", ("hanayo", 0): "ZB-V"}
"""With two microbatches, on so many ranks or on any number."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("order", TEXTBOOKS)
@pytest.mark.parametrize("p", [2, 3, 4])
def test_generated_textbooks_have_their_names(order: str, p: int) -> None:
    """For two microbatches some orders are the same."""
    for m in (2, 3, 4, 6, 8):
        table = textbook(order, p, m)
        if table is not None:
            found = recognized(played(table, depth=1 + m % 2))
            name = ALIKE.get((order, p), ALIKE.get((order, 0), NAMES[order])) if m == 2 else NAMES[order]
            assert (found.name, found.difference) == (name, "")


@pytest.mark.parametrize("order", TEXTBOOKS)
def test_with_one_microbatch_there_is_no_order(order: str) -> None:
    table = textbook(order, 3, 1)
    if table is not None:
        assert recognized(played(table)).text == WITHOUT


@pytest.mark.parametrize("v", [2, 3])
def test_interleaved_pipelines_of_more_chunks(v: int) -> None:
    assert recognized(played(interleaved(2, 4, v))).text == "interleaved 1F1B"
    assert recognized(played(breadth_first(2, 5, v))).text == "the breadth-first pipeline"


DP = Setting(mesh={"dp": 2, "pp": 4})
BLOCK = Setting("quarters", layer="block")
EXPERTS = Setting("experts", layer="experts")


@pytest.mark.parametrize(
    ("schedule", "size", "setting", "text"),
    [
        (pipeline(one_f_one_b), (4, 16, 8), DP, "1F1B x data parallelism"),
        (ddp, (3, 8, 4), Setting(mesh={"dp": 4}), "data parallelism"),
        (pipeline(one_f_one_b, sharded=True), (4, 16, 8), DP, f"1F1B x {ZERO_3}, with every weight gathered once"),
        (pipeline(one_f_one_b, recompute=True), (8, 4, 4), Setting(), "1F1B" + RECOMPUTED),
        (pipeline(one_f_one_b, recompute=True), (8, 4, 4), Setting(steps=3), "1F1B" + RECOMPUTED),
        (pipeline(zb_h2), (4, 8, 4), Setting("parts", steps=3), "ZB-H2"),
        (tensor_parallel, (4, 1, 4), BLOCK, "tensor parallelism"),
        (sequence_parallel, (4, 1, 4), BLOCK, "tensor and sequence parallelism"),
        (shards.experts_in_turn, (2, 4, 2), EXPERTS, "expert parallelism"),
        (shards.data_parallel_steps, (2, 4, 4), Setting(steps=2), "data parallelism"),
    ],
)  # fmt: skip
def test_axes_and_extras_are_named(schedule: Any, size: Any, setting: Setting, text: str) -> None:
    assert known(schedule, size, setting).text == text


@pytest.mark.sampled(4)
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize(
    ("schedule", "names"),
    [
        (ddp, ("data parallelism", "data parallelism")),
        (zero1, (Names.ZERO_1_OR_2, "ZeRO-1")),
        (zero2, (Names.ZERO_1_OR_2, "ZeRO-2")),
        (zero3, (ZERO_3, ZERO_3)),
    ],
)
def test_generated_data_parallelism_has_its_name(schedule: Any, names: tuple[str, str], steps: int) -> None:
    """With one microbatch on each rank, and with several."""
    sizes = ((3, 2, 2), (2, 4, 4)), ((3, 4, 2), (2, 8, 4), (1, 6, 3))
    for name, some in zip(names, sizes, strict=True):
        for size in some:
            found = known(schedule, size, Setting(steps=steps))
            assert (found.name, found.difference) == (name, "")


def test_three_axes_are_three_names() -> None:
    goal = PUZZLES["three_d"].goal
    found = known(reference_of("three_d"), goal.size, goal.setting)
    assert found.text == KNOWN["three_d"]
    assert with_papers(found).endswith(" (Narayanan et al. 2019; Shoeybi et al. 2019; Li et al. 2020)")


def changed(table: Timetable, rank: int, at: int, to: int) -> Timetable:
    """A rank's slot moved to another place."""
    rows = [list(row) for row in table.rows]
    rows[rank].insert(to, rows[rank].pop(at))
    return Timetable.of(rows)


def permuted(p: int, m: int) -> Timetable:
    """GPipe, which may take backwards in any order; on the last rank one of them comes before the last forward."""
    backwards = [*reversed(range(m // 2)), *range(m // 2, m)]
    rows = [[*(Cell(r, "F", b) for b in range(m)), *(Cell(r, "B", b) for b in backwards)] for r in range(p)]
    return changed(Timetable.of(rows), p - 1, m, m - 1)


@pytest.mark.parametrize(
    ("table", "facts"),
    [
        (changed(one_f_one_b(4, 8), 2, 2, 1), ("like 1F1B, but rank 2", "one forward too few before")),
        (changed(one_f_one_b(4, 8), 2, 3, 2), ("like 1F1B, but rank 2", "one forward too many before")),
        (changed(one_f_one_b(4, 8), 3, 8, 7), ("like 1F1B, but rank 3", "forward of microbatch 4", "of microbatch 3")),
        (changed(gpipe(2, 8), 1, 8, 7), ("like GPipe, but rank 1", "one forward too few before")),
        (permuted(3, 8), ("like GPipe, but rank 2", "one forward too few before")),
        (changed(zb_h1(4, 8), 3, 12, 11), ("like ZB-H1, but rank 3", "weight gradient of microbatch")),
        (changed(interleaved(2, 4), 1, 7, 6), ("like interleaved 1F1B, but rank 1", "in stage")),
    ],
)  # fmt: skip
def test_the_nearest_schedule_and_the_first_difference(table: Timetable, facts: tuple[str, ...]) -> None:
    text = recognized(played(table)).text
    assert [fact for fact in facts if fact not in text] == []


def test_what_is_like_nothing_is_a_pipeline() -> None:
    """Ranks that take two microbatches forward, back, and then two more."""
    rows = [[Cell(r, op, b) for pair in ((0, 1), (2, 3), (4, 5)) for op in "FB" for b in pair] for r in range(2)]
    assert recognized(played(Timetable.of(rows))).text == "a pipeline"


def test_a_pipeline_with_one_microbatch_at_a_time() -> None:
    rows = [[Cell(r, op, b) for b in range(4) for op in "FB"] for r in range(3)]
    approved("recognition", "a pipeline with one microbatch at a time", recognized(played(Timetable.of(rows))).text)


def test_stages_that_are_dealt_out_anyhow_make_no_textbook() -> None:
    """The middle one of three stages has a rank of its own."""
    first, second = "0F0 0F1 2F0 2B0 2F1 2B1 0B0 0B1", "1F0 1F1 1B0 1B1"
    approved(
        "recognition",
        "stages that are dealt out anyhow make no textbook",
        recognized(played(Timetable.read(f"{first}\n{second}"))).text,
    )


def test_microbatches_may_have_any_numbers_and_stages_any_ranks() -> None:
    """The same order with the ranks and the microbatches numbered the other way round."""
    table = one_f_one_b(3, 6)
    turned = [[Cell(c.stage, c.op, 5 - c.batch) for (c,) in row] for row in reversed(table.rows)]
    assert recognized(played(Timetable.of(turned))).text == "1F1B"


def test_what_failed_or_does_nothing_has_no_name() -> None:
    assert recognize(run(lambda model: None, 1, 1, 1).trace) is None
    assert recognize(run(lambda model: model.get_activation([0]), 1, 1, 1).trace) is None


def test_a_rank_that_only_listens_does_not_hide_the_rest() -> None:
    async def schedule(model: Model) -> None:
        """Data parallelism on the first two of three ranks; the third sums along."""
        weight, state = model.load_weights(0)
        grad = model.fake_grad(0, [])
        if model.rank < 2:
            inp = model.get_activation([model.rank])
            grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
        weight, _ = model.update(0, await model.allreduce(grad, 0), weight, state)
        model.set_final_weight(0, weight)

    assert known(schedule, (1, 2, 3)).text == "data parallelism"


def test_forwards_of_another_step_are_not_recomputed() -> None:
    """Rank 0 goes forward through layer 0 in each of two steps, and nobody there goes back."""

    async def split(model: Model) -> None:
        weight, state = model.load_weights(0)
        for step in range(2):
            if model.rank == 0:
                inp = model.get_activation([0], step)
                await model.pass_to(1, (model.forward(0, inp, weight), inp))
                weight = await model.receive(1)
            else:
                out, inp = await model.receive(0)
                grad, _ = model.backward(0, inp, model.loss(out), weight)
                weight, state = model.update(0, grad, weight, state)
                await model.pass_to(0, weight)
        if model.rank:
            model.set_final_weight(0, weight)

    trace = run(split, 1, 1, 2, setting=Setting(steps=2)).trace
    assert len(recomputed(trace.ranks[0])) == 1  # without the steps it cannot be known
    assert "recomputed" not in recognized(trace).text


@pytest.mark.parametrize("slug", ["grad_accum", "ddp", "wsdp", "fsdp", "pipeline", "gpipe"])
def test_a_reference_has_its_name_at_every_size(slug: str) -> None:
    solution = reference_of(slug)
    for size in PUZZLES[slug].other_sizes:
        assert known(solution, size).text == KNOWN[slug]


# === Random schedules are never called what they are not ===


MORE = re.compile("with (one|two|three|four) more warm-up forwards?")
COUNTS = ("no", "one", "two", "three", "four")

FEW, MANY = range(40), range(40, 1040)


@pytest.mark.parametrize(
    ("seeds", "least"),
    [(FEW, 4), pytest.param(MANY[::2], len(DEFINITIONS), marks=pytest.mark.slow)],
    ids=["few", "many"],
)
def test_a_random_pipeline_has_a_name_only_if_its_definition_holds(seeds: Iterable[int], least: int) -> None:
    """And no definition holds that another name was preferred to. Of many, each has its name."""
    given = set()
    for seed in seeds:
        table, depth = random_pipeline(seed), 1 + seed % 2
        trace = played(table, depth)
        found = recognize(trace)
        assert found is not None
        ranks, p, m = operations(trace, depth), table.ranks, table.batches
        true = {name for name in DEFINITIONS if holds(name, ranks, p, m)}
        if found.difference:
            assert found.name not in true - NECESSARY, (seed, found.text)
            more = MORE.fullmatch(found.difference)
            if more is not None:
                assert all(ahead(cells, p - r - 1 + COUNTS.index(more[1]), m) for r, cells in enumerate(ranks)), seed
            else:
                assert f"rank {rank_named(found.difference)} " in found.difference
        elif found.name in DEFINITIONS:
            assert found.name in true, (seed, found.text)
            given.add(found.name)
        else:
            assert not true - NECESSARY, (seed, found.text, true)
    assert len(given) >= least


def rank_named(difference: str) -> int:
    words = difference.split()
    return int(words[words.index("rank") + 1])


def of_layer(choices: Choices, layer: int) -> str:
    """What data parallelism a layer belongs to, from the choices that made the schedule."""
    if not choices.pick(f"shard{layer}", 2):
        return "data parallelism"
    return "ZeRO-3 (FSDP)" if choices.pick(f"scatter{layer}", 2) else "weight-sharded data parallelism"


@pytest.mark.parametrize("seeds", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])
def test_random_data_parallelism_is_named_by_what_was_chosen(seeds: Iterable[int]) -> None:
    given = set()
    for seed in seeds:
        draw = random.Random(seed)
        layers, batches, ranks = draw.randint(1, 3), draw.randint(1, 4), draw.randint(2, 4)
        choices = Choices(ranks, seed)
        found = recognize(run(choices, layers, batches, ranks).trace)
        assert found is not None
        kinds = {of_layer(choices, layer) for layer in range(layers)}
        if len({choices.pick(f"rank of {batch}", ranks) for batch in range(batches)}) == 1:
            assert found.family == "training on one rank"
            continue
        assert found.name in kinds
        assert bool(found.difference) == (len(kinds) > 1)
        assert not found.difference or f"layer {layer_named(found.difference)} " in found.difference
        if found.difference:
            assert of_layer(choices, layer_named(found.difference)) != found.name
        given.add(found.name)
    assert len(given) == 3


def layer_named(difference: str) -> int:
    return int(difference.split()[1])
