"""Tables of known models and GPUs, each with its source; a number may be replaced by another."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from lib.errors import RuleError

from ..job import Gpu, Transformer

P = TypeVar("P", Transformer, Gpu)


@cache
def table(name: str) -> Mapping[str, Mapping[str, Any]]:
    """The rows of models.toml or of gpus.toml, by name."""
    return tomllib.loads(files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def transformer(name: str, **changed: Any) -> Transformer:
    """A known model, some of its numbers replaced.

    Raises:
        RuleError: there is no such model or number; the text has the nearest.
    """
    return _made(Transformer, name, table("models")[nearest(name.lower(), table("models"), "model")], changed)


def gpu(name: str, **changed: Any) -> Gpu:
    """A known GPU, some of its numbers replaced. Errors as in `transformer`."""
    return _made(Gpu, name, table("gpus")[nearest(name.lower(), table("gpus"), "gpu")], changed)


def gpu_of_file(text: str, **changed: Any) -> Gpu:
    """The GPU of a preset file: one table of TOML, as `puzzles plan --calibrate` writes it."""
    return _of_file(Gpu, text, changed)


def transformer_of_file(text: str, **changed: Any) -> Transformer:
    """The model of a preset file: one table, as in models.toml. Errors as in `gpu_of_file`."""
    return _of_file(Transformer, text, changed)


def transformer_of_sizes(name: str, sizes: Mapping[str, Any], **changed: Any) -> Transformer:
    """A model from its sizes, some of them replaced. Errors as in `transformer`."""
    return _made(Transformer, name, sizes, changed)


def _of_file(kind: type[P], text: str, changed: Mapping[str, Any]) -> P:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as why:
        raise RuleError(f"a preset file is TOML: {why}") from None
    known_fields = [field for field in fields(kind) if field.name not in ("name", "source")]
    needed = {field.name for field in known_fields if field.default is MISSING}
    rows = [(name, row) for name, row in tables.items() if isinstance(row, dict)]
    known = {field.name for field in known_fields} | {"source"}
    if len(tables) != 1 or len(rows) != 1 or not needed <= set(rows[0][1]) <= known:
        must, may = (", ".join(sorted(names)) for names in (needed, known - needed))
        raise RuleError(f"a preset file has one table, [my-{_thing(kind)}], with {must}; it may have {may}")
    name, row = rows[0]
    return _made(kind, name, {"source": str(row.pop("source", ""))}, {**row, **changed})


def _thing(kind: type[Transformer | Gpu]) -> str:
    return "model" if kind is Transformer else "gpu"


def _made(kind: type[P], name: str, row: Mapping[str, Any], changed: Mapping[str, Any]) -> P:
    thing = _thing(kind)
    known = {field.name: field for field in fields(kind)}
    for key, given in changed.items():
        nearest(key, known, f"number of a {thing}")
        if isinstance(given, bool) != (known[key].type == "bool") or not isinstance(given, int | float):
            wanted = "true or false" if known[key].type == "bool" else "a number"
            raise RuleError(f"{thing}.{key} must be {wanted}; got {given!r:.60}")
    whole = {key: int(n) if known[key].type == "int" and n % 1 == 0 else n for key, n in changed.items()}
    return kind(**{"name": name.lower(), **row, **whole})


def nearest(name: str, known: Any, thing: str) -> str:
    """`name`, if it is known."""
    if name in known:
        return name
    from difflib import get_close_matches  # here, because only a refusal needs it

    near = get_close_matches(name, known, n=1)
    advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    raise RuleError(f"there is no {thing} {name[:60]!r}; {advice}")
