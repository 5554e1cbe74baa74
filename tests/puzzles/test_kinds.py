"""A schedule is described from its trace: the references, the records, and schedules that have no name of their own."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from lib import Model, referee, run, trace_to_json
from lib.judging.family import ONE_RANK, PIPELINE
from puzzles.catalog.schedule import PUZZLES
from puzzles.tracks import track_of
from puzzles.tracks.schedule.kinds import kind_of

KINDS = {
    "basic": "standard training: every batch forward, then every batch backward",
    "grad_accum": "gradient accumulation, one batch at a time",
    "ddp": "plain data parallelism (DDP)",
    "wsdp": "weight-sharded data parallelism, with every weight gathered twice",
    "fsdp": "fully sharded data parallelism (ZeRO-3), with every weight gathered twice",
    "pipeline": "a pipeline without microbatches: one stage works at a time",
    "gpipe": "a pipeline in GPipe's order: all forwards, then all backwards",
    "pipeline_fsdp": "a pipeline with one microbatch in flight on each rank, 4 ranks to a stage and every weight in "
    "16 shards",
    "records.basic_batch_by_batch": "gradient accumulation, one batch at a time",
    "records.wsdp_gather_once": "weight-sharded data parallelism, with every weight gathered once",
    "records.fsdp_last_layer_stays_whole": "fully sharded data parallelism (ZeRO-3)",
    "records.fsdp_one_activation_twice": "fully sharded data parallelism (ZeRO-3), with activations recomputed",
    "records.pipeline_laps": "an interleaved pipeline",
    "records.pipeline_timetable": "a pipeline in 1F1B order, with at most 2 microbatches in flight",
    "records.gpipe_laps": "an interleaved pipeline",
    "records.gpipe_owners_send": "data parallelism with weights sent by their owners",
    "records.gpipe_recompute_while_waiting": "a pipeline in 1F1B order, with at most 4 microbatches in flight, with "
    "activations recomputed",
}


@pytest.mark.parametrize("module", KINDS)
def test_solutions_and_records_are_of_the_kind_that_their_docstrings_name(module: str) -> None:
    solution = import_module(f"solutions.{module}")
    name = module.rpartition(".")[2]
    slug = max((slug for slug in PUZZLES if name.startswith(slug)), key=len)
    trace = run(getattr(solution, slug), *PUZZLES[slug].goal.size).trace
    assert kind_of(trace, referee(trace).family) == KINDS[module]


async def two_by_two(model: Model) -> None:
    """Batches in pairs: neither all at once nor one at a time."""
    weight, state = model.load_weights(0)
    grads = []
    for pair in ([0, 1], [2, 3]):
        inp = model.get_activation(pair)
        grads.append(model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)[0])
    model.set_final_weight(0, model.update(0, grads[0] + grads[1], weight, state)[0])


async def stages_in_pairs(model: Model) -> None:
    """A pipeline of two ranks that takes two batches forward before it takes them back, and then the next two."""
    layer, pairs = model.rank, ([0, 1], [2, 3])
    weight, state = model.load_weights(layer)
    total = None
    for pair in pairs:
        inputs = {}
        for batch in pair:
            inputs[batch] = model.get_activation([batch]) if not layer else (await model.receive())
            out = model.forward(layer, inputs[batch], weight)
            if not layer:
                await model.pass_to(1, out)
            else:
                inputs[batch] = (inputs[batch], out)
        for batch in pair:
            if layer:
                inp, out = inputs[batch]
                grad, back = model.backward(layer, inp, model.loss(out), weight)
                await model.pass_to(0, back)
            else:
                grad, _ = model.backward(layer, inputs[batch], await model.receive(), weight)
            total = grad if total is None else total + grad
    assert total is not None
    model.set_final_weight(layer, model.update(layer, total, weight, state)[0])


def idle(model: Model) -> None:
    """Nothing at all."""


@pytest.mark.parametrize(
    ("schedule", "size", "kind"),
    [(two_by_two, (1, 4, 1), ONE_RANK), (stages_in_pairs, (2, 4, 2), PIPELINE), (idle, (1, 1, 2), ONE_RANK)],
)
def test_what_has_no_name_of_its_own_has_that_of_its_family(
    schedule: object, size: tuple[int, int, int], kind: str
) -> None:
    outcome = run(schedule, *size)  # type: ignore[arg-type]
    assert outcome.error is None
    assert kind_of(outcome.trace, referee(outcome.trace).family) == kind


@pytest.mark.parametrize("slug", PUZZLES)
def test_a_pass_says_once_what_the_schedule_is_and_never_two_things(slug: str) -> None:
    """The solution of each puzzle, and the records at its size of each family."""
    puzzle, solutions = PUZZLES[slug], {"": f"solutions.{slug}"}
    for record in puzzle.goal.records:
        module = ".".join(Path(record.by).with_suffix("").parts)
        if hasattr(import_module(module), slug):
            solutions.setdefault(record.family, module)
    for module in solutions.values():
        goal = puzzle.goal
        trace = run(getattr(import_module(module), slug), *goal.size, setting=goal.setting).trace
        report = referee(trace, goal)
        figures = {"timesteps": report.timesteps, "peak_memory": report.peak.memory}
        track = track_of(slug)
        kept = trace_to_json(trace)
        said = [track.record(puzzle, figures, report.stars, report.family), *track.comparison(puzzle, figures, kept)]
        (sentence,) = re.findall(r"This is [^.]+\.", " ".join(said))
        own = report.family == puzzle.goal.family
        assert (kind_of(trace, report.family) if own else report.family) in sentence
