"""The colours can be told apart with each kind of colour blindness.

Simulated as in Machado, Oliveira and Fernandes (2009), "A Physiologically-based Model for Simulation of Color Vision
Deficiency", for full deficiency; distances are those of CIELAB, where 2 is just noticeable.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, pairwise
from math import dist

import pytest

from drawing.palette import CALLS, CRITICAL, INK, KINDS, STROKE, dark_variant, layer_colour, luminance

RGB = tuple[float, ...]
VISION: dict[str, tuple[RGB, RGB, RGB]] = {
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
XYZ = ((0.4339, 0.3762, 0.1899), (0.2126, 0.7152, 0.0722), (0.0178, 0.1095, 0.8730))
"""From linear sRGB, relative to white."""


def seen(colour: str, vision: str) -> RGB:
    """A colour in CIELAB, as somebody sees it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    light = [min(max(sum(a * b for a, b in zip(row, linear, strict=True)), 0), 1) for row in VISION[vision]]
    x, y, z = (curve(sum(a * b for a, b in zip(row, light, strict=True))) for row in XYZ)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def curve(t: float) -> float:
    return t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116


def apart(one: str, other: str, vision: str) -> float:
    return dist(seen(one, vision), seen(other, vision))


def contrast(one: str, other: str) -> float:
    """As WCAG defines it, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("tone", [str, dark_variant], ids=["light", "dark"])
def test_colours_can_be_told_apart(vision: str, tone: Callable[[str], str]) -> None:
    kinds = [tone(colour) for colour in KINDS.values()]
    assert min(apart(a, b, vision) for a, b in combinations(kinds, 2)) > 15
    calls = [tone(colour) for colour in CALLS.values()]
    assert min(apart(a, b, vision) for a, b in combinations(calls, 2)) > 10
    layers = [tone(layer_colour(layer, 8)) for layer in range(8)]
    assert min(apart(a, b, vision) for a, b in pairwise(layers)) > 5
    assert min(apart(a, b, vision) for a, b in zip(layers, layers[3:], strict=False)) > 20
    assert min(apart(tone(CRITICAL), tone(other), vision) for other in (STROKE, INK)) > 20
