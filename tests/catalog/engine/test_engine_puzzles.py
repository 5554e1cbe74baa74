"""All engine puzzles: references meet targets exactly, least figures hold, wrong solutions get the right message."""

import ast
import re
from dataclasses import replace
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from lib.engine import ShardedEngine
from lib.engine.collectives import COLLECTIVES
from lib.engine.metering import current
from puzzles.catalog.engine import (
    CHAPTERS,
    ENGINE_PUZZLES,
    EnginePuzzle,
    lower_bounds,
    lower_bounds_of,
    models,
    trials_of,
)
from puzzles.catalog.engine.lower_bounds import FigureBound
from puzzles.catalog.engine.models import ROUNDING, numbers
from puzzles.catalog.engine.puzzle import FIGURES
from puzzles.catalog.engine.trial import Performed, Trial, WrongResultError
from puzzles.cli.main import main
from puzzles.content.engine.shards import trials as shard_trials
from puzzles.content.engine.tensors import trials as tensor_trials
from puzzles.judge.grader import grade_file
from puzzles.judge.session import Session, run_in
from puzzles.judge.starters import starter_file
from puzzles.judge.submission import Submission
from puzzles.sandbox.plain_data import pack, unpack
from puzzles.sandbox.worker.stages.engine_trial import launched, run_trial
from puzzles.tracks import TRACKS
from puzzles.tracks.engine import judge as scoring
from puzzles.tracks.engine.judge import require_right, score_figures
from puzzles.tracks.engine.words import CALLS, better_record
from tests.screens.texts import approved
from tests.support.engine_trials import REFERENCES, SOLUTIONS, perform, reference, score_class, verdict_on
from tests.support.selection import first_of_each_kind

pytestmark = pytest.mark.usefixtures("in_this_process")

# --- All engine puzzles: references meet their targets exactly, and wrong solutions get the right message ---


every_puzzle = pytest.mark.parametrize("puzzle", [pytest.param(p, id=slug) for slug, p in ENGINE_PUZZLES.items()])


BETTER: dict[str, dict[str, int]] = {
    "RingAllReduce": {"peak": 10_240},
    "UnevenFSDP": {"peak": 14_788},
    "SequenceParallel": {"peak": 6_912},
    "VocabParallelLoss": {"peak": 2_528},
    "RingAttention": {"flops": 17_728, "peak": 4_224},
    "SwitchDispatch": {"flops": 34_080},
    "GShardTop2": {"flops": 67_112},
    "Stream": {"peak": 1_408},
    "Prefetch": {"peak": 2_048},
    "HostCache": {"peak": 1_536},
    "FedSGD": {"uplink": 544},
    "FedAvg": {"uplink": 9_360},
    "Quantize": {"sent": 520},
    "Rotate": {"sent": 528, "peak": 131_072},
}
"""Figures of references that are below their targets; all others are the targets."""

REACHED = {slug: {**puzzle.targets, **BETTER.get(slug, {})} for slug, puzzle in ENGINE_PUZZLES.items()}

CHAPTER_OF = {slug: chapter.name for chapter in CHAPTERS for slug in chapter.slugs}


def of_each_chapter(every: int = 10**9) -> pytest.MarkDecorator:
    """Of each chapter the first puzzle and then one in `every`; the others are slow."""
    cases = ((puzzle,) for puzzle in ENGINE_PUZZLES.values())
    chosen = first_of_each_kind(cases, lambda case: CHAPTER_OF[case[0].slug], every)
    return pytest.mark.parametrize("puzzle", chosen, ids=lambda puzzle: puzzle.slug)


def source(slug: str) -> str:
    return REFERENCES[slug].read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.sandboxed
@of_each_chapter()
def test_the_reference_passes_with_three_stars_unless_a_record_beats_it(puzzle: EnginePuzzle) -> None:
    verdict = verdict_on(puzzle.slug, REFERENCES[puzzle.slug])
    stars = 2 if better_record(puzzle, REACHED[puzzle.slug]) else 3
    assert (verdict.status, verdict.stars, verdict.message, verdict.notes) == ("passed", stars, "", ())
    assert verdict.figures == REACHED[puzzle.slug]


@pytest.mark.sampled(3)
@of_each_chapter(every=2)
def test_the_reference_is_right_and_measures_what_the_table_says(puzzle: EnginePuzzle) -> None:
    cls = reference(puzzle.slug)
    score = score_class(puzzle, cls)
    assert score.missed == ()
    assert trials_of(puzzle)[0]().devices == puzzle.devices
    assert {name: score.figures[name] for name in puzzle.targets} == REACHED[puzzle.slug]
    assert score_class(puzzle, cls) == score


def test_the_targets_of_a_puzzle_without_records_leave_no_room() -> None:
    """They are the best figures that are known, and nothing above them passes."""
    assert [slug for slug in BETTER if not ENGINE_PUZZLES[slug].records] == []


def test_the_shown_trial_has_the_targets_of_the_puzzle() -> None:
    """As the formulas of the trials give them."""
    for puzzle in ENGINE_PUZZLES.values():
        assert trials_of(puzzle)[0]().targets in (None, puzzle.targets), puzzle.slug


@pytest.mark.sampled(12)
@every_puzzle
def test_the_starter_is_not_attempted_and_has_every_method(puzzle: EnginePuzzle, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    starter = starter_file([puzzle], "mine.py")
    path.write_text(starter)
    (cls,) = ast.parse(puzzle.starter).body
    assert isinstance(cls, ast.ClassDef)
    assert {"load_checkpoint", "forward", "backward"} <= {f.name for f in cls.body if isinstance(f, ast.FunctionDef)}
    assert verdict_on(puzzle.slug, path).status == "not_attempted"


@pytest.mark.sampled(1)
@of_each_chapter()
def test_a_starter_with_a_change_is_attempted(puzzle: EnginePuzzle, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        starter_file([puzzle], "mine.py").replace("raise NotImplementedError", "raise NotImplementedError()")
    )
    verdict = verdict_on(puzzle.slug, path)
    assert (verdict.status, verdict.reason) == ("failed", "crash")
    assert f"device 0 of {puzzle.devices}" in verdict.message


def record_class(slug: str) -> type | None:
    """The class in `solutions/engine/records`, if there is one."""
    stem = REFERENCES[slug].stem
    if not (SOLUTIONS / "records" / f"{stem}.py").exists():
        return None
    found: type = getattr(import_module(f"solutions.engine.records.{stem}"), slug)
    return found


@pytest.mark.sampled(4)
@every_puzzle
def test_the_record_is_that_of_the_best_class(puzzle: EnginePuzzle) -> None:
    """A class in the folder of records, which the reference does not beat; or a reference that beats its targets."""
    slug, best = puzzle.slug, record_class(puzzle.slug)
    if best is None:
        beats = any(REACHED[slug][n] < puzzle.targets[n] for n in puzzle.targets)
        assert puzzle.records == ((REACHED[slug],) if beats else ())
        return
    score = score_class(puzzle, best)
    assert (score.stars, score.missed) == (3, ())
    assert puzzle.records == ({name: score.figures[name] for name in puzzle.targets},)
    assert better_record(puzzle, REACHED[slug]) == puzzle.records[0]


def test_a_class_that_a_record_beats_has_two_stars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a puzzle without targets for the peak and for flops, whose lines a run has to tell."""
    beaten = [slug for slug, puzzle in ENGINE_PUZZLES.items() if better_record(puzzle, REACHED[slug])]
    puzzle = next(ENGINE_PUZZLES[s] for s in beaten if not {"peak", "flops"} & ENGINE_PUZZLES[s].targets.keys())
    trial: Any = trials_of(puzzle)[0]()
    over = {name: target + 1 for name, target in puzzle.targets.items()}
    monkeypatch.setattr(scoring, "_require_counted", lambda *_: None)
    monkeypatch.setattr(scoring, "_advice", lambda *_: "")
    for figures, stars in ((puzzle.records[0], 3), (REACHED[puzzle.slug], 2), (over, 1)):
        monkeypatch.setattr(scoring, "_measured", lambda *_, figures=figures: figures)
        assert scoring.score_figures(puzzle, trial, None, None).stars == stars  # type: ignore[arg-type]


def test_a_few_more_flops_than_the_record_cost_no_star() -> None:
    """How a factor is written decides on them; a peak that is higher by a byte counts."""
    puzzle = ENGINE_PUZZLES["RingAttention"]
    (record,) = puzzle.records
    assert better_record(puzzle, {**record, "flops": puzzle.targets["flops"]}) is None
    assert better_record(puzzle, {**record, "peak": record["peak"] + 1}) == record
    assert better_record(puzzle, {**record, "flops": int(1.06 * record["flops"])}) == record


def test_every_record_class_is_tried() -> None:
    classes = {path.stem for path in (SOLUTIONS / "records").glob("[a-z]*.py")}
    assert classes == {REFERENCES[slug].stem for slug in ENGINE_PUZZLES if record_class(slug)}


def command(*words: str) -> Result:
    return CliRunner().invoke(main, words, catch_exceptions=False)


def test_the_calls_on_a_page_are_those_of_the_engine() -> None:
    assert "self.all_reduce(arr, op='sum')" in command("show", "DataParallel").output
    assert "self.all_reduce" not in command("show", "AnnotatedMLP").output
    calls = [re.fullmatch(r"self\.(\w+)\((.+)\)", line) for line, _ in CALLS]
    named = {call[1]: call[2] for call in calls if call}
    assert named.keys() > COLLECTIVES
    for name, written in named.items():
        has = [
            str(p.replace(annotation=Parameter.empty))
            for p in signature(getattr(ShardedEngine, name)).parameters.values()
        ]
        assert written == ", ".join(word for word in has if word not in ("self", "group=None"))


def test_a_class_of_the_wrong_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("FSDP = 3\n")
    approved("engine_puzzles", "a class of the wrong kind is refused", verdict_on("FSDP", path).message)
    assert current.meter is None, "nothing is charged to its device any more"
    path.write_text("class FSDP(:\n")
    assert verdict_on("FSDP", path).reason == "syntax"


@pytest.mark.slow
def test_meeting_targets_is_worth_two_stars_where_a_better_class_is_known(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    roomy = source("RingAllReduce").replace("class RingAllReduce(ShardedEngine):\n", ROOMY)
    path.write_text(roomy)
    verdict = verdict_on("RingAllReduce", path)
    assert (verdict.status, verdict.stars) == ("passed", 2), verdict
    assert 10_240 < verdict.figures["peak"] <= 16_383
    page = " ".join(command("grade", str(path)).output.split())
    assert re.search(r"known: 10,240 peak bytes\. .*third star", page), page


ROOMY = """class RingAllReduce(ShardedEngine):
    def __init__(self):
        self.room = np.zeros(512, np.float32)

"""


@pytest.mark.slow
def test_what_is_right_at_the_shown_size_only_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    by_heart = source("RingAllReduce").replace(
        "        return x\n", "        x[0] += len(x) != 2048\n        return x\n"
    )
    path.write_text(by_heart)
    verdict = verdict_on("RingAllReduce", path)
    assert (verdict.status, verdict.stars) == ("passed", 2), verdict
    assert verdict.shown_size_only
    forward = by_heart.splitlines().index("    def forward(self, x):") + 1
    assert f"line {forward}: device 0, forward()" in verdict.notes[0]
    strict = grade_file(str(path), [ENGINE_PUZZLES["RingAllReduce"]], strict=True).verdicts[0]
    assert (strict.status, strict.reason, strict.stars) == ("failed", "rule", 0)


DRAWS = """
from lib.engine import ShardedEngine
import numpy as np

class Draws(ShardedEngine):
    def load_checkpoint(self, params):
        pass

    def forward(self, x):
        return np.random.default_rng(1).integers(0, 9, 4).astype(np.float32)

    def backward(self, grads):
        pass
"""


@pytest.mark.slow
def test_a_child_measures_what_this_process_measures() -> None:
    """Also where numpy leaves something behind at its first use in a process."""
    trial: dict[str, Any] = {"arguments": {}, "params": {}, "calls": [("forward", [0, 0])], "stream": None}
    trial |= {"devices": 2, "options": {}}
    names: dict[str, Any] = {"__name__": "draws"}
    exec(DRAWS, names)
    run_trial(trial, launched(trial, names["Draws"]))
    _, _, here = run_trial(trial, launched(trial, names["Draws"]))
    with Session(Submission(Path("mine.py"), DRAWS.encode())) as session:
        ran = run_in(session, TRACKS["engine"], "Draws", {"trial": pack(trial), "devices": 2}, 10)
    assert ran.row is not None, ran.failure
    there = unpack(ran.row["readings"])
    assert [[one["peak"] for one in step] for step in there] == [[one.peak for one in step] for step in here]


@every_puzzle
def test_a_statement_names_everything_that_a_class_is_given_or_returns(puzzle: EnginePuzzle) -> None:
    """Keys of dictionaries; where layers or experts are numbered, the first and the last, or the pattern."""
    trial = trials_of(puzzle)[0]()
    given = [argument for call in trial.calls for argument in call.arguments]
    returned = [right for call in trial.calls for right in call.wanted or ()]
    keys = {*trial.params, *(key for tree in given + returned if isinstance(tree, dict) for key in tree)}
    numbered: dict[str, list[str]] = {}
    for key in keys:
        numbered.setdefault(re.sub(r"_\d+", "_i", key), []).append(key)
    for pattern, names in numbered.items():
        ends = {min(names, key=_number), max(names, key=_number)}
        assert f"'{pattern}'" in puzzle.statement or all(f"'{end}'" in puzzle.statement for end in ends), names


def _number(name: str) -> int:
    return int((re.findall(r"_(\d+)", name) or ["0"])[0])


# --- The least figures: every target has one, and nothing that is known to be right is below it ---


def targets_of(puzzle: EnginePuzzle, trial: Trial) -> dict[str, int]:
    return {**puzzle.targets, **(trial.targets or {})}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("slug", [slug for slug, puzzle in ENGINE_PUZZLES.items() if puzzle.trials == "trials.py"])
def test_every_target_has_a_least_with_a_reason_and_no_record_is_below(slug: str) -> None:
    """One whose trials are a file of its own may have none, as a teacher's."""
    puzzle = ENGINE_PUZZLES[slug]
    for i, make in enumerate(trials_of(puzzle)):
        trial = make()
        bounds, targets = lower_bounds_of(puzzle, trial), targets_of(puzzle, trial)
        assert bounds.keys() >= targets.keys()
        for name in targets:
            assert bounds[name].reason
            assert isinstance(bounds[name].value, int)
            assert set(bounds[name].given) <= targets.keys() or not bounds[name].value
        if i == 0:
            for record in puzzle.records:
                assert not list(lower_bounds.below(bounds, record, targets))


@pytest.mark.sampled(3)
@every_puzzle
def test_an_honest_class_has_room_in_the_tolerance(puzzle: EnginePuzzle) -> None:
    """A third of it would do, so another order of the sums passes too; and no figure is below its least."""
    for make in trials_of(puzzle):
        trial = make()
        performed = perform(trial, reference(puzzle.slug))
        require_right(replace(trial, tolerance=trial.tolerance / 3), performed)
        measured = {name: FIGURES[name].of(performed) for name in targets_of(puzzle, trial)}
        assert not list(lower_bounds.below(lower_bounds_of(puzzle, trial), measured, targets_of(puzzle, trial)))


@pytest.mark.sampled(8)
@every_puzzle
def test_a_figure_below_its_least_is_refused_by_name(puzzle: EnginePuzzle) -> None:
    """The reference's results, with one figure a little too low."""
    trial = trials_of(puzzle)[0]()
    performed = perform(trial, reference(puzzle.slug))
    for name, one in lower_bounds_of(puzzle, trial).items():
        if one.value and name in LOWERED and name in puzzle.targets:
            low = LOWERED[name](performed, one.value - 1)
            with pytest.raises(WrongResultError, match=r"fewer than the .*: something") as refusal:
                score_figures(puzzle, trial, low, low)
            assert FIGURES[name].words in str(refusal.value)
            assert one.reason in str(refusal.value)


def lowered(performed: Performed, step: int, **figures: Any) -> Performed:
    """The outcome with other figures in one reading of every device."""
    readings = [list(row) for row in performed.readings]
    readings[step] = [replace(reading, **figures) for reading in readings[step]]
    return replace(performed, readings=readings)


LOWERED = {
    "sent": lambda performed, n: lowered(performed, -1, sent=n),
    "uplink": lambda performed, n: lowered(performed, -1, sent=0),
    "flops": lambda performed, n: lowered(performed, -1, flops=n),
    "peak": lambda performed, n: lowered(performed, -1, peak=n),
    "kept": lambda performed, n: lowered(performed, -1, live=n),
    "weights": lambda performed, n: lowered(performed, 0, live=n),
    "clock": lambda performed, n: lowered(performed, -1, clock=n),
}
"""By figure: the outcome with so little of it."""


def test_products_counts_what_a_loop_counts() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-1, 2, shape) for shape in ((3, 5), (5, 4)))
    needed = rng.integers(0, 2, (3, 4))
    loop = [(i, j) for i in range(3) for j in range(4) for k in range(5) if a[i, k] * b[k, j] and needed[i, j]]
    assert lower_bounds.products(a, b, needed) == len(loop)
    assert lower_bounds.flops(10, 4) == FigureBound(5, lower_bounds.flops(10, 4).reason)


def test_information_is_that_of_the_range_or_of_the_tolerance() -> None:
    assert lower_bounds.information(np.arange(8).repeat(8)) == 64 * 3 / 8
    assert lower_bounds.information({"x": [numbers(1, 16)]}) == 16 * 11 / 8


def test_the_narrowest_type_is_the_smallest_that_is_near_enough() -> None:
    assert lower_bounds.narrowest([np.arange(5.0), None, {"x": np.arange(300)}], 0) == 5 + 600
    assert lower_bounds.narrowest(numbers(1, 100), ROUNDING) == 400
    assert lower_bounds.narrowest(np.array([0.5, 1.5]), 0) == 4


def test_a_least_that_is_given_targets_holds_only_below_them() -> None:
    bounds = {"sent": FigureBound(1, "why", given=("weights",))}
    assert [name for name, _ in lower_bounds.below(bounds, {"sent": 0, "weights": 5}, {"weights": 5})] == ["sent"]
    assert not list(lower_bounds.below(bounds, {"sent": 0, "weights": 6}, {"weights": 5}))
    assert not list(lower_bounds.below(bounds, {"sent": 0, "weights": 6}, {}))


def test_float16_is_further_off_than_the_tolerance_and_float32_is_not() -> None:
    given = numbers(3, 1000)
    assert np.abs(given.astype(np.float16) - given).max() > 10 * ROUNDING
    terms = [np.float32(x) * np.float32(y) for x, y in zip(numbers(4, 64), numbers(5, 64))]
    exact = np.dot(numbers(4, 64).astype(np.float64), numbers(5, 64))
    for order in (terms, terms[::-1], sorted(terms)):
        assert abs(float(np.cumsum(order, dtype=np.float32)[-1]) - exact) < ROUNDING


def test_no_relu_of_the_two_layer_model_is_near_its_kink(monkeypatch: pytest.MonkeyPatch) -> None:
    """So rounding, at most 4e-6, cannot change which numbers it passes, in any step of any trial."""
    margins = []

    def recorded(params: Any, x: Any, g: Any) -> Any:
        z = np.asarray(x, np.float64) @ params[models.W0] + params.get(models.B0, 0)
        margins.append(np.abs(z).min() / np.abs(z).max())
        return original(params, x, g)

    original = models.mlp_forward_backward
    for module in (models, shard_trials, tensor_trials):
        monkeypatch.setattr(module, "mlp_forward_backward", recorded)
    for slug in ("DataParallel", "ZeRO1", "ZeRO2", "FSDP", "UnevenFSDP", "TensorParallel", "SequenceParallel"):
        for make in trials_of(ENGINE_PUZZLES[slug]):
            make()
    assert len(margins) > 20
    assert min(margins) > 2e-5
