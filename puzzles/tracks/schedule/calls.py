"""The calls of a Model in a line or two each, read off the Model itself so that they cannot drift apart."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from lib import Model

LEFT_OUT = ("self", "group", "tag", "step", "tier", ("update", "shard"))
"""Parameters that the classic games do not have, or that mean nothing."""


def reminder(names: Iterable[str]) -> list[tuple[str, str]]:
    """For each method its call, as a player writes it, and the first paragraph of its docstring."""
    return [(_call(name), _first_paragraph(getattr(Model, name))) for name in names]


def _call(name: str) -> str:
    signature = inspect.signature(getattr(Model, name))
    shown = [p for p in signature.parameters.values() if p.name not in LEFT_OUT and (name, p.name) not in LEFT_OUT]
    parameters = [p.replace(annotation=p.empty) for p in shown]
    waits = "await " if str(signature.return_annotation).startswith(("Awaitable", "Coroutine")) else ""
    arguments = inspect.Signature(parameters)
    return f"{waits}model.{name}{arguments}"


def _first_paragraph(method: object) -> str:
    return " ".join((inspect.getdoc(method) or "").partition("\n\n")[0].split())
