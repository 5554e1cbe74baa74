"""Judges a class: the trials that it is run with, the figures of each against their limits, and the stars."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import inf
from typing import Any, TypeVar

from puzzles.catalog.engine import EnginePuzzle, lower_bounds_of, trials_of
from puzzles.catalog.engine.figures import FIGURES
from puzzles.catalog.engine.lower_bounds import below
from puzzles.catalog.engine.trial import Performed, Trial, WrongResultError
from puzzles.catalog.fields import OwnPuzzleError
from puzzles.failure import Failure, sanitized
from puzzles.sandbox.plain_data import pack, unpack
from puzzles.sandbox.worker.stages.engine_trial import run_class
from puzzles.tracks import base
from puzzles.tracks.outcomes import FurtherRun, LocalRun, Row, RunRequest, Score, listed
from puzzles.tracks.workbench import Turns

from .trial_runs import asked, performed_of, repeat_request, require_right, size_of
from .words import PRODUCTS, better_record

TRAFFIC = frozenset(("sent", "uplink", "collectives", "messages", "receives", "barriers"))
"""Figures that follow from what is called."""


ARRAYS = ("peak", "weights", "kept", "stored")
"""Figures in bytes of a device's arrays."""

HIDDEN = "Keep numbers in numpy arrays, and let devices exchange them by the calls of the engine only"
Scored = TypeVar("Scored")
WRITTEN_OUT = "Make products of matrices with @, np.einsum, np.dot or np.tensordot"
MAX_ROWS = 12
"""Lines of an explanation."""

ADVICE = dict.fromkeys(PRODUCTS, WRITTEN_OUT)
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


def score_trial(puzzle: EnginePuzzle, trial: Trial, performed: Performed) -> Score:
    """The figures of one trial, the targets that it misses, and its stars: three if no record is better in one figure
    and as good in all.

    Raises:
        WrongResultError: a result is wrong, a call is not allowed, or a figure is less than any class needs.
    """
    require_right(trial, performed)
    return score_figures(puzzle, trial, performed, performed)


def score_figures(puzzle: EnginePuzzle, trial: Trial, performed: Performed, lines: Performed) -> Score:
    """The same for a run with right results. `lines` is the run that knows the lines of code at the peak."""
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
            f"something was not counted ({bound.reason}). {ADVICE.get(name, HIDDEN)}"
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
