"""What is said of a plan: where its time and memory go, what was predicted, and which change would help most."""

from collections.abc import Iterator

from lib.planning import Plan, Prediction
from lib.planning.changes import Faster
from lib.planning.job import GIB
from lib.planning.plans import VERDICTS
from lib.planning.prediction import DOMINATES
from lib.planning.time_parts import LEAST_PART, PARTS, time_parts
from lib.planning.values import KINDS
from puzzles.tracks.outcomes import listed

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
        f"{plan.job.gpu.usable / GIB:.1f} are for training: {listed([f'{what} {n / GIB:,.1f}' for n, what in kinds])}"
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
        yield "Whether this fits depends on the code: fused code does, eager code runs out of memory."
    sent = [f"{plan.by_link[link] / 10**9:,.1f} GB over {words}" for link, words in LINK_WORDS if plan.by_link[link]]
    yield f"A GPU sends {listed(sent) or 'nothing'} in a step."


LINK_WORDS = (("nvlink", "NVLink"), ("network", "the network"), ("host", "the link to its host"))


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
    memory = f"You predicted {said:g} GiB. It is {low:.1f} to {high:.1f}, and {fits}"
    yield f"{memory}: {'within 10 %' if right else f'off by {abs(said - min(max(said, low), high)):.1f} GiB'}."
    name, share = dominating(plan)
    answer = "Right" if name == predicted.dominates else "It is not"
    cost = f"apart from computing everything once, {name} takes the most time, {share:.0%}"
    yield f"You predicted that {predicted.dominates} dominates. {answer}: {cost}."


def change_text(change: Faster | None) -> str:
    """The one change that would help most."""
    if change is None:
        return "No change of one choice makes this faster; change two."
    return f"The change that would help most: {change.what}, {change.seconds:,.3f} s a step."
