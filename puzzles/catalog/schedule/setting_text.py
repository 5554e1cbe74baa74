"""What is new in a puzzle's setting: in a line, and as a table next to the classic games."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from lib.ledger.algebra import counted
from lib.ledger.costs import CLASSIC, COMPUTING, COPYING, ON_TIER, PAIR, Costs
from lib.ledger.setting import CLASSIC_SETTING, Setting

LAYER_WORDS = {
    "dense": "one matrix",
    "block": "two matrices that can be split",
    "experts": "one expert for each shard",
    "attention": "causal attention: keys and values, then attending to them",
}
TASK_WORDS = {
    "train": "to train on every batch",
    "local": "to train replicas, whose weights are averaged",
    "outer": "to train replicas, whose changes an outer optimizer averages",
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
    if setting.steps > 1:
        words.append(f"{setting.steps} steps")
    if setting.lag:
        words.append(f"lag {setting.lag}")
    if setting.layer != "dense":
        words.append(f"layer {setting.layer}")
    if setting.task != "train":
        words.append(f"task {setting.task}")
    words += [f"rounds of {counted(setting.outer, 'step')}, averages up to {setting.late} late"] * bool(setting.outer)
    words += ["gradients clipped"] * setting.clip + ["updates of full matrices"] * setting.whole
    words += [f"layers {', '.join(map(str, setting.frozen))} frozen"] * bool(setting.frozen)
    words += [f"{setting.shares} shares of tokens"] * (setting.shares > 1)
    words += [f"kinds {_runs(setting.kinds)}"] * bool(setting.kinds)
    words += [f"lengths {_runs(setting.lengths)}"] * bool(setting.lengths)
    return ", ".join(words)


def _runs(each: Iterable[object]) -> str:
    """'embedding, 8 x block, head'."""
    counted = [(str(one), len(list(run))) for one, run in groupby(each)]
    return ", ".join(one if count == 1 else f"{count} x {one}" for one, count in counted)


def differences(setting: Setting, calls: Iterable[str]) -> list[Difference]:
    """What differs from the classic games, of what these calls use; nothing in the classic setting."""
    calls = [*calls]
    if setting.layer == "attention":  # also what a composite call consists of
        calls += [name for name in ("keys", "attend", "attend_backward", "keys_backward") if name not in calls]
    rows = [*_prices(setting.costs, calls), *_sizes(setting.costs), *_kinds(setting)]
    return [row for row in rows if row.here != row.classic]


def _prices(costs: Costs, calls: Iterable[str]) -> Iterator[Difference]:
    for name in calls:
        here, classic = price_text(costs, name), price_text(CLASSIC, name)
        if here and not {here, classic} <= {"0 us", "0 steps"}:
            yield Difference(f"`{name}`", here, classic or "none")
        if name == "update":
            there = [(place, tier.update) for place, tier in costs.tiers.items() if tier.update is not None]
            yield from (Difference(f"`update` on the {place}", _time(costs, ticks), "none") for place, ticks in there)
        if name in costs.beta_between:
            yield Difference("- between machines", _by_size(costs, name, crosses=True), "one machine")


def price_text(costs: Costs, name: str) -> str:
    """What a call costs, inside a machine if it goes by size; empty if it has no price.

    '0.5 steps', '0.5 steps and 0.5 for each value', '5 us a hop and 1 us for each 25,000 elements sent'.
    """
    name = PAIR if name == "forward_backward" else name
    if not costs.priced(name):
        return ""
    if name in COMPUTING:
        return _time(costs, costs.duration(name))
    ticks = [price for tier in costs.tiers.values() if name in ON_TIER and (price := getattr(tier, ON_TIER[name]))]
    base = ticks[0] if ticks else costs.ticks.get(name, 0)
    if extra := costs.calls.get(name, 0):
        return f"{_time(costs, extra)} and {costs.text(base)} for each value"
    if name in costs.alpha or name in costs.beta:
        return _by_size(costs, name)
    if costs.islands and costs.ticks_between.get(name, base) != base:
        return f"{_time(costs, base)} ({costs.text(costs.ticks_between[name])} between machines)"
    return _time(costs, base)


def _by_size(costs: Costs, name: str, crosses: bool = False) -> str:
    """Prices for each value, hop and element. `crosses`: of a group in several machines."""
    alpha, beta, ticks = costs.alpha.get(name, 0), costs.beta.get(name, 0), costs.ticks.get(name, 0)
    if crosses:
        alpha, beta = costs.alpha_between.get(name, alpha), costs.beta_between.get(name, beta)
        ticks = costs.ticks_between.get(name, 0)
    parts = [f"{_time(costs, ticks)} for each value"] * bool(ticks) + [f"{_time(costs, alpha)} a hop"] * bool(alpha)
    if beta:
        sent = "" if name in COPYING else " sent"
        parts.append(f"{_time(costs, costs.unit)} for each {float(costs.unit / beta):,.0f} elements{sent}")
    return " and ".join(parts) or _time(costs, 0)


def _time(costs: Costs, ticks: int) -> str:
    if costs.time_unit != "steps":
        return f"{ticks / costs.unit:,g} {costs.time_unit}"
    return f"{costs.text(ticks)} {'step' if ticks == costs.unit else 'steps'}"


def _sizes(costs: Costs) -> Iterator[Difference]:
    yield Difference("a weight", f"{costs.weight:,} elements", f"{CLASSIC.weight:,} elements")
    state = "as large as its weight" if costs.moments == 1 else f"{costs.moments} times as large as its weight"
    yield Difference("an optimizer state", state, "as large as its weight")
    yield Difference("an activation", f"{costs.activation:,} elements", f"{CLASSIC.activation:,} elements")
    grad, classic_grad = f"{costs.activation_grad:,} elements", f"{CLASSIC.activation_grad:,} elements"
    yield Difference("an activation gradient", grad, classic_grad)
    yield Difference("communication", "overlaps with computation" if costs.overlap else "blocks", "blocks")
    yield Difference("machines", f"{counted(costs.islands, 'rank')} each" if costs.islands else "one", "one")


def _kinds(setting: Setting) -> Iterator[Difference]:
    mesh = ", ".join(f"{axis} {length}" for axis, length in setting.mesh)
    yield Difference("mesh", mesh or "none", "none")
    yield Difference("training steps", str(setting.steps), str(CLASSIC_SETTING.steps))
    lag = f"up to {counted(setting.lag, 'step')} older than the data"
    yield Difference("weights that compute", lag if setting.lag else "of the data's step", "of the data's step")
    clip = "scaled by the norm of the gradients of all layers"
    yield Difference("the gradient of an update", clip if setting.clip else "not scaled", "not scaled")
    yield Difference("an update", "of a full matrix" if setting.whole else "of shards too", "of shards too")
    frozen = ", ".join(map(str, setting.frozen))
    yield Difference("frozen layers", frozen or "none", "none")
    yield Difference("a layer", LAYER_WORDS[setting.layer], LAYER_WORDS["dense"])
    yield Difference("the task", TASK_WORDS[setting.task], TASK_WORDS["train"])
    if setting.task == "outer":
        yield Difference("a round", f"at most {counted(setting.outer, 'step')}", "none")
        yield Difference("an average", f"at most {counted(setting.late, 'step')} late", "none")
        yield Difference("a merged copy", f"{setting.mix} its own weight, the rest the agreed weight", "none")
    if setting.layer == "attention":
        shares = f"{setting.shares} equal shares" if setting.shares > 1 else "one share"
        yield Difference("the tokens of a microbatch", shares, "not cut")
        yield Difference("keys and values of a microbatch", f"{setting.costs.keys_and_values:,} elements", "none")
    yield Difference("kinds of layers", _runs(setting.kinds) or "one", "one")
    for name in dict.fromkeys(kind for kind in setting.kinds if kind in setting.costs.kinds):
        yield from _kind(setting.costs, name)
    yield Difference("lengths of microbatches", _runs(setting.lengths) or "equal", "equal")
    slow = [f"rank {rank} computes {factor} times slower" for rank, factor in setting.costs.slow.items() if factor != 1]
    yield Difference("slow ranks", ", ".join(slow) or "none", "none")


def _kind(costs: Costs, name: str) -> Iterator[Difference]:
    """The sizes and prices of a kind of layers."""
    kind = costs.kinds[name]
    for what, size in (("weight", kind.weight), ("input", kind.inp), ("output", kind.out)):
        if size is not None:
            yield Difference(f"- {name}: {what}", f"{size:,} elements", "none")
    for operation, ticks in kind.ticks.items():
        yield Difference(f"- {name}: `{operation}`", _time(costs, ticks), "none")


def size_text(size: tuple[int, int, int]) -> str:
    """(6, 4, 1) as '6 layers, 4 batches, 1 rank'."""
    names = ("layer", "batch", "rank")
    plural = {"layer": "layers", "batch": "batches", "rank": "ranks"}
    return ", ".join(f"{n} {name if n == 1 else plural[name]}" for n, name in zip(size, names, strict=True))
