"""Words the refusals of splits of a model: a reason, and a sentence over its facts."""

from lib.errors import Sentences

SAYS = Sentences(
    {
        "largest of what": "the largest of what? There are {known}; got {got!r:.40}",
        "axes do not divide": "pp x cp x tp is {inner} in the config, which does not divide {gpus} GPUs",
        "no fp8 setting": "{program} has no setting here for matrix products in 8 bits; leave out fp8, or add them by hand",
        "share above 1": "gpu.{name} is a share, at most 1; got {got!r}",
        "no such kernels": "there are no kernels {got!r:.40}; there are {known}",
        "none of these": "{name} is one of {known}; got {got!r:.40}",
        "no split": "{batch} on {gpus} cannot be split with {chosen}{work}; or choose a batch with more divisors, such as {job_gpus}, or leave something to the search",
        "no count": "{name} is how many plans to find, a whole number from 1 on; got {got!r:.40}",
    }
)
