"""Judges a class: the trials that it is run with, its results, its figures against their limits, and the stars.

The results of a run need no trust, because they are compared with what a single device computes. Its meters are not
believed, since they lie in the player's process: it sends a recording of its operations, which may be forged, and a
second run repeats the recording on other values and is counted by the judge. Those values follow from a hash of the
recording and from a secret of the grader. So nobody knows them before the recording is made, and no class can try
recordings until one fits. If they lead to the right results, the recording is a program for the puzzle, and its figures
are what that program needs. A class that cannot be repeated has unknown figures and one star.

Figures below what any class needs are refused: then something was not counted. Rejected: several fixed trials in place
of drawn values, which a class could learn by heart. Rejected: refusing a class that cannot be repeated, since its
results are right.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from itertools import pairwise
from math import inf
from typing import Any, TypeVar

import numpy as np

from lib.engine.metering import Reading, unused_memory
from lib.errors import Sentences
from lib.ledger.algebra import counted
from puzzles.catalog.engine import EnginePuzzle, lower_bounds_of, trials_of
from puzzles.catalog.engine.lower_bounds import below
from puzzles.catalog.engine.puzzle import FIGURES
from puzzles.catalog.engine.trial import Performed, Trial, WrongResultError, results_of
from puzzles.catalog.fields import OwnPuzzleError
from puzzles.failure import Failure, sanitized
from puzzles.sandbox.plain_data import Foreign, pack, unpack
from puzzles.sandbox.worker.stages.engine_trial import repeat, run_class
from puzzles.tracks import base
from puzzles.tracks.base import Turns
from puzzles.tracks.outcomes import FurtherRun, LocalRun, Row, RunOutcome, RunRequest, Score, listed

from .words import PRODUCTS, better_record

# --- A run, and its comparison with a single device ---


SAYS = Sentences(
    {
        "something returned": "{where} should return None; it returned {got}",
        "other names": "{where} should return a dictionary of {names}; it returned {got}",
        "other shape": "{where} should be an array of shape {shape}; it is {got}",
        "differs": "{where} differs from what a single device computes: at [{at}] it is {number}{cause} and should be {wanted}",
        "average": "this is the average of {devices} devices, and should be the sum: is an op 'avg', or a sum divided by {devices}?",
        "summed again": "this is {devices} times too large: do {devices} devices add up what is already the sum?",
        "figures unknown": "its figures are unknown: {why}; so the judge cannot count them; compute with numpy's functions on arrays, not with numbers of Python that depend on their values, and draw with np.random.default_rng(seed)",
        "not summed": "the sum over the {devices} devices is right: sum what each device computes, as `all_reduce` does",
    }
)

MAX_FIGURE = 1 << 62
"""Larger than any figure."""


BY_LINE = ("held", "idle", "products")
"""Figures of a meter by line."""

MAX_ARGUMENT = 20
"""Letters of an argument that a message shows."""


def asked(trial: Trial) -> dict[str, Any]:
    """A trial without the right results: the part that a class is given."""
    return {
        "arguments": dict(trial.arguments),
        "params": dict(trial.params),
        "calls": [(call.method, list(call.arguments)) for call in trial.calls],
        "stream": None if trial.stream is None else list(trial.stream[0]),
        "devices": trial.devices,
        "options": dict(trial.options),
        "spmd": trial.spmd,
    }


def size_of(trial: Trial, shown: Trial) -> str:
    """A trial in words; for any but the shown one, what is different: "8 devices, model_dim 32"."""
    sizes = {name: str(value) for name, value in trial.arguments.items() if len(str(value)) < MAX_ARGUMENT}
    first = trial is shown
    others = [f"{name} {value}" for name, value in sizes.items() if first or value != str(shown.arguments.get(name))]
    devices = [f"{trial.devices} devices"] if first or trial.devices != shown.devices else []
    return ", ".join(devices + others)


def performed_of(row: Row, trial: Trial) -> Performed:
    """A run as the worker reports it, checked as far as possible."""
    results, outputs, readings = (unpack(row.get(name)) for name in ("results", "outputs", "readings"))
    calls = len(trial.calls)
    if not isinstance(results, list) or len(results) != calls:
        raise ValueError(f"it should have results of {calls} calls")
    for one in results:
        if not isinstance(one, list) or len(one) != trial.devices:
            raise ValueError(f"a call should have {trial.devices} results, one of each device")
    if not isinstance(outputs, list):
        raise ValueError("the outputs are not a list")
    steps = 1 + calls + (trial.stream is not None)
    if not isinstance(readings, list) or len(readings) != steps:
        raise ValueError(f"it should have {steps} readings of the meters")
    meters = [_readings(one, trial.devices) for one in readings]
    _require_consistent(meters)
    return Performed(results, outputs, meters).priced(trial)


def _readings(given: Any, devices: int) -> list[Reading]:
    if not isinstance(given, list) or len(given) != devices:
        raise ValueError(f"there should be {devices} meters")
    return [_reading(one) for one in given]


def _reading(given: Any) -> Reading:
    figures: dict[str, Any] = {f.name: given.get(f.name) for f in fields(Reading)} if isinstance(given, dict) else {}
    tables = {name: figures.pop(name, None) for name in ("calls", "host", "disk", *BY_LINE)}
    if not (
        all(isinstance(table, dict) and all(isinstance(key, str) for key in table) for table in tables.values())
        and all(set(tables[tier]) == set(unused_memory()) for tier in ("host", "disk"))
        and all(line.isdecimal() for name in BY_LINE for line in tables[name])
    ):
        raise ValueError("a meter cannot be read")
    numbers = [*figures.values(), *(number for table in tables.values() for number in table.values())]
    if not all(type(number) is int and 0 <= number < MAX_FIGURE for number in numbers):
        raise ValueError("a meter does not show a number of bytes, calls or flops")
    return Reading(**figures, **tables)


def _require_consistent(meters: Sequence[Sequence[Reading]]) -> None:
    """Refuses meters that decrease, or show a peak below the memory that is held: their lines would mislead."""
    for before, after in pairwise(meters):
        for a, b in zip(before, after):
            if any(getattr(a, name) > getattr(b, name) for name in ("sent", "unpacked", "flops", "peak", "clock")):
                raise ValueError("a meter has decreased")
    if any(reading.live > reading.peak for step in meters for reading in step):
        raise ValueError("a meter shows less than was held; leave the meters alone")


def require_right(trial: Trial, performed: Performed) -> None:
    for call, results in zip(trial.calls, performed.results):
        for device, (result, right) in enumerate(zip(results, call.wanted or ())):
            try:
                compare(result, right, f"device {device}, {call.method}()", trial.tolerance)
            except WrongResultError as why:
                known = [words for words, made in call.mistakes.items() if _is(result, made[device], trial.tolerance)]
                words = known or [_operation(result, right, trial) or _unsummed(results, right, trial)]
                text = "; ".join(filter(None, [str(why), *words, trial.about]))
                raise WrongResultError(text, call.method if trial.spmd is None else "program") from None
    if trial.stream is not None:
        with results_of("forward"):  # which the loop calls
            _require_outputs(performed.outputs, *trial.stream, trial.tolerance)
    if trial.check is not None:
        methods = {call.method for call in trial.calls}
        with results_of(methods.pop() if len(methods) == 1 else ""):
            trial.check(performed)


def _require_outputs(got: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], tolerance: float) -> None:
    if len(got) != len(outputs):
        raise WrongResultError(
            f"got {counted(len(got), 'output')} for {counted(len(inputs), 'input')}; one device writes one for each"
        )
    for i, (result, right) in enumerate(zip(got, outputs)):
        compare(result, right, f"output {i}", tolerance)


def compare(result: Any, right: Any, where: str, tolerance: float = 0.0) -> None:
    """Checks that shapes, names and every number are equal, or as near as `tolerance` allows."""
    if right is None:
        if result is not None:
            raise WrongResultError(SAYS("something returned", where=where, got=_described(result)))
        return
    if isinstance(right, dict):
        if not isinstance(result, dict) or set(result) != set(right):
            raise WrongResultError(SAYS("other names", where=where, names=", ".join(right), got=_described(result)))
        for name in right:
            compare(result[name], right[name], f"{where}, '{name}'", tolerance)
        return
    if not isinstance(result, np.ndarray) or result.shape != right.shape:
        raise WrongResultError(SAYS("other shape", where=where, shape=right.shape, got=_described(result)))
    with np.errstate(all="ignore"):
        allowed = tolerance * np.abs(right).max(initial=0)
        near = result == right if not tolerance else np.abs(result - right) <= allowed
    if not near.all():
        place = tuple(int(i[0]) for i in np.nonzero(~near))
        at = ", ".join(map(str, place))
        finite = result.dtype.kind not in "fc" or np.isfinite(result[place])
        cause = "" if finite else " (an overflow of its dtype, or a division by 0)"
        number, wanted = _number(result[place]), _number(right[place])
        raise WrongResultError(SAYS("differs", where=where, at=at, number=number, cause=cause, wanted=wanted))


def _operation(result: Any, right: Any, trial: Trial) -> str:
    """Names the mistake if all wrong arrays are too small or too large by the number of devices."""
    n = trial.devices
    if isinstance(right, dict):
        pairs = [(result.get(name), right[name]) for name in right] if isinstance(result, dict) else []
        wrong = [pair for pair in pairs if not _is(*pair, trial.tolerance)]
        found = {_operation(*pair, trial) for pair in wrong}
        return found.pop() if len(found) == 1 else ""
    if not isinstance(result, np.ndarray) or n == 1 or not isinstance(right, np.ndarray) or not right.any():
        return ""
    if result.dtype.kind in "fiuc" and _is(result * n, right, trial.tolerance * n):
        return SAYS("average", devices=n)
    if result.dtype.kind in "fiuc" and _is(result, right * n, trial.tolerance):
        return SAYS("summed again", devices=n)
    return ""


def _unsummed(results: Sequence[Any], right: Any, trial: Trial) -> str:
    """Names the mistake if the results of all devices add up to the right one."""
    if isinstance(right, dict):
        alike = all(isinstance(result, dict) and set(result) == set(right) for result in results)
        names = [name for name in right if not _is(results[0][name], right[name], trial.tolerance)] if alike else []
        found = {_unsummed([result[name] for result in results], right[name], trial) for name in names}
        return found.pop() if len(found) == 1 else ""
    if len(results) < 2 or not all(isinstance(r, np.ndarray) and r.shape == np.shape(right) for r in results):
        return ""
    if any(result.dtype.kind not in "fiuc" for result in results):
        return ""
    if not _is(np.sum(results, axis=0), right, trial.tolerance * len(results)):
        return ""
    return SAYS("not summed", devices=len(results))


def _number(value: Any) -> str:
    return f"{value:g}" if value.dtype.kind in "fiuc" else str(value)


def _is(result: Any, made: Any, tolerance: float) -> bool:
    try:
        compare(result, made, "", tolerance)
    except WrongResultError:
        return False
    return True


def _described(result: Any) -> str:
    if isinstance(result, Foreign):
        return f"of type {result.what}"
    if isinstance(result, np.ndarray):
        return f"one of shape {result.shape}"
    if isinstance(result, dict):
        return f"one of {', '.join(map(str, result)) or 'nothing'}"
    return "None" if result is None else f"of type {type(result).__name__}"


OTHER_VALUES = "its operations repeated on other values"

DRAWS = 3
"""Of right classes, some round more than the tolerance on few of all values; forged ones are wrong on nearly all."""


class RepeatRequest(RunRequest):
    """A second run. If it ends early, that is no fault of the class, whose first run has ended well."""

    def score_of(self, outcome: RunOutcome) -> Any:
        if outcome.failure is not None and outcome.failure.reason in ("timeout", "memory"):
            return unknown_figures(outcome.failure.sentence)
        return super().score_of(outcome)


def repeat_request(
    make: Callable[[], Trial],
    recordings: str,
    score_right: Callable[[Trial, Performed], Score | Failure],
    secret: str,
    draw: int = 0,
) -> RunRequest:
    """The second run of a trial. `score_right` scores it if its results are right. If they are not, the next draw of
    values decides, and the last one makes the figures unknown."""
    other = with_other_values(make, recordings, f"{secret} {draw}")

    def score(row: Row) -> Score | Failure | Callable[[str], RunRequest]:
        why = row.get("unrepeatable")
        if isinstance(why, str):
            return unknown_figures(why)
        try:
            performed = performed_of(row, other)
            require_right(other, performed)
        except Exception as wrong:  # a trial's check may choke on what it does not expect
            if draw + 1 < DRAWS:
                return lambda secret: repeat_request(make, recordings, score_right, secret, draw + 1)
            return unknown_figures(f"with {OTHER_VALUES}, {wrong}")
        return score_right(other, performed)

    given = asked(other)

    def here() -> Row:
        return repeat(recordings, given)

    return RepeatRequest(OTHER_VALUES, {"trial": pack(given), "recordings": recordings}, score, own=here)


def unknown_figures(why: str) -> Score:
    """The score of a class whose results are right, and whose operations cannot be repeated."""
    return Score({}, (SAYS("figures unknown", why=sanitized(why)[:300]),), stars=1)


def with_other_values(make: Callable[[], Trial], recordings: str, secret: str) -> Trial:
    """A trial whose random numbers follow from its own seeds, the recordings and the secret. What it draws by
    `fixed_rng` stays the same."""
    digest = hashlib.sha256(f"{secret} {recordings}".encode()).digest()
    with _seeded(np.frombuffer(digest, np.uint32).tolist()):
        return make()


@contextmanager
def _seeded(more: list[int]) -> Iterator[None]:
    """A context in which seeds of numpy are longer by these numbers."""
    default_rng = np.random.default_rng

    def other(given: Any = None) -> np.random.Generator:
        return default_rng([*np.atleast_1d(given or 0).tolist(), *more])

    np.random.default_rng = other  # type: ignore[assignment]  # of the catalog's functions, which are called here only
    try:
        yield
    finally:
        np.random.default_rng = default_rng


# --- Scores ---


TRAFFIC = frozenset(("sent", "uplink", "collectives", "messages", "receives", "barriers"))
"""Figures that follow from what is called."""


ARRAYS = ("peak", "weights", "kept", "stored")
"""Figures in bytes of a device's arrays."""

HIDDEN = "Keep numbers in numpy arrays, and let devices exchange them by the calls of the engine only"
Scored = TypeVar("Scored")
WRITTEN_OUT = "Make products of matrices with @, np.einsum, np.dot or np.tensordot"
MAX_ROWS = 12
"""Lines of an explanation."""

REMEDIES = dict.fromkeys(PRODUCTS, WRITTEN_OUT)
"""What to do about a figure that is too low."""


class Judge(base.Judge[EnginePuzzle]):
    stage = "puzzles.sandbox.worker.stages.engine"
    max_result = 16 << 20

    def requests(self, puzzle: EnginePuzzle) -> Iterator[RunRequest]:
        """A run for each trial. The request does not contain the right results. Trials are made one by one, because
        after a failure no more are needed."""
        shown: Trial | None = None
        for make in trials_of(puzzle):
            trial = make()
            if not isinstance(trial, Trial):
                name = getattr(make, "__name__", repr(make))
                raise OwnPuzzleError(f"{puzzle.slug}: {name} in TRIALS returns a Trial; got {trial!r:.80}")
            shown = shown or trial
            yield RunRequest(
                size_of(trial, shown), {"trial": pack(asked(trial))}, _scorer(puzzle, trial, make), trial.hidden
            )

    async def run_here(self, slug: str, definition: Any, request: RunRequest, turns: Turns) -> LocalRun:
        """One launch as one turn. Devices share the class and its module, as they do in the sandbox."""
        trial: Any = unpack(request.data["trial"])
        return LocalRun(turns.turn(lambda: run_class(slug, definition, trial)))


def _scorer(
    puzzle: EnginePuzzle, trial: Trial, make: Callable[[], Trial]
) -> Callable[[Row], Score | Failure | FurtherRun]:
    """The function that scores a trial's row. The repetition of its recordings has the figures."""

    def score(row: Row) -> Score | Failure | FurtherRun:
        def scored() -> Score | FurtherRun:
            performed = performed_of(row, trial)
            require_right(trial, performed)
            _require_allowed(puzzle, performed)
            if not isinstance(row.get("recordings"), str):  # no worker sends such a row; a class may
                raise WrongResultError("the run has sent no recording of its operations; let the methods return")
            return partial(repeat_request, make, row["recordings"], partial(_scored_again, puzzle, performed))

        return _or_failure(scored)

    return score


def _scored_again(puzzle: EnginePuzzle, first: Performed, other: Trial, performed: Performed) -> Score | Failure:
    """The score of a second run with right results: its figures, with the lines of code that the first run has."""
    return _or_failure(lambda: score_figures(puzzle, other, performed, first))


def _or_failure(scored: Callable[[], Scored]) -> Scored | Failure:
    """A score, or the failure that it ends with."""
    try:
        return scored()
    except WrongResultError as why:
        return Failure("rule", sanitized(str(why)), method=why.method)
    except (Exception, RecursionError) as why:  # a trial's check may choke on what it does not expect
        return Failure(
            "rule", sanitized(f"what the run sent back cannot be judged ({why or type(why).__name__})")[:300]
        )


def score_figures(puzzle: EnginePuzzle, trial: Trial, performed: Performed, lines: Performed) -> Score:
    """The figures of one trial with right results, the targets that it misses, and its stars: three if no record is
    better in one figure and as good in all. `lines` is the run that knows the lines of code at the peak.

    Raises:
        WrongResultError: a call is not allowed, or a figure is less than any class needs.
    """
    targets = puzzle.targets if trial.targets is None else trial.targets
    measured = _measured(puzzle, trial, performed)
    _require_counted(puzzle, trial, measured, targets)
    missed = tuple(_missed(measured, targets))
    figures = {name: measured[name] for name in puzzle.targets}
    stars = 1 if missed else 2 if better_record(puzzle, figures) else 3
    is_explained = "peak" in targets and FIGURES["peak"].of(lines) == measured["peak"]
    why = tuple(_peak_lines(lines)) if is_explained else ()
    too_high = bool(why) and measured["peak"] > targets["peak"]
    if measured.get("flops", 0) > targets.get("flops", inf) and FIGURES["flops"].of(lines) == measured["flops"]:
        why, too_high = (*why, *_product_lines(lines)), True
    advice = _advice(measured, targets, performed) if missed else ""
    if not advice and any(measured[name] > targets[name] for name in ARRAYS if name in targets):
        advice = _of_widened(lines)
    return Score(figures, missed, stars, advice=advice, why=why, why_matters=too_high)


def _measured(puzzle: EnginePuzzle, trial: Trial, performed: Performed) -> dict[str, int]:
    """The figures of a run with right results, if its calls are allowed."""
    _require_allowed(puzzle, performed)
    _require_named_memories(puzzle, trial, performed)
    return {name: FIGURES[name].of(performed) for name in (*puzzle.targets, *(trial.targets or ()))}


def _require_counted(
    puzzle: EnginePuzzle, trial: Trial, measured: Mapping[str, int], targets: Mapping[str, int]
) -> None:
    """Refuses figures that no class can have."""
    for name, bound in below(lower_bounds_of(puzzle, trial), measured, targets):
        raise WrongResultError(
            f"{FIGURES[name].words}: {measured[name]:,}, fewer than the {bound.value:,} that any class needs: "
            f"something was not counted ({bound.reason}). {REMEDIES.get(name, HIDDEN)}"
        )


def _require_named_memories(puzzle: EnginePuzzle, trial: Trial, performed: Performed) -> None:
    """Refuses arrays on hosts and disks where no target counts them and they take no time."""
    for memory in ("host", "disk"):
        named = any(name.startswith(memory) for name in puzzle.targets) or memory in trial.options.get("byte_time", {})
        for device, meter in enumerate(() if named else performed.readings[-1]):
            if written := getattr(meter, memory)["written"]:
                raise WrongResultError(
                    f"device {device} wrote {written:,} B to its {memory}, which no target of {puzzle.slug} counts; "
                    "keep everything on the device"
                )


def _require_allowed(puzzle: EnginePuzzle, performed: Performed) -> None:
    for device, reading in enumerate(performed.readings[-1]):
        for call, times in reading.calls.items():
            if times and puzzle.refuses(call):
                raise WrongResultError(f"device {device} calls {call}, which this puzzle {puzzle.rule_text()}")


def _missed(figures: Mapping[str, float], targets: Mapping[str, int]) -> Iterator[str]:
    for name, limit in targets.items():
        if figures[name] > limit:
            yield f"{FIGURES[name].words} {figures[name]:,}, and the target is {limit:,}"


def _advice(figures: Mapping[str, float], targets: Mapping[str, int], performed: Performed) -> str:
    """The calls of the device that sends most, if too much is sent or called."""
    if not any(figures[name] > limit for name, limit in targets.items() if name in TRAFFIC):
        return ""
    readings = performed.readings[-1]
    device = max(range(len(readings)), key=lambda device: readings[device].sent)
    made = {name: times for name, times in sorted(readings[device].calls.items()) if times}
    calls = listed([f"{times} {name}" for name, times in made.items()])
    if targets.get("collectives") == 0 < figures["collectives"]:
        return f"Device {device} makes these calls: {calls}. Do without collectives: use `send` and `receive`."
    if set(made) == {"send", "receive"} and "sent" in targets:
        each, limit = figures["sent"] // made["send"], targets["sent"]
        sends = f"Device {device} sends {made['send']} messages of {each:,} B on average"
        return f"{sends}; the target allows {limit:,} B in all."
    return (
        f"Device {device} makes these calls: {calls}. Which of them could be fewer, later or smaller?" if calls else ""
    )


def _of_widened(performed: Performed) -> str:
    """The line that doubles the bytes of its arrays, if there is one."""
    line = next((reading.widened_line for reading in performed.readings[-1] if reading.widened_line), 0)
    return (
        f"Line {line} makes float64 arrays of float32, which doubles their bytes: a number of numpy, such as "
        "np.sqrt(16), is a float64. Use a number of Python, such as 4 or 16**0.5, or np.float32(4)."
        if line
        else ""
    )


def _peak_lines(performed: Performed) -> Iterator[str]:
    """What the highest peak consists of: the lines that made its arrays, and what nothing reads after it."""
    readings = performed.readings[-1]
    device = max(range(len(readings)), key=lambda device: readings[device].peak)
    most = readings[device]
    if not most.peak_line:
        return
    yield f"The peak, {most.peak:,} B on device {device}, is reached at line {most.peak_line}. It consists of:"
    rows = [(nbytes - most.idle.get(line, 0), line, "") for line, nbytes in most.held.items()]
    rows += [(nbytes, line, "; no operation reads it again") for line, nbytes in most.idle.items()]
    width = len(f"{most.peak:,}")
    for nbytes, line, idle in sorted(rows, key=lambda row: -row[0])[:MAX_ROWS]:
        if nbytes > 0:
            yield f"  {nbytes:>{width},}  " + (f"made at line {line}" if int(line) else "given to the class") + idle


def _product_lines(performed: Performed) -> Iterator[str]:
    """The lines whose products take the flops of the busiest device."""
    readings = performed.readings[-1]
    device = max(range(len(readings)), key=lambda device: readings[device].flops)
    most = readings[device]
    yield f"Device {device} computes most, {most.flops:,} flops:"
    width = len(f"{most.flops:,}")
    for line, flops in sorted(most.products.items(), key=lambda row: -row[1])[:MAX_ROWS]:
        if flops > 0:
            yield f"  {flops:>{width},}  {flops / most.flops:>4.0%}  " + (f"line {line}" if int(line) else "elsewhere")
