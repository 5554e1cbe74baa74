"""MegatronMesh: the backward of a transformer layer on a mesh of data and tensor parallel devices."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import TRANSFORMER
from puzzles.catalog.papers import MEGATRON, MEGATRON_CLUSTERS, SEQUENCE_PARALLELISM

PUZZLE = EnginePuzzle(
    slug="MegatronMesh",
    title="Which sum along which axis?",
    targets={"sent": 6_336, "collectives": 10, "weights": 4_224},
    arithmetic="""\
The mesh is 2 x 2. Along tp, a gather sends your tokens, 4 x 16 x 4 = 256 B, and a reduce-scatter half of all tokens'
activations, 1/2 x 512 = 256 B. Forward has two of each, backward two of each: 8 x 256 = 2,048 B.

A device has half of 2,048 weights. Their gradients, in one bucket, are all-reduced along dp: 2 x 1/2 x 4,096 = 4,096 B.
The gradients of both gains, 2 x 16 numbers, are all-reduced on all four devices: 2 x 3/4 x 128 = 192 B. Together 6,336
B in 8 + 2 = 10 collectives. After loading there are 4,096 B of weights and 128 B of gains.
""",
    statement="""\
A transformer layer with norms, `y = x + attention(norm(x))`, then `y + mlp(norm(y))`, on a mesh of dp x tp devices. All
of it is given except `backward`. Write that, and find the group of every sum.

| what a device has | devices along dp have | devices along tp have |
|---|---|---|
| a sequence of 8 tokens | another sequence | the same sequence |
| its 4 tokens, between layers | other tokens | the other half |
| half of the heads and MLP | the same half | the other half |
| the gains of both norms | the same | the same |

So norms and residuals see a device's own 4 tokens. Attention and MLP see all 8 tokens of the sequence: forward gathers
them along tp, and reduce-scatters the partial results. `self.tp` and `self.dp` are this device's groups;
`self.all_reduce(a, group=self.dp)` sums along dp.

The given methods without communication:

- `mlp_backward(grads)` and `attention_backward(grads)` get the gradient of the output for all 8 tokens. They return the
  gradients of this device's weights as a dictionary, and this device's part of the input's gradient, (8, 16).
- `norm_backward(grads)` gets the gradient of a norm's output for your tokens. It returns the gradients of the gain,
  (16,), from your tokens, and of the norm's input, (4, 16). Call them in reverse order of forward.

`backward` gets and returns the gradients for your tokens; under 'x' it returns the gradient of your input. The
gradients of all parameters are those of all sequences together, of your parts of the weights and of the full gains.

`params` has 'attention/query', 'attention/key', 'attention/value' and 'attention/output', (16, 16) each, 'mlp/up'
(16, 32), 'mlp/down' (32, 16), 'norm_0/gain' and 'norm_1/gain', (16,). Other meshes are also tried.
""",
    starter='''\
class MegatronMesh(ShardedEngine):
    """Backward on a mesh. Everything else is given."""

    COLUMNS = ("attention/query", "attention/key", "attention/value", "mlp/up")
    ROWS = ("attention/output", "mlp/down")
    GAINS = ("norm_0/gain", "norm_1/gain")

    def __init__(self, model_dim, hidden_dim, heads, mesh):
        """`self.tp` and `self.dp` are the groups of the devices along tp and dp."""
        dp, tp = mesh
        i, self.j = divmod(self.device_id, tp)
        self.tp = [i * tp + other for other in range(tp)]
        self.dp = [other * tp + self.j for other in range(dp)]
        self.heads = heads // tp
        self.scale = (model_dim // heads) ** -0.5
        self.w = {}
        self.tape = []

    def load_checkpoint(self, params):
        """This device's parts of the weights, and both gains."""
        for names, axis in ((self.COLUMNS, 1), (self.ROWS, 0)):
            for name in names:
                self.w[name] = np.split(params[name], len(self.tp), axis)[self.j].copy()
        for name in self.GAINS:
            self.w[name] = params[name].copy()

    def forward(self, x):
        """x: your tokens, (4, 16). Returns (4, 16)."""
        h = self.all_gather(self.norm(x, "norm_0/gain"), group=self.tp)
        y = x + self.reduce_scatter(self.attention(h), group=self.tp)
        h = self.all_gather(self.norm(y, "norm_1/gain"), group=self.tp)
        return y + self.reduce_scatter(self.mlp(h), group=self.tp)

    def backward(self, grads):
        """grads: your tokens, (4, 16). Returns the gradients of all that `self.w` has, and 'x': (4, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    # From here on no communication.

    def norm(self, x, name):
        root = np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-6))
        self.tape.append((name, x / root, root))
        return x / root * self.w[name]

    def norm_backward(self, grads):
        """The gradients of the gain and of the input, for this device's tokens."""
        name, normed, root = self.tape.pop()
        d = grads * self.w[name]
        return (grads * normed).sum(axis=0), (d - normed * (d * normed).mean(axis=-1, keepdims=True)) / root

    def mlp(self, h):
        z = h @ self.w["mlp/up"]
        self.tape.append((h, z))
        return np.maximum(z, 0) @ self.w["mlp/down"]

    def mlp_backward(self, grads):
        """The gradients of this device's weights, and its part of a sum: the gradient of the input."""
        h, z = self.tape.pop()
        dz = (grads @ self.w["mlp/down"].T) * (z > 0)
        return {"mlp/up": h.T @ dz, "mlp/down": np.maximum(z, 0).T @ grads}, dz @ self.w["mlp/up"].T

    def attention(self, h):
        q, k, v = (self.split(h @ self.w[name]) for name in self.COLUMNS[:3])
        scores = q @ k.swapaxes(1, 2) * self.scale
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = powers / powers.sum(axis=-1, keepdims=True)
        mixed = self.join(weights @ v)
        self.tape.append((h, q, k, v, weights, mixed))
        return mixed @ self.w["attention/output"]

    def attention_backward(self, grads):
        """The gradients of this device's weights, and its part of a sum: the gradient of the input."""
        h, q, k, v, weights, mixed = self.tape.pop()
        dmixed = self.split(grads @ self.w["attention/output"].T)
        dweights = dmixed @ v.swapaxes(1, 2)
        dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True)) * self.scale
        inner = dscores @ k, dscores.swapaxes(1, 2) @ q, weights.swapaxes(1, 2) @ dmixed
        w_grads, dh = {"attention/output": mixed.T @ grads}, 0
        for name, d in zip(self.COLUMNS, map(self.join, inner)):
            w_grads[name] = h.T @ d
            dh = dh + d @ self.w[name].T
        return w_grads, dh

    def split(self, rows):
        """(tokens, width) as (heads, tokens, head_dim)."""
        return rows.reshape(len(rows), self.heads, -1).swapaxes(0, 1)

    def join(self, heads):
        return heads.swapaxes(0, 1).reshape(heads.shape[1], -1)
''',
    hints=(
        "The gradient of a gather is a reduce-scatter, and the other way round. Which four are there along tp?",
        (
            "Ask of each parameter: which devices have it, and what has each of them seen? Its gradient is the sum "
            "over those devices. Weights are on one device of each row, and that device has seen all tokens of the row."
        ),
        (
            "Each device computes a gain's gradient from its own tokens, so it is summed on all devices. One "
            "all-reduce is enough for both gains: `np.stack`. One is enough for all weights: join them with `ravel`."
        ),
        (
            "`of_mlp, dh = self.mlp_backward(self.all_gather(grads, group=self.tp))`, then "
            "`gain_1, dy = self.norm_backward(self.reduce_scatter(dh, group=self.tp))` and `dy += grads`. Attention is "
            "the same with dy. At the end, `np.split` the all-reduced bucket, and `reshape` the parts."
        ),
    ),
    concept="""\
A gradient is summed over the devices that have the same parameter and have seen different data. For weights that are
the devices along dp, once per step, in a bucket. The norms' gains are replicated along tp too, and there each device
has seen other tokens, so their sum runs along both axes. Activations are summed along tp only, in every layer.
""",
    in_practice="""\
Megatron-LM trains on such a mesh (Shoeybi et al. 2019; Narayanan et al. 2021). With sequence parallelism (Korthikanti
et al. 2022) it marks the parameters of norms, and all-reduces their gradients along tp as well. Without that sum the
copies of a gain drift apart: training goes on, and gets worse. Real meshes put tp inside a machine, where links are
fast.
""",
    sources=(TRANSFORMER, MEGATRON, MEGATRON_CLUSTERS, SEQUENCE_PARALLELISM),
)
