"""The explanation of a peak in words: a heading, and one row for similar values, so that it fits a screen."""

from collections.abc import Sequence
from typing import NamedTuple

from lib.communication.lanes import computing
from lib.values.algebra import named
from lib.values.base import Batched, Sharded, Value
from lib.values.kinds import Activation, OptState, Weight
from lib.values.label_text import shards_text, share_text

from .peak import Item, PeakContents

UNREAD = "never read again"
AGAIN = "`get_activation` gives it again"
MAX_LINES_NAMED = 4


class Row(NamedTuple):
    """Values of one kind that are read at similar times: their elements in all, and a description."""

    elements: int
    what: str
    when: str
    unread: bool
    """True if no operation reads them again and the step's result does not need them."""


def peak_lines(peak: PeakContents) -> list[str]:
    """The explanation as lines of at most about 100 characters: a heading, the rows, and what can be deleted."""
    if not peak.items:
        return ["There is no peak: no rank kept a value during an operation."]
    rows = peak_rows(peak)
    lines = [f"The peak, {peak.memory:,} elements, is on rank {peak.rank} {_moment(peak)}:"]
    width = max(len(f"{row.elements:,}") for row in rows)
    lines += [f"  {row.elements:>{width},}  {row.what}: {row.when}" for row in rows]
    unread = sum(row.elements for row in rows if row.unread)
    if unread:
        lines.append(f"Nobody reads {unread:,} of these elements again: delete those values before this moment.")
    else:
        calls = any(item.fate == "awaited" for item in peak.items)
        await_them = "await calls earlier, " if calls else ""
        lines.append(
            f"All of it is still needed. To lower the peak, {await_them}change the order of the work, or keep less."
        )
    return lines


def peak_rows(peak: PeakContents) -> list[Row]:
    """The rows, first values that are not read again, then the largest; their elements add up to the peak."""
    groups: dict[tuple[object, ...], list[Item]] = {}
    for item in filter(lambda item: item.elements, peak.items):
        value = item.value
        border = value.layer in (-1, value.layers) or returns_again(item)  # the model's input and output get own rows
        alike = (item.fate, type(value), _step(value), item.stored, item.in_call, border, _part(value))
        groups.setdefault(alike, []).append(item)
    rows = [_row(items, peak) for items in groups.values()]
    return sorted(rows, key=lambda row: (not row.unread, -row.elements, row.what))


def unstored_text(peak: PeakContents) -> str:
    """Values charged at the peak that are in no dictionary, in words; empty if all are stored.

    Overlapped calls usually have pending values, so these are only added up.
    """
    unstored = [item._replace(stored=True) for item in peak.items if not item.stored]  # so that no row repeats it
    rows = peak_rows(peak._replace(items=tuple(item for item in unstored if not item.in_call)))
    texts = [f"{row.what} ({row.elements:,} elements, {row.when})" for row in rows]
    in_calls = sum(item.elements for item in unstored if item.in_call)
    return "; ".join([*texts, f"{in_calls:,} elements of pending calls"] if in_calls else texts)


def _moment(peak: PeakContents) -> str:
    time = f"at t={peak.costs.text(peak.tick)}"
    if peak.event is None:
        return f"{time}, at the end of the run"
    line = f" (line {peak.event.line})" if peak.event.line else ""
    begins = "starts" if computing(peak.event, peak.costs) else "is called"
    return f"{time}, as {peak.event.call()} {begins}{line}"


def _row(items: Sequence[Item], peak: PeakContents) -> Row:
    first = items[0]
    return Row(
        sum(item.elements for item in items),
        _what(items, peak.setting.steps),
        _when(items, peak),
        first.fate == "never",
    )


def _what(items: Sequence[Item], steps: int) -> str:
    """'4 weights of layers 0-3, shard 1 of 4, outside the dictionaries'."""
    first, values = items[0], [item.value for item in items]
    count = f"{len(items)} " if len(items) > 1 else ""
    step = _step(first.value)
    updated = "updated " if steps == 1 and step and isinstance(first.value, Weight | OptState) else ""
    parts = [f"{count}{updated}{noun(first.value)}{'s' if len(items) > 1 else ''} {layers_text(values)}"]
    batches = sorted(frozenset[int]().union(*(getattr(value, "batches", ()) for value in values)))
    parts += [named("batch", batches)] if batches else []
    parts += [_part(first.value)] if _part(first.value) else []
    parts += [f"step {step}"] if steps > 1 else []
    parts += ["in a pending call"] if first.in_call else [] if first.stored else ["outside the dictionaries"]
    return ", ".join(parts)


def noun(value: Value) -> str:
    """The kind of a value without its article: 'weight', 'optimizer state'."""
    return value.kind.partition(" ")[2]


def layers_text(values: Sequence[Value]) -> str:
    """The layers that the values belong to; the model's input and output are named as such."""
    layers = sorted({value.layer for value in values})
    if layers == [-1]:
        return "of the model's input"
    if isinstance(values[0], Activation) and layers == [values[0].layers]:
        return "after the last layer"
    return f"of {named('layer', layers)}"


def returns_again(item: Item) -> bool:
    """True for an input of the model that is read only later: the model itself returns it then."""
    return item.fate == "later" and isinstance(item.value, Activation) and item.value.layer == 0


def _step(value: Value) -> int:
    return getattr(value, "step", 0)


def _part(value: Value) -> str:
    """Its shards, or its summand and share of the tokens, in words; empty for a full value."""
    if isinstance(value, Batched):
        return share_text(value).removeprefix(", ")
    return shards_text(value) if isinstance(value, Sharded) and len(value.shards) != value.total else ""


def _when(items: Sequence[Item], peak: PeakContents) -> str:
    match items[0].fate:
        case "never":
            return f"{UNREAD}{_made(items)}"
        case "kept":
            return "kept for the next step"
        case "awaited":
            return f"held until its call is awaited at t={peak.costs.text(min(item.read or 0 for item in items))}"
        case "now":
            assert peak.event is not None  # somebody reads it
            return f"read by this {peak.event.name}"
    again = f"; {AGAIN}" if returns_again(items[0]) else ""
    return f"next read at t={peak.costs.text(min(item.read or 0 for item in items))}{again}"


def _made(items: Sequence[Item]) -> str:
    lines = sorted({item.line for item in items if item.line})
    shown = [f"line {line}" for line in lines[:MAX_LINES_NAMED]] + (["..."] if len(lines) > MAX_LINES_NAMED else [])
    return f" (made at {'; '.join(shown)})" if lines else ""
