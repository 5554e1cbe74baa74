"""`puzzles plan`: how to split the training of a model over GPUs, with step time, memory and traffic.

Each part of a split has an option, and what is not given is searched. Options replace what a config file says. A preset
is a name or a file. Numbers may have the units that people write: 4M, 80GiB. Rejected: an interactive dialogue, which
no script can repeat; a config file as the only input, because the question is mostly about one number.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from functools import partial
from math import isinf
from typing import TYPE_CHECKING, Any

import click

from lib import PuzzleError
from lib.ledger.trace import no_collection
from puzzles.text_lines import print_table

from .params import Parsed, colour_option, preset, require_picture, terminal, text_of, usage_errors, write_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from lib.planning import Job, Plan, Transformer

SETTING = re.compile(r"(model|gpu|job)\.(\w+)=(\S+)")
OF_JOB = ("weight", "gradient", "state", "loss_chunks", "imbalance")
"""Numbers of a job that `--set` replaces; others have options."""

OPTIONS_OF_JOB = ("optimizer", "modules", "dispatch", "graphs", "ep_overlap", "balanced", "mtp")
"""Fields of a job that have an option of the same name."""

NUMBER = re.compile(r"(\d+(?:\.\d*)?(?:e\d{1,3})?)\s*([kmgtp]?)(i?)(b?)", re.IGNORECASE)
USUAL_TOKENS = 4 * 2**20
"""Tokens of a step, unless something else is asked for."""


@partial(Parsed, "number")
def amount_text(value: Any) -> Any:
    """A number of tokens, parameters, bytes or flops: 4096, 4M, 80GiB, 312e12."""
    if not isinstance(value, str):
        return value
    try:
        number = amount(value)
    except ValueError:
        raise ValueError(f"'{value}' is not a number; write 4096, 4M, 80GiB or 312e12") from None
    if not number:
        raise ValueError("this must be more than 0")
    return number


def amount(text: str) -> int | float:
    """A number as people write it."""
    found = NUMBER.fullmatch(text.strip())
    if not found:
        raise ValueError(text)
    power = " kmgtp".index(found[2].lower() or " ")
    number = float(found[1]) * (1024 if found[3] else 1000) ** power
    if isinf(number):
        raise ValueError(text)
    return int(number) if number == int(number) else number


@partial(Parsed, "numbers")
def layers_text(value: Any) -> tuple[int, ...]:
    """Layers of each stage, separated by commas."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,6}(,\d{1,6})*", value):
        return tuple(map(int, value.split(",")))
    raise ValueError(f"'{value}' is not a list of whole numbers; write 10,10,11,9")


@partial(Parsed, "names")
def names_text(value: Any) -> tuple[str, ...]:
    """Names, separated by commas."""
    return tuple(value.split(",")) if isinstance(value, str) else value


@click.command()
@click.option("--model", "model", metavar="NAME", help="A known model, such as llama-3-70b, or a preset file.")
@click.option("--gpu", "gpu", metavar="NAME", default="h100", show_default=True, help="A known GPU, or a preset file.")
@click.option("--gpus", type=amount_text, help="How many GPUs.")
@click.option("--batch", type=amount_text, help="Sequences in a step  [default: about 4 million tokens]")
@click.option("--tokens", type=amount_text, help="Tokens in a step, instead of --batch.")
@click.option("--sequence", type=amount_text, help="Tokens of a sequence  [default: the model's]")
@click.option("--tp", type=int, help="Tensor parallel ranks, which share each layer.")
@click.option("--pp", type=int, help="Stages of the pipeline.")
@click.option("--dp", type=int, help="Replicas.")
@click.option("--cp", type=int, help="Context parallel ranks, which share the tokens of a sequence.")
@click.option(
    "--ep", type=int, help="Expert parallel ranks, which share the experts: adjacent ranks along tp, cp and dp."
)
@click.option("--zero", type=int, help="The stage of ZeRO, 0 to 3.")
@click.option("--shards", type=int, help="Replicas that share one set of shards (HSDP); 0 is all.")
@click.option("--schedule", help="1f1b, gpipe, interleaved, breadth_first, zb_h1 or zb_v.")
@click.option("--chunks", type=int, help="Chunks of a stage.")
@click.option(
    "--layers", type=layers_text, metavar="10,10,11,9", help="Layers of each stage, instead of a balanced split."
)
@click.option("--warmup", type=int, help="Forwards on an interleaved pipeline's first rank before a backward.")
@click.option("--microbatch", type=int, help="Sequences of a microbatch.")
@click.option("--recompute", help="What backward computes again: none, selective (attention's core), ops or full.")
@click.option("--every", type=int, help="Recompute only every so many layers, with --recompute full.")
@click.option("--offload", help="What to keep in host memory: none, states or activations.")
@click.option("--sp/--no-sp", default=None, help="Split tokens along tp between the layers  [default: yes]")
@click.option(
    "--modules", type=names_text, metavar="MODULE,...", help="Parts of layers to compute again: moe_act, layernorm."
)
@click.option("--dispatch", help="How tokens are sent to experts: alltoall or dedup (DeepEP, HybridEP).")
@click.option("--graphs", help="What CUDA graphs launch: none, partial or full.")
@click.option("--ep-overlap", is_flag=True, default=None, help="Overlap the experts' all-to-alls with computation.")
@click.option("--balanced", is_flag=True, default=None, help="Force even routing to the experts, as benchmarks do.")
@click.option("--mtp", type=int, help="Multi-token prediction: so many further layers and heads.")
@click.option("--optimizer", help="What updates the layers' matrices: adam or muon  [default: adam]")
@click.option("--kernels", help="Whose kernels run: megatron or pytorch  [default: megatron, or as in --config]")
@click.option("--fp8", is_flag=True, help="Compute the layers' matrix products in 8 bits.")
@click.option("--flash/--no-flash", default=True, show_default=True, help="Never store attention's score matrix.")
@click.option(
    "--overlap/--no-overlap",
    default=True,
    show_default=True,
    help="Overlap the reduction of gradients with computation.",
)
@click.option(
    "--set", "numbers", metavar="model.layers=40", multiple=True, help="Replace a number of the model, GPU or job."
)
@click.option(
    "--best", type=click.IntRange(1, 20), default=3, show_default=True, help="How many of the fastest plans to show."
)
@click.option(
    "--ranks", is_flag=True, help="Show the memory of each rank in the fastest plan, and what its peak consists of."
)
@click.option(
    "--largest",
    type=click.Choice(("batch", "sequence", "model")),
    help="Show the largest sizes that fit with the fastest split.",
)
@click.option("--config", metavar="FILE", help="Plan the split in torchtitan's TOML or in Megatron's flags.")
@click.option(
    "--export",
    "target",
    type=click.Choice(("megatron", "torchtitan", "deepspeed", "fsdp2")),
    help="Write the fastest plan that this program can run.",
)
@click.option(
    "--calibrate", metavar="RUN.json", help="Write a preset for --gpu with the rates of a measured step or layer."
)
@click.option("--mtbf", type=amount_text, help="Hours between failures of one GPU; shows the time spent training.")
@click.option("--checkpoint", type=amount_text, default=100e9, help="Bytes per second of checkpoints  [default: 100GB]")
@click.option("--train", type=amount_text, help="Tokens to train on; shows the days and the GPU hours.")
@click.option("--pareto", metavar="FILE.svg", help="Draw memory against time: .svg, .png or .pdf.")
@click.option(
    "-o", "output", metavar="FILE.html",
    help="Write the timeline of the fastest plan (.html, .svg, .json, .txt) or, with --export, its config.",
)  # fmt: skip
@colour_option
@click.option("--json", "as_json", is_flag=True, help="Print the plans as JSON.")
@click.option("--list", "listed", is_flag=True, help="List the known models and GPUs, with their sources.")
def plan(
    model: str | None, gpu: str, gpus: Any, batch: Any, tokens: Any, sequence: Any, kernels: str | None, fp8: bool,
    flash: bool, overlap: bool, numbers: tuple[str, ...], best: int, ranks: bool, largest: str | None,
    config: str | None, target: str | None, pareto: str | None, output: str | None, colour: str | None,
    as_json: bool, listed: bool, calibrate: str | None, mtbf: Any, checkpoint: Any, train: Any, **choices: Any,
) -> None:  # fmt: skip
    """Plan the training of a model on a cluster.

    Ranks every way to split the model over the GPUs, and shows the fastest plans that fit.
    Options such as --tp or --zero fix a part of the split.

    Times are in seconds. Traffic is what each GPU sends in a step, in GB. Memory is of the fullest GPU, in GiB.
    """
    from lib.planning import search
    from puzzles.screens.plans import report_config, report_largest, report_plans, report_training

    require_picture(colour, None if target else output)
    if listed:
        return list_presets()
    if calibrate is not None:
        from lib.planning.calibration import preset_text, read_run

        with usage_errors():
            measured = read_run(text_of(calibrate))
            return write_text(preset_text(measured, f"{measured.gpu.name}-calibrated"), output)
    if gpus is None or (model is None and config is None):
        raise click.UsageError(
            "name a model and a number of GPUs, as in --model llama-3-70b --gpus 512; --list shows the known models"
        )
    with usage_errors(), no_collection():
        for path, of_a_run in ((pareto, False), (None if target else output, True)):
            if path:
                from drawing import require_ending  # here, since it loads what draws

                require_ending(path, of_a_run=of_a_run)
        fixed = {name: value for name, value in choices.items() if value is not None}
        how = {"kernels": kernels or "megatron", "fp8": fp8, "flash": flash, "overlap": overlap}
        how |= {name: fixed.pop(name) for name in OPTIONS_OF_JOB if name in fixed}
        if config is not None:
            mine = plan_of_config(config, (model, gpu, gpus, batch, tokens, sequence, numbers), how, kernels, fixed)
            plans = [mine]
            if not as_json:
                report_config(terminal(), mine)
        else:
            assert model is not None
            job = job_of(model, gpu, gpus, batch, tokens, sequence, numbers, **how)
            found = search(job, best, **fixed)
            plans = list(dict.fromkeys((*found.best, *found.front)))
            if not (as_json or (target and output is None)):
                report_plans(terminal(), found, ranks)
        if as_json:
            click.echo(json.dumps([as_record(one) for one in plans], indent=2))
        elif largest is not None:
            report_largest(terminal(), plans[0], largest)
        if (mtbf or train) and not as_json:
            report_training(terminal(), plans[0], mtbf, checkpoint, train)
        if target:
            number, text = exported(plans, target)
            write_text(text, output)
            if number > 1:
                click.echo(f"plan {number} is the fastest of these that {target} can be configured with", err=True)
        draw(plans, pareto, None if target else output, colour or "layer")


def exported(plans: list[Plan], target: str) -> tuple[int, str]:
    """The number of the first plan that a program can do, and its config."""
    from lib.planning.configs import export_config

    refusals = []
    for number, one in enumerate(plans, 1):
        try:
            return number, export_config(one.job, one.split, target)
        except PuzzleError as why:
            refusals.append(why)
    raise refusals[0]


def plan_of_config(
    path: str, named: tuple[Any, ...], how: dict[str, Any], kernels: str | None, fixed: dict[str, Any]
) -> Plan:
    """The plan of a config file on a number of GPUs; options replace what it says."""
    from lib.planning import plan as plan_split
    from lib.planning.configs import read_config

    said = read_config(text_of(path))
    model, gpu, gpus, batch, tokens, sequence, numbers = named
    given: tuple[Any, Any] = (batch, tokens) if batch or tokens else (said.batch or None, None)
    how = {
        **said.how,
        **how,
        "kernels": kernels or said.how["kernels"],
        "fp8": how["fp8"] or said.how["fp8"],
        **{name: how[name] and said.how.get(name, True) for name in ("flash", "overlap")},
    }
    job = job_of(model or said.model, gpu, gpus, *given, sequence or said.sequence or None, numbers, **how)
    if said.unread:
        click.echo(f"Not read, though it may change time or memory: {'; '.join(said.unread)}.", err=True)
    if model and (differences := said.differences(replace(job.model, layers=job.model.layers - job.mtp))):
        click.echo(f"Replaced by --model {model}: {', '.join(differences)}.", err=True)
    return plan_split(job, replace(said.split_on(job.gpus), **fixed))


def job_of(
    model: str | Callable[..., Transformer], gpu_name: str, gpus: Any, batch: Any, tokens: Any, sequence: Any,
    numbers: tuple[str, ...], **how: Any,
) -> Job:  # fmt: skip
    from lib.planning import Job, gpu, transformer
    from lib.planning.presets import gpu_of_file, transformer_of_file

    changed: dict[str, dict[str, Any]] = {"model": {}, "gpu": {}, "job": {}}
    for text in numbers:
        found = SETTING.fullmatch(text)
        try:
            if not found:
                raise ValueError(text)
            truth = {"true": True, "false": False}.get(found[3].lower())
            changed[found[1]][found[2]] = amount(found[3]) if truth is None else truth
        except ValueError:
            raise click.UsageError(
                f"--set takes model.NAME=NUMBER, gpu.NAME=NUMBER or job.NAME=NUMBER; got '{text}'"
            ) from None
        if found[1] == "job" and found[2] not in OF_JOB:
            raise click.UsageError(f"--set job.NAME takes {', '.join(OF_JOB)}; got '{text}'. Others have options")
    if isinstance(model, str):
        trained = preset(model, transformer, transformer_of_file, **changed["model"])
    else:
        trained = model(**changed["model"])
    trained = replace(trained, layers=trained.layers + how.get("mtp", 0))
    length = sequence or trained.sequence
    if batch is not None and tokens is not None:
        raise click.UsageError("--batch and --tokens both say how much a step trains; give one")
    if tokens is not None and (not isinstance(tokens, int) or tokens % length):
        near = max(1, round(tokens / length)) * length
        thing = "token" if tokens == 1 else "tokens"
        raise click.UsageError(f"{tokens:,} {thing} cannot be cut into sequences of {length:,}; take {near:,}")
    if batch is None and tokens is None:
        each = gpus if isinstance(gpus, int) and gpus > 0 else 1
        batch = each * max(1, round(USUAL_TOKENS / length / each))
    used = preset(gpu_name, gpu, gpu_of_file, **changed["gpu"])
    return Job(trained, used, gpus, batch or tokens // length, length, **{**how, **changed["job"]})


def as_record(plan: Plan) -> dict[str, Any]:
    """A plan as JSON: seconds, tokens per second, shares, and bytes."""
    return {
        "split": asdict(plan.split),
        "seconds": plan.seconds,
        "eager_seconds": plan.eager_seconds,
        "tokens_per_second": plan.tokens_per_second,
        "mfu": plan.mfu,
        "bubble": plan.bubble,
        "memory": dict(plan.memory),
        "memory_range": [plan.peak, plan.high],
        "verdict": plan.verdict,
        "ranks": [rank.peak for rank in plan.ranks],
        "sent": dict(plan.sent),
        "links": dict(plan.links),
    }


def draw(plans: list[Plan], pareto: str | None, output: str | None, colour: str) -> None:
    """Draws the files that are asked for, and loads what draws only then."""
    if not (pareto or output):
        return
    from drawing import TimedRun, draw_plans, save

    if pareto:
        save(draw_plans(plans), pareto)
    if output:
        fastest = plans[0]
        title = f"{fastest.job.model.name}, {fastest.split}: one replica, in milliseconds"
        save(TimedRun(fastest.trace), output, title, colour=colour)
    for path in (pareto, output):
        if path:
            click.echo(f"wrote {path}", err=True)


def list_presets() -> None:
    from rich.table import Table

    from lib.planning import gpu, transformer
    from lib.planning.presets import table

    shown = Table(box=None, pad_edge=False, show_header=False)
    for style in ("bold", "", "dim"):
        shown.add_column(style=style, overflow="fold")
    for name in table("models"):
        model = transformer(name)
        shown.add_row(name, f"{model.weights / 10**9:.1f}B parameters, {model.layers} layers", model.source)
    for name in table("gpus"):
        one = gpu(name)
        shown.add_row(name, f"{one.flops / 10**12:.0f} teraFLOP/s, {one.memory / 2**30:.0f} GiB", one.source)
    print_table(terminal(), shown)
