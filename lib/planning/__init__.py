"""Training jobs: how to split a model over the GPUs of a cluster, each split counted by the ledger's rules.

from lib.planning import Job, Split, gpu, plan, search, transformer

job = Job(transformer("llama-3-70b"), gpu("h100"), gpus=512, batch=512)
found = search(job)                       # the fastest splits that fit, and the front of time and memory
mine = plan(job, Split(dp=16, pp=4, tp=8))

Times are seconds, sizes bytes, flops and tokens. The costs and rules are the ledger's: what a plan states is what a run
of its schedule takes.
"""

from typing import TYPE_CHECKING, Any

from .job import Gpu, Job, Transformer
from .presets import gpu, transformer
from .split import Prediction, Split

if TYPE_CHECKING:
    from .plans import Plan, plan
    from .split_search import Search, search

__all__ = ["Gpu", "Job", "Plan", "Prediction", "Search", "Split", "Transformer", "gpu", "plan", "search", "transformer"]


def __getattr__(name: str) -> Any:
    """Loads the planner on demand: a plan puzzle is graded without it."""
    if name in ("Plan", "plan"):
        from .plans import Plan, plan  # noqa: F401  # it is returned by its name
    elif name in ("Search", "search"):
        from .split_search import Search, search  # noqa: F401  # as above
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return locals()[name]
