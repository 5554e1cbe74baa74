"""Compares the results and measurements of a replay with a single device's results and the trace's predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from lib.engine.call import WORD
from lib.engine.metering.meter import Reading
from lib.game.costs import elements_sent
from lib.judging.recomputation import RankState
from lib.judging.referee import BYTES_PER_ELEMENT
from lib.rules.collectives import COLLECTIVES, ROOT_OF
from lib.trace.lifetimes import lifetimes
from lib.trace.ops import Op, group_of, sent_values
from lib.values.kinds import ActivationGrad, Parked, Value

from .contents import Result, is_output, width_with_sums
from .outer_reference import numbered_copies, trained_with_outer_steps
from .reference import averages_in, outputs, trained, versions_in
from .tensor_device import TENSOR_COLLECTIVES, TIERS
from .workload import Workload


@dataclass(frozen=True)
class RankReplay:
    """One rank: bytes at its peak, messages and bytes sent, as predicted from the trace and as measured."""

    predicted_peak: int
    peak: int
    same_memory: bool
    """True if the measured bytes equal the predicted ones at every event, on the device and on each memory tier."""
    predicted_messages: int
    messages: int
    predicted_sent: int
    sent: int
    predicted_parked: int = 0
    """Peak bytes on memory tiers."""
    parked: int = 0

    @property
    def same(self) -> bool:
        return self.same_memory and self.predicted_messages == self.messages and self.predicted_sent == self.sent


def compared(state: RankState, workload: Workload, played: Mapping[str, Any], meter: Reading) -> RankReplay:
    """One rank's predicted and measured figures."""
    lives = lifetimes(state.done)
    values = [state.values[n] for n in range(len(state.values))]
    memories = (None, *TIERS)
    predicted = [lives.sampled(lives.held, [bytes_on(tier, value, workload) for value in values]) for tier in memories]
    samples = list(zip(*predicted))
    live = [tuple(sample) for sample in played["live"]]
    links = [op for op in state.all({*ROOT_OF}) if sent_values(op, state.rank, members_in(op, workload))]
    return RankReplay(
        predicted_peak=max(predicted[0]),
        peak=max(sample[0] for sample in live),
        same_memory=samples == live,
        predicted_messages=len(state.all({"pass_to"})) + len(links),
        messages=meter.messages,
        predicted_sent=sum(bytes_sent(state, op, workload) for op in state.done),
        sent=meter.sent,
        predicted_parked=max(sum(sample[1:]) for sample in samples),
        parked=max(sum(sample[1:]) for sample in live),
    )


def bytes_on(tier: str | None, value: Value, workload: Workload) -> int:
    """Bytes that the tensor of a value takes on a tier, or on the device."""
    if isinstance(value, Parked):
        return value.size(workload.costs) * BYTES_PER_ELEMENT if value.tier == tier else 0
    elements = value.memory(workload.costs) if tier is None else 0
    if isinstance(value, ActivationGrad) and value.vocabulary and value.layer < value.layers - 1:
        hidden = workload.shapes.hidden  # the game leaves out what each token has besides the gradient
        elements = elements // hidden * width_with_sums(hidden)
    return elements * BYTES_PER_ELEMENT


def members_in(op: Op, workload: Workload) -> Sequence[int]:
    return (group_of(op) if op.name in COLLECTIVES else None) or range(workload.size.ranks)


def bytes_sent(state: RankState, op: Op, workload: Workload) -> int:
    if op.name != "pass_to" and op.name not in COLLECTIVES:
        return 0
    members = members_in(op, workload)
    sizes = [bytes_on(None, state.values[number], workload) for number in sent_values(op, state.rank, members)]
    sent = sum(elements_sent(op.name, size, len(members)) for size in sizes)
    return max(WORD, sent) if sent and op.name not in TENSOR_COLLECTIVES else sent


def error_of(workload: Workload, results: Sequence[Sequence[Result]], ranks: Sequence[RankState]) -> float:
    """The largest error of all results; infinite if a row of some layer or a token of some batch is missing from
    all."""
    task = workload.setting.task
    if task == "outer":
        right, results = trained_with_outer_steps(workload, ranks), numbered_copies(workload, results, ranks)
    else:
        right = (
            outputs(workload)
            if task == "infer"
            else trained(workload, averages_in(ranks, workload.setting.steps), versions_in(ranks))
        )
    trained_ones = [i for i in range(len(right)) if i not in workload.setting.frozen]
    missing = {(i, place) for i in trained_ones for place in range(right[i].shape[-2])}
    worst = 0.0
    for layer, content, tensor in chain(*results):
        numbers = content.batches if is_output(content) else [layer or 0]
        in_a_row = is_output(content) and workload.shapes.lengths
        places_of = [(number, range(right[number].shape[-2]) if in_a_row else content.places) for number in numbers]
        wanted = np.concatenate(
            [right[number].reshape(-1, tensor.shape[-1])[[*places]] for number, places in places_of]
        )
        worst = max(worst, workload.error(tensor.reshape(wanted.shape), wanted))
        missing -= {(number, place) for number, places in places_of for place in places}
    return float("inf") if missing else worst
