"""Kinds of splits, and which plans the model cannot tell apart."""

from collections.abc import Sequence
from typing import NamedTuple

from .plans import Plan
from .split import Split

ERRORS = {"megatron": 0.03, "pytorch": 0.1}
"""Half of the published steps are predicted within this share, by kernels; docs/truth.md has the exact figures."""


class Family(NamedTuple):
    """The fastest split of a kind that fits, with the seconds of its step and the bytes of its fullest GPU in fused
    code, by the estimate."""

    name: str
    split: Split
    seconds: float
    peak: int


def family_of(split: Split) -> str:
    """What kind of split it is, by what its ranks share."""
    shared = ["pipeline"] if split.pp > 1 else []
    shared += ["tensor parallel"] if split.tp > 1 else []
    shared += ["context parallel"] if split.cp > 1 else []
    shared += ["expert parallel"] if split.ep > 1 else []
    if split.zero == 3 and split.dp * split.cp > 1:
        shared.append("HSDP" if split.shards else "FSDP")
    elif not shared:
        return "data parallel"
    return " + ".join(shared)


def tied(plans: Sequence[Plan]) -> list[Plan]:
    """The fastest of some plans, and those that are slower by less than the model's usual error."""
    best = min(plans, key=lambda plan: plan.seconds)
    return [plan for plan in plans if plan.seconds <= best.seconds * (1 + ERRORS[best.job.kernels])]


def tie_text(plans: Sequence[Plan]) -> str:
    """Which plans are a tie and why, and what tells them apart; empty if the fastest is alone. Plans are named by their
    places, from 1 on."""
    tie = tied(plans)
    if len(tie) < 2:
        return ""
    places = {id(plan): k for k, plan in enumerate(plans, 1)}
    kernels, share = tie[0].job.kernels, 100 * ERRORS[tie[0].job.kernels]
    smallest = min(tie, key=lambda plan: plan.peak)
    quietest = min(tie, key=lambda plan: plan.by_link["network"])
    names = ", ".join(str(places[id(plan)]) for plan in tie)
    return (
        f"Plans {names} are a tie: they differ by less than {share:.0f} %, the usual error of predictions with "
        f"{kernels} kernels. Of them plan {places[id(smallest)]} needs least memory, and plan {places[id(quietest)]} "
        "sends least over the network."
    )
