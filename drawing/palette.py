"""Colours for colour-blind readers too: layers follow one ramp, from dark violet to yellow."""

from colorsys import hls_to_rgb, rgb_to_hls
from functools import lru_cache

RGB = tuple[int, int, int]

PAPER = "#ffffff"
INK = "#1f2933"
SOFT = "#5a6675"
"""Secondary text."""
GRID = "#e2e6eb"
IDLE = "#eff1f4"
IDLE_HATCH = "#cfd5dd"
STROKE = "#44546a"
"""Anything that involves other ranks."""
UNDER_WAY = "#8a97a8"
"""Communication that was called and does not run, or has ended and was not awaited."""
STEP = "#fdf3dc"
STEP_EDGE = "#b7791f"
"""The background of every other training step, and the line where a step begins."""
EMPTY = "#f5f7f9"
EDGE = "#b9c2cd"
MEMORY = "#25405c"
"""The line on top of all memory."""
KINDS = {"weights": "#4a7aa7", "opt_states": "#a9c8e2", "activations": "#f3d08f", "gradients": "#cf7a5f"}
"""Memory by kind: blue and orange, dark and light, so that neighbours differ for all readers."""
CALLS = {
    "allgather": "#2a8f87",
    "scatterreduce": "#e8c468",
    "allreduce": "#7d4f9e",
    "broadcast": "#e77be9",
    "reduce": "#a7331a",
    "pass_to": "#9fb3c8",
    "dispatch": "#d9705a",
    "collect": "#6b2737",
    "heads": "#7878fa",
    "tokens": "#fa4614",
}
"""Traffic by kind of call: hues that colour-blind readers can tell apart, light and dark side by side."""
PARTS = ("#25405c", "#7aa7cf", "#cf7a5f", "#f3d08f", "#2a8f87", "#7d4f9e", "#b3bcc8")
"""Parts of a whole in a bar: what ranks compute, then the causes of idle time."""
CRITICAL = "#c026d3"
TARGET = "#8a1f4b"
TARGET_AREA = "#e9f3ee"
ALARM = "#c2410c"
"""The peak, and errors."""

# Anchors of viridis (Smith and van der Walt 2015): perceptually uniform lightness, also for colour-blind readers.
RAMP: tuple[RGB, ...] = (
    (68, 1, 84), (65, 68, 135), (42, 120, 142), (34, 168, 132), (122, 209, 81), (253, 231, 37)
)  # fmt: skip
RAMP_START, RAMP_END = 0.13, 0.94


BATCHES = """
#436eb4 #fa7c20 #3ad4aa #5f2c1a #1e13ad #930660 #90bce9 #bbbd70
#7d5be6 #a65a67 #ecaa0b #3c812b #590281 #3baca6 #74052c #a2a8fc
#bdac4a #7ccd8e #6565cf #8a0700 #b65c4e #1b3b71 #611ba7 #2f818e
#667815 #fa8cd7 #7aad84 #9e8afa #bf9752 #681946 #abc63e #2abfd4
""".split()
"""A hue for each microbatch; hues repeat for later microbatches. Each differs as much as possible from earlier ones,
above all the last few, for every kind of colour blindness and also as a tint; text is legible on all."""

OPERATIONS = {
    "forward": "#a8d1f5",
    "backward": "#0e6f55",
    "backward_input": "#3cb98c",
    "backward_weight": "#f2a33a",
}
"""Blue, green and orange, as in papers: forward, backward with its input half, and its weight half."""

DARK_PAPER, DARK_INK = 0.07, 0.96
"""Perceived lightness of paper and ink on a dark page."""


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
    where = RAMP_START + (RAMP_END - RAMP_START) * (layer / (layers - 1) if layers > 1 else 0.4)
    at = min(max(where, 0.0), 1.0) * (len(RAMP) - 1)
    i = min(int(at), len(RAMP) - 2)
    return mix(_hex(RAMP[i]), _hex(RAMP[i + 1]), at - i)


@lru_cache(maxsize=4096)
def layer_tint(layer: int, layers: int) -> str:
    """The same hue, light enough to write on."""
    return mix(layer_colour(layer, layers), PAPER, 0.62)


def batch_colour(batch: int) -> str:
    """The full colour of a microbatch."""
    return BATCHES[batch % len(BATCHES)]


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2 defines it."""

    def linear(channel: int) -> float:
        c = channel / 255
        return c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4

    red, green, blue = map(linear, _rgb(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def lightness(y: float) -> float:
    """Perceived lightness of a luminance, both from 0 to 1 (CIE 1976 L*)."""
    return 1.16 * y ** (1 / 3) - 0.16 if y > 0.008856 else 9.033 * y


@lru_cache(maxsize=4096)
def text_on(colour: str) -> str:
    """Ink or paper, whichever is more readable on `colour`."""
    return INK if luminance(colour) > 0.22 else PAPER


@lru_cache(maxsize=4096)
def dark_variant(colour: str) -> str:
    """The same hue for a dark page: light and dark are swapped, and text stays readable."""
    away_from_white = 1 - lightness(luminance(colour))
    wanted = DARK_PAPER + (DARK_INK - DARK_PAPER) * away_from_white**0.8
    if away_from_white > 0.82:
        wanted = DARK_INK  # ink, which also has to be readable on colours of medium lightness
    hue, _, saturation = rgb_to_hls(*(channel / 255 for channel in _rgb(colour)))
    low, high = 0.0, 1.0
    found = colour
    for _ in range(12):
        light = (low + high) / 2
        red, green, blue = (round(255 * channel) for channel in hls_to_rgb(hue, light, saturation * 0.9))
        found = _hex((red, green, blue))
        low, high = (light, high) if lightness(luminance(found)) < wanted else (low, light)
    return found
