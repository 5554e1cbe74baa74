"""Notes on correct runs: habits that would not work in real training.

A note does not refuse a run, since the original puzzles accept it; some cost the third star. The most important habit
is that a step can be repeated: each rank ends with the updated form of what it started with.

This module decides what is remarked and whether it costs a star. Stars are counted by `referee`, and figures measured
by `memory` and `traffic`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple, TypeVar

from lib.errors import Sentences
from lib.ledger.algebra import named, union
from lib.ledger.collectives import COLLECTIVES
from lib.ledger.costs import COPYING
from lib.ledger.setting import Game
from lib.ledger.trace import UPDATES, Op
from lib.ledger.values import OptState, Parked, Sharded, Value, Weight

from .memory import PeakContents, Profile, lasting_peak, layers_text, noun, unstored_text
from .recomputation import RankState, Recomputation

# --- Can the step be repeated? ---

S = TypeVar("S", Weight, OptState)


def loaded_twice(state: RankState) -> list[int]:
    """Layers of which a rank has loaded an element more than once."""
    loads: dict[int | None, list[tuple[int, int]]] = {}
    for op in state.all({"load_weights"}):
        loads.setdefault(op.layer, []).append(op.args[:2])  # (shard, total): from shard/total to (shard + 1)/total
    return [layer or 0 for layer, parts in loads.items() if len(parts) > 1 and _overlap(parts)]


def loaded_again(state: RankState) -> str:
    """Where a rank loads a layer again: 'line 12 loads layers 0-5 again'; empty if nowhere."""
    again, seen = loaded_twice(state), set()
    for op in state.all({"load_weights"}):
        if op.layer in again and op.layer in seen:
            return f"line {op.line} loads {named('layer', again)} again"
        seen.add(op.layer)
    return ""


def _overlap(parts: list[tuple[int, int]]) -> bool:
    spans = sorted((Fraction(i, n), Fraction(i + 1, n)) for i, n in parts)
    return any(after[0] < before[1] for before, after in pairwise(spans))


def discarded_states(state: RankState, prof: Profile) -> list[int]:
    """Layers whose updated optimizer state is neither stored at the end nor used."""
    thrown = {op.outputs[1] for op in state.all(UPDATES)} - prof.lifetimes.stored_at_end
    if thrown:
        thrown.difference_update(*[op.inputs for op in state.done if op.name != "store"])
    return sorted({state.values[number].layer for number in thrown})


def lost_states(ranks: Sequence[RankState], profiles: Sequence[Profile], steps: int) -> list[int]:
    """Layers that were updated, but whose optimizer state is incomplete on all ranks together after all `steps`."""
    left = [state.values[number] for state, prof in zip(ranks, profiles) for number in prof.lifetimes.stored_at_end]
    states = _by_layer(OptState, left, steps)
    updated = {op.layer or 0 for state in ranks for op in state.all(UPDATES)}
    return [layer for layer in sorted(updated) if not _contain(states.get(layer, []), {1: {0}})]


def missing_at_end(state: RankState, prof: Profile, steps: int) -> list[int]:
    """Layers whose loaded weight a rank has used, but whose updated weight it does not hold after the last of
    `steps`."""
    left = [state.values[number] for number in prof.lifetimes.stored_at_end]
    kept = _by_layer(Weight, [*left, *state.final, *state.copies], steps)
    loaded = [state.values[op.outputs[0]] for op in state.all({"load_weights"})]
    if not _fewer(kept, _by_layer(Weight, loaded)):
        return []  # whoever holds all that was loaded holds all that was used
    return _fewer(kept, _by_layer(Weight, _used_as_loaded(state)))


def _used_as_loaded(state: RankState) -> list[Value]:
    """Values that were computed with or sent as loaded, perhaps cut or moved first."""
    loaded: set[int] = set()
    needed: dict[int, None] = {}
    for op in state.done:
        if op.name == "load_weights":
            loaded.add(op.outputs[0])
        elif op.name in ("shard", "combine", *COPYING) and loaded.issuperset(op.inputs):
            loaded.update(op.outputs)  # cut to size or moved before any use: what counts is the part
        elif op.name not in ("store", "await"):  # await holds what its call used
            needed.update(dict.fromkeys(loaded.intersection(op.inputs)))
    return [state.values[number] for number in needed]


def _fewer(kept: Mapping[int, Sequence[Sharded]], began: Mapping[int, Sequence[Sharded]]) -> list[int]:
    """Layers of which the rank holds less than it began with."""
    return sorted(layer for layer, weights in began.items() if not _contain(kept.get(layer, ()), _shards(weights)))


def _by_layer(kind: type[S], values: Iterable[Value], step: int = 0) -> dict[int, list[S]]:
    """The values of one kind and step, including parked ones, by layer."""
    by_layer: dict[int, list[S]] = {}
    for value in values:
        if type(value) is Parked:
            value = value.value
        if type(value) is kind and value.step == step:
            by_layer.setdefault(value.layer, []).append(value)
    return by_layer


def _shards(values: Iterable[Sharded]) -> dict[int, set[int]]:
    """The shards of all values by their total, each listed once. There are no more than the trace has loaded and
    cut."""
    by_total: dict[int, set[int]] = {}
    for value in values:
        by_total.setdefault(value.total, set()).update(value.shards)
    return by_total


def _contain(values: Iterable[Sharded], wanted: Mapping[int, set[int]]) -> bool:
    """True if the values together cover all wanted shards."""
    have = _shards(values)
    if all(shards <= have.get(total, set()) for total, shards in wanted.items()):
        return True
    return any(len(shards) == total for total, shards in have.items()) or _cover(have, wanted)


def _cover(have: Mapping[int, set[int]], wanted: Mapping[int, set[int]]) -> bool:
    """`_contain` for shards with different totals, as intervals of the unsharded value."""
    spans = union((Fraction(i, n), Fraction(i + 1, n)) for n, shards in have.items() for i in shards)
    starts = [start for start, _ in spans]
    for i, n in ((i, n) for n, shards in wanted.items() for i in shards):
        at = bisect_right(starts, Fraction(i, n)) - 1
        if at < 0 or spans[at][1] < Fraction(i + 1, n):
            return False
    return True


class Note(NamedTuple):
    """A remark for the player, and what it is `about`. One that `costs_a_star` keeps a solution at two stars. A goal
    with a steady peak reads "reload" (weights are loaded twice), "missing" (a rank ends with fewer weights than it
    began with) and "steady" (continued training needs more memory)."""

    text: str
    costs_a_star: bool = False
    about: str = ""


def notes_on(
    recomputation: Recomputation, lasting: Sequence[int], profiles: Sequence[Profile], peak: PeakContents
) -> tuple[Note, ...]:
    """All remarks on a run; a remark on several ranks names them all. `lasting` has each rank's lasting peak."""
    ranks = recomputation.ranks
    by_note: dict[Note, list[int]] = {}
    for state, prof in zip(ranks, profiles):
        for note in _on_rank(state, prof, recomputation.game):
            by_note.setdefault(note, []).append(state.rank)
    notes = [note._replace(text=f"{named('rank', noted)} {note.text}") for note, noted in by_note.items()]
    if lost := lost_states(ranks, profiles, recomputation.game.steps):
        layers = named("layer", lost)
        text = f"the updated optimizer state of {layers} is not complete at the end, but the next step needs it"
        notes.append(Note(text, costs_a_star=True, about="lost"))
    if recomputation.made_up:
        more = f", and {len(recomputation.made_up) - 1} more like it" if len(recomputation.made_up) > 1 else ""
        text = f"this run uses {recomputation.made_up[0]}{more}: you may explore with it, but a puzzle refuses it"
        notes.append(Note(text, costs_a_star=True, about="made up"))
    if (most := max(lasting)) > peak.memory:
        highest = [state for state, elements in zip(ranks, lasting) if elements == most]
        again = "request" if recomputation.game.task == "infer" else "step"
        text = f"in a second {again} the peak would be {most:,} elements ({named('rank', [s.rank for s in highest])})"
        why = _why_more(highest[0], most, profiles[highest[0].rank])
        notes.append(Note(f"{text}, because {why}", costs_a_star=True, about="steady"))
    if outside := unstored_text(peak):
        place = f"rank {peak.rank} at t={recomputation.costs.text(peak.tick)}"
        held = f"includes values that you hold in variables or have passed to pending calls: {outside}"
        notes.append(Note(f"the peak, on {place}, {held}", about="unstored"))
    return tuple(notes)


def settled(notes: Sequence[Note]) -> tuple[Note, ...]:
    """The remaining notes if the goal's steady peak is met: then loading again is no fault."""
    return tuple(
        note._replace(costs_a_star=note.costs_a_star and note.about != "steady")
        for note in notes
        if note.about != "reload"
    )


def steady_state_peak(state: RankState, sizes: Sequence[int], prof: Profile) -> int:
    """The highest lasting peak of a rank, in elements; `sizes` are those of its values, by number."""
    if state.read or any(op.start > 0 for op in state.all({"load_weights"})):
        return lasting_peak(state.done, sizes, prof.lifetimes, state.read, state.costs)
    return max(prof.memory)


def _on_rank(state: RankState, prof: Profile, game: Game) -> Iterator[Note]:
    if prof.lifetimes.kept_outside:
        yield _kept_outside(state, prof.lifetimes.kept_outside)
    if labelled := [op for op in state.all(COLLECTIVES) if len(op.args) > 1 and op.args[1] is not None]:
        yield _other_label(labelled)
    if twice := loaded_twice(state):
        text = f"loaded the same weights of {named('layer', twice)} twice; keep them, or get them from another rank"
        yield Note(text, costs_a_star=True, about="reload")
    if thrown := discarded_states(state, prof):
        text = f"discarded the updated optimizer state of {named('layer', thrown)}, which the next step needs"
        yield Note(text, costs_a_star=True, about="discarded")
    missing = missing_at_end(state, prof, 0 if game.task == "infer" else game.steps)
    if fewer := [layer for layer in missing if layer not in game.setting.frozen]:  # a frozen one can be loaded again
        layers, what = named("layer", fewer), "request" if game.task == "infer" else "step"
        text = f"ended with less of the weight of {layers} than at the start, so the {what} cannot be repeated"
        yield Note(text, costs_a_star=True, about="missing")


def _why_more(state: RankState, lasting: int, prof: Profile) -> str:
    """Why a rank's lasting peak is higher than its peak."""
    sizes = [value.memory(state.costs) for value in state.values.values()]
    no_messages = lasting_peak(state.done, sizes, prof.lifetimes, {}, state.costs)
    again = loaded_again(state)
    loaded = f"it begins with everything that this run loads{f', and {again}' if again else ' later'}"
    reasons = [loaded] * (no_messages > max(prof.memory))
    reasons += ["a message takes memory until it is read"] * (lasting > no_messages)
    return ", and ".join(reasons)


def _kept_outside(state: RankState, hidden: Sequence[int]) -> Note:
    line = next(op.line for op in state.done if hidden[0] in op.outputs)
    more = f" and {len(hidden) - 1} more" if len(hidden) > 1 else ""
    value = state.values[hidden[0]]  # without its batches, so that ranks which do the same share one note
    kept = f"the {noun(value)} {layers_text([value])}{more} (line {line})"
    text = f"kept outside the dictionaries, where it takes memory until its last use: {kept}"
    return Note(text, about="kept outside")


def _other_label(labelled: Sequence[Op]) -> Note:
    """A remark on collectives whose `layer` is not the layer of their value."""
    op = labelled[0]
    label = list(op.args[1]) if isinstance(op.args[1], tuple) else op.args[1]
    more = f", and {len(labelled) - 1} more like it" if len(labelled) > 1 else ""
    return Note(SAYS("other label", call=op.call(), line=op.line, label=label, more=more), about="label")


SAYS = Sentences(
    {
        "other label": "called {call} on line {line} with layer {label}{more}: pass the layer of the value",
    }
)
