"""Colours that survive colour blindness: layers walk along one ramp, from dark violet to yellow."""

from __future__ import annotations

from functools import lru_cache

RGB = tuple[int, int, int]

PAPER = "#ffffff"
INK = "#1f2933"
SOFT = "#5a6675"
"""Text that is read second."""
GRID = "#e2e6eb"
IDLE = "#eff1f4"
IDLE_HATCH = "#cfd5dd"
WIRE = "#44546a"
"""Whatever involves other ranks."""
EMPTY = "#f5f7f9"
EDGE = "#b9c2cd"
MEMORY = "#2f6690"
MEMORY_AREA = "#d8e4ef"
ALARM = "#c2410c"
"""The peak, and what went wrong."""

# Anchors of viridis (Smith and van der Walt 2015): even in lightness, also to the colour blind.
RAMP: tuple[RGB, ...] = (
    (68, 1, 84), (65, 68, 135), (42, 120, 142), (34, 168, 132), (122, 209, 81), (253, 231, 37)
)  # fmt: skip
FIRST, LAST = 0.13, 0.94


def _hex(rgb: RGB) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)


def _rgb(colour: str) -> RGB:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def mix(colour: str, other: str, share: float) -> str:
    """`colour` with `share` of `other` in it."""
    pairs = zip(_rgb(colour), _rgb(other), strict=True)
    red, green, blue = (round(a + (b - a) * share) for a, b in pairs)
    return _hex((red, green, blue))


@lru_cache(maxsize=4096)
def layer_colour(layer: int, layers: int) -> str:
    """The full colour of a layer: early ones dark, late ones light."""
    where = FIRST + (LAST - FIRST) * (layer / (layers - 1) if layers > 1 else 0.4)
    at = min(max(where, 0.0), 1.0) * (len(RAMP) - 1)
    i = min(int(at), len(RAMP) - 2)
    return mix(_hex(RAMP[i]), _hex(RAMP[i + 1]), at - i)


@lru_cache(maxsize=4096)
def layer_tint(layer: int, layers: int) -> str:
    """The same hue, light enough to write on."""
    return mix(layer_colour(layer, layers), PAPER, 0.62)


@lru_cache(maxsize=4096)
def text_on(colour: str) -> str:
    """Ink or paper, whichever reads better on `colour` (WCAG 2 relative luminance)."""

    def linear(channel: int) -> float:
        c = channel / 255
        return c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4

    red, green, blue = map(linear, _rgb(colour))
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return INK if luminance > 0.22 else PAPER
