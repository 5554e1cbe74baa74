"""Plans training on clusters: how to split a model over GPUs, each split played in the ledger.

from lib.planning import Job, Split, gpu, plan, search, transformer

job = Job(transformer("llama-3-70b"), gpu("h100"), gpus=512, batch=512)
found = search(job)                       # the fastest splits that fit, and the front of time and memory
mine = plan(job, Split(dp=16, pp=4, tp=8))

Times are seconds, sizes bytes, flops and tokens. The costs are the ledger's: what a plan states is a run.
"""

from .gpus import Gpu
from .job import Job
from .plans import Plan, plan
from .presets import gpu, transformer
from .split import Split
from .split_search import Search, search
from .transformers import Transformer

__all__ = ["Gpu", "Job", "Plan", "Search", "Split", "Transformer", "gpu", "plan", "search", "transformer"]
