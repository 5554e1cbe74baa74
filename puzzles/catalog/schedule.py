"""A schedule puzzle: the texts that every puzzle has, a goal, other sizes, the calls that a solution needs, its sketch.

It is read from its file. The sketch says only where things are, not in which order they are computed, because finding
the order is the puzzle. Puzzles of one size may share their records, so that one record is written down once. What the
reference scores at other sizes is stated in the file, and `puzzles check` measures it: a verdict does not run the
reference, which an installation may lack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from lib import Goal, Model, PuzzleError, Record, Setting, Size
from lib.ledger.algebra import counted
from lib.ledger.costs import CLASSIC, COMPUTING, COPYING, ON_TIER, PAIR, Costs
from lib.ledger.family import FAMILIES
from lib.ledger.setting import CLASSIC_SETTING, setting_from_json
from lib.ledger.setting import FIELDS as SETTING_FIELDS
from lib.ledger.trace import FORMS
from puzzles.catalog.content import chapters, said_of
from puzzles.catalog.fields import NO_LIMIT, Fields
from puzzles.catalog.path import IDEAS, ideas_of
from puzzles.catalog.puzzle import Listing, Puzzle, rules_of, texts_of

# --- The sketch ---


Share = tuple[int, int]
"""The index of a part of a layer, and the number of its parts."""

HOLDS = ("full", "shard", "stage", "nothing")
"""What each rank keeps: every layer, a shard of every layer, the layers of its stage, or what the player decides."""


@dataclass(frozen=True)
class PlaceSketch:
    shares: Mapping[tuple[int, int], Share]
    """By rank and layer, the part that the rank keeps."""
    batches: tuple[str, ...]
    """What each rank reads, in words."""
    talk: str
    """What the ranks tell each other, in words."""
    together: bool
    """True if all of them meet."""
    passes_on: frozenset[int]
    """The ranks that exchange activations with the next one."""
    works: Mapping[int, tuple[int, ...]]
    """The layers that a rank computes, where these are not all."""

    def part(self, rank: int, layer: int) -> Share | None:
        return self.shares.get((rank, layer))

    def computes(self, rank: int, layer: int) -> bool:
        return layer in self.works.get(rank, (layer,))


def read_sketch(fields: Fields, size: Size) -> PlaceSketch:
    """The sketch that a table describes."""
    layers, _, ranks = size
    each, texts = fields.text("each", ""), fields.texts("batches")
    passes = tuple(range(ranks - 1)) if fields.flag("chain") else _numbers(fields, "passes_on", ranks)
    sketch = PlaceSketch(
        _shares(fields, size),
        tuple(texts[rank] if rank < len(texts) else each.replace("{rank}", str(rank)) for rank in range(ranks)),
        fields.text("talk", ""),
        fields.flag("together"),
        frozenset(passes),
        {row.number("rank", least=0): _numbers(row, "layers", layers) for row in fields.tables("works")},
    )
    fields.done()
    return sketch


def _shares(fields: Fields, size: Size) -> dict[tuple[int, int], Share]:
    layers, _, ranks = size
    every = [(rank, layer) for rank in range(ranks) for layer in range(layers)]
    stage = layers // ranks if ranks <= layers else 1
    shards = fields.number("shards", ranks)
    match fields.one_of("holds", HOLDS, "nothing"):
        case "full":
            return dict.fromkeys(every, (0, 1))
        case "shard":
            return {place: (place[0] % shards, shards) for place in every}
        case "stage":
            return {(rank, layer): (0, 1) for rank, layer in every if layer // stage == rank}
    shares: dict[tuple[int, int], Share] = {}
    for row in fields.tables("parts"):
        rank, index, total = row.number("rank", least=0), row.number("part", 0, least=0), row.number("of", 1)
        shares |= {(rank, layer): (index, total) for layer in _numbers(row, "layers", layers)}
        row.done()
    return shares


def _numbers(fields: Fields, name: str, below: int) -> tuple[int, ...]:
    """A list of ranks or layers."""

    def is_right(given: object) -> bool:
        return isinstance(given, list) and all(type(number) is int and 0 <= number < below for number in given)

    return tuple(fields.take(name, f"a list of whole numbers from 0 to {below - 1}", is_right, []))


# --- The puzzle ---


EXTENDED = tuple("group tag step tier to outer on scale shares into past grad_keys total".split())
"""Parameters of calls that the classic games do not have. A puzzle names the ones that it needs."""

RELOAD_REASON = "a rank begins again with all that it has loaded"

TOLERANCE = 1.25
"""A schedule at another size is noted if its timesteps times its memory are more than so many times the reference's.
The product leaves it free to trade one for the other; of the records none comes near."""

TOLERANCE_WITH_TRAFFIC = 2
"""The same for timesteps times memory times traffic. It is wider, because laps of a pipeline send more for less
memory."""


class ReferenceAt(NamedTuple):
    """What the reference of a puzzle scores at a size that is not shown: timesteps, peak memory in elements, and the
    elements that its busiest rank sends (None: not measured)."""

    size: Size
    timesteps: float
    peak_memory: int
    traffic: int | None = None

    def is_far_ahead_of(self, timesteps: float, peak_memory: int, traffic: int) -> bool:
        """True if these figures at the same size are much worse."""
        times = timesteps * peak_memory / (self.timesteps * self.peak_memory)
        sent = traffic / self.traffic if self.traffic else 1
        return times > TOLERANCE or times * sent > TOLERANCE_WITH_TRAFFIC


@dataclass(frozen=True, kw_only=True)
class SchedulePuzzle(Puzzle):
    """A coroutine to write, which every rank runs."""

    slug: str = field(init=False)
    """The goal's slug."""
    goal: Goal
    other_sizes: tuple[Size, ...]
    """Sizes other than the goal's at which a general schedule also works, in the same setting."""
    calls: tuple[str, ...]
    """The methods of Model that a solution is likely to need."""
    parameters: tuple[str, ...] = ()
    """Those of their parameters that the classic games do not have, and this one does: "group", "step"."""
    answer: str = ""
    """What a player is asked to predict before playing, and why it is so; the statement's last paragraph asks it."""
    reload_reason: str = RELOAD_REASON
    reload_advice: str = ""
    """What a schedule is told whose ranks end with less than they loaded (`Goal.steady`); else the calls decide."""
    sketch: PlaceSketch | None = None
    reference_at: tuple[ReferenceAt, ...] = ()
    """What the reference scores at the other sizes; `puzzles check` measures it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "slug", self.goal.slug)

    def reference_scores(self, size: Size) -> ReferenceAt | None:
        """What the reference scores at another size; None if that is not known."""
        return next((row for row in self.reference_at if row.size == size), None)


MODEL_CALLS = tuple(name for name in dir(Model) if not name.startswith("_"))
RULED_CALLS = tuple(name for name in MODEL_CALLS if name in FORMS)
"""The calls that can be forbidden: those that leave a trace."""

DECIDED = ("pass", "star")
"""What the targets of traffic and of a second step are for (`Goal.decides`)."""


def read_puzzle(slug: str, fields: Fields) -> SchedulePuzzle:
    targets = fields.table("targets", {"time": NO_LIMIT, "memory": NO_LIMIT})
    calls = fields.texts("calls", MODEL_CALLS)
    setting, size = _setting(fields), _size(fields.table("size"))
    goal = Goal(
        slug,
        size,
        _time_target(targets),
        targets.number("memory"),
        tuple(map(_record, _records(fields, size))),
        setting,
        host=_limit(targets, "host"),
        family=fields.one_of("family", FAMILIES, ""),
        traffic=_limit(targets, "traffic"),
        drift=_limit(targets, "drift"),
        steady=fields.flag("steady"),
        decides=fields.one_of("decides", DECIDED, "pass"),
        ideas=ideas_of(slug),
    )
    targets.done()
    return SchedulePuzzle(
        goal=goal,
        other_sizes=tuple(map(_size, fields.tables("other_sizes"))),
        reference_at=_elsewhere(fields),
        calls=calls,
        parameters=fields.texts("parameters", EXTENDED),
        answer=fields.text("answer", "").strip(),
        sketch=read_sketch(fields.table("sketch"), size) if "sketch" in fields else None,
        reload_reason=fields.text("reload_reason", RELOAD_REASON),
        reload_advice=fields.text("reload_advice", ""),
        **rules_of(fields, RULED_CALLS),
        **texts_of(fields),
    )


def _limit(fields: Fields, name: str) -> int | None:
    """A target that a puzzle may leave out."""
    return fields.number(name, least=0) if name in fields else None


def _setting(fields: Fields) -> Setting:
    table = fields.table("setting", {})
    given = {"costs": "classic", **table.rest()}
    if unknown := set(given) - set(SETTING_FIELDS):
        known = ", ".join(SETTING_FIELDS)
        raise table.refusal(f"there is no field '{min(unknown)}'; the fields are {known}", min(unknown))
    try:
        return setting_from_json(given)
    except PuzzleError as why:
        raise table.refusal(str(why).replace("this trace has ", "")) from None


def _time_target(targets: Fields) -> float:
    """The target in steps: a whole number, or a number with one decimal, such as 5.5."""

    def is_time(given: Any) -> bool:
        if type(given) is float:
            return 0 < given < NO_LIMIT and given == round(given, 1)
        return type(given) is int and given >= 1

    wanted = "a number of steps: whole (5 is met below 6), or in tenths (5.5 is met below 5.6)"
    content: float = targets.take("time", wanted, is_time)
    return content


def _size(fields: Fields) -> Size:
    size = Size(*(fields.number(name) for name in Size._fields))
    fields.done()
    return size


def _records(fields: Fields, size: Size) -> list[Fields]:
    """The rows of the best schedules known: the puzzle's own, or those of another puzzle of the game, whose size and
    setting are the same."""
    if "records_of" not in fields:
        return fields.tables("records")
    other = fields.text("records_of")
    said = said_of("schedule", other)
    if "records" not in said or _size(said.table("size")) != size:
        why = f"'{other}' is no schedule puzzle of the game with this size and with records of its own"
        raise fields.refusal(why, "records_of")
    return said.tables("records")


def _record(fields: Fields) -> Record:
    record = Record(
        _timesteps(fields),
        fields.number("peak_memory"),
        fields.text("by", ""),
        fields.one_of("family", FAMILIES, ""),
        _limit(fields, "traffic"),
        fields.texts("ideas", IDEAS),
    )
    fields.done()
    return record


def _elsewhere(fields: Fields) -> tuple[ReferenceAt, ...]:
    """What the reference scores at other sizes, each of which is there once."""
    found: dict[Size, ReferenceAt] = {}
    for row in fields.tables("reference_at"):
        size = _size(row.table("size"))
        if size in found:
            raise row.refusal(f"there is already a row with {size_text(size)}; keep one of them")
        found[size] = ReferenceAt(size, _timesteps(row), row.number("peak_memory"), _limit(row, "traffic"))
        row.done()
    return tuple(found.values())


def _timesteps(fields: Fields) -> float:
    def is_time(given: Any) -> bool:
        return type(given) in (int, float) and given >= 0

    return float(fields.take("timesteps", "a number of steps", is_time))


CHAPTERS = chapters("schedule")
"""In the order of play."""

CLASSICS = CHAPTERS[0]

PUZZLES: Listing[SchedulePuzzle] = Listing(CHAPTERS)


# --- A size and a setting in words ---


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
