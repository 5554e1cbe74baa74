"""Memories beside a device's own, such as the host's: what is done there, and what it costs."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

COPYING = frozenset(("offload", "fetch", "move"))
"""Operations that move values between memories."""

ON_TIER: Mapping[str, str] = MappingProxyType(
    {"offload": "offload", "fetch": "fetch", "move": "fetch", "tier_update": "update"}
)
"""By operation on a memory tier: the field of Tier that prices it. A move also has the price of an offload to the other
tier."""


class Tier(NamedTuple):
    """A memory besides the device's: the ticks to `offload` a value to it and to `fetch` one from it (None: that cannot
    be done), the elements of each rank that fit (None: any number), and the ticks of an `update` there (None: it has no
    processor). By size, a copy costs more: see Costs."""

    offload: int | None = None
    fetch: int | None = None
    capacity: int | None = None
    update: int | None = None
