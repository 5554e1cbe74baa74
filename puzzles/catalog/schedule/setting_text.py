"""What is new in a puzzle's setting: in a line, and as a table beside the classic games."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lib.game.costs import CLASSIC, Costs
from lib.game.setting import CLASSIC_SETTING, Setting

LAYER_WORDS = {
    "dense": "one matrix",
    "block": "two matrices that can be cut",
    "experts": "one expert for each shard",
}
TASK_WORDS = {
    "train": "to train on every batch",
    "local": "to train replicas, whose weights are averaged",
    "infer": "outputs, without training",
}


class Difference(NamedTuple):
    """A row of the table: what differs, how it is here, and how in the classic games."""

    what: str
    here: str
    classic: str


def setting_text(setting: Setting) -> str:
    """A setting in words: 'costs parts, mesh dp=2,pp=4, 3 steps'."""
    words = [f"costs {setting.costs.name}"]
    if setting.mesh:
        words.append("mesh " + ",".join(f"{axis}={length}" for axis, length in setting.mesh))
    if setting.fold:
        words.append(f"folded along {setting.fold}")
    if setting.steps > 1:
        words.append(f"{setting.steps} steps")
    if setting.layer != "dense":
        words.append(f"layer {setting.layer}")
    if setting.task != "train":
        words.append(f"task {setting.task}")
    return ", ".join(words)


def differences(setting: Setting, calls: Iterable[str]) -> list[Difference]:
    """What differs from the classic games, of what these calls use; nothing in the classic setting."""
    rows = [*_prices(setting.costs, calls), *_sizes(setting.costs), *_kinds(setting)]
    return [row for row in rows if row.here != row.classic]


def _prices(costs: Costs, calls: Iterable[str]) -> Iterator[Difference]:
    for name in calls:
        if costs.priced(name):
            yield Difference(f"`{name}`", price_text(costs, name), price_text(CLASSIC, name) or "not there")


def price_text(costs: Costs, name: str) -> str:
    """What a call costs: '0.5 steps', '0.5 steps and 0.5 for each value'; empty if it has no price."""
    ticks = [price for tier in costs.tiers.values() if name in tier._fields and (price := getattr(tier, name))]
    if not ticks and name not in costs.ticks:
        return ""
    base = _steps(costs, ticks[0] if ticks else costs.ticks[name])
    if extra := costs.calls.get(name, 0):
        return f"{_steps(costs, extra)} and {costs.text(costs.ticks[name])} for each value"
    if costs.islands and costs.ticks_between.get(name) != costs.ticks.get(name):
        return f"{base} ({costs.text(costs.ticks_between[name])} between machines)"
    return base


def _steps(costs: Costs, ticks: int) -> str:
    return f"{costs.text(ticks)} {'step' if ticks == costs.unit else 'steps'}"


def _sizes(costs: Costs) -> Iterator[Difference]:
    yield Difference("an activation", f"{costs.activation:,} elements", f"{CLASSIC.activation:,} elements")
    grad, classic_grad = f"{costs.activation_grad:,} elements", f"{CLASSIC.activation_grad:,} elements"
    yield Difference("an activation gradient", grad, classic_grad)
    yield Difference("communication", "beside computation" if costs.overlap else "in turn", "in turn")
    yield Difference("machines", f"{costs.islands} ranks each" if costs.islands else "one", "one")


def _kinds(setting: Setting) -> Iterator[Difference]:
    mesh = ", ".join(f"{axis} {length}" for axis, length in setting.mesh)
    yield Difference("mesh", mesh or "none", "none")
    yield Difference("training steps", str(setting.steps), str(CLASSIC_SETTING.steps))
    yield Difference("a layer", LAYER_WORDS[setting.layer], LAYER_WORDS["dense"])
    yield Difference("the task", TASK_WORDS[setting.task], TASK_WORDS["train"])
