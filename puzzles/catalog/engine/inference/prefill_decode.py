"""PrefillDecode: one group of devices reads prompts, another generates, and keys and values move between them."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import DISTSERVE, SPLITWISE, TRANSFORMER
from puzzles.catalog.papers import MEGATRON

PUZZLE = EnginePuzzle(
    slug="PrefillDecode",
    title="Prefill here, decode there",
    targets={"sent": 4_032, "messages": 3, "collectives": 21, "elapsed": 52_504, "weights": 2_048},
    arithmetic="""\
With a prompt of T tokens, a prefill device takes part in one all-reduce of its group, 2 x 1/2 x 64 T = 64 T bytes. It
sends the keys and values of its two heads, 2 x 8 x 4 T = 64 T bytes, and the first generated token, 64 B. For 12 + 8 +
10 tokens that is 30 x 128 + 3 x 64 = 4,032 B. A decode device takes part in 3 x 7 = 21 all-reduces of 64 B, 1,344 B.
If both groups shared the work of both phases, the all-reduces on four devices alone would be 1.5 x 64 x (30 + 21) =
4,896 B.

For t new tokens that see s tokens, a device makes 4 x 2 x 16 x 8 t = 1,024 t flops with the weights, 2 x 2 x 8 t s in
attention, and 2 x 2 t s in the softmax. The three prompts take 17,472, 10,496 and 13,840 flops of time, 41,808, and
meanwhile the other group generates. It takes 10,696 more for the seven steps of the last prompt: 52,504. One after the
other, both phases of all prompts would take 73,896. Without a cache, each step would compute all tokens again.

Half of four weights of 16 x 16 is 2,048 B.
""",
    statement="""\
A layer of causal attention, `y = x + attention(x)`, continues prompts. The output for the last token is the next token,
an input again. There are three prompts, of 12, 8 and 10 tokens of 16 numbers; each is continued by 8 tokens.

Devices 0 and 1 are the *prefill group*: `forward` gives them the list of prompts, and they return the outputs for all
prompts' tokens, joined in one array, (30, 16). Devices 2 and 3 are the *decode group*: their `forward` gets the number
of prompts, and returns the generated tokens, (3, 8, 16). The first generated token is the prefill group's output for
the last token of the prompt; the decode group computes the other seven, one after the other.

Each group splits the layer by heads, as in MegatronLayer. With 4 heads on two devices, a device has two heads, of 4
numbers each. In a head, `softmax(q @ k.T / sqrt(head_dim)) @ v`, where a token sees itself and earlier tokens.

Keys and values of earlier tokens never change. So they are not computed again: the prefill group sends them to the
decode group once, one message per prompt and device, and the decode group appends its own. Give `all_reduce` a group:
`group=[2, 3]`. The time until the last output counts, so the prefill group works on the next prompt while the decode
group generates.

Other sizes are also tried, with more prefill than decode devices; their number is then a multiple. `params` has
'attention/query', 'attention/key', 'attention/value' and 'attention/output', (16, 16) each.
""",
    starter='''\
class PrefillDecode(ShardedEngine):
    """Prefill here, decode there."""

    def __init__(self, model_dim, heads, prefill, tokens):
        """Devices 0 to prefill - 1 read prompts, the others generate `tokens` tokens for each."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Copy the parts of your heads: columns of query, key and value, rows of output."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, x):
        """x: a list of prompts, (T, 16) each; returns all outputs, (30, 16). Or the number of prompts; returns
        the generated tokens, (3, 8, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """Not called."""
''',
    hints=(
        (
            "Write one method for the layer: new tokens and a cache in, outputs and a longer cache out. Prefill begins "
            "without a cache."
        ),
        (
            "A head's keys and values are needed only by the decode device that has the same head. So each prefill "
            "device has one receiver."
        ),
        (
            "With L tokens in the cache and t new ones, scores are (heads, t, L + t), and "
            "`np.tri(t, L + t, L, dtype=bool)` says which keys a query sees."
        ),
        (
            "`self.send(there, np.concatenate([y[-1], k.ravel(), v.ravel()]))` is one message. In each step: "
            "`k = np.concatenate([k, new_k], axis=1)`, the same for v, and "
            "`self.all_reduce(mixed @ self.w['attention/output'], group=self.group)`."
        ),
    ),
    concept="""\
A cache trades memory for time. Each generated token computes one query, key and value, and reads all earlier keys and
values. The phases differ: prefill multiplies matrices of many rows, decode one row after the other. On the same devices
they delay each other. On two groups they run at the same time; what moves is the cache, once per prompt, head by head.
""",
    in_practice="""\
DistServe (Zhong et al. 2024) and Splitwise (Patel et al. 2024) run the phases on different GPUs, so that a long prompt
no longer delays tokens of other users, and choose the number of GPUs for each phase. Decode also batches many requests,
because one row at a time leaves a GPU waiting for weights. The split by heads is Megatron's (Shoeybi et al. 2019).
""",
    sources=(TRANSFORMER, MEGATRON, DISTSERVE, SPLITWISE),
)
