"""A plan as code of a framework, by its name."""

from collections.abc import Callable, Mapping

from lib.layout.errors import LayoutError
from lib.layout.layouts.checks import nearest_name
from lib.layout.planning.plan import GraphPlan

from .jax_code import jax_code
from .plain import mindspore_code, plan_json
from .torch_code import torch_code

WRITERS: Mapping[str, Callable[[GraphPlan], str]] = {
    "jax": jax_code,
    "torch": torch_code,
    "mindspore": mindspore_code,
    "json": plan_json,
}
"""By name."""


def code_of(plan: GraphPlan, framework: str) -> str:
    """The plan as a program of "jax", DTensor placements for "torch", `shard` calls for "mindspore", or "json".

    Raises:
        LayoutError: there is no such framework, or the plan cannot be written for it.
    """
    if framework not in tuple(WRITERS):
        raise LayoutError(f"there is no framework {framework!r}; {nearest_name(str(framework), WRITERS)}")
    return WRITERS[framework](plan)
