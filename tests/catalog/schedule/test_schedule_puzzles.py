"""The schedule catalog: words, figures, starters and records agree with the runtime and with each other."""

import ast
import re
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from inspect import isawaitable, signature
from pathlib import Path
from typing import Any

import pytest

from lib import CLASSIC_SETTING, COSTS, Goal, Model, Op, Record, Setting, Trace, referee, run
from lib.ledger.family import FAMILIES, MIXED
from lib.pipelines import recomputed
from puzzles.catalog.content import placed
from puzzles.catalog.path import CORE, TRICKS
from puzzles.catalog.puzzle import END_OF_GAP, GAP
from puzzles.catalog.schedule import CLASSICS, PUZZLES, SchedulePuzzle, differences, price_text
from puzzles.judge.grader import grade_file
from puzzles.judge.starters import is_unchanged_starter, starter_file
from puzzles.player.play import play
from puzzles.sandbox.worker.reading import Sketch, sketch
from puzzles.tracks import UnknownPuzzleError, find, track_of
from puzzles.tracks.outcomes import Score
from puzzles.tracks.schedule.judge import score_trace
from puzzles.tracks.schedule.words import reminder
from tests import support
from tests.screens.texts import approved
from tests.support.solved import RECORDS, SOME_RECORDS, played, record_name, reference_of, solved_by
from tests.support.variants import ROOT, module_of

# --- The schedule catalog: eight puzzles whose words, figures and starters agree with the runtime and with each
# other ---


every_puzzle = pytest.mark.parametrize("puzzle", [pytest.param(p, id=slug) for slug, p in PUZZLES.items()])


def test_the_catalog_is_the_table_of_the_classic_puzzles():
    classics = [PUZZLES[slug] for slug in CLASSICS.slugs]
    table = [(c.slug, c.size, c.time, c.memory) for c in support.CLASSICS]
    assert [(p.slug, p.goal.size, p.goal.time, p.goal.memory) for p in classics] == table
    assert all(p.goal.setting == CLASSIC_SETTING for p in classics)


@every_puzzle
def test_the_starter_is_a_valid_function_of_the_right_name_with_a_gap(puzzle: SchedulePuzzle):
    (function,) = ast.parse(puzzle.starter).body
    is_async = not {"basic", "grad_accum", "checkpoint"} & {puzzle.slug}
    assert isinstance(function, ast.AsyncFunctionDef if is_async else ast.FunctionDef)
    assert function.name == puzzle.slug
    assert ast.get_docstring(function)
    before, _, rest = puzzle.starter.partition(GAP)
    assert "model.storage()" in before
    result = "set_output" if puzzle.goal.setting.task == "infer" else "set_final_weight"
    gap, _, after = rest.partition(END_OF_GAP)
    assert result in after
    assert all(not line.strip() or line.strip().startswith("#") for line in gap.splitlines()), "a line of the solution"


@pytest.mark.sampled(12)
@every_puzzle
def test_the_starter_runs_up_to_its_gap_and_is_then_refused_not_crashed(puzzle: SchedulePuzzle):
    names: dict = {}
    exec(starter_file([puzzle], "mine.py"), names)
    error = run(names[puzzle.slug], *puzzle.goal.size, setting=puzzle.goal.setting).error
    assert re.match(r"rank \d+, t=0\b", str(error))


@pytest.mark.sampled(4)
@every_puzzle
def test_untouched_is_seen_through_comments_but_not_through_code(puzzle: SchedulePuzzle):
    def found(source: str) -> Sketch:
        return sketch(ast.parse(source).body[0])

    starter, gap = puzzle.starter, GAP + "\n    "
    for same in (
        starter,
        starter.replace(GAP, gap + "# later!\n"),
        starter.replace("(model: Model) -> Model", "(model)").replace("async def", "def"),
        starter.replace(GAP, gap + "assert False, 'TODO: Implement me'\n"),
        starter.replace(GAP, gap + "raise NotImplementedError('later')\n"),
        starter.replace(GAP, gap + "...\n").replace("for layer in", "for l in"),
    ):
        assert is_unchanged_starter(puzzle, found(same)), same
    for other in (
        starter.replace(GAP, gap + "pass\n"),
        starter.replace(GAP, gap + "assert False, model.loss(activations[0])\n"),
        starter.replace(GAP, gap + "forward(model)\n    raise NotImplementedError\n"),
        starter.replace(GAP, gap + "assert model.RANKS, 'TODO'\n"),
        starter.replace(GAP, gap + "raise ValueError\n"),
    ):
        assert not is_unchanged_starter(puzzle, found(other)), other
    assert not is_unchanged_starter(puzzle, Sketch())


def test_a_starter_file_holds_every_starter_and_says_how_to_go_on():
    text = starter_file(list(PUZZLES.values()), "folder/mine.py")
    assert [f.name for f in ast.parse(text).body if hasattr(f, "name") and f.name in PUZZLES] == list(PUZZLES)
    assert all(puzzle.starter in text for puzzle in PUZZLES.values())
    assert "puzzles grade mine.py" in text
    assert all(len(line) <= 110 for line in text.splitlines())


@pytest.mark.slow
def test_a_file_name_cannot_spoil_the_starter_file():
    ast.parse(starter_file(list(PUZZLES.values()), 'a"""\\n.py'))


@pytest.mark.sampled(4)
@every_puzzle
def test_the_reference_is_right_at_the_other_sizes_too(puzzle: SchedulePuzzle):
    assert 1 <= len(puzzle.other_sizes) <= 2
    for size in puzzle.other_sizes:
        assert size != puzzle.goal.size
        goal = Goal(puzzle.slug, size, 10**6, 10**9, setting=puzzle.goal.setting)
        outcome = run(reference_of(puzzle.slug), *size, setting=goal.setting)
        assert (outcome.error, referee(outcome.trace, goal).error) == (None, None)


@every_puzzle
def test_the_reminder_is_about_calls_that_exist_and_that_the_reference_makes(puzzle: SchedulePuzzle):
    source = Path(import_module(f"solutions.{puzzle.slug}").__file__).read_text()
    starter = puzzle.starter
    for name, (call, meaning) in zip(puzzle.calls, reminder(puzzle), strict=True):
        assert f"model.{name}(" in source
        assert meaning
        is_async = signature(getattr(Model, name)).return_annotation.startswith(("Awaitable", "Coroutine"))
        assert call.startswith(f"await model.{name}(" if is_async else f"model.{name}(")
    used = {name for name in dir(Model) if f"model.{name}(" in source}
    assert used - set(puzzle.calls) <= {name for name in dir(Model) if f"model.{name}(" in starter}


def test_the_bubbles_are_what_the_texts_say():
    """Three quarters for the naive pipeline; for GPipe (K - 1) / (M + K - 1), three sevenths."""

    def bubble(slug: str) -> float:
        return referee(run(reference_of(slug), *PUZZLES[slug].goal.size).trace).bubble

    assert "three quarters" in PUZZLES["pipeline"].concept
    assert "three sevenths" in PUZZLES["gpipe"].concept
    assert bubble("pipeline") == pytest.approx(3 / 4, abs=0.02)
    assert bubble("gpipe") == pytest.approx(3 / 7, abs=0.01)


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ("fsdb", "did you mean 'fsdp'?"),
        ("grad_acum", "did you mean 'grad_accum'?"),
        ("pipelines", "did you mean 'pipeline'?"),
        ("accum", "did you mean 'grad_accum'?"),
        ("sdp", "did you mean 'wsdp' or 'fsdp'?"),
        ("nope", "'puzzles list' names them all"),
        ("zebra", "'puzzles list' names them all"),
        ("", "'puzzles list' names them all"),
        ("99", "'puzzles list' names them all"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest_right_one(wrong: str, advice: str):
    with pytest.raises(UnknownPuzzleError) as refused:
        find(f"schedule:{wrong}")
    assert str(refused.value).startswith(f"there is no schedule puzzle '{wrong}'; {advice}")


def test_a_setting_is_shown_as_what_differs_from_the_classics():
    rows = {slug: [tuple(row) for row in differences(p.goal.setting, p.calls)] for slug, p in PUZZLES.items()}
    assert all(rows[slug] == [] for slug in CLASSICS.slugs)
    by_size = "0.15 steps a hop and 1 step for each 786,432 elements sent"
    assert ("`allreduce`", by_size, "0.3 steps") in rows["ddp_overlap"]
    approved(
        "schedule_puzzles", "a setting is shown as what differs from the classics", rows["zero1"], "1 step for each"
    )
    assert ("a weight", "1,048,576 elements", "262,144 elements") in rows["expert_parallel"]
    assert ("communication", "overlaps with computation", "blocks") in rows["ddp_overlap"]
    assert ("`offload`", "1 step", "none") in rows["offload"]
    assert ("an activation", "1,048,576 elements", "131,072 elements") in rows["checkpoint"]
    machines = "1 step for each 163,840 elements sent"
    assert ("- between machines", machines, "one machine") in rows["hybrid_shard"]
    approved(
        "schedule_puzzles", "a setting is shown as what differs from the classics, 2", rows["three_d"], "dp 2, pp 2,"
    )
    assert ("training steps", "8", "1") in rows["local_sgd"]
    assert not any(row[0] == "`forward`" for slug in ("ddp_overlap", "three_d") for row in rows[slug])


def test_the_table_of_a_setting_is_in_the_starter_file_too():
    text = starter_file([PUZZLES["ddp_overlap"]], "mine.py")
    assert "# costs 'buckets'" in text
    assert any(line.startswith("# allreduce") and "for each 786,432 elements" in line for line in text.splitlines())
    assert "# costs" not in starter_file([PUZZLES["ddp"]], "mine.py")


def test_the_reminder_has_the_prices_and_the_parameters_of_the_setting():
    def call(slug: str, name: str) -> tuple[str, str]:
        return next(pair for pair in reminder(PUZZLES[slug]) if f"model.{name}(" in pair[0])

    assert call("ddp", "allreduce")[0] == "await model.allreduce(v, layer)"
    assert "0.3 steps" in call("ddp", "allreduce")[1]
    assert "group" in call("three_d", "allreduce")[0]
    assert "axis of the mesh" in call("three_d", "allreduce")[1]
    assert "step" in call("local_sgd", "get_activation")[0]
    approved(
        "schedule_puzzles",
        "the reminder has the prices and the parameters of the setting",
        call("local_sgd", "allreduce")[1],
        "1 step for each",
    )
    assert "handle" in call("ddp_overlap", "allreduce")[1]
    assert "0.15 steps a hop" in call("ddp_overlap", "allreduce")[1]
    assert "handle" not in call("ddp", "allreduce")[1]
    assert call("grad_accum", "update")[0] == "model.update(layer, weight_grad, weight, opt_state)"
    approved(
        "schedule_puzzles",
        "the reminder has the prices and the parameters of the setting, 2",
        call("host_update", "update")[0],
    )
    assert call("grad_accum", "get_activation")[0] == "model.get_activation(batches)"
    assert "shares" in call("ulysses", "get_activation")[0]
    assert "total" in call("vocab_parallel", "backward_weight")[0]
    assert "total" not in call("zb_h1", "backward_weight")[0]


# --- Every record has a solution file, its figures and its family; no other record of that family beats it ---


FILES = [f"solutions/records/{path.name}" for path in sorted((ROOT / "solutions" / "records").glob("[!_]*.py"))]
VARIED = [file for file in FILES if hasattr(module_of(file), "VARIANTS")]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("record", RECORDS, ids=record_name)
def test_a_record_has_exactly_its_figures_and_its_family(record: Record) -> None:
    found = list(solved_by(record))
    assert found
    for puzzle, function in found:
        assert record in puzzle.goal.records
        report = referee(played(puzzle, function).trace, puzzle.goal)
        assert (report.error, report.timesteps, report.peak.memory, report.traffic) == (None, *record.figures)
        assert report.family == record.family
        assert not any(note.costs_a_star for note in report.notes)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("record", SOME_RECORDS, ids=record_name)
def test_a_record_that_meets_the_targets_and_is_on_the_front_gets_three_stars(
    record: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    for puzzle, function in solved_by(record):
        goal = puzzle.goal
        result = play(puzzle, function, seconds=60)  # a busy machine must not count as a slow schedule
        met = goal.meets_time(record.timesteps) and goal.meets_memory(record.peak_memory)
        sends_little = goal.meets_traffic(record.traffic or 0)
        if met and (sends_little or goal.decides == "star"):
            counts = sends_little and (record.family == goal.family or record in goal.open_front)
            assert (result.status, result.stars) == ("passed", 3 if counts else 2)
        else:
            assert result.status == "over_target"


def test_in_the_sandbox_a_record_is_graded_as_it_is_played() -> None:
    puzzle = PUZZLES["fsdp"]
    record = next(r for r in puzzle.goal.records if "fsdp_one" in r.by)
    (verdict,) = grade_file(str(ROOT / record.by), [puzzle]).verdicts
    assert (verdict.timesteps, verdict.peak_memory, verdict.stars) == (record.timesteps, record.peak_memory, 3)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("puzzle", PUZZLES.values(), ids=PUZZLES)
def test_a_reference_passes_in_its_family_and_is_beaten_by_a_record_or_is_one(puzzle: SchedulePuzzle) -> None:
    solution = reference_of(puzzle.slug)
    report = referee(played(puzzle, solution).trace, puzzle.goal)
    assert (report.error, report.status, report.family) == (None, "passed", puzzle.goal.family)
    rivals = puzzle.goal.records_to_beat(puzzle.goal.family)
    is_beaten = any(r.dominates(report.timesteps, report.peak.memory, report.traffic) for r in rivals)
    is_record = f"solutions/{puzzle.slug}.py" in {record.by for record in rivals}
    assert (report.stars, is_record) == ((2, False) if is_beaten else (3, True))


def test_no_record_beats_another_of_its_family_with_the_same_ideas_or_fewer() -> None:
    for records in (puzzle.goal.records for puzzle in PUZZLES.values()):
        for record in records:
            others = (o for o in records if o.family == record.family and {*o.ideas} <= {*record.ideas})
            assert not any(other.dominates(*record.figures) for other in others)


SHOWN = ("checkpoint", "input_again", "update_early")
"""The ideas that a trace shows by itself."""


def ideas_shown(trace: Trace) -> Iterator[str]:
    if any(recomputed(ops) for ops in trace.ranks):
        yield "checkpoint"
    if any(_takes_again(ops) for ops in trace.ranks):
        yield "input_again"
    if trace.setting.steps == 1 and any(_updates_early(ops) for ops in trace.ranks):
        yield "update_early"


def _takes_again(ops: tuple[Op, ...]) -> bool:
    """True if a rank gets the input of a microbatch twice."""
    taken = [batch for op in ops if op.name == "get_activation" for batch in op.batches]
    return len(taken) > len(set(taken))


def _updates_early(ops: tuple[Op, ...]) -> bool:
    """True if a rank updates one layer before the backward of another."""
    names = [op.name for op in ops]
    last = max((at for at, name in enumerate(names) if name.startswith(("backward", "forward_backward"))), default=0)
    return "update" in names[:last]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("record", RECORDS, ids=record_name)
def test_a_record_names_the_ideas_that_its_run_shows(record: Record) -> None:
    for puzzle, function in solved_by(record):
        shown = set(ideas_shown(played(puzzle, function).trace))
        assert shown - {*record.ideas} <= {puzzle.slug}
        assert shown >= {*record.ideas} & {*SHOWN}


@pytest.mark.parametrize("puzzle", PUZZLES.values(), ids=PUZZLES)
def test_the_third_star_asks_for_an_idea_that_the_text_tells_or_an_earlier_one(puzzle: SchedulePuzzle) -> None:
    """And somebody has it: of the puzzle's own kind there is a record with these ideas."""
    goal = puzzle.goal
    rivals = goal.records_to_beat(goal.family)
    assert rivals
    assert all({*record.ideas} <= goal.ideas for record in rivals)
    if puzzle.slug in CORE:
        later = {*CORE[CORE.index(puzzle.slug) + 1 :]}
        assert not any(later & {*record.ideas} for record in rivals)
        assert {trick for slug in CORE if slug not in later for trick in placed()[slug].tells} == goal.ideas & {*TRICKS}


def test_a_trick_is_told_where_its_call_or_its_words_are() -> None:
    assert {trick for where in placed().values() for trick in where.tells} == {*TRICKS}
    told = [slug for slug, where in placed().items() if "input_again" in where.tells]
    assert all("get_activation" in PUZZLES[slug].statement for slug in told)


def test_every_family_of_a_record_is_one_with_a_name() -> None:
    assert {record.family for record in RECORDS} <= {*FAMILIES} - {MIXED}


def test_every_file_of_records_is_in_the_catalog() -> None:
    files = {record.file_and_variant[0] for record in RECORDS}
    assert {*FILES} == {file for file in files if file.startswith("solutions/records/")}
    assert all((ROOT / file).is_file() for file in files)


@pytest.mark.parametrize("file", FILES)
def test_every_function_of_a_file_is_a_record_of_its_puzzle(file: str) -> None:
    solved = {
        puzzle.slug for record in RECORDS if record.file_and_variant[0] == file for puzzle, _ in solved_by(record)
    }
    assert solved == {slug for slug in PUZZLES if hasattr(module_of(file), slug)}


@pytest.mark.parametrize("file", VARIED)
def test_a_file_as_it_stands_plays_its_first_variant(file: str) -> None:
    variants, now = module_of(file).VARIANTS, vars(module_of(file))
    first = next(iter(variants.values()))
    assert first.items() <= now.items()
    assert all(constants.keys() == first.keys() for constants in variants.values())


@pytest.mark.parametrize("file", VARIED)
def test_a_comment_above_each_variant_says_what_it_trades(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    explained = re.findall(r'^    # [^#]+\.\n    "(\w+)": \{', text, re.MULTILINE)
    assert explained == [*module_of(file).VARIANTS]


@pytest.mark.parametrize("file", VARIED)
def test_every_variant_is_a_record_or_as_good_as_one(file: str) -> None:
    named = {record.file_and_variant[1] for record in RECORDS if record.file_and_variant[0] == file}
    assert "" not in named
    for variant in module_of(file).VARIANTS.keys() - named:
        module = module_of(file, variant)
        for puzzle in (PUZZLES[slug] for slug in PUZZLES if hasattr(module, slug)):
            report = referee(played(puzzle, getattr(module, puzzle.slug)).trace, puzzle.goal)
            figures = {record.figures for record in puzzle.goal.records}
            assert (report.timesteps, report.peak.memory, report.traffic) in figures


def test_classics_of_one_size_have_the_same_records() -> None:
    by_size: dict[object, tuple[Record, ...]] = {}
    for goal in (PUZZLES[slug].goal for slug in CLASSICS.slugs):
        assert by_size.setdefault(goal.size, goal.records) == goal.records
    assert len(by_size) == 5


# --- What a setting is called in words: prices by size, in steps or in microseconds ---


@pytest.mark.parametrize(
    ("costs", "call", "words"),
    [
        ("classic", "forward", "1 step"),
        ("classic", "dispatch", ""),
        ("buckets", "allreduce", "0.15 steps a hop and 1 step for each 786,432 elements sent"),
        ("islands", "pass_to", "1 step for each 655,360 elements sent"),
        ("hopper_infiniband", "forward", "172 us"),
        ("hopper_infiniband", "update", "0 us"),
        ("hopper_infiniband", "allgather", "5 us a hop and 1 us for each 25,000 elements sent"),
        ("hopper_machines", "allreduce", "2 us a hop and 1 us for each 225,000 elements sent"),
        ("hopper_host", "fetch", "1 us for each 27,500 elements"),
        ("hopper_host", "allreduce", ""),
    ],
)
def test_a_price_in_words(costs: str, call: str, words: str) -> None:
    assert price_text(COSTS[costs], call) == words


def test_a_price_by_size_in_steps() -> None:
    costs = replace(COSTS["classic"], name="mine", beta={"allreduce": Fraction(1, 65536)}, alpha={"receive": 10})
    approved("setting_text", "a price by size in steps", price_text(costs, "allreduce"))
    approved("setting_text", "a price by size in steps, 2", price_text(costs, "receive"))


def test_a_price_between_machines_has_a_row_of_its_own() -> None:
    rows = differences(Setting("hopper_machines"), ("allreduce", "loss", "update"))
    approved("setting_text", "a price between machines has a row of its own", rows[:2])
    assert [row.what for row in differences(Setting("hopper_nvlink"), ("allreduce",))][:2] == [
        "`allreduce`",
        "a weight",
    ]


def test_the_size_of_a_weight_is_shown_where_it_is_not_the_classic_one() -> None:
    assert ("a weight", "16,777,216 elements", "262,144 elements") in differences(Setting("hopper_nvlink"), ())
    assert differences(CLASSIC_SETTING, ()) == []


# --- Every reference with its weights loaded again in each use: what that costs, and that the player is told why ---


class LoadedInEachUse(MutableMapping[Any, Any]):
    """A rank's weights, of which those that are as they were loaded are not kept: each look-up loads them again."""

    def __init__(self, model: Model, kept: Any) -> None:
        self.kept, self.load, self.loaded, self.again = kept, model.load_weights, [], {}  # type: ignore[var-annotated]
        model.load_weights = self.loads  # type: ignore[method-assign]

    def loads(self, *given: Any, **named: Any) -> Any:
        made = self.load(*given, **named)
        self.loaded.append((made[0], given, named))
        return made

    def __setitem__(self, key: Any, value: Any) -> None:
        for weight, given, named in self.loaded:
            if weight is value:
                self.again[key] = given, named
                return
        self.again.pop(key, None)
        self.kept[key] = value

    def __getitem__(self, key: Any) -> Any:
        if key not in self.again:
            return self.kept[key]
        given, named = self.again[key]
        return self.load(*given, **named)[0]

    def __delitem__(self, key: Any) -> None:
        if self.again.pop(key, None) is None:
            del self.kept[key]

    def __iter__(self) -> Iterator[Any]:
        return iter([*self.again, *self.kept])

    def __len__(self) -> int:
        return len(self.again) + len(self.kept)


def loading_again(slug: str) -> Callable[[Model], Awaitable[None]]:
    """The reference of a puzzle on such weights."""
    reference = reference_of(slug)

    async def schedule(model: Model) -> None:
        weights, *others = model.storage()
        again = LoadedInEachUse(model, weights)
        model.storage = lambda: (again, *others)  # type: ignore[method-assign]
        done = reference(model)
        if isawaitable(done):
            await done

    return schedule


@pytest.mark.sampled(4)
@pytest.mark.parametrize("slug", PUZZLES)
def test_loading_again_costs_the_second_star_only_where_the_puzzle_says_so(slug: str) -> None:
    puzzle = PUZZLES[slug]
    outcome = run(loading_again(slug), *puzzle.goal.size, setting=puzzle.goal.setting)
    assert outcome.error is None
    score = score_trace(outcome.trace, puzzle, puzzle.goal.size)
    assert isinstance(score, Score)
    if slug in CLASSICS.slugs:
        assert score.missed == ()
    for missed in score.missed:
        assert missed.startswith("in a second "), missed
        assert re.search(r"line \d+ loads layers? [0-9, -]+ again, and the target is", missed), missed
        assert score.figures["peak_memory"] < puzzle.goal.memory_limit <= score.figures["lasting_peak"]
        (rule,) = [section for section in track_of(slug).words.sections(puzzle) if section.title == "The memory target"]
        assert "loaded twice" in str(rule)
        assert "Load" in score.advice
