"""`puzzles costs`: the known cost records, and the prices in one."""

import json

import click

from lib import Costs
from lib.ledger.algebra import counted
from lib.ledger.named_costs import MEANINGS, costs_named
from lib.ledger.setting import record_to_json
from puzzles.screens.screen import print_wrapped
from puzzles.text_lines import print_table

from .shared.params import terminal, usage_errors


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON, to edit and use with --costs FILE.json.")
def costs(name: str | None, as_json: bool) -> None:
    """List the names that --costs takes, or show the prices of one."""
    if name is None:
        if as_json:
            raise click.UsageError("--json prints one record; name it, as in 'puzzles costs parts --json'")
        return show_all()
    with usage_errors():
        record = costs_named(name)
    if as_json:
        click.echo(json.dumps(record_to_json(record), indent=2))
    else:
        show(record)


def show_all() -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, meaning in MEANINGS.items():
        table.add_row(name, meaning)
    print_table(terminal(), table)


def show(record: Costs) -> None:
    console = terminal()
    for line in (f"{record.name}: {MEANINGS[record.name]}.", *facts(record)):
        print_wrapped(console, line)


def facts(record: Costs) -> list[str]:
    """The sizes and prices of a record, each a line."""
    unit = {"us": "Microseconds", "ms": "Milliseconds"}.get(record.time_unit, "Steps")
    prices = (
        (unit, record.ticks),
        (f"{unit} for each call besides", record.calls),
        (f"{unit} for each hop of a ring", record.alpha),
        (f"{unit} between machines", record.ticks_between),
        (f"{unit} for each hop between machines", record.alpha_between),
    )
    tiers = [
        f"The {tier}: {', '.join(f'{name} {record.text(ticks)}' for name, ticks in pair if ticks is not None)} steps."
        for tier, memory in record.tiers.items()
        for pair in [(("offload", memory.offload), ("fetch", memory.fetch), ("update", memory.update))]
        if any(price for _, price in pair)
    ]
    each = unit.lower()[:-1]
    return [
        f"Elements: weight {record.weight:,}, activation {record.activation:,}, "
        f"activation gradient {record.activation_grad:,}.",
        *(
            f"{title}: {', '.join(f'{name} {record.text(ticks)}' for name, ticks in of.items())}."
            for title, of in prices
            if of
        ),
        *(
            f"Elements sent in a {each}{where}: "
            f"{', '.join(f'{name} {float(record.unit / beta):,.0f}' for name, beta in of.items() if beta)}."
            for where, of in (("", record.beta), (" between machines", record.beta_between))
            if of
        ),
        *([f"Operations in a {each}: {record.flops_per_tick * record.unit:,}."] if record.flops_per_tick else []),
        *tiers,
        *([f"An optimizer state: {record.moments} times its weight."] if record.moments > 1 else []),
        *(["Communication overlaps with computation."] if record.overlap else []),
        *([f"A machine has {counted(record.islands, 'rank')}."] if record.islands else []),
    ]
