"""The tracks together: names, lists, data that survives JSON; and how far a pass is from what is possible."""

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import COSTS, Model, Report, Setting, Size, Trace, referee, run, trace_to_json
from lib.ledger.family import PIPELINE
from lib.pipelines import Recognition, one_f_one_b, pipeline, recognize
from lib.pipelines.bounds import memory_bound, time_bound, traffic_bound
from puzzles.catalog.puzzle import with_papers
from puzzles.catalog.schedule import PUZZLES
from puzzles.failure import Failure
from puzzles.judge import progress
from puzzles.sandbox.plain_data import Foreign, pack, unpack
from puzzles.tracks import ALL, TRACKS, UnknownPuzzleError, find, find_several, groups, track_of
from puzzles.tracks.outcomes import Score, amount, number_text
from puzzles.tracks.schedule.feedback import above_possible, standing
from puzzles.tracks.schedule.free_game import free_report, summary
from puzzles.tracks.schedule.judge import score_trace
from tests.catalog.lessons.families.replicas import buckets
from tests.support.commands import ROOT, puzzles, said
from tests.support.examples import LETTERS, examples
from tests.support.solved import played, records_of, reference_of

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")

# --- The tracks together: names that do not collide, lists that are easy to read, data that survives JSON ---


# --- Names ---


def test_no_two_puzzles_tracks_or_chapters_have_one_name() -> None:
    slugs = [slug for track in TRACKS.values() for slug in track.slugs]
    assert len(set(slugs)) == len(slugs) == len(ALL)
    names = {*TRACKS, *(group.name for group in groups())}
    assert not names & {slug.lower() for slug in slugs}
    assert len({group.name for group in groups()}) == sum(len(track.groups) for track in TRACKS.values())


@pytest.mark.sampled(24)
@pytest.mark.parametrize("slug", ALL)
def test_a_puzzle_is_found_by_its_slug_with_and_without_its_track(slug: str) -> None:
    track = ALL[slug]
    for name in (slug, f" {slug} ", f"{track.name}:{slug}", f"{track.name}:{slug.lower()}"):
        assert find(name).slug == slug
    assert find_several(slug) == (slug,)


def test_case_decides_where_two_puzzles_differ_in_nothing_else() -> None:
    assert [find(name).slug for name in ("fsdp", "FSDP", "Fsdp", "engine:fsdp", "onebucket", "7", "grad-accum")] == [
        *("fsdp", "FSDP", "fsdp", "FSDP", "OneBucket", "fsdp", "grad_accum")
    ]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("engine:fsdb", "there is no engine puzzle 'fsdb'; did you mean 'FSDP'?"),
        ("layout:zzz", "there is no layout puzzle 'zzz'; 'puzzles list' names them all"),
        ("layouts:ffn", "there is no track 'layouts'; there are schedule, engine, layout"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_one(name: str, told: str) -> None:
    with pytest.raises(UnknownPuzzleError) as refused:
        find(name)
    assert str(refused.value).startswith(told)


# --- Lists ---


def test_the_list_shows_every_track_and_chapter_with_its_idea_and_the_stars() -> None:
    entries = progress.load()
    entries["FSDP"] = progress.PuzzleProgress(attempts=2, stars=3, figures={"sent": 18_432})
    progress.save(entries)
    page = puzzles("list").stdout
    words = " ".join(page.split())
    assert all(len(line) <= 80 for line in page.splitlines())
    assert all(track.title in page for track in TRACKS.values())
    chapters = [group for group in groups() if all(group.slugs != track.slugs for track in TRACKS.values())]
    places = [words.index(f" {group.name} {group.title} ") for group in chapters]
    assert places == sorted(places), "the classics first"
    assert len(page.splitlines()) < 24, "it fits a screen"
    assert f"the model 3 of {3 * len(TRACKS['engine'].groups[1].slugs)}" in words
    assert f"On real tensors: {TRACKS['engine'].idea} 3 of {3 * len(TRACKS['engine'].slugs)} stars" in words
    assert "checkpoint" in words, "the core puzzle after the one that was played last"


@pytest.mark.parametrize("name", TRACKS)
def test_the_list_of_a_track_shows_its_chapters(name: str) -> None:
    page = puzzles("list", name).stdout
    assert all(len(line) <= 80 for line in page.splitlines())
    assert all(group.title in page for group in TRACKS[name].groups)
    assert all(slug in page for slug in TRACKS[name].slugs)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [group.name for group in groups()])
def test_a_chapter_is_listed_with_its_targets_and_starts_as_a_file(name: str) -> None:
    page = puzzles("list", name).stdout
    (group,) = (group for group in groups() if group.name == name)
    assert group.title in page
    assert group.idea.lower() in " ".join(page.split()).lower()
    assert all(slug in page for slug in group.slugs)
    puzzles("start", name, code=0)
    graded = json.loads(puzzles("grade", "--json", "--puzzle", name, f"my_{name}.py").stdout)
    (file,) = graded["files"]
    assert [(one["puzzle"], one["status"]) for one in file["results"]] == [(s, "not_attempted") for s in group.slugs]


def test_a_puzzle_cannot_be_listed() -> None:
    result = puzzles("list", "fsdp")
    assert (result.exit_code, "'puzzles show fsdp'" in " ".join(result.stderr.split())) == (2, True)


def test_a_class_has_no_picture_and_a_layout_only_one() -> None:
    Path("mine.py").write_text("")
    for words, told in (
        (("draw", "mine.py", "FSDP"), "FSDP is a class, and classes have no picture"),
        (("draw", "mine.py", "ffn", "--pareto"), "ffn is a layout; only its plan can be drawn"),
        (
            ("run", "mine.py", "ffn", "-o", "ffn.svg"),
            "ffn is a layout, and 'puzzles draw' draws it; leave out -o",
        ),
        (("verify", "mine.py", "--puzzle", "ZeRO1"), "there are no traces of ZeRO1, a puzzle of the track 'engine'"),
        (("verify", "mine.py", "--puzzle", "FSDP"), "there are no traces of FSDP"),
        (("verify", "mine.py", "--puzzle", "FSDP"), "did you mean 'fsdp'?"),
    ):
        result = puzzles(*words)
        assert (result.exit_code, told in " ".join(result.stderr.split())) == (2, True), result.stderr


@pytest.mark.slow
def test_progress_of_all_tracks_is_kept_and_forgotten() -> None:
    solutions = [ROOT / "solutions" / name for name in ("engine/fsdp.py", "layout/ffn.py")]
    Path("mine.py").write_text("\n\n".join(path.read_text(encoding="utf-8") for path in solutions))
    progress.add_own_file("mine.py")
    puzzles("grade", "mine.py", code=0)
    puzzles("hint", "FSDP", "-n", "2")
    page = " ".join(puzzles("status").stdout.split())
    assert "18,432 bytes sent" in page
    assert "12,288 bytes moved" in page
    puzzles("reset", "layout", "--yes", code=0)
    assert [progress.load()[slug].stars for slug in ("FSDP", "ffn")] == [2, 0]


# --- Plain data ---

dtypes = st.sampled_from(["<f4", "<f8", "<i8", "|b1", "<u2", "<c8", ">f4"])
shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
arrays = st.builds(
    lambda dtype, shape: np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape), dtypes, shapes
)
TEXTS = st.text(LETTERS)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS | arrays
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(TEXTS, inner),
    max_leaves=8,
)


def same(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray):
        return type(a) is type(b) and (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@examples(40)
@given(trees)
def test_what_is_packed_comes_back_as_it_was(tree: object) -> None:
    assert same(tree, unpack(json.loads(json.dumps(pack(tree)))))


def test_of_anything_else_only_the_type_is_kept() -> None:
    back = unpack(pack([object(), np.array([object()]), {1, 2}, np.float32(2)]))
    assert [type(one) for one in back] == [Foreign, Foreign, Foreign, np.float32]
    assert [one.what for one in back[:3]] == ["object", "ndarray", "set"]


@pytest.mark.parametrize(
    "data",
    [
        {"array": ["<f4", [2], "AAAA"]}, {"array": ["<f4", [10**13], ""]}, {"array": ["|O", [1], "AAAAAAAAAAA="]},
        {"array": ["<f4", [-1], ""]}, {"array": ["<f4", [1] * 40, "AAAAAA=="]}, {"array": ["no such", [], ""]},
        {"array": ["<f4", [1], "%%%"]}, {"array": ["<f4", [True], "AAAAAA=="]}, {"array": ["V4", [1], "AAAAAA=="]},
        {"pickle": "cos"}, {"dict": [[{"list": []}, 1]]}, {"dict": [[1]]}, {"list": 5}, [], {},
    ],
)  # fmt: skip
def test_what_somebody_else_has_packed_is_refused(data: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # several sentences, none of which a player sees
        unpack(data)


@pytest.mark.parametrize("name", TRACKS)
def test_every_track_has_three_objects_in_files_of_the_same_names(name: str) -> None:
    track = TRACKS[name]
    parts = {part: type(getattr(track, part)).__module__ for part in ("judge", "words", "show")}
    assert parts == {part: f"puzzles.tracks.{name}.{part}" for part in parts}


# --- A pass says what the schedule is, and how far it is from what is possible ---


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


# --- Puzzles in microseconds: what is shown, listed and said of a run has their unit ---


PUZZLE = PUZZLES["bucket_size"]
TRACK = track_of("bucket_size")


def scored(*sizes: int) -> Score:
    goal = PUZZLE.goal
    score = score_trace(run(buckets(*sizes), *goal.size, setting=goal.setting).trace, PUZZLE, goal.size)
    assert not isinstance(score, Failure)
    return score


def test_show_asks_for_a_prediction_and_about_has_the_answer() -> None:
    question = " ".join(PUZZLE.statement.split("\n\n")[-1].split())
    answer = " ".join(PUZZLE.answer.split())
    page, about = said("show", "bucket_size"), said("show", "bucket_size", "--about")
    assert question.startswith("Predict first: ")
    assert question in page
    assert answer not in page
    assert f"The prediction {answer}" in about
    assert "2,550 us, < 177M" in page


def test_the_list_of_a_chapter_says_its_unit() -> None:
    assert "Targets: us, " in said("list", "microseconds")
    assert "Targets: timesteps, " in said("list", "memory")


def test_the_verdict_on_a_slow_run_is_in_microseconds() -> None:
    (missed,) = scored(8, 8).missed
    assert ("2,722 us" in missed, "< 2,550" in missed) == (True, True)
    figures = TRACK.words.figures_text(PUZZLE, scored(8, 8).figures)
    assert figures.startswith("2,722 us (target < 2,550), 167,772,160 elements")


def test_the_words_after_a_pass_are_in_microseconds() -> None:
    figures = scored(4, 4, 4, 4).figures
    assert "2,441 us, 167,772,160 elements" in standing(PUZZLE, figures, 2, PUZZLE.goal.family)
    assert TRACK.words.margin(PUZZLE, figures).startswith("62 us, ")


def test_a_free_run_and_its_bounds_are_in_microseconds() -> None:
    size, setting = Size(2, 1, 1), Setting("hopper_host")
    trace = run(reference_of("basic"), *size, setting=setting).trace
    lines = summary(trace, free_report(trace, "mine", size, setting))
    assert "over at 4,642;" in lines[0]
    (time,) = [line for line in lines if line.startswith("Time: ")]
    assert f"needs at least {number_text(time_bound(size, setting).least)} us (" in time
    assert not any("step" in line for line in lines)


def test_amounts_of_microseconds() -> None:
    assert (amount(1, "us"), amount(2.0, "us"), amount(1.0, "timesteps")) == ("1 us", "2 us", "1 timestep")
    assert COSTS["hopper_host"].took(21_534.0) == "21,534 us"
    assert COSTS["classic"].took(19.9) == "19.9 timesteps"
