"""Judges a schedule: the referee judges the trace that a run sends back, against the catalog's own sizes.

Nothing in a trace is trusted, so whatever is wrong with it is a failure with a sentence, also where it breaks the
referee. Targets hold at the shown size. At the other sizes a schedule has to work, and costs a star where it is far
behind the reference, by timesteps times memory times traffic: a product leaves it free to trade one for another.
Rejected: targets at every size, which a statement cannot show.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from lib import PuzzleError, Record, Report, Size, Trace, peak_lines, referee, run_async, trace_from_json, trace_to_json
from lib.ledger.algebra import counted
from lib.ledger.family import ONE_RANK
from lib.ledger.goal import figures_text
from lib.ledger.setting import CLASSIC_SETTING, setting_to_json
from lib.ledger.trace import no_collection
from lib.ledger.traffic import traffic_lines
from puzzles.catalog.fields import NO_LIMIT
from puzzles.catalog.schedule import ReferenceAt, SchedulePuzzle, size_text
from puzzles.failure import Failure, of_refusal, sanitized
from puzzles.sandbox.worker.stages.functions import Schedule, require_schedule
from puzzles.tracks import base
from puzzles.tracks.base import ReferenceRow, Turns
from puzzles.tracks.outcomes import LocalRun, Row, RunRequest, Score

from .feedback import advice, traffic_sentences

CLASSIC = setting_to_json(CLASSIC_SETTING)

MAX_OPERATIONS = 2000
"""Operations of one rank. The longest of our own schedules has a fifth of that."""

UNRULED = frozenset(
    "load_weights get_activation set_final_weight set_output await store delete given shard combine add".split()
)
"""Operations that begin and end a run, or that are no calls of the model; no puzzle forbids them by omission."""

REPEATED_END = re.compile(", so the (step|request) cannot be repeated(?=;)")

MAX_SENTENCE = 2000
"""Characters of a message on a broken trace."""


class Judge(base.Judge[SchedulePuzzle]):
    stage = "puzzles.sandbox.worker.stages.functions:Schedule"
    is_saved = True
    turn_seconds = 0.8
    """A turn is what a rank does between two waits; most take less than a thousandth of it."""

    def requests(self, puzzle: SchedulePuzzle) -> Iterator[RunRequest]:
        for size in (puzzle.goal.size, *puzzle.other_sizes):
            yield request_at(puzzle, size, graded=True)

    async def run_here(self, slug: str, definition: Any, request: RunRequest, turns: Turns) -> LocalRun:
        """All ranks on the running loop; also a run that failed has its trace, as far as it went."""
        require_schedule(slug, definition)
        size, setting = Schedule().prepare(request.data)
        outcome = await run_async(turns.in_turns(definition), *size, setting=setting)
        row, error = {"trace": outcome.trace}, outcome.error
        if error is None:
            return LocalRun(row)
        model = outcome.models[outcome.errors.index(error)]
        return LocalRun(row, error, f"rank {model.rank}, t={model.time:g}")

    def kept(self, row: Row) -> str:
        trace = trace_in(row)
        return "" if isinstance(trace, Failure) else trace_to_json(trace)

    def row_of(self, text: str) -> Row:
        try:
            return {"trace": parse_trace(text)}
        except (PuzzleError, RecursionError, MemoryError, TypeError) as why:
            raise ValueError(str(why)) from None

    def restored(self, puzzle: SchedulePuzzle, kept: str) -> Trace | None:
        return parse_trace(kept) if kept else None

    def report(self, puzzle: SchedulePuzzle, restored: Trace) -> Report:
        return referee(restored, puzzle.goal)


def request_at(puzzle: SchedulePuzzle, size: Size, graded: bool = False) -> RunRequest:
    """A run of all ranks at a size; of a graded one `lib.pipelines` is withheld."""
    setting = setting_to_json(puzzle.goal.setting)
    data: dict[str, Any] = {"size": list(size)}
    if setting != CLASSIC:
        data["setting"] = setting
    if graded:
        data["graded"] = True
    return RunRequest(size_text(size), data, lambda row: score_trace(trace_in(row), puzzle, size))


def trace_in(row: Row) -> Trace | Failure:
    """The trace of a run: as JSON from the worker, as an object from this process."""
    given = row.get("trace")
    if isinstance(given, Trace):
        return given
    if not isinstance(given, str):
        words = "the run sent back no trace; let the function return, and leave the rest to the grader"
        return Failure("crash", words)
    try:
        return parse_trace(given)
    except (PuzzleError, RecursionError, MemoryError, ValueError, TypeError) as why:
        return Failure("rule", sanitized(f"what the run sent back is not a trace: {why}")[:MAX_SENTENCE])


def parse_trace(text: str) -> Trace:
    with no_collection():
        return trace_from_json(text)


def judged_report(trace: Trace, puzzle: SchedulePuzzle, size: Size) -> Report | Failure:
    """The referee's report. A trace that breaks even the referee is a failure of the trace."""
    longest = max(map(len, trace.ranks), default=0)
    if longest > MAX_OPERATIONS:  # checked before judging, which would take too long
        few = f"a schedule of this size needs far fewer than {MAX_OPERATIONS:,}"
        return Failure("rule", f"a rank recorded {longest:,} operations; {few}")
    try:
        return referee(trace, replace(puzzle.goal, size=size))
    except (Exception, RecursionError) as why:
        return senseless(why)


def senseless(why: BaseException) -> Failure:
    """The failure of a trace that breaks even the referee."""
    words = f"what the run sent back makes no sense as a trace ({type(why).__name__}: {why})"
    return Failure("rule", sanitized(words))


def score_trace(trace: Trace | Failure, puzzle: SchedulePuzzle, size: Size) -> Score | Failure:
    """The score of a trace. The targets are for the shown size, and apply only there."""
    report = trace if isinstance(trace, Failure) else judged_report(trace, puzzle, size)
    if isinstance(report, Failure):
        return report
    if report.error is not None:
        return of_refusal(report.error)
    assert isinstance(trace, Trace), "there is a report on it"
    if (refused := _refused_call(trace, puzzle)) is not None:
        return refused
    figures = figures_of(report, puzzle, size)
    shown = size == puzzle.goal.size
    ordered = sorted(report.notes, key=attrgetter("costs_a_star"))  # feedback names the last one as the reason
    notes = (*(sanitized(note.text) for note in ordered if note not in report.unrepeatable), *_star_notes(report))
    missed = tuple(_missed(report, puzzle)) if shown else ()
    told = advice(trace, report, puzzle) if missed else ""
    why = (*peak_lines(report.contents), *traffic_lines(report.sent))
    why_matters = shown and report.status == "over_target" and (not report.meets_memory or sends_too_much(report))
    remark = "" if shown else _remark(report, puzzle, size)
    again = sanitized(report.second_step)
    return Score(figures, missed, report.stars, notes, told, why, why_matters, report.family, remark, again)


def figures_of(report: Report, puzzle: SchedulePuzzle, size: Size) -> dict[str, float]:
    figures = {"timesteps": report.timesteps, "makespan": report.makespan, "peak_memory": report.peak.memory}
    if report.lasting_peak > report.peak.memory:
        figures["lasting_peak"] = report.lasting_peak
    if size.ranks > 1:
        figures["traffic"] = report.traffic
    if puzzle.goal.setting.task == "local":
        figures["drift"] = report.drift
    if puzzle.goal.host is not None:
        figures["host_memory"] = report.peaks["host"].memory
    return figures


def _refused_call(trace: Trace, puzzle: SchedulePuzzle) -> Failure | None:
    """The first call of a run that the puzzle does not let a solution make, besides those that every run needs."""
    for rank, operations in enumerate(trace.ranks):
        for op in operations:
            if puzzle.refuses(op.name) and (op.name in puzzle.forbidden or op.name not in UNRULED):
                rule = puzzle.rule_text()
                return Failure("rule", f"rank {rank} calls {op.call()}, and this puzzle {rule}", op.line)
    return None


def _remark(report: Report, puzzle: SchedulePuzzle, size: Size) -> str:
    """What is much worse than the reference's run at another size: one rank that does all the work, or the figures."""
    if report.family == ONE_RANK and size.ranks > 1:
        return "one rank does all the work; share it out at every size"
    reference = puzzle.reference_scores(size)
    if reference is not None and reference.is_far_ahead_of(report.timesteps, report.peak.memory, report.traffic):
        sends, theirs = (f", and sends {sent:,}" if sent else "" for sent in (report.traffic, reference.traffic))
        return (
            f"it takes {report.costs.took(report.timesteps)} and {report.peak.memory:,} elements{sends}; the reference "
            f"takes {reference.timesteps:,g} and {reference.peak_memory:,}{theirs}, so share the work out at every size"
        )
    return ""


def _missed(report: Report, puzzle: SchedulePuzzle) -> Iterator[str]:
    goal, peak = puzzle.goal, report.peak
    if not report.meets_time:
        yield f"it takes {report.costs.took(report.timesteps)} and the target is {goal.time_text}"
    if not report.meets_memory:
        yield (
            f"it needs {peak.memory:,} elements of memory (rank {peak.rank} at t={peak.time:g}) "
            f"and the target is {goal.memory_text}"
        )
    if not report.meets_host:
        yield f"it parks {report.peaks['host'].memory:,} elements on the host and the target is {goal.host_text}"
    if not report.meets_drift:
        times = counted(report.drift, "time")
        allowed = f"{goal.drift} {'is' if goal.drift == 1 else 'are'} allowed"
        yield f"a layer is updated {times} on a rank without an average; at most {allowed}"
    if goal.decides != "pass":
        return
    if not report.meets_traffic:
        yield f"it sends {report.traffic:,} elements and the target is {goal.traffic_text}"
    if report.meets_memory and not report.is_steady and not goal.meets_memory(report.lasting_peak):
        yield f"{sanitized(report.second_step)}, and the target is {goal.memory_text}"
    if report.unrepeatable:
        fewer = "; ".join(sanitized(note.text) for note in report.unrepeatable)
        yield f"{puzzle.reload_reason}: {REPEATED_END.sub('', fewer)}"


def _star_notes(report: Report) -> Iterator[str]:
    """What keeps a schedule that passed from the third star."""
    if report.goal is None or report.goal.decides != "star" or report.status != "passed" or report.meets_traffic:
        return
    needed = f"it sends {report.traffic:,} elements, and the third star needs {report.goal.traffic_text}."
    yield f"{needed} {traffic_sentences(report)}"


def sends_too_much(report: Report) -> bool:
    """True if a schedule sends too much, and no cause is known: then all its calls are shown."""
    return not (report.meets_traffic or report.causes)


# --- What a file states of its reference ---


class References(base.References[SchedulePuzzle]):
    """Records at the shown size, and figures at the others."""

    def games(self, puzzle: SchedulePuzzle) -> list[SchedulePuzzle]:
        """The puzzle at each of its sizes, the shown one first, without targets."""
        return [
            replace(puzzle, goal=replace(puzzle.goal, size=size, time=NO_LIMIT, memory=NO_LIMIT), other_sizes=())
            for size in dict.fromkeys((puzzle.goal.size, *puzzle.other_sizes))
        ]

    def row(
        self, game: SchedulePuzzle, puzzle: SchedulePuzzle, file: str, figures: Mapping[str, float], family: str
    ) -> ReferenceRow | None:
        """At the shown size the row is a record: the first that a better schedule has to beat; none if a record beats
        it."""
        timesteps, memory = float(figures["timesteps"]), int(figures["peak_memory"])
        traffic = int(figures.get("traffic", 0))
        if game.goal.size == puzzle.goal.size:
            ideas = next((one.ideas for one in puzzle.goal.records if one.by == file), ())
            record = Record(timesteps, memory, file, family, traffic, ideas)
            others = [one for one in puzzle.goal.records_to_beat(family) if one.by != file]
            return None if any(other.dominates(*record.figures) for other in others) else _record_row(record)
        return _elsewhere_row(ReferenceAt(game.goal.size, timesteps, memory, traffic))

    def stated(self, puzzle: SchedulePuzzle, file: str) -> Sequence[ReferenceRow]:
        """The rows on the reference in `file` that a puzzle has."""
        records = [_record_row(record) for record in puzzle.goal.records if record.by == file]
        return [*records, *map(_elsewhere_row, puzzle.reference_at)]


def _record_row(record: Record) -> ReferenceRow:
    python = f"Record({record.timesteps}, {record.peak_memory:_}, {record.by!r}, {record.family!r}{_traffic(record)})"
    words = f"{figures_text(*record.figures)} ({record.family or 'of no family'})"
    return ReferenceRow("records", _fields(record), "at the shown size", words, f"{python} in the goal's records")


def _elsewhere_row(row: ReferenceAt) -> ReferenceRow:
    python = f"ReferenceAt({row.size!r}, {row.timesteps}, {row.peak_memory:_}{_traffic(row)}) in reference_at"
    fields = {**_fields(row), "size": row.size._asdict()}
    words = figures_text(row.timesteps, row.peak_memory, row.traffic)
    return ReferenceRow("reference_at", fields, f"with {size_text(row.size)}", words, python)


def _fields(row: Record | ReferenceAt) -> dict[str, object]:
    """The fields of a row; on one rank there is no traffic."""
    given = {name: content for name, content in row._asdict().items() if content not in (None, ())}
    return given | ({"ideas": [*given["ideas"]]} if "ideas" in given else {})


def _traffic(row: Record | ReferenceAt) -> str:
    return "" if row.traffic is None else f", traffic={row.traffic:_}"
