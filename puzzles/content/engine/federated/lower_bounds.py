"""The least figures of the federated puzzles: what a server cannot know unless clients send it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from puzzles.catalog.engine import lower_bounds
from puzzles.catalog.engine.lower_bounds import BITS, FigureBound, MakeBounds
from puzzles.catalog.engine.trial import Trial


def fed_sgd(trial: Trial) -> dict[str, FigureBound]:
    """A client's gradient has the information of its examples, or of its numbers, whichever is less."""
    numbers = trial.arguments["dim"] * BITS / 8
    bits = sum(min(lower_bounds.information(given), numbers) for call in trial.calls for given in call.arguments[1:])
    return {"uplink": FigureBound(int(bits / 2), "every client's gradient changes the weights in every round")}


def fed_avg(trial: Trial) -> dict[str, FigureBound]:
    return {"uplink": lower_bounds.something("the server has no examples of its own")}


def trained(trial: Trial) -> dict[str, FigureBound]:
    """A client's update, in the numbers that were trained."""
    return {"sent": _update(trial.arguments["rank"] * trial.arguments["dim"] * BITS / 8)}


def compressed(trial: Trial, bits: int = 0) -> dict[str, FigureBound]:
    """The first round's update: numbers that are sent, at `bits` each, or at the bits that the trial says."""
    sizes: Mapping[str, Any] = trial.arguments
    numbers = sizes["size"] // sizes.get("share", 1)
    sent = _update(numbers * (bits or sizes.get("bits", 1)) / 8)
    return {**lower_bounds.calls(), "sent": sent, "peak": lower_bounds.peak(trial)}


def _update(nbytes: float) -> FigureBound:
    return FigureBound(
        int(nbytes / 4), f"an update has about {nbytes:,.0f} B of information; a quarter counts, for any coding"
    )


LOWER_BOUNDS: Mapping[str, MakeBounds] = {
    "FedSGD": fed_sgd,
    "FedAvg": fed_avg,
    "LowRank": trained,
    "Subsample": lambda trial: compressed(trial, bits=BITS),
    "Quantize": compressed,
    "Rotate": compressed,
}
