"""Suggests the name that was meant when a model does not have a name."""

import inspect
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from lib.errors import RuleError, Sentence
from lib.trace.ops import TIMED

from .words import SAYS

OTHER_NAMES = {
    "allreduce": ("reduce", "sum"),
    "allgather": ("gather",),
    "scatterreduce": ("reducescatter", "scatter"),
    "pass_to": ("send", "isend", "sendto", "put", "pass", "passon"),
    "receive": ("recv", "irecv", "receivefrom", "get", "wait"),
    "load_weights": ("load", "loadweight", "getweights", "getweight"),
    "get_activation": ("getactivations", "activation", "input", "getinput"),
    "update": ("step", "optimize", "updateweights", "optimizerstep"),
    "set_final_weight": ("setfinalweights", "finalweight", "final"),
    "rank": ("id", "myrank", "deviceid"),
    "RANKS": ("worldsize", "numranks", "nranks", "size"),
    "LAYERS": ("numlayers", "nlayers"),
    "BATCHES": ("numbatches", "nbatches", "microbatches"),
}
"""For each name of a model, the names that other libraries use, in lower case and without underscores."""


class NoSuchNameError(RuleError, AttributeError):
    """A name that a model does not have; also an AttributeError, as for any object."""


def unknown_name(model: Any, name: str) -> Sentence:
    """The sentence about an unknown name of a model: the call that was probably meant, or all calls."""
    public = [attribute for attribute in dir(model) if not attribute.startswith("_") and _exists(model, attribute)]
    calls = [attribute for attribute in public if inspect.isroutine(getattr(model, attribute))]
    near = meant(name, (*public, *OTHER_NAMES), OTHER_NAMES)
    advice = f"write '{_usage(model, near)}'" if near else f"its calls are {', '.join(calls)}"
    return SAYS("no such name", name=name, meant=near, advice=advice)


def _exists(model: Any, name: str) -> bool:
    """True if the model's game has a name. Calls without a price, or without the mesh they need, are missing in some
    games."""
    if name in ("axis", "index"):
        return bool(model.run.mesh.axes)
    return name not in TIMED or model.run.costs.priced(name)


def meant(name: str, known: Iterable[str], other_names: Mapping[str, Iterable[str]] = MappingProxyType({})) -> str:
    """The known name that is nearest to another one, also by the names that other libraries use; empty if none is."""
    from difflib import get_close_matches  # here, because only a refusal needs it

    plain = _plain(name)
    by_name = {_plain(one): one for one in known}
    for one, others in other_names.items():
        by_name.update(dict.fromkeys(others, one))
    near = get_close_matches(plain, by_name, n=1, cutoff=0.75)
    return by_name[near[0]] if near else ""


def _plain(name: str) -> str:
    return re.sub("_|async$", "", name.lower())


def _usage(model: Any, name: str) -> str:
    """How a player writes a name of a model, with required arguments: 'await model.allgather(v, layer)',
    'model.RANKS'."""
    method = getattr(model, name)
    if not inspect.isroutine(method):
        return f"model.{name}"
    signature = inspect.signature(method)
    required = [parameter.name for parameter in signature.parameters.values() if parameter.default is parameter.empty]
    waits = "await " if re.search("Awaitable|Coroutine", str(signature.return_annotation)) else ""
    return f"{waits}model.{name}({', '.join(required)})"
