"""Plans on the terminal: the time, the traffic and the memory of each.

Decided here are the tables and their units: seconds, GB for traffic, and GiB for memory. An axis that no plan uses has
no column, so that tables fit a terminal. The figures, ties and verdicts are the plans' own. Sentences below the tables
explain every mark and every heading that is not in the field's usual words.
"""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from lib.ledger.algebra import counted
from lib.planning import Plan, Search
from lib.planning.estimate import KINDS
from lib.planning.job import DAY, GIB, HOUR, Job, goodput, training_seconds
from lib.planning.plans import LEAST_PART, PARTS, VERDICTS, Family, tie_text, time_parts
from lib.planning.split_search import largest, memory_advice
from puzzles.text_lines import print_table, print_wrapped

AXES = ("dp", "pp", "cp", "ep", "tp")
LINKS = {"nvlink": "NVLink", "network": "network", "host": "host"}
GB = 10**9
SHORT = dict(zip(KINDS, ("weights", "grads", "states", "activ.", "ends", "work")))
"""Kinds of memory, as headings."""


def report_plans(console: Console, found: Search, by_rank: bool = False) -> None:
    """The job, the fastest plans, their memory, and how many splits there were; of the fastest each rank's memory, if
    it is asked for."""
    job = found.job
    print_wrapped(console, job_text(job))
    shown = list(dict.fromkeys((*found.best, *found.front)))
    for table in (times(shown), traffic(shown), memory(shown)):
        print_table(console, table)
    if len(found.families) > 1:
        print_table(console, families(found.families))
    for table in (ranks(shown[0]), at_the_peak(shown[0])) if by_rank else ():
        print_table(console, table)
    first = f"Plans 1 to {len(found.best)} are the fastest." if len(found.best) > 1 else "Plan 1 is the fastest."
    if tie := tie_text(shown):
        print_wrapped(console, tie)
    print_wrapped(
        console,
        f"Splits that divide the job: {found.considered:,}. Splits that may fit the {job.gpu.usable / GIB:.1f} GiB of "
        f"a GPU: {found.fitting:,}. Estimated: {found.estimated:,}. {first} A plan with * is on "
        "the front: every faster one needs more memory. Memory is a range, from fused code (low) to eager code with "
        'allocator fragmentation (high). "depends" means that only the low end of the range fits.'
        + (" s/step is the time of compiled code, eager that of eager code." if job.kernels == "pytorch" else "")
        + (" The optimizer states are in host memory." if shown[0].split.offload == "states" else ""),
    )


def job_text(job: Job) -> str:
    return (
        f"{job.model.name} ({job.model.weights / 10**9:.1f}B parameters) on {job.gpus:,} {job.gpu.name}: "
        f"{counted(job.batch, 'sequence')} of {counted(job.sequence, 'token')} a step, {job.flops:.3g} flops."
    )


def report_config(console: Console, plan: Plan) -> None:
    """One plan: its tables, where its time goes, and whether it fits."""
    print_wrapped(console, job_text(plan.job))
    for table in (times([plan]), traffic([plan]), memory([plan]), parts(plan)):
        print_table(console, table)
    usable = f"{plan.job.gpu.usable / GIB:.1f} GiB of {plan.job.gpu.name}"
    print_wrapped(
        console,
        {
            VERDICTS[0]: f"It fits the {usable}.",
            VERDICTS[1]: f"It fits the {usable} with fused kernels, not in eager mode.",
            VERDICTS[2]: f"It does not fit the {usable}; {memory_advice(plan.job, plan.split)}.",
        }[plan.verdict],
    )


def report_training(
    console: Console, plan: Plan, mtbf_hours: float | None, bandwidth: float, tokens: float | None
) -> None:
    """With failures the share of time that trains, and how long a number of tokens takes."""
    share = 1.0
    if mtbf_hours is not None:
        found = goodput(plan.job, mtbf_hours, bandwidth)
        share = found.share
        print_wrapped(
            console,
            f"The cluster fails every {found.between_failures / HOUR:.1f} hours. A checkpoint takes "
            f"{found.checkpoint:.1f} s; write one every {found.interval / 60:.1f} minutes (Young, Daly), and "
            f"{share:.1%} of the time trains.",
        )
    if tokens is not None:
        seconds = training_seconds(plan.job, plan.seconds, tokens, share)
        print_wrapped(
            console,
            f"{tokens:,.0f} tokens with plan 1 take {seconds / DAY:,.1f} days, "
            f"{plan.job.gpus * seconds / HOUR:,.0f} GPU hours.",
        )


def parts(plan: Plan) -> Table:
    table = _table("time", "s", "share")
    for name, seconds in time_parts(plan).items():
        if seconds >= LEAST_PART * plan.seconds:
            table.add_row(PARTS[name], f"{seconds:.3f}", f"{seconds / plan.seconds:.1%}")
    return table


def report_largest(console: Console, plan: Plan, what: str) -> None:
    """The largest job that the split of a plan fits."""
    for larger, code in zip(largest(plan.job, plan.split, what), ("eager", "fused")):
        job = larger.job
        size = {
            "batch": f"{counted(job.batch, 'sequence')}, microbatch {larger.split.microbatch}",
            "sequence": counted(job.sequence, "token"),
            "model": f"{counted(job.model.layers, 'layer')}, {job.model.weights / 10**9:.1f}B parameters",
        }[what]
        sizes = f"{larger.low / GIB:.1f} to {larger.high / GIB:.1f} GiB"
        print_wrapped(console, f"The largest {what} that fits in {code} code with split 1: {size} ({sizes}).")


def times(plans: Sequence[Plan]) -> Table:
    """The splits and their time. An axis that none of them uses has no column."""
    axes = [axis for axis in AXES if any(getattr(plan.split, axis) > 1 for plan in plans)]
    eager = ["eager"] if any(plan.job.kernels == "pytorch" for plan in plans) else []
    table = _table("", *axes, "ZeRO", "schedule", "micro", "recompute", "s/step", *eager, "MFU", "bubble")
    front = _front(plans)
    for number, plan in enumerate(plans, 1):
        split = plan.split
        table.add_row(
            str(number) + ("*" if plan in front else ""),
            *(str(getattr(split, axis)) for axis in axes),
            str(split.zero) + (f"/{split.shards}" if split.shards else ""),
            split.order_text,
            str(split.microbatch),
            split.recompute_text if split.recompute != "none" else "",
            f"{plan.seconds:.3f}",
            *(f"{plan.eager_seconds:.3f}" for _ in eager),
            f"{plan.mfu:.1%}",
            f"{plan.bubble:.1%}",
        )
    return table


def families(found: Sequence[Family]) -> Table:
    """The fastest of each kind of split, by the estimate."""
    table = _table("best of its kind", "split", "s/step", "against", "GiB")
    for one in found:
        share = f"{one.seconds / found[0].seconds:.2f}x"
        axes = [f"{axis}{getattr(one.split, axis)}" for axis in AXES if getattr(one.split, axis) > 1] or ["dp1"]
        again = [one.split.recompute_text] if one.split.recompute != "none" else []
        split = " ".join([*axes, f"mb{one.split.microbatch}", *again])
        table.add_row(one.name, split, f"{one.seconds:.3f}", share, f"{one.peak / GIB:.1f}")
    return table


def traffic(plans: Sequence[Plan]) -> Table:
    """GB that a GPU sends in a step, by link, and tokens per second of all GPUs."""
    table = _table("GB sent", *LINKS.values(), "tokens/s")
    for number, plan in enumerate(plans, 1):
        sent = (f"{plan.by_link[link] / GB:.1f}" for link in LINKS)
        table.add_row(str(number), *sent, f"{plan.tokens_per_second:,.0f}")
    return table


def memory(plans: Sequence[Plan]) -> Table:
    """GiB of the fullest GPU in fused code, by kind, and the range up to eager code with its verdict."""
    table = _table("GiB", *SHORT.values(), "low", "high", "")
    for number, plan in enumerate(plans, 1):
        kinds = (f"{plan.memory[kind] / GIB:.1f}" for kind in SHORT)
        verdict = dict(zip(VERDICTS, ("", "depends", "does not fit")))[plan.verdict]
        table.add_row(str(number), *kinds, f"{plan.peak / GIB:.1f}", f"{plan.high / GIB:.1f}", verdict)
    return table


def ranks(plan: Plan) -> Table:
    """GiB of each rank of a plan's pipeline, by kind."""
    table = _table("rank", "layers", *SHORT.values(), "low", "high")
    for rank in plan.ranks:
        kinds = (f"{rank.low[kind] / GIB:.1f}" for kind in SHORT)
        table.add_row(str(rank.rank), str(rank.layers), *kinds, f"{rank.peak / GIB:.1f}", f"{rank.high / GIB:.1f}")
    return table


def at_the_peak(plan: Plan) -> Table:
    """What lives on the fullest rank of a plan at its peak."""
    rank = plan.fullest
    table = _table(f"GiB on rank {rank.rank}", "", "", title=f"The peak of plan 1, as {rank.operation} starts")
    for one in rank.held:
        table.add_row(f"{one.bytes / GIB:.2f}", f"{one.number:,} x" if one.number > 1 else "", one.what)
    return table


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


def _table(first: str, *columns: str, title: str | None = None) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, title=title, title_justify="left")
    table.add_column(first, style="bold", no_wrap=True)
    for column in columns:
        table.add_column(
            column, justify="left" if column in ("schedule", "recompute", "split", "") else "right", no_wrap=True
        )
    return table
