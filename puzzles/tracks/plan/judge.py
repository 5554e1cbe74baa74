"""Judges a player's split: its plan's time and memory are compared with the targets.

The verdict says where time and memory go, what was predicted, and which one change would help most. The figures are
those of `puzzles plan`. A split that does not fit is a failure, with the memory by kind, since its time means nothing.
The published run's own split gets three stars whatever the model says of it: the model is known to be off by some
percent, and kinds of splits within its error tie. Rejected: stars by rank among all splits, which would change with
every improvement of the search.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import lru_cache

from lib import PuzzleError
from lib.planning import Job, Plan, Prediction, Split, plan
from lib.planning.estimate import KINDS
from lib.planning.job import GIB
from lib.planning.plans import LEAST_PART, PARTS, VERDICTS, family_of, time_parts
from lib.planning.prices import units_of
from lib.planning.split import DOMINATES, problems
from lib.planning.split_search import Faster, fastest_change, memory_advice
from puzzles.catalog.plan import PlanPuzzle
from puzzles.failure import Failure, sanitized
from puzzles.tracks import base
from puzzles.tracks.base import (
    Workbench,
    run_once,
)
from puzzles.tracks.outcomes import Row, RunRequest, Score, listed

MAX_NUMBER = 2**31
"""Of a field of a split."""

MAX_PLAYED, MAX_RING = 20_000, 64
"""Layers times microbatches of a replica that are played, and ranks that share a sequence: more would take minutes."""

GB = 10**9

WORDS_OF_KINDS = dict(
    zip(
        KINDS,
        ("weights", "gradients", "optimizer states", "activations", "embedding, head and logits", "workspace"),
    )
)
BAR = 16
"""Letters of the longest bar."""

NEARLY = 0.1
"""A prediction of memory that is right."""

WORST = 3
"""Losses that a message names."""


class Judge(base.Judge[PlanPuzzle]):
    stage = "puzzles.sandbox.worker.stages.functions:Plan"
    reasons = ("split", "memory")
    is_saved = True

    def requests(self, puzzle: PlanPuzzle) -> Iterator[RunRequest]:
        """The only run of a plan: on the puzzle's job."""
        yield request_of(puzzle)

    def kept(self, row: Row) -> str:
        """The split and the prediction as JSON, from which the run can be judged again; empty if there is no split."""
        split, predicted = split_of(row), prediction_of(row)
        if isinstance(split, Failure):
            return ""
        return json.dumps({"split": asdict(split), "prediction": predicted and asdict(predicted)})

    def restored(self, puzzle: PlanPuzzle, kept: str) -> Plan | None:
        split = split_of(self.row_of(kept)) if kept else Failure("split", "")
        found = split if isinstance(split, Failure) else planned(puzzle.job, split)
        return None if isinstance(found, Failure) else found


def request_of(puzzle: PlanPuzzle) -> RunRequest:
    return RunRequest("the job", {"job": asdict(puzzle.job), "graded": True}, lambda row: score_split(puzzle, row))


def score_split(puzzle: PlanPuzzle, row: Row) -> Score | Failure:
    """The time, memory and traffic of a step, and why it is not faster."""
    split = split_of(row)
    found = split if isinstance(split, Failure) else allowed(puzzle, split) or planned(puzzle.job, split)
    if isinstance(found, Failure):
        return found
    as_published = puzzle.published is not None and found.split == puzzle.published.split
    if not found.fits:
        answers = " ".join(prediction_lines(found, prediction_of(row)))
        advice = memory_advice(found.job, found.split, puzzle.fixed)
        return Failure(
            "memory", f"{found.split} does not fit: {memory_text(found)}; {advice}{answers and '. '}{answers}"
        )
    seconds = round(found.seconds, 3)
    figures = {
        "seconds": seconds,
        "gib": round(found.peak / GIB, 1),
        "gib_high": round(found.high / GIB, 1),
        "mfu": round(100 * found.mfu, 1),
        "bubble": round(100 * found.bubble, 1),
        **{f"{link}_gb": round(sent / GB, 1) for link, sent in found.by_link.items() if link != "host" or sent},
    }
    family, missed = family_of(found.split), tuple[str, ...]()
    if seconds > puzzle.seconds and not as_published:
        missed = (f"a step takes {seconds:,} s, the target is {puzzle.seconds:,} s: {losses(found)}",)
    stars = 1 if missed else 3 if as_published or puzzle.third_star(seconds, family) else 2
    lines = (*prediction_lines(found, prediction_of(row)), *plan_lines(found))
    advice = change_text(fastest_change(found.job, found.split, puzzle.fixed)) if stars < 3 else ""
    return Score(figures, missed, stars, (), advice, lines, why_matters=True, family=family)


def split_of(row: Row) -> Split | Failure:
    """The split that a run sent back, which is not trusted."""
    given = row.get("split")
    kinds: Mapping[str, tuple[type, ...]] = {"layers": (list, tuple), "sp": (bool,)}
    if not isinstance(given, dict) or not set(given) <= set(Split.__dataclass_fields__):
        return Failure("split", "the split that the function returned cannot be read; return a Split")
    for name, content in given.items():
        numbers = content if name == "layers" and isinstance(content, list | tuple) else [content]
        if not all(type(one) in (int, str, bool) for one in numbers) or len(numbers) > MAX_RING**2:
            return Failure("split", f"{name} of the split cannot be read")
        if any(type(one) is int and abs(one) >= MAX_NUMBER for one in numbers):
            return Failure("split", f"{name} of a split is less than {MAX_NUMBER:,}")
        if name in kinds and not isinstance(content, kinds[name]):
            return Failure("split", f"{name} of a split is a {kinds[name][-1].__name__}; got {content!r:.40}")
    return Split(**{**given, "layers": tuple(given.get("layers", ()))})


def prediction_of(row: Row) -> Prediction | None:
    given = row.get("prediction")
    try:
        return Prediction(**given) if isinstance(given, dict) else None
    except (PuzzleError, TypeError):
        return None


def allowed(puzzle: PlanPuzzle, split: Split) -> Failure | None:
    """Why this puzzle takes no such split."""
    for name, given in puzzle.fixed.items():
        if getattr(split, name) != given:
            return Failure("split", f"{name} is {given!r} in this puzzle; got {getattr(split, name)!r:.40}")
    return None


@lru_cache(maxsize=8)
def planned(job: Job, split: Split) -> Plan | Failure:
    """The plan of a split, or why there is none."""
    for problem in problems(job, split):
        return Failure("split", sanitized(problem))
    if split.cp > MAX_RING:
        return Failure("split", f"cp {split.cp} is too many: the game plays rings of at most {MAX_RING} ranks")
    units, _ = units_of(job, split)
    played = split.batches(job) * sum(units)
    if played > MAX_PLAYED:
        why = f"a replica has {split.batches(job):,} microbatches of {sum(units)} layers, {played:,} in a step"
        return Failure("split", f"{why}, and at most {MAX_PLAYED:,} are played; take more replicas or microbatch 2")
    return plan(job, split)


def plan_of_file(puzzle: PlanPuzzle, bench: Workbench) -> Plan | Failure:
    """The plan of the player's file, whatever it costs; or why there is none."""
    row = run_once(request_of(puzzle), bench)
    split = row if isinstance(row, Failure) else split_of(row)
    return split if isinstance(split, Failure) else planned(puzzle.job, split)


def losses(plan: Plan) -> str:
    """'the pipeline's bubble takes 5.6 s, recomputation 1.2 s'."""
    parts = [(seconds, PARTS[name]) for name, seconds in time_parts(plan).items() if name != "ideal"]
    worst = sorted(parts, reverse=True)[:WORST]
    ideal = plan.seconds * plan.mfu
    return f"the flops alone take {ideal:,.3g} s; {listed([f'{what} {seconds:,.3g} s' for seconds, what in worst])}"


def memory_text(plan: Plan) -> str:
    """How much the fullest GPU needs and has, and for what."""
    rank = plan.fullest
    where = f" (rank {rank.rank} of the pipeline)" if len(plan.ranks) > 1 else ""
    kinds = sorted(((plan.memory[kind], WORDS_OF_KINDS[kind]) for kind in KINDS if plan.memory[kind] > 0), reverse=True)
    return (
        f"the fullest GPU{where} needs {plan.peak / GIB:,.1f} to {plan.high / GIB:,.1f} GiB, and "
        f"{plan.job.gpu.usable / GIB:.1f} GiB are available: {listed([f'{what} {n / GIB:,.1f}' for n, what in kinds])}"
    )


def plan_lines(plan: Plan) -> Iterator[str]:
    """The time from the ideal step to this one, the memory of the fullest GPU, and the traffic, as lines."""
    parts = {name: one for name, one in time_parts(plan).items() if abs(one) >= LEAST_PART * plan.seconds}
    most = max(parts.values())
    again = f", recompute {plan.split.recompute_text}" if plan.split.recompute != "none" else ""
    yield f"{plan.split}{again}: {plan.seconds:,.3f} s a step, MFU {plan.mfu:.1%}"
    for name, seconds in parts.items():
        bar = "#" * max(1, round(BAR * seconds / most))
        yield f"{seconds:8,.3f} s {seconds / plan.seconds:5.1%} {bar:{BAR}} {PARTS[name]}"
    text = memory_text(plan)
    yield f"{text[:1].upper()}{text[1:]}."
    if plan.verdict == VERDICTS[1]:
        yield "It fits with fused kernels, not in eager mode."
    sent = [f"{plan.by_link[link] / 10**9:,.1f} GB over {words}" for link, words in LINK_WORDS if plan.by_link[link]]
    yield f"A GPU sends {listed(sent) or 'nothing'} in a step."


LINK_WORDS = (("nvlink", "NVLink"), ("network", "the network"), ("host", "the link to its host"))


COSTS_IN_WORDS = {
    "recomputation": "recomputation",
    "tp": "tensor parallel communication",
    "cp": "context parallel communication",
    "ep": "expert parallelism",
    "replicas": "synchronizing the replicas",
    "host": "the link to the host",
    "bubble": "the pipeline's bubble",
}
"""The names of DOMINATES within a sentence."""


def dominating(plan: Plan) -> tuple[str, float]:
    """What takes the most time apart from computing everything once, one of DOMINATES, and its share of the step."""
    parts = time_parts(plan)
    costs = {name: sum(parts[part] for part in of) / plan.seconds for name, of in DOMINATES.items()}
    name = max(costs, key=lambda one: costs[one])
    return name, costs[name]


def prediction_lines(plan: Plan, predicted: Prediction | None) -> Iterator[str]:
    """The answer to a prediction."""
    if predicted is None:
        return
    low, high, said = plan.peak / GIB, plan.high / GIB, predicted.gib
    right = low * (1 - NEARLY) <= said <= high * (1 + NEARLY)
    fits = "it fits" if plan.fits else "it does not fit"
    error = "within 10 %" if right else f"off by {abs(said - min(max(said, low), high)):.1f} GiB"
    yield f"You predicted {said:g} GiB. The fullest GPU needs {low:.1f} to {high:.1f} GiB, and {fits}: you are {error}."
    name, share = dominating(plan)
    answer = "Right" if name == predicted.dominates else "No"
    cost = f"apart from computing everything once, {COSTS_IN_WORDS[name]} takes the most time, {share:.0%}"
    yield f"You predicted: {predicted.dominates}. {answer}: {cost}."


def change_text(change: Faster | None) -> str:
    """The one change that would help most."""
    if change is None:
        return "No change of one choice makes this faster; change two."
    return f"The change that would help most: {change.what}, {change.seconds:,.3f} s a step."
