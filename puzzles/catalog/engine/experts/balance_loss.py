"""BalanceLoss: the auxiliary loss that balances the load of the experts, over all devices' tokens."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import GLOBAL_BALANCE, SWITCH

PUZZLE = EnginePuzzle(
    slug="BalanceLoss",
    title="The loss that balances the experts",
    targets={"sent": 48, "collectives": 1},
    arithmetic="""\
f and P have 4 numbers each: together 32 B, and an all-reduce of them sends 2 x 3/4 x 32 = 48 B. Gathering all
probabilities would send 3 x 8 x 4 x 4 = 384 B. The number of tokens need not be sent: it is the sum of the counts.
""",
    statement="""\
`forward` gets the router's logits of this device's tokens, (tokens, experts), and returns the balance loss of
all tokens on all devices, an array of shape (1,), the same on every device:

    alpha N sum_i f_i P_i

N is the number of experts, f_i the fraction of the tokens whose likeliest expert is i (in a tie, the first),
P_i the mean over the tokens of softmax(logits)_i. In the shown data a device has 8 tokens. In other trials,
devices have different numbers of tokens, and the means are over all tokens. Everything is float32.

`backward` gets the gradient of that loss, shape (1,), and returns {'logits': its gradient for this device's
logits}, without sending anything. f counts choices, so treat it as a constant.
""",
    starter='''\
class BalanceLoss(ShardedEngine):
    """A loss that balances the load of the experts."""

    def __init__(self, alpha):
        """Store alpha, and anything else that you need."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """There are no parameters."""

    def forward(self, logits):
        """logits: of your tokens, (tokens, experts). Returns the loss of all tokens, (1,)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """grads: (1,). Returns {'logits': (tokens, experts)}."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----
''',
    hints=(
        "The loss is a product of two means. Is the mean of the devices' losses the same? Try two devices by hand.",
        (
            "Reduce sums, not means: how often each expert was chosen, and the sum of the probabilities, stacked into "
            "one float32 array. You can compute the number of tokens from it."
        ),
        (
            "`sums = self.all_reduce(np.stack([chosen, p.sum(axis=0)]))`, `tokens = sums[0].sum()`, `f, P = sums / "
            "tokens`. For p, the gradient dp is alpha N f / tokens in every row; through softmax it becomes "
            "`p * (dp - (p * dp).sum(axis=1, keepdims=True))`."
        ),
    ),
    concept="""\
Experts that are chosen often learn more, and are then chosen even more often. The loss counteracts this: its
gradient lowers the probability of each expert in proportion to its load.

If all experts are chosen equally often, the loss is alpha, for any probabilities: alpha N x 1/N x sum P. If all
tokens choose one expert and are sure of it, the loss is alpha N. But alpha is not the minimum. Take two experts and
four tokens, of which three slightly prefer the first expert and one is certain of the second. Then f = (3/4, 1/4) and
P = (3/8, 5/8), almost, and the loss is 7/8 alpha.
""",
    in_practice="""\
Fedus et al. (2021) use alpha = 0.01. Many programs compute f and P over one device's tokens only, and average the
losses. That requires every device to be balanced by itself, a stricter condition, under which experts specialize less
(Qiu et al. 2025).
""",
    sources=(SWITCH, GLOBAL_BALANCE),
)
