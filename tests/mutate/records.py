"""The hunt for records: schedules near the references and textbook orders, and which of them beat a record.

Candidates are mutants of each reference and record, the textbook orders, plain and in pairs, and random mixes that have
a way for each layer. A mutant deletes a statement or swaps two, changes a constant by one, all-reduces in place of a
reduce-scatter, or keeps a full value in place of a shard. Most are refused or slower; a few show that a text's idea is
not needed, or that a target leaves room.
"""

import ast
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

from lib import Goal, Record, Report, referee, run
from lib.ledger.family import PIPELINES
from lib.pipelines import orders, pipeline
from puzzles.catalog.schedule import PUZZLES, SchedulePuzzle
from tests.catalog.lessons.families.grid import grid, in_halves, in_pairs
from tests.catalog.lessons.families.mixes import random_mix
from tests.catalog.lessons.families.replicas import IN_COLLECTIVES, IN_MESSAGES, replicas
from tests.support.variants import ROOT

PATIENCE = 5.0
"""Seconds for a candidate; a mutant may never end."""

MIXES = 40
"""Random mixes for each puzzle."""

ORDERS = tuple(
    getattr(orders, name)
    for name in "gpipe one_f_one_b eager_1f1b interleaved interleaved_zb breadth_first zb_h1 zb_h2 zb_v v_half v_min "
    "dualpipev dualpipe chimera hanayo".split()
)


class Candidate(NamedTuple):
    """A schedule, what it is, and the ideas that it has besides the puzzle's, if that is known."""

    what: str
    schedule: Callable[..., Any]
    ideas: tuple[str, ...] | None = None


class Find(NamedTuple):
    """A candidate that passes with figures that neither the reference nor a record has."""

    slug: str
    what: str
    report: Report
    beaten: str
    """The record that it beats, by file; empty if none."""

    def __str__(self) -> str:
        figures = f"{self.report.timesteps:g}, {self.report.peak.memory:,}, {self.report.traffic:,}"
        verb = f"BEATS {self.beaten}" if self.beaten else "passes"
        return f"{self.slug}: {figures} ({self.report.family}, {self.report.stars} stars) {verb}: {self.what}"


def hunted(puzzle: SchedulePuzzle, candidates: Iterator[Candidate]) -> Iterator[Find]:
    """Each point of the trade once, at which a candidate passes and no reference or record is."""
    goal = puzzle.goal
    known = {record.figures for record in goal.records}
    for candidate in candidates:
        report = judged(candidate.schedule, goal)
        if report is None or report.status != "passed":
            continue
        figures = (report.timesteps, report.peak.memory, report.traffic)
        if figures in known:
            continue
        known.add(figures)
        yield Find(goal.slug, candidate.what, report, beaten_by(report, goal, candidate.ideas))


def beaten_by(report: Report, goal: Goal, ideas: tuple[str, ...] | None) -> str:
    """The first record that a report beats; empty if a record of its kind with no other ideas is as good."""
    if any(note.costs_a_star for note in report.notes):
        return ""
    allowed = None if ideas is None else goal.ideas | {*ideas}
    peers = [r for r in goal.records if r.is_of(report.family) and (allowed is None or allowed.issuperset(r.ideas))]
    mine = Record(report.timesteps, report.peak.memory, traffic=report.traffic)
    if any(peer.figures == mine.figures or peer.dominates(*mine.figures) for peer in peers):
        return ""
    return next((peer.by for peer in peers if mine.dominates(*peer.figures)), "")


def judged(schedule: Callable[..., Any], goal: Goal) -> Report | None:
    """The report on a run that is correct; None if it is not, or does not end."""
    try:
        with _limited(PATIENCE):
            outcome = run(schedule, *goal.size, setting=goal.setting)
            if outcome.error is not None:
                return None
            report = referee(outcome.trace, goal)
            return report if report.error is None else None
    except (Exception, _TooLongError, RecursionError, SystemExit):  # whatever a mutant does
        return None


class _TooLongError(BaseException):
    """No exception, so that no mutant catches it."""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def candidates(puzzle: SchedulePuzzle) -> Iterator[Candidate]:
    slug, goal = puzzle.slug, puzzle.goal
    ideas: dict[str, tuple[str, ...]] = {f"solutions/{slug}.py": ()}
    for record in goal.records:
        file, _ = record.file_and_variant
        ideas[file] = (*ideas.get(file, ()), *record.ideas)
    for file in ideas:
        for what, mutant in mutants((ROOT / file).read_text(encoding="utf-8")):
            if (schedule := defined(mutant, slug)) is not None:
                yield Candidate(f"{Path(file).name}: {what}", schedule, ideas[file])
    if goal.family in PIPELINES:
        yield from _textbook(goal)
    choice = random.Random(slug)
    for _ in range(MIXES if goal.size.ranks > 1 and goal.setting.layer != "attention" else 0):
        mix = random_mix(goal, choice)
        yield Candidate(mix.what, mix.schedule)
        ways = "".join(choice.choice(IN_COLLECTIVES + IN_MESSAGES) for _ in range(goal.size.layers))
        for ahead in (False, True):
            yield Candidate(f"replicas({ways!r}, prefetch={ahead})", replicas(ways, prefetch=ahead))


def _textbook(goal: Goal) -> Iterator[Candidate]:
    for order in ORDERS:
        yield Candidate(order.__name__, pipeline(order))
        if goal.costs.priced("backward_input"):
            yield Candidate(f"{order.__name__} in halves", pipeline(in_halves(order)))
        if goal.costs.priced("pair"):
            yield Candidate(f"{order.__name__} in pairs", pipeline(in_pairs(order)))
        for times in range(2, goal.size.ranks + 1):
            if goal.size.ranks % times == goal.size.batches % times == 0:
                shape = goal.size.ranks // times, 1, times
                kept = {"in_messages": not goal.costs.priced("allreduce")}
                yield Candidate(f"{times} replicas of {order.__name__}", grid(*shape, order, **kept))
                yield Candidate(f"{times} replicas of {order.__name__} in pairs", grid(*shape, in_pairs(order), **kept))


def defined(source: str, slug: str) -> Callable[..., Any] | None:
    names: dict[str, Any] = {}
    try:
        exec(compile(source, f"{slug}.py", "exec"), names)
    except Exception:  # a mutant need not load
        return None
    found: Callable[..., Any] | None = names.get(slug)
    return found


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """What is changed, and the source with this change, for each place."""
    for change in (_deleted, _swapped, _by_one, _all_reduced, _whole):
        number = 0
        while True:
            tree = ast.parse(source)
            what = change(tree, number)
            if what is None:
                break
            number += 1
            if what:
                yield what, ast.unparse(ast.fix_missing_locations(tree))


def _bodies(tree: ast.Module) -> list[list[ast.stmt]]:
    """The blocks of all functions."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inner = [node for function in functions for node in ast.walk(function)]
    blocks = [getattr(node, name, None) for node in inner for name in ("body", "orelse")]
    distinct = {id(block): block for block in blocks if isinstance(block, list) and block}
    return list(distinct.values())


def _deleted(tree: ast.Module, number: int) -> str | None:
    places = [(body, at) for body in _bodies(tree) for at in range(len(body))]
    if number >= len(places):
        return None
    body, at = places[number]
    what = f"without line {body[at].lineno}, {_shown(body[at])}"
    body[at] = ast.copy_location(ast.Pass(), body[at])
    return what


def _swapped(tree: ast.Module, number: int) -> str | None:
    places = [(body, at) for body in _bodies(tree) for at in range(len(body) - 1)]
    if number >= len(places):
        return None
    body, at = places[number]
    body[at : at + 2] = body[at + 1], body[at]
    return f"line {body[at].lineno} before line {body[at + 1].lineno}, {_shown(body[at])}"


def _by_one(tree: ast.Module, number: int) -> str | None:
    played = [node for node in tree.body if not (isinstance(node, ast.Assign) and _shown(node).startswith("VARIANTS"))]
    inner = [node for top in played for node in ast.walk(top)]
    numbers = [node for node in inner if isinstance(node, ast.Constant) and type(node.value) is int]
    if number >= 2 * len(numbers):
        return None
    node, step = numbers[number // 2], 1 - 2 * (number % 2)
    assert isinstance(node.value, int)
    what = f"line {node.lineno}: {node.value} is {node.value + step}"
    node.value += step
    return what


def _all_reduced(tree: ast.Module, number: int) -> str | None:
    """An all-reduce in place of a reduce-scatter, of which the rank keeps its shard."""
    calls = [
        node for node in ast.walk(tree) if isinstance(node, ast.Await) and _is_call_of(node.value, "scatterreduce")
    ]
    if number >= len(calls):
        return None
    node = calls[number]
    assert isinstance(node.value, ast.Call)
    assert isinstance(node.value.func, ast.Attribute)
    what = f"line {node.lineno}: all-reduce, and keep a shard"
    node.value.func.attr = "allreduce"
    reduced = deepcopy(node)
    cut = ast.parse("x.shard(model.rank, model.RANKS)", mode="eval").body
    assert isinstance(cut, ast.Call)
    assert isinstance(cut.func, ast.Attribute)
    cut.func.value = reduced
    return what if _replaced(tree, node, cut) else ""


def _whole(tree: ast.Module, number: int) -> str | None:
    """A full value in place of a shard: the value itself, or a full load."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    cut = [
        call for call in calls if _is_call_of(call, "shard") or (_is_call_of(call, "load_weights") and call.args[1:])
    ]
    if number >= len(cut):
        return None
    call = cut[number]
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr == "load_weights":
        del call.args[1:]
        return f"line {call.lineno}: loads the full weight"
    what = f"line {call.lineno}: keeps the full value"
    return what if _replaced(tree, call, call.func.value) else ""


def _is_call_of(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name


def _replaced(tree: ast.Module, old: ast.expr, new: ast.expr) -> bool:
    for node in ast.walk(tree):
        for name, content in ast.iter_fields(node):
            if content is old:
                setattr(node, name, new)
                return True
            if isinstance(content, list) and any(one is old for one in content):
                content[:] = [new if one is old else one for one in content]
                return True
    return False


def _shown(node: ast.stmt) -> str:
    return ast.unparse(node).splitlines()[0][:60]


def hunt(slugs: list[str]) -> int:
    """Prints what is found; the exit code is 1 if a record is beaten."""
    beaten = tried = 0
    for slug in slugs or [*PUZZLES]:
        puzzle, places = PUZZLES[slug], list(candidates(PUZZLES[slug]))
        tried += len(places)
        for find in hunted(puzzle, iter(places)):
            beaten += bool(find.beaten)
            print(find, flush=True)
    print(f"{tried:,} schedules tried: {beaten} beat a record.")
    return bool(beaten)
