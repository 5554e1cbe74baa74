"""The traffic of a run in lines for people: the calls of the busiest rank, most elements first."""

from collections.abc import Iterator

from .traffic import Traffic

MAX_ROWS = 10
"""Calls in the table; what the others send is one row."""


def traffic_lines(sent: Traffic) -> Iterator[str]:
    """A heading, and for each operation and line of the busiest rank its elements, share and number of calls; nothing
    if no rank sends."""
    if not sent.busiest:
        return
    are_equal = all(sent.of(rank) == sent.busiest for rank in range(len(sent.by_rank)))
    who = "Each rank" if are_equal else f"Rank {sent.rank}, the busiest,"
    yield f"{who} sends {sent.busiest:,} elements, and all ranks {sent.total:,}:"
    shown, rest = sent.by_call[:MAX_ROWS], sent.by_call[MAX_ROWS:]
    rows = [(one.elements, f"{one.operation}, {_calls(one.number)}{_line(one.line)}") for one in shown]
    if rest:
        rows.append((sum(one.elements for one in rest), f"{_calls(sum(one.number for one in rest))} on other lines"))
    width = max(len(f"{elements:,}") for elements, _ in rows)
    for elements, words in rows:
        yield f"  {elements:>{width},}  {elements / sent.busiest:4.0%}  {words}"


def _calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count:,} calls"


def _line(line: int) -> str:
    return f" (line {line})" if line else ""
