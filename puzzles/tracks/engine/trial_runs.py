"""The runs of a trial: what is asked, the row that comes back, its comparison with a single device, and the second run.

In a second run the recorded operations are repeated on other values, and counted by the judge. The recording comes from
the player's process, and may be forged. The other values follow from a hash of it and from a secret of the grader, so
nobody knows them before it is made, and no class can try recordings until one fits. If they lead to the right results,
the recording is a program for the puzzle, and its figures are what that program needs. The meters of that process are
not read.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np

from lib.engine.metering.meter import Reading, unused_memory
from lib.errors import Sentences
from lib.values.algebra import counted
from puzzles.catalog.engine.trial import Performed, Trial, WrongResultError, results_of
from puzzles.failure import Failure, sanitized
from puzzles.sandbox.plain_data import Foreign, pack, unpack
from puzzles.tracks.outcomes import Row, RunOutcome, RunRequest, Score

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
    """Refuses meters that decrease, or show a peak below the memory that is held."""
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
        from puzzles.sandbox.worker.stages.engine_trial import repeat  # here, where no worker does it

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
