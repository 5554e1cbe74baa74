"""The option for the limits of a graded run, and its old words, one for each limit."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from puzzles.sandbox.limits import MIB, Limits

from .params import Bytes, Seconds

C = TypeVar("C", bound=Callable[..., Any])

DEFAULT = Limits()
KINDS: dict[str, click.ParamType] = {  # type: ignore[type-arg]  # generic only in newer clicks
    "time": Seconds(),
    "memory": Bytes(),
    "output": Bytes(),
    "files": Bytes(),
    "processes": click.IntRange(1, 10_000),
}
"""What each limit is, by its name, in the order of the fields of `Limits`."""

DEFAULTS = (
    f"time={DEFAULT.seconds:g}s, memory={DEFAULT.memory // MIB}M, output={DEFAULT.output // MIB}M, "
    f"files={DEFAULT.files // MIB}M, processes={DEFAULT.processes}"
)

OLD_WORDS = ("--time-limit", "--memory-limit", "--output-limit", "--file-limit", "--process-limit")
"""In the order of `KINDS`; for one release."""


class LimitText(click.ParamType):  # type: ignore[type-arg]  # as above
    """A limit with its value: time=10s."""

    name = "limit"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        name, _, text = value.partition("=")
        if name not in KINDS or not text:
            self.fail(f"'{value}' is not a limit; the limits are {DEFAULTS}", param, ctx)
        return name, KINDS[name].convert(text, param, ctx)


def limit_option(command: C) -> C:
    """Adds `--limit`, and the old words as hidden options."""
    for name, word in zip(KINDS, OLD_WORDS):
        command = click.option(word, f"limit_{name}", type=KINDS[name], hidden=True)(command)
    words = f"Limit of a run; may be repeated.  [default: {DEFAULTS}]"
    added: C = click.option("--limit", "limits", metavar="time=10s", type=LimitText(), multiple=True, help=words)(
        command
    )
    return added


def limits_from(options: Mapping[str, Any]) -> Limits:
    """The limits that the options of a command ask for; of a limit that is named twice, the last one."""
    chosen: dict[str, Any] = dict(zip(KINDS, DEFAULT))
    chosen |= {name: options[f"limit_{name}"] for name in KINDS if options[f"limit_{name}"] is not None}
    return Limits(*(chosen | dict(options["limits"])).values())
