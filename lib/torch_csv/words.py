"""Words the refusals of PyTorch's files: a reason, and a sentence over its facts."""

from lib.errors import Sentences

SAYS = Sentences(
    {
        "sent several times": "rank {rank} sends the result of {made} to the rank of {used} {count} times; PyTorch sends it once, as a message between the two{advice}",
        "value not sent": "rank {rank} {words} the {value}, which PyTorch does not send between stages{advice}",
        "sent past stages": "rank {rank} {words} the {value}, which goes from stage {source} to stage {to}; PyTorch sends it directly between their ranks{advice}",
        "computed twice": "rank {rank} computes {call} of {batches} a second time; a file has each cell once, and PyTorch recomputes inside a stage (torch.utils.checkpoint): leave that to the stage",
    }
)
