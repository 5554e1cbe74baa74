"""The most that a rank sends in any window of time."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from itertools import accumulate

Span = tuple[int, int, int]
"""A start, an end, and the elements that are sent evenly in between."""


def most_in_window(spans: Iterable[Span], window: Fraction) -> Fraction:
    """The most elements sent within any `window` of this length. A window that begins or ends at the start or the end
    of a span has the most. What is sent in no time is in each window that touches it."""
    rates: dict[int, Fraction] = defaultdict(Fraction)
    jumps: dict[int, int] = defaultdict(int)
    for start, end, elements in spans:
        if start == end:
            jumps[start] += elements
        else:
            rate = Fraction(elements, end - start)
            rates[start] += rate
            rates[end] -= rate
    edges = sorted({*rates, *jumps})
    if not edges:
        return Fraction()
    slopes = [*accumulate(rates[edge] for edge in edges)]
    before, at_edge = [Fraction()], [Fraction(jumps[edges[0]])]
    for i in range(1, len(edges)):
        before.append(at_edge[-1] + slopes[i - 1] * (edges[i] - edges[i - 1]))
        at_edge.append(before[-1] + jumps[edges[i]])

    def sent_until(time: Fraction) -> Fraction:
        i = bisect_right(edges, time) - 1
        return at_edge[i] + slopes[i] * (time - edges[i]) if i >= 0 else Fraction()

    def sent_before(time: Fraction) -> Fraction:
        i = bisect_left(edges, time)
        return before[i] if i < len(edges) and edges[i] == time else sent_until(time)

    begins = [*map(Fraction, edges), *(edge - window for edge in edges)]
    return max(sent_until(begin + window) - sent_before(begin) for begin in begins)
