"""Notes on correct runs: habits that would not work in real training."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lib.game.setting import Game
from lib.rules.collectives import COLLECTIVES
from lib.trace.ops import Op
from lib.values.algebra import named

from .memory import Profile, lasting_peak
from .peak import PeakContents
from .peak_text import layers_text, noun, unstored_text
from .rank_state import RankState
from .recompute import Recomputation
from .repeatable import discarded_states, loaded_again, loaded_twice, lost_states, missing_at_end
from .words import SAYS


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
        notes.append(
            Note(
                f"this run uses {recomputation.made_up[0]}{more}: you may explore with it, but a puzzle refuses it",
                True,
                "made up",
            )
        )
    if (most := max(lasting)) > peak.memory:
        highest = [state for state, elements in zip(ranks, lasting) if elements == most]
        again = "request" if recomputation.game.task == "infer" else "step"
        text = f"in a second {again} the peak would be {most:,} elements ({named('rank', [s.rank for s in highest])})"
        why = _why_more(highest[0], most, profiles[highest[0].rank])
        notes.append(Note(f"{text}, because {why}", costs_a_star=True, about="steady"))
    if outside := unstored_text(peak):
        place = f"rank {peak.rank} at t={recomputation.costs.text(peak.tick)}"
        notes.append(
            Note(
                f"the peak, on {place}, includes values that you hold in variables or have passed to pending calls: "
                f"{outside}",
                about="unstored",
            )
        )
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
    if labelled := _labelled(state):
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
    return Note(
        f"kept outside the dictionaries, where it takes memory until its last use: {kept}", about="kept outside"
    )


def _labelled(state: RankState) -> list[Op]:
    """Collectives whose `layer` is not the layer of their value."""
    ops, named = state.ops, state.named
    indices = [i for name in COLLECTIVES & named.keys() for i in named[name] if len(ops[i].args) > 1]
    return [op for op in map(ops.__getitem__, sorted(indices)) if op.args[1] is not None]


def _other_label(labelled: Sequence[Op]) -> Note:
    op = labelled[0]
    label = list(op.args[1]) if isinstance(op.args[1], tuple) else op.args[1]
    more = f", and {len(labelled) - 1} more like it" if len(labelled) > 1 else ""
    return Note(SAYS("other label", call=op.call(), line=op.line, label=label, more=more), about="label")
