"""Pictures of values with captions: a single one, a dictionary with its keys, everything that a model holds."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from chalk.types import Diagram

from drawing.number_text import time_text
from drawing.palette import EDGE, INK, SOFT
from drawing.pen import clip, label, lines, panel, stack, style, text_width
from drawing.picture import Picture
from lib import Model, PuzzleError, Value

from .network import draw_strip

KEY_SIZE, TEXT_SIZE = 12.0, 12.0
MAX_KEY_LENGTH, MAX_TEXT_LENGTH = 28, 90
MIN_WIDTH = 640.0
MAX_ROWS = 48
GAP = 18.0


def draw_value(value: Value) -> Picture:
    """One value in its network, and in words.

    Raises:
        PuzzleError: it is not a value of the game.
    """
    if not isinstance(value, Value):
        raise PuzzleError(f"draw_value shows a Weight, an Activation and so on; got {safe(repr, value)}")
    strip = draw_strip(value)
    words, size = caption(value), TEXT_SIZE
    width = max(strip.get_envelope().width, text_width(words, size))
    text = panel(width, size * 1.6, [label(0, size * 0.8, words, size, INK, "start")])
    return Picture(strip / text, str(value), words)


def draw_group(mapping: Mapping[Any, Any]) -> Picture:
    """Each value of a dictionary with its key.

    Raises:
        PuzzleError: it is not a dictionary.
    """
    return Picture(group(mapping), group_title(mapping), describe_group(mapping))


def draw_network(model: Model) -> Picture:
    """Everything that a model holds, dictionary by dictionary, and its final weights."""
    storages: list[Mapping[Any, Any]] = [*model.storage()]
    head = f"rank {model.rank}, t={time_text(model.time)}: {model.memory():,} elements stored"
    sections = [titled(head, 15.0), *(group(storage) for storage in storages)]
    if model.final_weights:
        sections.append(group(model.final_weights))
    return Picture(stack(sections), head, " ".join(describe_group(storage) for storage in storages))


def group(mapping: Mapping[Any, Any]) -> Diagram:
    """A heading and a row for each key; if there are very many, only the first ones."""
    if not isinstance(mapping, Mapping):
        got = safe(repr, mapping)
        raise PuzzleError(f"draw_group shows a dictionary of values, such as activations; got {got}")
    shown = list(islice(mapping.items(), MAX_ROWS))
    keys = [safe(repr, key, MAX_KEY_LENGTH) for key, _ in shown]
    pictures = [draw_strip(value) if isinstance(value, Value) else None for _, value in shown]
    key_width = max((text_width(key, KEY_SIZE, bold=True) for key in keys), default=0.0) + GAP
    strip_width = max((p.get_envelope().width for p in pictures if p is not None), default=0.0) + GAP
    words = [caption(value) for _, value in shown]
    text = max((text_width(line, TEXT_SIZE) for line in words), default=0.0)
    width = max(key_width + strip_width + text, MIN_WIDTH)
    rows = [value_row(*parts, key_width, strip_width, width) for parts in zip(keys, pictures, words, strict=True)]
    more = len(mapping) - len(shown)
    rest = [titled(f"and {more:,} more", TEXT_SIZE)] if more else []
    return stack([titled(group_title(mapping), 14.0), *rows, *rest])


def value_row(key: str, strip: Diagram | None, words: str, at: float, wide: float, width: float) -> Diagram:
    """Key, network, words, side by side, under a thin line."""
    height = 26.0 if strip is None else strip.get_envelope().height + 8
    middle = height / 2
    parts = [
        lines([[(0, 0), (width, 0)]], style(None, EDGE, 0.5)),
        label(0, middle, key, KEY_SIZE, INK, "start", bold=True),
        *([] if strip is None else [strip.translate(at, 5)]),
        label(at + (wide if strip is not None else 0), middle, words, TEXT_SIZE, SOFT, "start"),
    ]
    return panel(width, height, parts)


def titled(text: str, size: float) -> Diagram:
    width = text_width(text, size, bold=True)
    return panel(width, size * 1.9, [label(0, size * 0.8, text, size, INK, "start", bold=True)])


def group_title(mapping: Mapping[Any, Any]) -> str:
    """The dictionary's name, and how much it holds; a value under two keys counts once."""
    name = safe(str, getattr(mapping, "name", "values"), MAX_KEY_LENGTH)
    if not mapping:
        return f"{name}: empty"
    sizes = {id(value): value.memory() for value in mapping.values() if isinstance(value, Value)}
    keys = f"{len(mapping):,} {'key' if len(mapping) == 1 else 'keys'}"
    return f"{name}: {keys}, {sum(sizes.values()):,} elements"


def caption(value: Any) -> str:
    """A value's own description with its size; for anything else, its Python representation."""
    return f"{value} ({value.memory():,} elements)" if isinstance(value, Value) else safe(repr, value)


def describe_group(mapping: Mapping[Any, Any]) -> str:
    """Keys and captions, for screen readers."""
    shown: Iterable[tuple[Any, Any]] = islice(mapping.items(), MAX_ROWS)
    found = [f"{safe(repr, key, MAX_KEY_LENGTH)}: {caption(value)}" for key, value in shown]
    return "; ".join(found) or "nothing is stored"


def safe(show: Any, thing: Any, limit: int = MAX_TEXT_LENGTH) -> str:
    """A short text for anything that a player may store, whatever its own code does."""
    try:
        return clip(show(thing), limit)
    except Exception:
        return f"<{type(thing).__name__}>"
