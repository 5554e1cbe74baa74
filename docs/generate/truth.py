"""Writes docs/truth.md, what papers state about schedules beside what our runs measure: `make docs`."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from docs.generate import published
from tests.oracles.truth import CLAIMS, MODELS, REPLICAS, TABLE_1, Transformer, states_held
from tests.oracles.truth_runs import Claim

FILE = Path(__file__).parents[1] / "truth.md"

HEAD = """\
# What the rules reproduce

{first}

Papers state the time and the memory of a schedule. Here are their formulas, and the figures of our runs: the
schedules of `lib.pipelines`, executed by the runtime and judged by the referee. Each line agrees exactly. The tests
(`tests/planning/test_truth.py`) compare many more sizes than are shown, and compare this page too. The last chapter
is different: it compares step times that others have measured with the planner's predictions.

p ranks (r counts them from 0), m microbatches, v chunks of a rank. F is a forward, I and W are the halves of backward
that yield the gradient of the input and of the weights, and B = I + W is the full backward. Zero Bubble calls our I
"B"; DeepSeek's B is the full backward, like ours. Communication and updates take no time.

```python
from lib import inflight, run
from lib.pipelines import one_f_one_b, pipeline

trace = run(pipeline(one_f_one_b), layers=4, batches=4, ranks=4).trace
print(inflight(trace))
print(one_f_one_b(2, 3))
```

```text
(4, 3, 2, 1)
0F0 0F1 0B0 0F2 0B1 0B2
1F0 1B0 1F1 1B1 1F2 1B2
```
"""

CHAPTERS = {
    "time": (
        "Time",
        """\
A *bubble* is the longest span (a rank's time from the start of its first operation to the end of its last) less the
work in it, as in Zero Bubble; `Report.span` is that span. GPipe's bubble rate is idle time over all time, Megatron's is
idle over ideal time: `Report.bubble` is the former. DualPipeV computes a forward and a backward at once (F&B). Here
a rank does not compute two operations at once, so such a slot computes one after the other, and its results are sent
after both: it takes F + B = 3.

Sources: Huang et al. 2019 (GPipe); Narayanan et al. 2019 (PipeDream, 1F1B) and 2021 (Megatron-LM, interleaved);
Lamy-Poirier 2022 (breadth-first); Qi et al. 2024 (Zero Bubble; the order of ZB-V is from PyTorch's
`ScheduleZBVZeroBubble`); DeepSeek-AI, github.com/deepseek-ai/DualPipe (DualPipeV; its README has the formula).""",
    ),
    "memory": (
        "Activations in flight",
        """\
The most that rank r holds: a microbatch of a chunk counts 1 (M_B) from its forward to the input half of its backward,
and then M_W to the weight half, which frees it. `lib.inflight` counts this in the order of a rank's program. The ZB-H
rows are shown with M_W = M_B/4; the two V schedules count M_W = M_B.

Sources: as above; M_B and M_W are defined in Qi et al. 2024, 2.3.""",
    ),
    "frontier": (
        "Two directions, controlled memory, older weights, shares of tokens and outer steps",
        """\
A schedule in two directions has each stage on two ranks. In 2BW weights are one version older than the data, so that a
step begins while the one before goes on. A share is one of k equal parts of a sequence, whose cost is equal because
attending is free in these rows. A is an activation, kv the keys and values of a microbatch. In DiLoCo p replicas train
alone for H steps, which the column of sizes calls m. In Streaming DiLoCo m fragments of four layers take turns, and an
average comes one step late. In ZeRO-Offload's row, n steps train m microbatches; a step copies a gradient down and a
weight up.

Sources: DeepSeek-AI, github.com/deepseek-ai/DualPipe, README and code (DualPipe: bubble, activations, parameters and
order). Qi et al. 2024, Controllable Memory: the table that its authors publish with their code (V-Half, V-Min). Li and
Hoefler 2021 (Chimera): public texts quote from its table the bubble ratio (D - 2)/(2N + D - 2) and activations of
D/2 + 1 to D, which give these rows; we have not compared the paper itself. Jacobs et al. 2023 (Ulysses): public texts
quote 4Nh/P for the forward of a layer. Our row is twice that with kv = 2A, less the share (P - 1)/P that stays; the
paper itself is not compared. Not compared either: Sun et al. 2024 (Seq1F1B), Narayanan et al. 2021 (2BW), Liu et al.
2023 (ring attention), Brandon et al. 2023 (zigzag), Douillard et al. 2023 and 2025 (DiLoCo, Streaming DiLoCo), Ren et
al. 2021 (ZeRO-Offload), Thakur et al. 2005 (broadcast and reduce). These formulas follow from their definitions.

The step of V-Half and V-Min is the best that a search finds under a cap of k chunks; it is no formula of the paper. The
weight of 2BW is for more microbatches than ranks; with as many, rank 0 holds two. Yeung et al. 2024 state p + 1 for a
head cut by vocabulary (algorithm 2); our order is the reference of `vocab_parallel`, whose stages have two blocks.

A public text quotes Hanayo's bubble ratio as (2P - 2)/(3PW + P - 1) for B = 2F. Our order is Chimera's with the way
back on the same ranks. Its bubble is the quoted numerator, and its ratio (2P - 2)/(3PW + 2P - 2): the bubble over work
and bubble. The paper itself is not compared.""",
    ),
    "gathers": (
        "Pipelines with sharded weights",
        """\
All-gathers of a rank that holds the full weights of one layer at a time: two stages on each of two ranks (v = 2), with
weights sharded over two replicas. The paper states that breadth-first needs the same number for any m, and depth-first
more with every microbatch; the numbers for this size are counted by hand.

Source: Lamy-Poirier 2022.""",
    ),
    "states": (
        "Weights, gradients and optimizer states",
        """\
Bytes for each of Y parameters on N ranks: a weight and a gradient take 2, Adam's states with the weight in 32 bits 12.
They are counted before a rank's second microbatch, when it holds all gradients; in stage 3 before the first update,
when no layer is gathered. Temporary values of one layer (a gathered weight, a gradient that is not yet
scattered) come on top; the paper's table leaves them out, as we do here.

Source: Rajbhandari et al. 2020 (ZeRO), Table 1. GB are 10^9 bytes; the paper rounds some cells and cuts others off.""",
    ),
    "activations": (
        "Activations of large models",
        """\
Bytes on the first rank when the pipeline is full. Our part is the number of layers whose activations it keeps (1F1B: L,
interleaved: more), and with sequence parallelism the share of each, 1/t. The bytes of a layer are the paper's: s
tokens, b sequences, a heads, hidden size h, t ranks of tensor parallelism. Without interleaving the last factor is 1.

Source: Korthikanti et al. 2022, with its models; the slow tests add the models with 530B and 1T. GiB are 2^30
bytes.""",
    ),
    "sent": (
        "Bytes sent",
        """\
What each of n ranks sends with ring algorithms, as a share of the full tensor.

Source: Patarasuk and Yuan 2009.""",
    ),
}


def page() -> str:
    """The whole page."""
    chapters = [f"## {title}\n\n{text}\n\n{table(name)}" for name, (title, text) in CHAPTERS.items()]
    return "\n".join([HEAD.replace("{first}", published.first_line()), *chapters, published.chapter()])


def table(name: str) -> str:
    """The claims of a chapter, each at one size; of ZeRO and of the large models also the cells."""
    rows = ["| what | formula | at | published | ours |", "|---|---|---|---|---|"]
    rows += [row(name, claim) for claim in CLAIMS[name]]
    more = {"states": zero_cells, "activations": model_cells}.get(name)
    return "\n".join(rows) + "\n" + (f"\n{more()}" if more else "")


def row(name: str, claim: Claim) -> str:
    sizes = claim.shown
    unit = GIB if name == "activations" else 1
    values = [shown(made(*sizes), unit) for made in (claim.published, claim.ours)]
    return f"| {claim.what} | {claim.formula} | {at(name, sizes, claim.letters)} | {values[0]} | {values[1]} |"


GIB = 2**30


def at(name: str, sizes: tuple[Any, ...], letters: str = "pmv") -> str:
    """The sizes of a row: 'p = 4, m = 8, F, I, W = 1, 1, 1'."""
    first = sizes[0]
    if isinstance(first, Transformer):
        return first.name
    if len(sizes) == 1:
        return f"{ {'gathers': 'm', 'states': 'N', 'sent': 'n', 'frontier': 'p'}[name] } = {first}"
    numbers = [f"{letter} = {size}" for letter, size in zip(letters, [size for size in sizes if isinstance(size, int)])]
    return ", ".join(numbers + ["F = I = W = 1"] * any(isinstance(size, tuple) for size in sizes))


def shown(value: Any, unit: int = 1) -> str:
    """A number, or one for each rank."""
    if isinstance(value, tuple):
        return ", ".join(shown(one, unit) for one in value)
    number = Fraction(value) / unit
    return f"{float(number):.6g}"


def zero_cells() -> str:
    """Table 1 of the paper, and ours beside it."""
    lines = ["GB, published / ours:", "", "| parameters | N | stage 1 | stage 2 | stage 3 |", "|---|---|---|---|---|"]
    for parameters, rows in TABLE_1.items():
        for n, cells in zip(REPLICAS, rows):
            ours = [float(states_held(zero, n) * parameters / 10**9) for zero in (1, 2, 3)]
            pairs = " | ".join(f"{cell} / {value:.6g}" for cell, value in zip(cells, ours))
            lines.append(f"| {parameters / 10**9:g}B | {n} | {pairs} |")
    return "\n".join(lines) + "\n"


def model_cells() -> str:
    """What the first rank of each model keeps."""
    none, both = CLAIMS["activations"]
    lines = ["GiB, ours:", "", "| model | t | p | v | no recomputation | both |", "|---|---|---|---|---|---|"]
    for model in MODELS[:2]:
        values = " | ".join(f"{float(claim.ours(model) / GIB):.2f}" for claim in (none, both))
        lines.append(f"| {model.name} | {model.t} | {model.p} | {model.v} | {values} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    published.write()
    FILE.write_text(page(), encoding="utf-8")
