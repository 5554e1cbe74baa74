"""Plans on the terminal: the time, the traffic and the memory of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from lib.planning import Plan, Search
from lib.planning.job import GIB, Job
from lib.planning.measure import KINDS

from .paragraphs import print_wrapped

AXES = ("dp", "pp", "cp", "ep", "tp")
LINKS = {"nvlink": "NVLink", "network": "network", "host": "host"}
GB = 10**9


def report_plans(console: Console, found: Search) -> None:
    """The job, the fastest plans, their memory, and how many splits there were."""
    job = found.job
    print_wrapped(console, job_text(job))
    shown = list(dict.fromkeys((*found.best, *found.front)))
    for table in (times(shown), traffic(shown), memory(shown)):
        console.print(table)
    print_wrapped(
        console,
        f"{found.considered:,} splits divide the job, and {found.fitting:,} of them may fit the "
        f"{job.gpu.usable / GIB:.1f} GiB of a GPU. {found.estimated:,} were estimated, and the {len(shown)} above were "
        f"played. The first {len(found.best)} are the fastest. * marks the front: what is faster needs more memory."
        + (" The optimizer's states are on the host." if shown[0].split.offload == "states" else ""),
    )


def job_text(job: Job) -> str:
    """What is planned, in one sentence."""
    return (
        f"{job.model.name} ({job.model.weights / 10**9:.1f}B parameters) on {job.gpus:,} {job.gpu.name}: "
        f"{job.batch:,} sequences of {job.sequence:,} tokens a step, {job.flops:.3g} flops."
    )


def times(plans: Sequence[Plan]) -> Table:
    """The splits and their time. An axis that none of them uses has no column."""
    axes = [axis for axis in AXES if any(getattr(plan.split, axis) > 1 for plan in plans)]
    table = _table("", *axes, "ZeRO", "schedule", "micro", "recompute", "s/step", "MFU", "bubble")
    front = _front(plans)
    for name, plan in numbered(plans):
        split = plan.split
        table.add_row(
            name + ("*" if plan in front else ""),
            *(str(getattr(split, axis)) for axis in axes),
            str(split.zero),
            split.order_text,
            str(split.microbatch),
            split.recompute if split.recompute != "none" else "",
            f"{plan.seconds:.3f}",
            f"{plan.mfu:.1%}",
            f"{plan.bubble:.1%}",
        )
    return table


def traffic(plans: Sequence[Plan]) -> Table:
    """GB that a GPU sends in a step, by link, and tokens per second of all GPUs."""
    table = _table("GB sent", *LINKS.values(), "tokens/s")
    for name, plan in numbered(plans):
        sent = (f"{plan.by_link[link] / GB:.1f}" for link in LINKS)
        table.add_row(name, *sent, f"{plan.tokens_per_second:,.0f}")
    return table


def memory(plans: Sequence[Plan]) -> Table:
    """GiB of the fullest GPU, by kind."""
    table = _table("GiB", *KINDS, "all")
    for name, plan in numbered(plans):
        table.add_row(name, *(f"{plan.memory[kind] / GIB:.1f}" for kind in KINDS), f"{plan.peak / GIB:.1f}")
    return table


def numbered(plans: Sequence[Plan]) -> Iterator[tuple[str, Plan]]:
    """Each plan with its number."""
    yield from zip(map(str, count(1)), plans)


def _front(plans: Sequence[Plan]) -> list[Plan]:
    return [
        plan
        for plan in plans
        if not any(
            other.seconds <= plan.seconds and other.peak <= plan.peak
            for other in plans
            if (other.seconds, other.peak) != (plan.seconds, plan.peak)
        )
    ]


def _table(first: str, *columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column(first, style="bold", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="left" if column in ("schedule", "recompute") else "right", no_wrap=True)
    return table
