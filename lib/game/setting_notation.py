"""Writes a setting as JSON fields and reads them, strictly: what is not classic, and nothing else."""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from lib.errors import RuleError, TraceError

from .cost_checks import MAX_DIGITS, checked_int, checked_text
from .costs import CLASSIC, Costs
from .kinds import Kind
from .named_costs import COSTS
from .setting import CLASSIC_SETTING, FIELDS, Setting
from .tiers import Tier
from .words import SAYS

FRACTION = re.compile(rf"[0-9]{{1,{MAX_DIGITS}}}(/[0-9]{{1,{MAX_DIGITS}}})?")

COST_FIELDS = tuple(field.name for field in fields(Costs) if field.init)


def setting_to_json(setting: Setting) -> dict[str, Any]:
    """The fields that are not classic, and always the costs: the name of a known record, or a whole record."""
    written: dict[str, Any] = {"costs": _costs_to_json(setting.costs)}
    for name in FIELDS[1:]:
        content = getattr(setting, name)
        if content != getattr(CLASSIC_SETTING, name):
            written[name] = _WRITTEN.get(name, _as_it_is)(content)
    return written


def _as_it_is(content: Any, _: str = "") -> Any:
    return content


_WRITTEN: Mapping[str, Callable[[Any], Any]] = {
    **{"mesh": dict, "kinds": list, "frozen": list, "mix": str},
    **{"lengths": lambda all: [*map(str, all)]},
}
"""How fields of a setting are written that are no text or number."""


def setting_from_json(data: Mapping[str, Any]) -> Setting:
    """The setting that `setting_to_json` wrote; other keys of `data` are not looked at."""
    given = {name: data[name] for name in FIELDS[1:] if name in data}
    try:
        if "mesh" in given:
            given["mesh"] = tuple(_numbers(given["mesh"], "mesh", minimum=1).items())
        for name, read in (("kinds", checked_text), ("lengths", _fraction)):
            if name in given:
                given[name] = tuple([read(entry, name) for entry in _list(given[name], name)])
        if "mix" in given:
            given["mix"] = _fraction(given["mix"], "mix")
        if "frozen" in given:
            given["frozen"] = _list(given["frozen"], "frozen")
        return Setting(costs_from_json(data.get("costs")), **given)
    except (RuleError, TypeError) as why:
        raise TraceError(SAYS("impossible setting", why=why)) from None


def _costs_to_json(costs: Costs) -> Any:
    if COSTS.get(costs.name) == costs:
        return costs.name
    return record_to_json(costs)


def record_to_json(costs: Costs) -> dict[str, Any]:
    """A full cost record: its name, and what is not classic."""
    written: dict[str, Any] = {"name": costs.name}
    for name in COST_FIELDS[1:]:
        content = getattr(costs, name)
        if content != getattr(CLASSIC, name):
            written[name] = _plain(content) if isinstance(content, Mapping) else content
    return written


def _plain(prices: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): _plain_price(price) for name, price in prices.items()}


def _plain_price(price: Any) -> Any:
    if isinstance(price, Kind):
        return [*price[:3], _plain(price.ticks)]
    return str(price) if isinstance(price, Fraction) else list(price) if isinstance(price, tuple) else price


def costs_from_json(given: Any) -> Costs:
    """Costs by the name of a known record, or as a full record."""
    if isinstance(given, str) and given in COSTS:
        return COSTS[given]
    if not isinstance(given, dict):
        raise TraceError(SAYS("unknown costs read", got=given, known=", ".join(COSTS)))
    if unknown := set(given) - set(COST_FIELDS):
        raise TraceError(SAYS("unknown fields", fields=", ".join(sorted(unknown)), known=", ".join(COST_FIELDS)))
    if not isinstance(given.get("name"), str):
        raise TraceError(SAYS("costs without name"))
    try:
        return Costs(**{name: READ.get(name, _as_it_is)(content, name) for name, content in given.items()})
    except RuleError as why:
        raise TraceError(SAYS("impossible costs", why=why)) from None


def _numbers(given: Any, name: str, minimum: int = 0) -> Mapping[str, int]:
    return _read_each(given, name, lambda price: checked_int(price, name, minimum))


def _fractions(given: Any, name: str) -> Mapping[str, Fraction]:
    return _read_each(given, name, lambda price: _fraction(price, name))


def _fraction(given: Any, name: str) -> Fraction:
    if isinstance(given, str) and FRACTION.fullmatch(given) and not re.search("/0+$", given):
        return Fraction(given)
    raise TraceError(SAYS("unreadable fraction", name=name, got=given))


def _tiers(given: Any, name: str) -> Mapping[str, Tier]:
    def read(tier: Any) -> Tier:
        if not isinstance(tier, list) or len(tier) != len(Tier._fields):
            raise TraceError(SAYS("unreadable tier", fields=", ".join(Tier._fields), got=tier))
        return Tier(*tier)

    return _read_each(given, name, read)


def _kinds(given: Any, name: str) -> Mapping[str, Kind]:
    def read(kind: Any) -> Kind:
        if not isinstance(kind, list) or len(kind) != len(Kind._fields):
            raise TraceError(SAYS("unreadable kind", fields=", ".join(Kind._fields), got=kind))
        weight, inp, out, ticks = kind
        return Kind(weight, inp, out, _numbers(ticks, name))

    return _read_each(given, name, read)


def _slow(given: Any, name: str) -> Mapping[int, Fraction]:
    factors = _fractions(given, name)
    for rank in factors:
        if not re.fullmatch("0|[1-9][0-9]{0,8}", rank):
            raise TraceError(SAYS("not by rank", name=name, got=rank))
    return {int(rank): factor for rank, factor in factors.items()}


def _list(given: Any, name: str) -> list[Any]:
    if not isinstance(given, list):
        raise TraceError(SAYS("unreadable list", name=name, got=given))
    return given


def _read_each(given: Any, name: str, read: Callable[[Any], Any]) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise TraceError(SAYS("unreadable object", name=name, got=given))
    return MappingProxyType({key: read(price) for key, price in given.items()})


READ: Mapping[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("ticks", "calls", "alpha", "ticks_between", "alpha_between"), _numbers),
    **dict.fromkeys(("beta", "beta_between"), _fractions),
    "tiers": _tiers,
    "kinds": _kinds,
    "slow": _slow,
}
"""By field of a cost record that maps names to prices: what reads it. The record itself checks the others."""
