"""What a player predicts for a split before it is played."""

from dataclasses import dataclass

from lib.errors import RuleError

DOMINATES = {
    "recomputation": ("recomputation",),
    "tp": ("tp",),
    "cp": ("cp",),
    "ep": ("ep", "permute", "imbalance"),
    "replicas": ("dp", "contention", "update"),
    "host": ("host",),
    "bubble": ("bubble",),
}
"""What may take the most time of a step besides computing everything once, each with its parts in `time_parts`."""

MOST_GIB = 10**6


@dataclass(frozen=True)
class Prediction:
    """`gib`: GiB of the fullest GPU. `dominates`: what takes the most time besides computing everything once, one of
    DOMINATES."""

    gib: float
    dominates: str

    def __post_init__(self) -> None:
        if type(self.gib) not in (int, float) or not 0 < self.gib < MOST_GIB:
            raise RuleError(f"a Prediction's gib is the GiB of the fullest GPU, more than 0; got {self.gib!r:.40}")
        if self.dominates not in DOMINATES:
            raise RuleError(f"a Prediction's dominates is one of {', '.join(DOMINATES)}; got {self.dominates!r:.40}")
