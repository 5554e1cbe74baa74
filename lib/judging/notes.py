"""Warnings on correct runs that real training could not use: habits that would not work in a real one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lib.collective_rules import COLLECTIVES
from lib.setting import Game
from lib.trace import Op
from lib.values.algebra import named

from .memory import Profile, lasting_peak
from .rank_state import RankState
from .recompute import Retrace
from .repeatable import loaded_twice, lost_states, not_held_again, thrown_away


class Note(NamedTuple):
    """A remark for the player; one that `costs_a_star` keeps a solution at two."""

    text: str
    costs_a_star: bool = False


def notes_on(retrace: Retrace, sizes: Sequence[Sequence[int]], profiles: Sequence[Profile]) -> tuple[Note, ...]:
    """All remarks on a run; one on several ranks names them all. `sizes` are of each rank's values, by number."""
    peak = max(max(prof.memory) for prof in profiles)
    by_note: dict[Note, list[int]] = {}
    for state, size, prof in zip(retrace.ranks, sizes, profiles):
        for note in _on_rank(state, size, prof, peak, retrace.game):
            by_note.setdefault(note, []).append(state.rank)
    notes = [Note(f"{named('rank', ranks)} {text}", costs) for (text, costs), ranks in by_note.items()]
    if lost := lost_states(retrace.ranks, profiles, retrace.game):
        layers = named("layer", lost)
        text = f"the updated optimizer state of {layers} is not there in full at the end: the next step needs it"
        notes.append(Note(text, costs_a_star=True))
    if retrace.made_up:
        more = f", and {len(retrace.made_up) - 1} more like it" if len(retrace.made_up) > 1 else ""
        notes.append(Note(f"this uses {retrace.made_up[0]}{more}: fine for exploring, refused in a puzzle", True))
    return tuple(notes)


def _on_rank(state: RankState, sizes: Sequence[int], prof: Profile, peak: int, game: Game) -> Iterator[Note]:
    acts = [op for op in state.done if op.name not in ("store", "delete")]
    if prof.lifetimes.hidden:
        yield _kept_outside(state, prof.lifetimes.hidden)
    if labelled := [op for op in acts if op.name in COLLECTIVES and len(op.args) > 1 and op.args[1] is not None]:
        yield _other_label(labelled)
    if twice := loaded_twice(acts):
        text = f"loaded the same weights of {named('layer', twice)} twice; keep them, or get them from other ranks"
        yield Note(text, costs_a_star=True)
    if thrown := thrown_away(acts, state, prof):
        text = f"threw away the updated optimizer state of {named('layer', thrown)}, which the next step would need"
        yield Note(text, costs_a_star=True)
    if game.task != "infer" and (fewer := not_held_again(acts, state, prof, game.steps)):
        layers = named("layer", fewer)
        text = f"began with more of the weight of {layers} than at the end, so the step could not be repeated"
        yield Note(text, costs_a_star=True)
    if state.read or _loads_late(acts):
        lasting = lasting_peak(state.done, sizes, prof.lifetimes, state.read, state.costs)
        if lasting > peak:
            text = (
                f"would need {lasting:,} elements if training went on: counted are weights and states from the start, "
                "though they are loaded later, and messages until they are read"
            )
            yield Note(text, costs_a_star=True)


def _kept_outside(state: RankState, hidden: Sequence[int]) -> Note:
    line = next(op.line for op in state.done if hidden[0] in op.made)
    more = f" and {len(hidden) - 1} more" if len(hidden) > 1 else ""
    kept = f"the {state.values[hidden[0]]}{more} (line {line})"
    return Note(f"kept outside the dictionaries, charged until last used: {kept}")


def _other_label(labelled: Sequence[Op]) -> Note:
    op = labelled[0]
    label = list(op.args[1]) if isinstance(op.args[1], tuple) else op.args[1]
    more = f", and {len(labelled) - 1} more like it" if len(labelled) > 1 else ""
    return Note(f"called {op.call()} on line {op.line} with layer {label}{more}: the layer is that of the value")


def _loads_late(ops: Sequence[Op]) -> bool:
    return any(op.name == "load_weights" and op.start > 0 for op in ops)
