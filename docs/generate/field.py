"""Writes docs/field.md, the field in ten steps: every figure is of one model, played by the reference solutions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

from drawing import Picture, draw
from lib import Outcome, Report, Setting, referee, run
from lib import pipelines as schedules
from lib.ledger.named_costs import COSTS
from puzzles.catalog.path import PATH
from puzzles.tracks import track_of

FILE = Path(__file__).parents[1] / "field.md"
LAYERS, BATCHES, RANKS = 8, 4, 4
MODEL = "hopper_node"
"""The costs: the model's width and tokens, and the machine."""

HEAD = """\
# The field in ten steps

To train or serve a model on many devices, you have to split something. What you split decides what must be sent, how
much memory is saved, and who waits. The core path leads from one device to a cluster in ten steps; `puzzles path` shows
which of them you have done. Each step has a problem, an idea, a picture and three costs.

The costs are formulas, and figures of **one model** in all steps. It has {layers} layers of {weight} weights each. A
step trains on {batches} microbatches of 2,048 tokens, on one H100-like GPU or on {devices} that share NVLink. The game
measures the figures, in microseconds (us) and in millions of elements. In real runs an element often has 2 bytes.
Communication overlaps computation where the schedule lets it.

- T is the time of the step on one device, {time} us. L is the number of layers, B of microbatches, N of devices.
- W is the number of elements of all weights, {weights} M. The optimizer states have W each, and so have the weight
  gradients.
- A is the number of elements of one microbatch's activation between two layers, {activation} M.
- *Sent* is what the device that sends the most sends in a step.

First cover the figures and compute them from the formulas. The notebook [02_field](notebooks.md) asks for a figure in
each step, and then measures it. Then solve the puzzles of the step. They have sizes of their own, but you can run your
solutions on this model:

    puzzles run FILE NAME --size {layers},{batches},{devices} --costs {costs}

Step 7 also needs `--layer block`, and step 9 `--layer experts`. For step 10:

    puzzles run FILE three_d --size {layers},{batches},8 --costs {costs} --layer block --mesh dp=2,pp=2,tp=2

Click a picture for the time and the memory of each operation.
"""

TAIL = """\
## After the ten steps

[Plan](planner.md): `puzzles plan` chooses a split for a real model on a real cluster. In [ten real jobs](train.md) you
choose the split yourself and predict its costs. The last page, [all variants](variants.md), has the
bytes that each variant sends, and [the map](map.md) has all puzzles.
"""


class Costs(NamedTuple):
    """Three formulas: the time of a step, the memory of a device, and what it sends."""

    time: str
    memory: str
    sent: str


class Step(NamedTuple):
    """What a step of the path says, its formulas by the label of a row, and the runs that are measured."""

    problem: str
    idea: str
    costs: Mapping[str, Costs]
    runs: Mapping[str, Callable[[], Outcome]]
    picture: str
    note: str = ""


def played(slug: str, ranks: int = RANKS, batches: int = BATCHES, **setting: Any) -> Callable[[], Outcome]:
    """The reference solution of a puzzle, at the size of this page."""
    solution = getattr(import_module(f"solutions.{slug}"), slug)
    return lambda: run(solution, LAYERS, batches, ranks, setting=Setting(MODEL, **setting))


def textbook(table: Callable[[int, int], schedules.Timetable], batches: int = BATCHES) -> Callable[[], Outcome]:
    """A textbook pipeline of this page's model."""
    schedule = schedules.pipeline(table(RANKS, batches))
    return lambda: run(schedule, LAYERS, batches, RANKS, setting=Setting(MODEL))


RING = """\
```
          hop 0  hop 1  hop 2  hop 3
device 0  kv 0   kv 3   kv 2   kv 1
device 1  kv 1   kv 0   kv 3   kv 2
device 2  kv 2   kv 1   kv 0   kv 3
device 3  kv 3   kv 2   kv 1   kv 0
```"""


def steps() -> tuple[Step, ...]:
    """The ten steps, in the order of the path."""
    return (
        Step(
            "The activations of all microbatches do not fit.",
            "Train on one microbatch after another, and add up their gradients. The weights are updated once.",
            {
                "all at once": Costs("T", "2 W + L B A", "nothing"),
                "one by one": Costs("T", "3 W + L A", "nothing"),
            },
            {"`basic`": played("basic", 1), "`grad_accum`": played("grad_accum", 1)},
            "grad_accum",
        ),
        Step(
            "One device takes too long.",
            "Each device trains on microbatches of its own. An all-reduce adds up the gradients, so that every device "
            "makes the same update.",
            {"data parallelism": Costs("T/N, and the all-reduces", "3 W", "2(N-1)/N W")},
            {"`ddp`": played("ddp")},
            "ddp",
            "`DataParallel` does the same on real tensors; `RingAllReduce` builds the all-reduce from messages.",
        ),
        Step(
            "Every device holds the same weights, gradients and optimizer states.",
            "Each device keeps one shard. ZeRO-1 shards the optimizer states; FSDP also shards weights and "
            "gradients, and gathers a layer's weight when it is needed.",
            {
                "ZeRO-1": Costs("T/N, and the collectives", "W + W/N + L A, and one gradient", "2(N-1)/N W"),
                "FSDP": Costs("T/N, and the collectives", "2 W/N + L A, and one full layer", "3(N-1)/N W"),
            },
            {"`zero1`": played("zero1"), "`fsdp`": played("fsdp")},
            "fsdp",
            "`zero1` reduce-scatters each gradient at once, so it stores the gradients in shards, too, as ZeRO-2 does.",
        ),
        Step(
            "Backward needs an activation of every layer.",
            "Delete most activations. In backward, compute them again from the last activation that was kept.",
            {"recomputation": Costs("at most 4/3 T", "2 W + at most 2 sqrt(L) B A", "nothing")},
            {"`checkpoint`": played("checkpoint", 1)},
            "checkpoint",
        ),
        Step(
            "A model does not fit on one device, and gathering its weights costs too much.",
            "Each device keeps some of the layers. Microbatches pass through the devices, and the order decides who "
            "waits and how many activations are held.",
            {
                "GPipe": Costs("T/N (B+N-1)/B", "3 W/N + L/N B A", "A at each boundary and microbatch"),
                "1F1B": Costs("the same", "3 W/N + L/N min(N, B) A", "the same"),
                "ZB-H1": Costs("a third of the bubble", "also gradients for weight halves", "the same"),
            },
            {
                "`pipeline`": played("pipeline"),
                "GPipe": textbook(schedules.gpipe),
                "GPipe, 16 microbatches": textbook(schedules.gpipe, 16),
                "1F1B, 16 microbatches": textbook(schedules.one_f_one_b, 16),
                "ZB-H1, 16 microbatches": textbook(schedules.zb_h1, 16),
            },
            "GPipe",
            "With 16 microbatches a step is four times as much work, and the bubble is a smaller share of it. Of "
            "the three schedules, only GPipe needs much more memory.",
        ),
        Step(
            "Devices wait while data is sent.",
            "Start a call as soon as its data is ready, compute while it is pending, and await it when its result "
            "is needed.",
            {"overlap": Costs("the longer of the two, not the sum", "also what is pending", "the same")},
            {"`ddp_overlap`": played("ddp_overlap"), "`fsdp_prefetch`": played("fsdp_prefetch")},
            "fsdp_prefetch",
            "Compare these times with `ddp` and `fsdp` above. The work is the same; `fsdp_prefetch` keeps the gathered "
            "weight of the last layer for backward, so it sends one gather less.",
        ),
        Step(
            "One layer is too large or too slow for one device.",
            "Each device multiplies by its shard of a weight, and the partial results are summed. Sequence parallelism "
            "also shards the activations between the layers.",
            {
                "tensor parallelism": Costs("T/N, and two sums for each layer", "2 W/N + L B A", "4(N-1)/N L B A"),
                "with sequence parallelism": Costs("the same", "2 W/N + L B A/N, and one full input", "5(N-1)/N L B A"),
            },
            {
                "`tensor_parallel`": played("tensor_parallel", layer="block"),
                "`sequence_parallel`": played("sequence_parallel", layer="block"),
            },
            "tensor_parallel",
            "Sequence parallelism gathers each layer's input once more in backward, which raises the factor 4 to 5.",
        ),
        Step(
            "The activations of a long text do not fit.",
            "Each device has some of the tokens. Keys and values pass around a ring, and each device attends to one "
            "block of them after another.",
            {"ring attention": Costs("T/N, and hops that can overlap", "3 W + L B A/N", "6(N-1)/N L B A + 2(N-1)/N W")},
            {},
            "",
            "In each layer, forward sends keys and values, 2 B A/N in each of N-1 hops. Backward sends them again, "
            "with their gradients. The costs of this page have no price for attention, so the figures follow from the "
            "formulas; `ring_context` measures a ring with costs of its own.",
        ),
        Step(
            "The model should have more weights, but no more work for each token.",
            "Each device has one expert of each layer. A router chooses an expert for every token; two all-to-alls "
            "take the tokens there and back.",
            {"expert parallelism": Costs("T/N, and the exchanges", "3 W/N + L B A/N", "4(N-1)/N L B A/N")},
            {"`expert_parallel`": played("expert_parallel", layer="experts")},
            "expert_parallel",
        ),
        Step(
            "Links within a machine are faster than links between machines, and no single split is enough.",
            "Combine several splits. The one that sends the most uses the fastest links: split the tensors within a "
            "machine, and the layers and the batch between machines.",
            {
                "d replicas of p stages on t devices": Costs(
                    "T/(d p t), a bubble and the sums",
                    "3 W/(p t) + L/p p A",
                    "sums in each layer, A at boundaries, 2(d-1)/d W/(p t)",
                )
            },
            {"`three_d`, 8 devices": played("three_d", 8, layer="block", mesh={"dp": 2, "pp": 2, "tp": 2})},
            "three_d",
            "The schedule has two replicas of two stages, each on two devices. `llama_8b_16` and `llama_70b_64` choose "
            "such a split for a real model.",
        ),
    )


@cache
def measured(number: int) -> dict[str, Report]:
    """The reports of one step's runs."""
    found = {}
    for label, play in steps()[number].runs.items():
        outcome = play()
        report = referee(outcome.trace)
        assert outcome.error is None, (label, outcome.error)
        assert report.error is None, (label, report.error)
        found[label] = report
    return found


def pictures() -> Iterator[tuple[str, Picture]]:
    """The picture of each step that has one, with its file's name."""
    for number, step in enumerate(steps()):
        label = next((label for label in step.runs if step.picture in label), None)
        if label is not None:
            yield f"field_{number + 1}", draw(step.runs[label](), f"{PATH[number].title}: {step.picture}")


def page() -> str:
    """The whole page."""
    costs, basic = COSTS[MODEL], measured(0)["`basic`"]
    weight = costs.parameters or costs.hidden**2
    head = HEAD.format(
        costs=MODEL,
        layers=LAYERS,
        batches=BATCHES,
        devices=RANKS,
        weight=f"{weight:,}",
        time=f"{basic.makespan:,.0f}",
        weights=millions(LAYERS * weight),
        activation=millions(costs.hidden * costs.length),
    )
    return "\n".join([head, *(section(number) for number in range(len(PATH))), TAIL])


def section(number: int) -> str:
    """One step: problem, idea, picture, costs, puzzles and papers."""
    step, place = steps()[number], PATH[number]
    picture = f"field_{number + 1}.svg"
    shown = f"[![{place.title}](pictures/{picture})](pictures/{picture})" if step.picture else RING
    rows = [
        "| | time | memory of a device | sent by a device |",
        "|---|---|---|---|",
        *(f"| {label} | {' | '.join(costs)} |" for label, costs in step.costs.items()),
        *(f"| {label} | {' | '.join(figures(report))} |" for label, report in measured(number).items()),
        *([f"| by the formulas | {' | '.join(ring_attention())} |"] if not step.runs else []),
    ]
    puzzles = [track_of(slug).puzzle(slug) for slug in place.slugs]
    papers = dict.fromkeys(source.short for puzzle in puzzles for source in puzzle.sources)
    parts = [
        f"## {number + 1}. {place.title}",
        f"**The problem.** {step.problem}",
        f"**The idea.** {step.idea}",
        shown,
        "\n".join(rows),
        *([step.note] if step.note else []),
        f"**Puzzles:** {', '.join(f'`{slug}`' for slug in place.slugs)}. **Papers:** {'; '.join(papers)}.",
    ]
    return "\n\n".join(part if "|" in part or part == RING else fill(part, 120) for part in parts) + "\n"


def figures(report: Report) -> tuple[str, str, str]:
    """Time, memory and what is sent, as a row shows them."""
    sent = f"{millions(report.traffic)} M" if report.traffic else "nothing"
    return f"{report.makespan:,.0f} us", f"{millions(report.peak.memory)} M", sent


def ring_attention() -> tuple[str, str, str]:
    """The costs of the step without a schedule, by its formulas."""
    costs = COSTS[MODEL]
    weights, activations = LAYERS * costs.hidden**2, LAYERS * BATCHES * costs.hidden * costs.length
    sent = (6 * activations + 2 * weights) * (RANKS - 1) // RANKS
    time = measured(0)["`basic`"].makespan / RANKS
    return f"{time:,.0f} us", f"{millions(3 * weights + activations // RANKS)} M", f"{millions(sent)} M"


def millions(elements: int) -> str:
    """Millions, with one digit."""
    return f"{elements / 1e6:,.1f}"


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
