"""Figures of a class: repeated from its recording, and neither forged nor hidden."""

import json
import pickle
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lib.engine import launch
from lib.engine.devices import LaunchOptions
from puzzles.catalog.engine import ENGINE_PUZZLES, trials_of
from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine.trial import Performed, Trial
from puzzles.judge.grader import grade_puzzle
from puzzles.judge.session import run_in
from puzzles.judge.verdict import Verdict
from puzzles.sandbox.limits import Limits
from puzzles.sandbox.plain_data import pack
from puzzles.sandbox.worker.repeating import (
    FUNCTIONS,
    MAX_UNCHARGED,
    METHODS,
    UFUNCS,
    Repeated,
    UnrepeatableError,
    require_written,
)
from puzzles.sandbox.worker.stages.engine import EngineSnapshot
from puzzles.tracks import track_of
from puzzles.tracks.engine.judge import DRAWS, asked, require_right, with_other_values
from puzzles.tracks.engine.words import better_record
from tests.hostile import hidden_figures, shared_memory
from tests.hostile.forged_classes import FORGERIES
from tests.hostile.hidden_figures import with_statement
from tests.support.engine_trials import perform
from tests.support.selection import some_of_each
from tests.support.verdicts import session_of, verdict_on

# --- The judge repeats what a class has recorded on other values: forged figures make no third star ---


SOLUTIONS = Path(__file__).parents[2] / "solutions/engine"
DATA_PARALLEL = (SOLUTIONS / "data_parallel.py").read_text(encoding="utf-8")
PUZZLE = ENGINE_PUZZLES["DataParallel"]


def verdict(source: str, slug: str = "DataParallel") -> Verdict:
    return verdict_on(slug, source)


# --- Classes ---


@pytest.mark.slow
def test_flops_that_were_taken_off_the_meter_are_counted_again() -> None:
    found = verdict(with_statement(DATA_PARALLEL, "self._port.meter.flops -= 4480 if self.num_devices == 4 else 0"))
    assert (found.stars, found.figures["flops"]) == (3, 20_480), found


ADDED = {
    "a_collective": (
        "'communication', 'all_reduce', [np.ones(4)], {}, []",
        ("over_target", {"sent": 12_384, "flops": 20_480}),
    ),
    "the_host": (
        "'host', 'put', ['a', np.ones(4)], {}, []",
        ("failed", {}),
    ),
}
"""By name: a step that is added to a recording, and the verdict's status and figures."""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ADDED)
def test_a_recording_is_no_other_program_than_the_class(name: str) -> None:
    """One that has fewer flops because it sends more, say, or keeps its arrays elsewhere."""
    step, (status, figures) = ADDED[name]
    added = f"self._port.meter.recorder._steps.append(['do', {step}])"
    source = with_statement(DATA_PARALLEL, added)
    found = verdict(source)
    assert (found.status, found.figures) == (status, figures), found


@pytest.mark.slow
def test_products_of_python_numbers_make_no_third_star() -> None:
    """One of five products, so the others are above the lower bound."""
    product = (
        "np.array([[sum(u * v for u, v in zip(r, c)) for c in self.w0.T.tolist()] for r in x.tolist()], np.float32)"
    )
    source = DATA_PARALLEL.replace("x @ self.w0", product)
    assert source != DATA_PARALLEL
    found = verdict(source)
    assert (found.status, found.stars, found.figures) == ("over_target", 1, {}), found


@pytest.mark.slow
def test_numbers_of_numpy_are_repeated() -> None:
    """A maximum, a mean and an element, which are no arrays, go into results."""
    source = DATA_PARALLEL.replace(
        "        x, z = ",
        "        top = grads.max() * 2 - grads[0, 0]\n        grads = (grads + top) - top\n        x, z = ",
    )
    assert source != DATA_PARALLEL
    assert verdict(source).stars == 3


def test_numbers_of_devices_are_repeated_with_their_type() -> None:
    """They are no plain numbers of Python: with one, numpy makes float64 of float32."""
    once = "self.all_reduce(w0_grad)"
    source = DATA_PARALLEL.replace(once, f"{once} + self.num_devices - self.num_devices")
    assert source != DATA_PARALLEL
    found = verdict(source)
    assert (found.stars, found.figures) == (3, {"sent": 12_288, "flops": 20_480}), found


@pytest.mark.slow
def test_products_of_numbers_of_numpy_count() -> None:
    """Two flops of 20,482, as the second run counts them."""
    source = with_statement(DATA_PARALLEL, "top = grads[0, 0] * grads[0, 1]")
    found = verdict(source)
    assert (found.stars, found.figures["flops"]) == (1, 20_482), found


LIE = "\n\n    def forward(self, x):\n        made = self.honest(x)\n        self._port.meter.{}\n        return made\n"

LIED = {
    "Rotate": ("peak -= 40_000 if self.size > 64 else 0", ("peak", 131_072)),
    "AnnotatedMLP": ("flops -= 2_000", ("flops", 65_536)),
    "AnnotatedMoE": ("flops -= 2_000", ("flops", 20_480)),
}


@pytest.mark.slow
@pytest.mark.parametrize("slug", LIED)
def test_seeds_and_kernels_are_repeated(slug: str) -> None:
    """The reference keeps its third star; what is taken off its own meter changes no figure."""
    lie, (figure, counted) = LIED[slug]
    file = {"Rotate": "rotate", "AnnotatedMLP": "annotated_mlp", "AnnotatedMoE": "annotated_moe"}[slug]
    source = (SOLUTIONS / f"{file}.py").read_text(encoding="utf-8")
    assert verdict(source, slug).stars == 3
    found = verdict(source.replace("def forward(", "def honest(") + LIE.format(lie), slug)
    assert (found.stars, found.figures[figure]) == (3, counted), found


@pytest.mark.slow
def test_a_class_may_do_more_than_can_be_recorded() -> None:
    """On four devices, 25 MB of random numbers in arrays, which no operation of arrays makes."""
    draws = "rng = np.random.RandomState(self.device_id)\n        [rng.random_sample(100_000) + 1 for _ in range(8)]"
    found = verdict(with_statement(DATA_PARALLEL, draws))
    assert (found.status, found.stars, found.figures) == ("over_target", 1, {}), found


def test_the_repeating_process_runs_no_line_of_the_file() -> None:
    source = f"print('loaded')\n{DATA_PARALLEL}"
    trial = trials_of(PUZZLE)[0]()
    given = {"trial": pack(asked(trial))}
    with session_of(source) as session:
        first = run_in(session, track_of("DataParallel"), "DataParallel", given, 10)
        assert (first.printed, len(json.loads((first.row or {})["recordings"])["list"])) == ("loaded\n", 4)
        data = {"trial": given["trial"], "recordings": (first.row or {})["recordings"]}
        again = run_in(session, track_of("DataParallel"), "DataParallel", data, 10)
    assert again.printed == ""
    assert again.row is not None
    assert again.row["results"] == (first.row or {})["results"]
    assert again.row["readings"]["list"][-1]["list"][0]["dict"][3] == ["flops", 20_480]


# --- Other values ---


ROUTED = ("VocabParallelLoss", "SwitchDispatch", "GShardTop2", "ExactDispatch", "FindTheRace")


def drawn(slug: str, recordings: str, secret: str = "of this test") -> Any:
    return with_other_values(trials_of(ENGINE_PUZZLES[slug])[0], recordings, secret)


def test_other_values_follow_from_the_recording_and_a_secret() -> None:
    first, again, other = (pack(asked(drawn("DataParallel", recordings))) for recordings in ("a", "a", "b"))
    assert first == again != other
    assert first != pack(asked(drawn("DataParallel", "a", "of another verdict")))
    assert other != pack(asked(trials_of(PUZZLE)[0]()))
    assert np.random.default_rng(1).random() == np.random.Generator(np.random.PCG64(1)).random()


@pytest.mark.parametrize("slug", ROUTED)
def test_routes_stay_the_same(slug: str) -> None:
    """Weights or logits change; what decides which device or word is not drawn as a real number."""
    usual, other = trials_of(ENGINE_PUZZLES[slug])[0](), drawn(slug, "a")
    kept = [(name, usual.params[name].tobytes() == other.params[name].tobytes()) for name in usual.params]
    assert all(same == (name == "router/weights") for name, same in kept)
    for call, again in zip(usual.calls, other.calls):
        for one, two in zip(call.arguments, again.arguments):
            if isinstance(one, dict) and "targets" in one:
                assert one["targets"].tolist() == two["targets"].tolist()
                assert one["logits"].tolist() != two["logits"].tolist()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("wrong_draws", "stars", "asked_for"), [(0, 3, 1), (1, 3, 2), (DRAWS - 1, 3, DRAWS), (DRAWS, 1, DRAWS)]
)
def test_values_on_which_a_right_class_rounds_too_much_are_drawn_again(
    monkeypatch: pytest.MonkeyPatch, wrong_draws: int, stars: int, asked_for: int
) -> None:
    """The shown trial is repeated on other values until its results are right, DRAWS times at most."""
    checked: list[object] = []
    others: list[Trial] = []

    def other_values(*given: Any) -> Trial:
        others.append(with_other_values(*given))
        return others[-1]

    def rounding(trial: Trial, performed: Performed) -> None:
        if any(trial is other for other in others):
            checked.append(trial)
            if len(checked) <= wrong_draws:
                raise ValueError("a sum is rounded too much")
        require_right(trial, performed)

    monkeypatch.setattr("puzzles.tracks.engine.judge.with_other_values", other_values)
    monkeypatch.setattr("puzzles.tracks.engine.judge.require_right", rounding)
    result = verdict(DATA_PARALLEL)
    trials = len(trials_of(PUZZLE))
    assert result.stars == stars
    assert len(checked) == asked_for + trials - 1


@pytest.mark.slow
def test_a_verdict_keeps_the_secret_that_it_follows_from() -> None:
    with session_of(DATA_PARALLEL) as session:
        first, other = (grade_puzzle(PUZZLE, session) for _ in range(2))
        again = grade_puzzle(PUZZLE, session, secret=first.secret)
    assert first.secret == again.secret != other.secret
    assert first == again == other, "verdicts are compared without it"


def test_seeds_are_others() -> None:
    """Clients draw signs from them."""
    usual, other = (
        trial.calls[0].arguments[1:] for trial in (trials_of(ENGINE_PUZZLES["Rotate"])[0](), drawn("Rotate", "a"))
    )
    assert all(one["seed"] != two["seed"] for one, two in zip(usual, other))
    assert [np.array_equal(a["update"], b["update"]) for a, b in zip(usual, other)] == [False, True, True, False]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("puzzle", ENGINE_PUZZLES.values(), ids=lambda puzzle: puzzle.slug)
def test_every_puzzle_has_other_values(puzzle: EnginePuzzle) -> None:
    """Except ZeROMemory, whose target is its lower bound."""
    differs = pack(asked(trials_of(puzzle)[0]())) != pack(asked(drawn(puzzle.slug, "a")))
    assert differs == (puzzle.slug != "ZeROMemory")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("slug", ROUTED[1:])
def test_no_token_is_the_same(slug: str) -> None:
    usual, other = trials_of(ENGINE_PUZZLES[slug])[0](), drawn(slug, "a")
    tokens = [
        [given["x"] if isinstance(given, dict) else given for given in t.calls[0].arguments] for t in (usual, other)
    ]
    for x, y in zip(*tokens):
        assert not (x == y).all(axis=1).any()


# --- Forged recordings ---

HOLD = ["hold", 1, 16]
FILL = ["literal", 1, np.ones(16, np.uint8)]


def seen(nbytes: int, offset: int = 0, key: int = 1, kind: str = "|u1") -> Any:
    return ("view", key, offset, [nbytes], [1], kind)


PARK = ["do", "host", "put", ["a", seen(16)], {}, []]
FETCH = ["do", "host", "fetch_async", ["a"], {}, [2, 3]]
WAIT = ["do", "wait", "wait", [("known", 2)], {}, [3]]

FORGED: dict[str, tuple[list[Any], str]] = {
    "no_memory": ([["literal", 1, np.ones(16, np.uint8)]], "larger than the memory that is charged"),
    "too_little_memory": ([["hold", 1, 8], FILL], "larger than the memory that is charged"),
    "too_many_zeros": ([["hold", 1, 8], ["literal", 1, 1 << 40]], "larger than the memory that is charged"),
    "memory_after_its_end": ([HOLD, FILL, ["release", 1], ["return", seen(16)]], "memory that it does not have"),
    "memory_beyond_its_end": ([HOLD, FILL, ["return", seen(16, 8)]], "memory that it does not have"),
    "memory_before_its_start": ([HOLD, FILL, ["return", seen(8, -8)]], "memory that it does not have"),
    "python_objects": ([HOLD, FILL, ["return", ("view", 1, 0, [1], [8], "|O")]], "memory that it does not have"),
    "a_function_with_a_file": ([HOLD, FILL, ["do", "numpy", "save", ["a", seen(8)], {}, []]], "calls save"),
    "a_function_by_its_path": ([["do", "numpy", "linalg.__builtins__", [], {}, []]], "does not repeat"),
    "a_method_of_an_array": ([HOLD, FILL, ["do", "method", "tofile", [seen(8), "a"], {}, []]], "calls tofile"),
    "a_method_of_the_engine": ([["do", "communication", "_repeat", [], {}, []]], "calls _repeat"),
    "results_without_memory": (
        [HOLD, FILL, ["do", "ufunc", "add.__call__", [seen(16), 1], {}, [2]], ["return", seen(16, key=2)]],
        "larger than the memory that is charged",
    ),
    "numbers_instead_of_memory": (
        [HOLD, FILL]
        + [
            ["do", "method", "__getitem__", [("view", 1, 0, [2], [8], "<f8"), 0], {}, [i]]
            for i in range(2, MAX_UNCHARGED // 8 + 4)
        ],
        "B of numbers outside of arrays",
    ),
    "constants_instead_of_memory": (
        [HOLD, FILL, ["do", "numpy", "multiply", [seen(16), np.ones(MAX_UNCHARGED + 1, np.uint8)], {}, []]],
        "B of numbers outside of arrays",
    ),
    "lists_instead_of_memory": (
        [HOLD, FILL, ["do", "numpy", "array", [[1.5] * (MAX_UNCHARGED // 8), [("tuple", 1, 1)]], {}, []]],
        "B of numbers outside of arrays",
    ),
    "an_argument_that_waits": ([HOLD, FILL, ["given", 1]], "an argument waits in memory that is not charged"),
    "an_argument_again": ([HOLD, ["given", 1], ["given", 1]], "a step that does not exist"),
    "memory_after_the_operation": (
        [HOLD, FILL, ["do", "ufunc", "add.__call__", [seen(16), 1], {}, [2]], ["release", 1], ["hold", 2, 16]],
        "larger than the memory that is charged",
    ),
    "memory_after_the_message": (
        [HOLD, FILL, ["do", "communication", "all_reduce", [seen(16)], {}, [2]], ["release", 1], ["hold", 2, 16]],
        "arrives in memory that is not charged",
    ),
    "a_transfer_without_memory": (
        [HOLD, FILL, PARK, ["do", "host", "fetch_async", ["a"], {}, [2]], ["hold", 3, 16]],
        "other results",
    ),
    "a_transfer_whose_memory_is_freed": (
        [HOLD, FILL, PARK, FETCH, ["hold", 3, 16], ["release", 3], ["hold", 3, 16], WAIT],
        "numbers that it does not have",
    ),
    "an_array_before_it_has_arrived_is_zeros": (
        [HOLD, FILL, PARK, FETCH, ["hold", 3, 8]],
        "larger than the memory that is charged",
    ),
    "a_step_of_its_own": ([["count", 0]], "a step that does not exist"),
    "memory_of_less_than_nothing": ([["hold", 1, -16]], "a step that does not exist"),
    "numbers_that_nothing_has_written": (
        [HOLD, FILL, ["do", "ufunc", "add.__call__", [seen(16), 1], {"where": False}, [2]]],
        "in which add.__call__ has written nothing",
    ),
    "a_wrong_shape": (
        [HOLD, FILL, ["do", "ufunc", "matmul.__call__", [seen(16), seen(8)], {}, [2]]],
        "matmul.__call__ fails on other values",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_recording_gets_nothing_for_free(name: str) -> None:
    steps, words = FORGED[name]
    given = np.ones(2) if "argument" in name else None
    with pytest.raises(UnrepeatableError, match=words), launch(Repeated, 1, recordings=[[[], steps]]) as run:
        run.forward(given)


LEFT = 1234567.5
"""What another device has left in memory."""

CALLS: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = tuple(
    (args, kwargs)
    for args in [(), (2,), (np.ones((4, 4)),), (0, 1), (1, "empty"), (((0, 3), (0, 3)), "empty"), ([[0], [1]], 1)]
    for kwargs in [{}, {"where": False}, {"mode": "empty"}, {"where": False, "out": (None,)}, {"n": 9}]
)
"""Arguments of a function besides an array, as one of its many forms may take them."""

SIZES = (*range(1, 33), 40, 49, 70, 100, 256)
"""Of results, in numbers."""


def numbers_in(result: Any) -> Any:
    parts = result if isinstance(result, list | tuple) else [result]
    return [number for part in parts if isinstance(part, np.ndarray) for number in part.ravel().tolist()]


@pytest.mark.sampled(1)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["numpy", "ufunc", "method"])
def test_no_operation_shows_what_another_device_has_left_in_memory(kind: str) -> None:
    ufuncs = [f"{name}.{method}" for name in UFUNCS for method in ("__call__", "reduce", "outer")]
    names = {"numpy": FUNCTIONS, "method": [m for m in METHODS if hasattr(np.ndarray, m)], "ufunc": ufuncs}[kind]
    x, calls = np.full((4, 4), 3.0), 0
    with launch(Repeated, 1, recordings=[[]]) as run:
        device: Any = run._executor.devices[0].player  # type: ignore[attr-defined]
    for name in names:
        function = device._function(kind, name, [x])
        for args, kwargs in CALLS:
            result = None
            for size in SIZES:  # memory of these sizes is what the next array gets
                np.full(size, LEFT)
            with suppress(Exception):  # most functions do not take these arguments
                require_written(kind, name, (x, *args), kwargs)
                result = function(x, *args, **kwargs)
                calls += 1
            assert LEFT not in numbers_in(result), (name, args, kwargs)
    assert calls > 40


def test_products_of_numbers_count_in_a_recording() -> None:
    numbers = ["do", "ufunc", "multiply.__call__", [("known", 2), ("known", 3)], {}, [4]]
    taken = [["do", "method", "__getitem__", [("view", 1, 0, [2], [8], "<f8"), i], {}, [2 + i]] for i in (0, 1)]
    with launch(Repeated, 1, recordings=[[[], [HOLD, FILL, *taken, numbers]]]) as run:
        run.forward(None)
        assert run.meters[0].flops == 2


def test_a_recording_is_counted_as_what_it_does() -> None:
    """A product of 2 x 2 matrices, in 32 B for the operands and 32 B for the result."""
    a, b = (("view", key, 0, [2, 2], [8, 4], "<f4") for key in (1, 2))
    made = ["do", "ufunc", "matmul.__call__", [a, b], {}, [3]]
    steps = [
        ["hold", 1, 16],
        ["given", 1],
        ["hold", 2, 16],
        ["literal", 2, np.ones(4, np.float32).view(np.uint8)],
        ["hold", 3, 16],
        made,
        ["release", 1],
        ["return", ("view", 3, 0, [2, 2], [8, 4], "<f4")],
        ["release", 2],
    ]
    with launch(Repeated, 1, recordings=[[[], steps]]) as run:
        (result,) = run.forward(np.eye(2, dtype=np.float32))
        (meter,) = run.meters
    assert (result.tolist(), meter.flops, meter.peak, meter.live) == ([[1, 1], [1, 1]], 16, 48, 16)


# --- Figures cannot be hidden: each known way is refused, in the sandbox, with a message that names the figure ---


def judged(source: str, slug: str = "DataParallel") -> Verdict:
    limits = Limits(seconds=60)  # what counts is measured, and not how busy the machine is
    return verdict_on(slug, source, limits)


def require_refused(found: Verdict, *words: str) -> None:
    assert (found.status, found.stars) == ("failed", 0), found
    assert all(word in found.message for word in words), found.message


@pytest.mark.sampled(1)
@some_of_each(hidden_figures.COUNTED)
def test_products_count_however_they_are_written(name: str) -> None:
    found = judged(hidden_figures.without_flops(DATA_PARALLEL, hidden_figures.COUNTED[name]))
    assert (found.status, found.figures["flops"]) == ("passed", 20_480), found


@pytest.mark.slow
@some_of_each(hidden_figures.UNCOUNTED)
def test_products_that_no_meter_counts(name: str) -> None:
    found = judged(hidden_figures.without_flops(DATA_PARALLEL, hidden_figures.UNCOUNTED[name]))
    assert (found.status, found.stars, found.figures) == ("over_target", 1, {}), found


@pytest.mark.sampled(1)
@some_of_each(hidden_figures.REFUSED)
def test_arrays_whose_products_no_meter_counts(name: str) -> None:
    found = judged(hidden_figures.without_flops(DATA_PARALLEL, hidden_figures.REFUSED[name]))
    require_refused(found, "a device computes with plain arrays", "no meter counts products of", "use arrays, @ and *")


def test_a_fused_kernel_is_for_programs_of_layouts() -> None:
    kernel = "from lib.engine import metering\n        metering.run_kernel(lambda: self.w0 * 2)"
    require_refused(judged(with_statement(DATA_PARALLEL, kernel)), "run_kernel() is for programs of layouts")


@pytest.mark.sampled(1)
@some_of_each(hidden_figures.NARROW)
def test_narrow_types_on_the_wire_give_another_result(name: str) -> None:
    found = judged(hidden_figures.with_narrow_wire(DATA_PARALLEL, hidden_figures.NARROW[name]))
    require_refused(found, "differs from what a single device computes")


@pytest.mark.sampled(1)
@some_of_each(hidden_figures.MEMORY)
def test_memory_outside_of_arrays(name: str) -> None:
    found = judged(hidden_figures.with_hidden_memory(DATA_PARALLEL, hidden_figures.MEMORY[name]))
    require_refused(found, "numbers in", "keep them in numpy arrays")


@some_of_each(hidden_figures.TIERS)
def test_memories_that_no_target_names(name: str) -> None:
    found = judged(hidden_figures.with_hidden_memory(DATA_PARALLEL, hidden_figures.TIERS[name]))
    require_refused(found, "4,096 B", name, "no target of DataParallel counts")


@pytest.mark.slow
def test_what_a_device_reports_of_its_bytes_is_not_believed() -> None:
    found = judged(with_statement(DATA_PARALLEL, hidden_figures.LIE))
    assert (found.status, found.figures["sent"]) == ("passed", 12_288)


@pytest.mark.sampled(1)
@some_of_each(hidden_figures.COSTS)
def test_what_a_message_tells_is_charged(name: str) -> None:
    """In the first run, and in the second."""
    statement, cost = hidden_figures.COSTS[name]
    source = with_statement(DATA_PARALLEL, hidden_figures.priced(statement))
    assert judged(source).figures["sent"] == 12_288 + cost
    names: dict[str, Any] = {}
    exec(source, names)
    done = perform(trials_of(ENGINE_PUZZLES["DataParallel"])[0](), names["DataParallel"])
    assert done.readings[-1][0].sent == 12_288 + cost


@pytest.mark.sampled(1)
@some_of_each(hidden_figures.TYPES)
def test_a_dtype_is_one_of_a_short_list(name: str) -> None:
    array = f"np.zeros(1, np.dtype('{hidden_figures.TYPES[name]}'))"
    found = judged(with_statement(DATA_PARALLEL, f"if self.device_id == 0:\n            self.send(1, {array})"))
    require_refused(found, "cannot be sent; convert it with astype")


def test_a_class_computes_with_numpy_only() -> None:
    found = judged(f"import ctypes\nSIZE = ctypes.sizeof(ctypes.c_float)\n{DATA_PARALLEL}")
    require_refused(found, "a graded class cannot use ctypes, whose products no meter counts; compute with numpy")


@pytest.mark.parametrize(("claimed", "sent", "stars"), [(20_480, 12_288, 3), (20_000, 12_288, 3), (20_000, 12_292, 2)])
def test_flops_below_every_record_alone_make_no_third_star(claimed: int, sent: int, stars: int) -> None:
    """Fewer flops than any record count as the record's, so they do not make up for bytes."""
    puzzle = replace(ENGINE_PUZZLES["DataParallel"], records=({"sent": 12_288, "flops": 20_480},))
    assert (better_record(puzzle, {"sent": sent, "flops": claimed}) is None) == (stars == 3)


def test_a_verdict_says_what_it_cannot_vouch_for() -> None:
    comparison = track_of("Rotate").words.comparison
    of_products, of_digits = comparison(ENGINE_PUZZLES["DataParallel"], {}, "")
    assert of_products != of_digits
    assert [*comparison(ENGINE_PUZZLES["BalanceLoss"], {}, "")] == [of_digits]
    assert [*comparison(ENGINE_PUZZLES["Rotate"], {}, "")] == []


# --- Each known forgery of a class's figures: it is refused, or its figures are unknown, or what its recording
# needs ---


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_figure_makes_no_third_star(name: str) -> None:
    slug, source, figure, honest = FORGERIES[name]
    verdict = verdict_on(slug, source, secret="of this test")
    got = verdict.figures.get(figure)
    told = f"the forgery got {verdict.stars} stars and {figure} {got}, and needs {honest}: {verdict.message}"
    assert verdict.stars < 3, told
    assert got is None or got >= honest, told


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", shared_memory.FORGERIES)
def test_what_devices_share_gains_no_figure(name: str) -> None:
    """All devices run in one process; the recording is the only judge."""
    slug, source, figure, needed = shared_memory.FORGERIES[name]
    verdict = verdict_on(slug, source)
    got = verdict.figures.get(figure)
    assert verdict.stars <= 1 or got is not None, "what cannot be repeated has one star at most"
    assert got is None or got >= needed, f"{figure} {got}, and {needed} is needed: {verdict}"


@pytest.mark.slow
def test_a_verdict_is_reproduced_by_its_secret() -> None:
    slug, source, *_ = FORGERIES["bytes_from_public_seeds"]
    verdict = verdict_on(slug, source)
    again, other = (verdict_on(slug, source, secret=secret) for secret in (verdict.secret, "another"))
    assert again.message == verdict.message
    assert (other.status, other.stars, other.figures) == (verdict.status, verdict.stars, verdict.figures)


def of_all(key: int) -> Any:
    return ("view", key, 0, [2], [8], "<f8")


def test_devices_share_nothing_that_they_are_lent() -> None:
    """The first keeps its input in the parameters, and the second would read it there; nothing is sent."""
    loads = [["hold", 1, 16], ["given", 2], ["do", "numpy", "ravel", [of_all(2)], {}, [1]]]
    stores = [["hold", 3, 16], ["given", 3], ["do", "ufunc", "add.__call__", [of_all(3), 0], {"out": of_all(1)}, []]]
    takes = [["hold", 3, 16], ["given", 3], ["do", "communication", "barrier", [], {}, []], ["return", of_all(1)]]
    recordings = [[[], loads, [*stores, takes[2]]], [[], loads, takes]]
    with launch(Repeated, 2, recordings=recordings) as run:
        run.load_checkpoint({"weights": np.zeros(2)})
        with pytest.raises(UnrepeatableError, match="read-only"):
            run.forward([np.array([3.0, 4.0]), np.zeros(2)])


def test_what_python_keeps_of_a_pickled_object_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(LaunchOptions, "__slotnames__", raising=False)
    snapshot = EngineSnapshot()
    pickle.dumps(object.__new__(LaunchOptions))
    assert "__slotnames__" in vars(LaunchOptions)
    assert snapshot.changed() == ""
    monkeypatch.setattr(LaunchOptions, "more", len, raising=False)
    assert snapshot.changed().endswith("LaunchOptions.more")
