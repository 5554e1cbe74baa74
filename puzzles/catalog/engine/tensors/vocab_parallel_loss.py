"""VocabParallelLoss: cross entropy of logits that are split by words."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import MEGATRON

PUZZLE = EnginePuzzle(
    slug="VocabParallelLoss",
    title="Cross entropy over a sharded vocabulary",
    targets={"sent": 144, "collectives": 3, "peak": 3_072},
    arithmetic="""\
One number per token is 8 x 4 = 32 B; an all-reduce of it sends 2 x 3/4 x 32 = 48 B. The highest logit, the sum of
exponentials and the target's logit: 3 x 48 = 144 B. Gathering the logits, 8 x 16 x 4 = 512 B on each device, would
send 3 x 512 = 1,536 B.

Peak: your logits, the same with the maximum subtracted, their exponentials and one temporary are 4 x 512 = 2,048 B;
the numbers per token and per word are 480 B: 2,528 B. The target leaves room for one more array; each array of all
logits would be 2,048 B.
""",
    statement="""\
The last layer is split by words: of 64, device i has the logits of words 16 i to 16 i + 15, for all 8 tokens.
What remains is the cross entropy, `log(sum(exp(logits))) - logits[target]` for each token.

`forward` gets a dictionary: 'logits', your (8, 16), and 'targets', the right word of each token as a number
from 0 to 63, (8,), the same on every device. It returns the loss of each token, (8,), on every device. `backward`
gets the gradient of these losses, (8,), and returns under 'logits' the gradient of your logits, (8, 16).

The logits are large: in float32, exp overflows above 88, and becomes 0 far below that. Results may differ from a
single device's by 0.00001 of the largest number. Other numbers of words and devices are also tried.
""",
    starter='''\
class VocabParallelLoss(ShardedEngine):
    """The loss of words that are elsewhere."""

    def __init__(self, words):
        """words: how many there are on all devices together."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """There are no parameters."""

    def forward(self, x):
        """x: {'logits': (8, 16), 'targets': (8,)}. Returns the losses, (8,)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """grads: (8,). Returns {'logits': (8, 16)}."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----
''',
    hints=(
        "Write it for one device. What does it need from a row of logits? Each of these is one number per token.",
        (
            "Subtracting a number from all logits of a token does not change its loss, if all devices subtract the "
            "same number. `self.all_reduce(..., 'max')` finds the best one."
        ),
        (
            "A target is a word of one device; the others should add 0 to the sum. On devices after the target's own, "
            "its index counted from their first word is negative, and Python counts a negative index from the end."
        ),
        (
            "`here = targets[:, None] == my_words` is True where a target is yours, so "
            "`self.all_reduce(np.where(here, shifted, 0).sum(axis=1))` is the target's logit. The gradient needs no "
            "communication: `(exp(shifted) / total[:, None] - here) * grads[:, None]`."
        ),
    ),
    concept="""\
A softmax couples all words of a token, but only through its highest logit and its sum. If you need only a
reduction of the other devices' data, reduce first and send the result.
""",
    in_practice="""\
Megatron-LM fuses the output layer with the loss like this: it sends batch x tokens numbers instead of batch x
tokens x words (Shoeybi et al. 2019). With a hundred thousand words, logits are among the largest activations.
""",
    sources=(MEGATRON,),
)
