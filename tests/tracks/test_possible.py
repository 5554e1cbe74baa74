"""A pass says what the schedule is, and how far it is from what is possible."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import pytest

from lib import Model, Report, Setting, Size, Trace, referee, run, trace_to_json
from lib.ledger.family import PIPELINE
from lib.pipelines import Recognition, one_f_one_b, pipeline, recognize
from lib.pipelines.bounds import memory_bound, time_bound, traffic_bound
from puzzles.catalog.schedule import PUZZLES
from puzzles.tracks import track_of
from puzzles.tracks.schedule.feedback import above_possible, with_papers
from tests.support.solved import played, records_of, reference_of


def said_on_a_pass(slug: str, function: Any) -> tuple[Report, Recognition, str]:
    """The report on a solution, what it is, and everything that is said about it."""
    puzzle, track = PUZZLES[slug], track_of(slug)
    trace = played(puzzle, function).trace
    report, found = referee(trace, puzzle.goal), recognize(trace)
    assert found is not None
    figures = {"timesteps": report.timesteps, "peak_memory": report.peak.memory, "traffic": report.traffic}
    kept = trace_to_json(trace)
    compared = track.words.comparison(puzzle, figures, kept)
    return (
        report,
        found,
        " ".join(
            [
                f"Built: {track.words.built(puzzle, kept)}.",
                track.words.record(puzzle, figures, report.stars, report.family),
                *compared,
            ]
        ),
    )


def solutions_of(slug: str) -> list[Any]:
    """The reference of a puzzle, and a record at its size of each family."""
    functions = {"": reference_of(slug)}
    for record, function in records_of(slug):
        functions.setdefault(record.family, function)
    return list(functions.values())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("slug", PUZZLES)
def test_a_pass_says_once_what_the_schedule_is_and_never_two_things(slug: str) -> None:
    goal = PUZZLES[slug].goal
    for function in solutions_of(slug):
        report, found, said = said_on_a_pass(slug, function)
        assert said.count("This is ") == (report.family != goal.family)
        if report.family == goal.family:
            assert f"Built: {with_papers(found)}." in said
        else:
            assert f"This is {report.family}, " in said
            assert (f"Built: {with_papers(found)}." in said) == (found.text != report.family)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("slug", PUZZLES)
def test_a_pass_says_how_far_it_is_from_the_bounds(slug: str) -> None:
    goal = PUZZLES[slug].goal
    report, _, said = said_on_a_pass(slug, reference_of(slug))
    for unit, figure, bound in (
        (goal.costs.time_unit, report.timesteps, time_bound(goal.size, goal.setting)),
        ("elements", report.peak.memory, memory_bound(goal.size, goal.setting)),
    ):
        needs = rf"any schedule needs at least ([\d.,]+) {unit} \([^()]+\)"
        (compared,) = re.findall(rf"{needs}, and this one takes ([\d.,]+|no) more\.", said)
        least, more = (0.0 if number == "no" else float(number.replace(",", "")) for number in compared)
        assert (round(least + more, 3), least) == (figure, bound.least)
    bound = traffic_bound(goal.size, goal.setting, goal.time_limit)
    sent = re.findall(
        r"Traffic: (.*?) needs at least ([\d,]+) elements sent by a rank .* this one takes ([\d,]+) more", said
    )
    above = f"{report.traffic - bound.least:,}"
    below = f"any schedule below {goal.costs.took(goal.time_limit)}"
    assert sent == ([(below, f"{bound.least:,}", above)] if bound.least else [])


def dealt_out(size: Size, choice: random.Random) -> tuple[tuple[frozenset[int], int], ...]:
    """Layers dealt out to stages in some way: in a row, in turn, or at random."""
    stages = choice.randint(1, min(size.layers, size.ranks))
    ways = (lambda i: i * stages // size.layers, lambda i: i % stages, lambda i: choice.randrange(stages))
    way = choice.choice(ways)
    of = [way(layer) for layer in range(size.layers)]
    layers = [frozenset(layer for layer in range(size.layers) if of[layer] == stage) for stage in sorted(set(of))]
    return tuple((each, size.ranks // stages) for each in layers)


@pytest.mark.slow
def test_no_message_names_a_bound_and_a_record_that_beats_it() -> None:
    """Whatever the stages of a pipeline are; a record of any pipeline beats the bound that is named of one."""
    needs = r"(a pipeline with these stages|any schedule) needs at least ([\d.,]+) (step|element)"
    seen = Counter[str]()
    for puzzle in PUZZLES.values():
        goal, choice = puzzle.goal, random.Random(puzzle.slug)
        trace = Trace(goal.size, ((),) * goal.size.ranks, goal.setting)
        for _ in range(20):
            found = Recognition(("a pipeline",), "", (), PIPELINE, dealt_out(goal.size, choice))
            text = " ".join(above_possible(trace, found, {"timesteps": 0.0, "peak_memory": 0}, goal.records))
            for whose, number, unit in re.findall(needs, text):
                seen[f"{unit}s of {whose}"] += 1
                for record in goal.records:
                    if whose == "any schedule" or "pipeline" in record.family or not record.family:
                        figure = record.timesteps if unit == "step" else record.peak_memory
                        assert figure >= float(number.replace(",", "")), (puzzle.slug, record, text)
            seen["other stages"] += "has other stages" in text
    assert len(seen) == 4
    assert min(seen.values()) > 20


def test_a_faster_pipeline_of_other_stages_replaces_their_bound() -> None:
    """A record at this size has its layers dealt out in turn; with two layers in a row 30.4 steps are the least."""
    _, _, said = said_on_a_pass("gpipe", reference_of("gpipe"))
    assert "33.3 timesteps, 2,883,584 elements" in said
    assert "(`one_f_one_b`): 32.9 timesteps" in said
    assert "with these stages needs" not in said


def sentences(trace: Trace) -> list[str]:
    report, found = referee(trace), recognize(trace)
    assert found is not None
    return list(above_possible(trace, found, {"timesteps": report.timesteps, "peak_memory": report.peak.memory}))


def test_a_pipeline_is_compared_with_its_own_bound_first() -> None:
    time, memory = sentences(run(pipeline(one_f_one_b), 4, 8, 4, setting=Setting("stages")).trace)
    own, of_any = time.split("; ")
    assert ("Time: a pipeline" in own, "33 steps (" in own) == (True, True)
    assert own.endswith("takes no more")
    assert ("any schedule" in of_any, "24 steps (" in of_any) == (True, True)
    assert of_any.endswith("takes 9 more.")
    own, of_any = memory.split("; ")
    assert ("Memory: a pipeline" in own, "33 timesteps" in own) == (True, True)
    assert "925,696 elements" in own
    assert ("any schedule" in of_any, "401,408 elements" in of_any) == (True, True)
    assert memory.endswith("takes 1,040,384 more.")


def test_one_is_singular() -> None:
    async def infer(model: Model) -> None:
        model.activations[0] = model.get_activation([0])
        for layer in range(model.LAYERS):
            weight, _ = model.load_weights(layer)
            model.activations[layer + 1] = model.forward(layer, model.activations.pop(layer), weight)
        model.set_output(model.activations[model.LAYERS])

    time, _ = sentences(run(infer, 2, 1, 1, setting=Setting(task="infer")).trace)
    assert "1 step (" in time
    figures = {"timesteps": 25.0, "peak_memory": 9_999_999}
    assert track_of("checkpoint").words.margin(PUZZLES["checkpoint"], figures).startswith("2 timesteps and 1 element ")
