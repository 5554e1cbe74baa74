"""Training jobs: how to split a model over the GPUs of a cluster, each split counted by the ledger's rules.

from lib.planning import Job, Split, gpu, plan, search, transformer

job = Job(transformer("llama-3-70b"), gpu("h100"), gpus=512, batch=512)
found = search(job)                       # the fastest splits that fit, and the front of time and memory
mine = plan(job, Split(dp=16, pp=4, tp=8))

Times are seconds, sizes bytes, flops and tokens. The costs and rules are the ledger's: what a plan states is what a run
of its schedule takes.
"""

from typing import TYPE_CHECKING

from lib import late

from .job import Gpu, Job, Transformer
from .presets import gpu, transformer
from .split import Prediction, Split

if TYPE_CHECKING:
    from .plans import Plan, plan
    from .split_search import Search, search

__all__ = ["Gpu", "Job", "Plan", "Prediction", "Search", "Split", "Transformer", "gpu", "plan", "search", "transformer"]

if not TYPE_CHECKING:  # a type checker should still refuse unknown names
    # a plan puzzle is graded without the planner
    __getattr__, __dir__ = late(__name__, {".plans": "Plan plan", ".split_search": "Search search"})
