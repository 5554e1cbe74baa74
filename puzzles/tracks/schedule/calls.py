"""The calls of a Model in a line or two each, read off the Model itself so that they cannot drift apart."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from lib import Model


def reminder(names: Iterable[str]) -> list[tuple[str, str]]:
    """For each method its call, as a player writes it, and the first paragraph of its docstring."""
    return [(_call(name), _first_paragraph(getattr(Model, name))) for name in names]


def _call(name: str) -> str:
    signature = inspect.signature(getattr(Model, name))
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name != "self"]
    waits = "await " if str(signature.return_annotation).startswith("Coroutine") else ""
    arguments = inspect.Signature(parameters)
    return f"{waits}model.{name}{arguments}"


def _first_paragraph(method: object) -> str:
    return " ".join((inspect.getdoc(method) or "").partition("\n\n")[0].split())
