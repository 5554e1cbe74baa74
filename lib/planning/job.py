"""What to plan: a model, GPUs, the sequences of a step and the widths of numbers; and the goodput of a training.

Here stand the facts that do not depend on how a job is split: the rates of a GPU and the share of them that programs
reach, the weights, flops and activations of a model per token, and the widths of numbers. What they take on the ranks
of a split is decided in `prices`. Formulas are counted from the operations, with their papers; constants that are
measured or fitted say so (docs/truth.md compares them with published runs).

A model's sizes are data, in presets; only numbers that no preset can have are refused, with their range, so that times
stay finite.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from math import exp, expm1, isfinite, sqrt
from typing import NamedTuple

from lib.errors import RuleError, Sentences

# --- A GPU and its links: rates from data sheets, and the share of them that programs reach ---

REACHED = 0.8
"""The share of a link's rate that collectives and copies reach (bus bandwidth of nccl-tests over the data sheet's)."""

LATENCY = {"nvlink": 10e-6, "network": 25e-6, "host": 10e-6}
"""Seconds of each call, in addition to its bytes."""

HOP = {"nvlink": 2.4e-6, "network": 12e-6}
"""Seconds of each further rank of a collective: a ring of n ranks has n - 1 steps."""

CONTENTION = 0.35
"""Communication that overlaps with computation: both together take the longer time, plus this share of the shorter."""

MEMORY_REACHED = 0.76
"""The share of the memory's rate that kernels reach which read and write each number once: the optimizer's step, casts
and element-wise operations (measured on an H100, docs/truth.md)."""

LINKS = tuple(LATENCY)


def call_seconds(link: str, ranks: int) -> float:
    """Seconds of a collective of `ranks` ranks, in addition to its bytes."""
    return LATENCY[link] + (ranks - 1) * HOP[link]


@dataclass(frozen=True)
class Gpu:
    """One GPU. Rates are per second: `flops` in 16 bits, `flops8` in 8 bits, `bandwidth` of its memory, and each link
    in one direction; `memory` is in bytes. A machine has `machine` GPUs, joined by NVLink. `efficiency` is the share of
    `flops` that matrix products reach; `core_megatron` and `core_pytorch` are the shares that the core of flash
    attention reaches with these kernels. These rates are fitted to runs of many GPUs, so they contain what such runs
    lose besides. `efficiency_alone` and `core_alone` are the shares that PyTorch's kernels reach on one GPU (0: not
    measured). `context` is the memory that CUDA and NCCL take, in bytes."""

    name: str
    flops: float
    flops8: float
    memory: int
    bandwidth: float
    nvlink: float
    network: float
    host: float
    machine: int
    efficiency: float
    core_megatron: float
    core_pytorch: float
    context: int = 2 * 2**30
    efficiency_alone: float = 0.0
    core_alone: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            number = getattr(self, field.name)
            least = 0 if field.name in MAY_BE_ZERO else MIN_RATE
            if field.type in ("int", "float") and not (type(number) in (int, float) and least <= number <= MAX_RATE):
                raise RuleError(f"gpu.{field.name} must be more than 0, and at most {MAX_RATE:g}; got {number!r:.40}")
        for name in SHARES:
            if getattr(self, name) > 1:
                raise RuleError(SAYS("share above 1", name=name, got=getattr(self, name)))
        if not isinstance(self.machine, int):
            raise RuleError(f"gpu.machine is a whole number of GPUs; got {self.machine!r}")

    @property
    def bytes_per_second(self) -> float:
        """Bytes per second that element-wise kernels read and write."""
        return self.bandwidth * MEMORY_REACHED

    @property
    def usable(self) -> int:
        """Bytes of memory for training."""
        return max(0, int(self.memory) - int(self.context))

    def members(self, stride: int, count: int) -> int:
        """How many of `count` GPUs, each `stride` after the one before, share a machine."""
        return max(1, min(count, self.machine // stride))

    def link(self, members: int, count: int) -> str:
        """The slowest link between `count` GPUs, of which each machine has `members`."""
        return "nvlink" if members == count else "network"

    def rate(self, members: int, count: int) -> float:
        """Bytes per second that each of `count` GPUs sends in a ring. Between machines, the adapters of all members
        share the work."""
        fast = self.nvlink * REACHED
        return fast if members == count else min(fast, members * self.network * REACHED)


SHARES = ("efficiency", "core_megatron", "core_pytorch", "efficiency_alone", "core_alone")
"""Shares of the peak rate: what calibration changes."""

MAY_BE_ZERO = ("flops8", "context", "efficiency_alone", "core_alone")
MIN_RATE, MAX_RATE = 1e-3, 1e24
"""The range of a GPU's numbers: far beyond real ones, while times stay finite."""


# --- A transformer: its weights, the work of a token in each layer, and the bytes that its backward needs ---

MAX_LAYERS = 10**4
"""The largest number of layers. A run has an event for each layer."""


@dataclass(frozen=True)
class Transformer:
    """`layers` of attention (`heads` of `head_size`, of which `kv_heads` have keys and values) and a feed-forward part
    of width `ffn`, with three matrices if it is `gated`. With `experts`, all layers except the first `dense_layers`
    have a mixture of experts instead: each token goes to `top_k` experts of width `expert_ffn`, and to one of
    `shared_ffn`. Experts are `biased` if their products add a bias. If they are in `groups`, those of a token are in
    `top_groups` of them. With `tied` the head is the embedding. `sequence` is the usual number of tokens; `attention`
    overrides the number of an attention's weights, as for multi-head latent attention, whose queries and keys have
    `key_size` (0: 1.5 times `head_size` with `attention`, as in DeepSeek-V3, and otherwise `head_size`). With a
    `window`, every `full_every`-th layer attends to all tokens (0: none does), and the others to so many."""

    name: str
    layers: int
    hidden: int
    heads: int
    ffn: int
    vocab: int
    sequence: int
    kv_heads: int = 0
    head_size: int = 0
    gated: bool = False
    dropout: bool = False
    tied: bool = False
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    attention: int = 0
    key_size: int = 0
    window: int = 0
    full_every: int = 0
    groups: int = 0
    top_groups: int = 0
    biased: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        object.__setattr__(self, "head_size", self.head_size or self.hidden // max(self.heads, 1))
        usual_key = self.head_size * 3 // 2 if self.attention else self.head_size
        object.__setattr__(self, "key_size", self.key_size or usual_key)
        optional = {field.name for field in fields(self) if field.default == 0} - {"kv_heads", "head_size", "key_size"}
        for field in fields(self):
            number, least = getattr(self, field.name), 0 if field.name in optional else 1
            most = MAX_LAYERS if field.name == "layers" else MAX_NUMBER
            if field.type == "int" and (type(number) is not int or not least <= number <= most):
                raise RuleError(f"model.{field.name} is a whole number from {least} to {most:,}; got {number!r:.40}")
        if self.heads % self.kv_heads:
            raise RuleError(f"model.kv_heads must divide the {self.heads} heads; got {self.kv_heads}")
        if bool(self.experts) != bool(self.top_k and self.expert_ffn) or self.top_k > max(self.experts, 0):
            raise RuleError("a model of experts has experts, top_k (at most as many) and expert_ffn; give all three")
        if self.experts and self.dense_layers >= self.layers:
            raise RuleError(f"model.dense_layers must be less than the {self.layers} layers; got {self.dense_layers}")
        if self.experts % (self.groups or 1) or not bool(self.groups) <= self.top_groups <= self.groups:
            raise RuleError(f"model.groups must divide the {self.experts} experts, and top_groups be at most as many")

    # --- Weights ---

    @property
    def matrices(self) -> int:
        return 3 if self.gated else 2

    @property
    def attention_weights(self) -> int:
        """Queries and outputs of all heads, keys and values of `kv_heads`, per layer."""
        return self.attention or 2 * self.hidden * self.head_size * (self.heads + self.kv_heads)

    @property
    def small_weights(self) -> int:
        """Norms, and biases if not gated, per layer (13 h in all for GPT: Narayanan et al. 2021, eq. 2)."""
        return (2 if self.gated else 13) * self.hidden

    @property
    def expert_layers(self) -> int:
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def routed_weights(self) -> int:
        """Weights of all experts of all layers, which expert parallelism distributes."""
        return self.expert_layers * self.experts * self.matrices * self.hidden * self.expert_ffn

    @property
    def dense_weights(self) -> int:
        """Weights of all layers besides the routed experts."""
        of_layer = self.attention_weights + self.small_weights
        feed = (self.layers - self.expert_layers) * self.ffn + self.expert_layers * self.shared_ffn
        routers = self.expert_layers * self.experts * self.hidden
        return self.layers * of_layer + self.matrices * self.hidden * feed + routers

    @property
    def vocabulary_weights(self) -> int:
        """Weights of the embedding; the head has as many."""
        return self.vocab * self.hidden

    @property
    def weights(self) -> int:
        """All parameters, with the embedding and the head."""
        ends = 1 if self.tied else 2
        return self.dense_weights + self.routed_weights + ends * self.vocabulary_weights

    @property
    def active_weights(self) -> int:
        """Weights of all layers that a token is multiplied with."""
        routed = self.expert_layers * self.top_k * self.matrices * self.hidden * self.expert_ffn
        return self.dense_weights - self.layers * self.small_weights + routed

    # --- Work ---

    def core_flops(self, sequence: int) -> float:
        """Flops per token and layer of queries times keys and of weights times values, counting every pair; a causal
        core computes half of them. Of layers with a window, twice the pairs that causal ones compute, so that the same
        half is theirs."""
        window, full = min(self.window or sequence, sequence), 1 / self.full_every if self.full_every else 0
        pairs = sequence if window == sequence else full * sequence + (1 - full) * (2 * window - window**2 / sequence)
        return 2 * pairs * self.heads * (self.key_size + self.head_size)

    def model_flops(self, sequence: int, causal: bool) -> float:
        """Flops of a step per token: a forward, and twice as much for backward, without recomputation. A `causal` core
        computes half of the pairs."""
        return 6 * (self.active_weights + self.vocabulary_weights) + self.attention_flops(sequence, causal)

    def orthogonalizing_flops(self) -> tuple[float, float]:
        """Flops of a step of Muon in all matrices that all ranks have, and in those of routed experts: five iterations,
        each of 4 m^2 n + 2 m^3 for a matrix of m x n, m the smaller (Jordan et al. 2024). Attention counts as plain."""
        layers, of_experts = self.layers, self.expert_layers

        def flops(count: int, width: int) -> float:
            m, n = sorted((self.hidden, width))
            return 5 * count * (4 * m * m * n + 2 * m**3)

        dense = [(2 * layers, self.heads * self.head_size), (2 * layers, self.kv_heads * self.head_size)]
        dense += [(self.matrices * (layers - of_experts), self.ffn), (self.matrices * of_experts, self.shared_ffn)]
        routed = flops(self.matrices * of_experts * self.experts, self.expert_ffn)
        return sum(flops(count, width) for count, width in dense), routed

    def attention_flops(self, sequence: int, causal: bool) -> float:
        """The part of `model_flops` in the core of attention."""
        return 3 * self.layers * self.core_flops(sequence) / (2 if causal else 1)

    # --- Activations ---

    @property
    def width(self) -> float:
        """The feed-forward width that a token passes through, on average over the layers."""
        share = self.expert_layers / self.layers
        return (1 - share) * self.ffn + share * (self.top_k * self.expert_ffn + self.shared_ffn)

    def whole_bytes(self, wide: bool = False) -> float:
        """Bytes kept of a layer per token that tensor parallelism alone does not divide: the inputs of the norms and of
        both parts, and with dropout two masks (10 h: Korthikanti et al. 2022, section 4.2.1). `wide`: also the inputs
        of both norms in 32 bits, as code that is not compiled keeps them."""
        return (10 if self.dropout else 8) * self.hidden + (8 * self.hidden if wide else 0)

    def split_bytes(self, wide: bool = False) -> float:
        """Bytes kept of a layer per token that tensor parallelism divides, without the attention matrix (GPT: 24 h,
        Korthikanti et al. 2022, section 4.2.1). `wide`: also the result of a gated activation function, or three
        intermediate results of GELU."""
        attention = 2 * self.head_size * (2 * self.heads + 2 * self.kv_heads)
        return attention + 2 * (self.matrices + wide * self.eager_results) * self.width

    @property
    def eager_results(self) -> int:
        """Results of an activation function that code which is not compiled keeps: SiLU's, or three of GELU's."""
        return 1 if self.gated else 3

    def inputs_in_8_bits(self) -> tuple[float, float]:
        """Bytes of a layer per token that 8-bit inputs of matrix products save: those that tensor parallelism alone
        does not divide, and those that it divides."""
        return 2.0 * self.hidden, self.heads * self.head_size + self.width

    def recomputed_bytes(self, modules: Collection[str], wide: bool, in_8_bits: bool) -> tuple[float, float]:
        """Bytes of a layer per token that are not kept if backward computes `modules` again, divided as in
        `inputs_in_8_bits`, and beside these: the results of both norms, of experts' activation functions, or all
        between the input and the output of experts or of a feed-forward part."""
        share, result = self.expert_layers / self.layers, 1 if in_8_bits else 2
        routed, every = (
            share * self.top_k * self.expert_ffn,
            2 * (self.matrices - 1 + wide * self.eager_results) + result,
        )
        of_module = {
            "moe": every * (routed + share * self.shared_ffn),
            "moe_act": 0 if "moe" in modules else result * routed,
            "shared_experts": 0 if "moe" in modules else every * share * self.shared_ffn,
            "mlp": every * (1 - share) * self.ffn,
        }
        norms = 2 * result * self.hidden if "layernorm" in modules else 0
        return norms, sum(size for module, size in of_module.items() if module in modules)

    def matrix_bytes(self, sequence: int) -> float:
        """Bytes of a layer's attention matrices per token: softmax, its dropout and the mask (5 a s: the same)."""
        return (5 if self.dropout else 4) * self.heads * sequence

    def elementwise_bytes(self) -> tuple[tuple[int, float], tuple[int, float]]:
        """Bytes of a layer per token that PyTorch's element-wise kernels read and write if none are fused, in forward
        and in backward: those that tensor parallelism alone does not divide, and those that it divides. Counted from
        the operations of Llama and GPT-2 as the library transformers writes them, of which a trace of Llama has all.

        Gated: an RMS norm takes 36 bytes a number, since it computes in 32 bits, and 96 in backward; rotary embeddings
        20 and 34 for queries and keys; SiLU and the product 10 and 18. Otherwise: layer norms 4 and 10, GELU by tanh 36
        and 56, biases' gradients 2. Each dropout 5 and 5; each residual, and each sum of gradients, 6.
        """
        hidden, queries = self.hidden, self.head_size * (self.heads + self.kv_heads)
        dropout = 2 * 5 * hidden if self.dropout else 0
        if self.gated:
            forward = (2 * (36 + 6) * hidden + dropout, 20 * queries + 10 * self.width)
            return forward, ((2 * (96 + 6) + 3 * 6) * hidden + dropout, 34 * queries + 18 * self.width)
        forward = (2 * (4 + 6) * hidden + dropout, 4 * hidden + 36 * self.width)
        return forward, (2 * (10 + 6 + 2) * hidden + dropout, 3 * (4 + 2) * hidden + (56 + 2) * self.width)

    @property
    def last_norm_bytes(self) -> int:
        """Bytes per token that the norm before the head reads and writes in forward and backward."""
        return (36 + 96 if self.gated else 4 + 10) * self.hidden

    @property
    def kv_bytes(self) -> int:
        """Bytes of a layer's keys and values for each token."""
        return 2 * 2 * self.kv_heads * self.head_size


# --- A step: the sequences, the widths of numbers, and the code that trains ---

GIB = 2**30

OPTIMIZERS = ("adam", "muon")
"""Muon has one moment, and updates full matrices of the layers with five Newton-Schulz iterations."""

KERNELS = ("megatron", "pytorch")
"""The kernels differ in the rate of flash attention, and in what they keep in memory."""

DISPATCHERS = ("alltoall", "dedup")
"""How tokens are sent to their experts: a copy for each of a token's experts; or one for each machine, and within it
one for each rank (DeepEP, HybridEP)."""

GRAPHS = ("none", "partial", "full")
"""What CUDA graphs launch: nothing; attention and the router; the step, in which experts are fused."""

MODULES = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts")
"""Parts of a layer that backward may compute again, by Megatron's names."""

MAX_NUMBER, MAX_TRIED, MAX_MTP = 10**9, 2**20, 8
"""The largest number in a job; for GPUs and sequences it is smaller, because their divisors are tried and played."""


@dataclass(frozen=True)
class Job:
    """A step trains `model` on `gpus` GPUs with `batch` sequences of `sequence` tokens.

    `kernels`: Megatron's or PyTorch's. `flash`: attention never stores the matrix of all pairs, and computes its causal
    half (Dao et al. 2022). `fp8`: layers compute matrix products in 8 bits. `overlap`: gradients are reduced during
    computation. Bytes of each parameter: `weight` and `gradient` as they are kept, and the optimizer's `state` (Adam:
    two moments and a 32-bit weight; 8 with moments in 16 bits), of which Muon leaves out a moment. `loss_chunks`: parts
    in which the loss is computed. `modules`: parts of a layer that backward computes again, see MODULES. `mtp`: heads
    for multi-token prediction in addition to the usual one; the layer of each is among the model's.

    For models with experts: `dispatch` and `graphs`, see DISPATCHERS and GRAPHS. `ep_overlap`: the experts' all-to-alls
    overlap with the computation of another microbatch. The fullest rank has `imbalance` times the mean number of rows,
    unless routing is forced to be `balanced`, as in benchmarks. `consecutive`: a benchmark sends each token to
    neighboring experts.
    """

    model: Transformer
    gpu: Gpu
    gpus: int
    batch: int
    sequence: int = 0
    kernels: str = "megatron"
    flash: bool = True
    fp8: bool = False
    overlap: bool = True
    weight: int = 2
    gradient: int = 4
    state: int = 12
    optimizer: str = "adam"
    loss_chunks: int = 1
    modules: tuple[str, ...] = ()
    mtp: int = 0
    dispatch: str = "alltoall"
    graphs: str = "none"
    ep_overlap: bool = False
    balanced: bool = False
    imbalance: float = 1.5
    consecutive: bool = False

    def __post_init__(self) -> None:
        switches = dict.fromkeys(("flash", "fp8", "overlap", "ep_overlap", "balanced", "consecutive"), bool)
        for name, kind in {"model": Transformer, "gpu": Gpu, **switches}.items():
            if not isinstance(getattr(self, name), kind):
                raise RuleError(f"{name} must be a {kind.__name__}; got {getattr(self, name)!r:.40}")
        if self.kernels not in KERNELS:
            raise RuleError(SAYS("no such kernels", got=self.kernels, known=", ".join(KERNELS)))
        object.__setattr__(self, "sequence", self.sequence or self.model.sequence)
        object.__setattr__(self, "dispatch", self.dispatch or DISPATCHERS[0])
        object.__setattr__(self, "modules", tuple(self.modules) if isinstance(self.modules, list) else self.modules)
        for name in ("gpus", "batch", "sequence", "weight", "gradient", "state", "loss_chunks", "mtp"):
            number, least = getattr(self, name), 0 if name == "mtp" else 1
            most = {"gpus": MAX_TRIED, "batch": MAX_TRIED, "mtp": MAX_MTP}.get(name, MAX_NUMBER)
            if type(number) is not int or not least <= number <= most:
                raise RuleError(f"{name} must be a whole number from {least} to {most:,}; got {number!r:.40}")
        for name, known in (("optimizer", OPTIMIZERS), ("dispatch", DISPATCHERS), ("graphs", GRAPHS)):
            if getattr(self, name) not in known:
                raise RuleError(SAYS("none of these", name=name, known=", ".join(known), got=getattr(self, name)))
        if type(self.modules) is not tuple or not all(module in MODULES for module in self.modules):
            raise RuleError(f"modules are some of {', '.join(MODULES)}; got {self.modules!r:.60}")
        if type(self.imbalance) not in (int, float) or not 1 <= self.imbalance <= MAX_NUMBER:
            raise RuleError(f"imbalance is a multiple of the mean, at least 1; got {self.imbalance!r:.40}")
        if self.fp8 and not self.gpu.flops8:
            raise RuleError(f"{self.gpu.name} has no matrix products in 8 bits; leave out fp8, or set gpu.flops8")

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.batch * self.sequence

    @property
    def by_kernel(self) -> bool:
        """Whether each kind of kernel has its own rate: for PyTorch on one GPU, if these rates are measured."""
        return self.kernels == "pytorch" and self.gpus == 1 and self.gpu.efficiency_alone > 0

    @property
    def efficiency(self) -> float:
        """The share of the peak rate that matrix products reach."""
        return self.gpu.efficiency_alone if self.by_kernel else self.gpu.efficiency

    @property
    def layer_state(self) -> int:
        """Bytes of the optimizer's state of a parameter in the layers; ends and norms are updated by Adam."""
        return self.state if self.optimizer == "adam" else 4 + max(self.state - 4, 0) // 2

    @property
    def core_rate(self) -> float:
        """Flops per second that the core of attention reaches; without flash it consists of plain matrix products."""
        gpu = self.gpu
        share = {"megatron": gpu.core_megatron, "pytorch": gpu.core_pytorch}[self.kernels]
        if self.by_kernel and gpu.core_alone:
            share = gpu.core_alone
        return gpu.flops * (share if self.flash else self.efficiency)

    @property
    def flops(self) -> float:
        """Flops of a step that the model needs, without recomputation."""
        of_mtp = 6 * self.mtp * self.model.vocabulary_weights
        return self.tokens * (self.model.model_flops(self.sequence, self.flash) + of_mtp)

    def mfu(self, seconds: float) -> float:
        """Model flops utilization (Chowdhery et al. 2022, PaLM, appendix B): the share of the peak of all GPUs that a
        step of `seconds` uses. The peak is that of 16 bits, or with fp8 of 8 bits."""
        peak = self.gpu.flops8 if self.fp8 else self.gpu.flops
        return self.flops / (seconds * self.gpus * peak)


HOUR, DAY = 3600.0, 86400.0


class Goodput(NamedTuple):
    """Seconds between failures of the cluster, seconds of a checkpoint, seconds between checkpoints, and the share of
    time spent training."""

    between_failures: float
    checkpoint: float
    interval: float
    share: float


def checkpoint_bytes(job: Job) -> int:
    """Bytes of a checkpoint: all weights and the optimizer's states."""
    layers = job.model.dense_weights + job.model.routed_weights
    return job.model.weights * (job.weight + job.state) - layers * (job.state - job.layer_state)


def goodput(job: Job, mtbf_hours: float, bandwidth: float, restart: float = 300.0) -> Goodput:
    """The share of time that a cluster trains if each GPU fails once in `mtbf_hours` on average.

    The cluster writes checkpoints with `bandwidth` bytes per second in all, while training waits. After a failure
    `restart` seconds pass, and the training since the last checkpoint is lost. The interval is from Daly 2006, which
    refines Young 1974, sqrt(2 C M). The share follows from Daly's model, where failures are exponential.
    """
    for name, number, least in (("mtbf", mtbf_hours, 0), ("bandwidth", bandwidth, 0), ("restart", restart, -1)):
        if type(number) not in (int, float) or not (isfinite(number) and number > least):
            raise RuleError(f"{name} must be a number more than {max(least, 0)}; got {number!r:.40}")
    mean = mtbf_hours * HOUR / job.gpus
    written = checkpoint_bytes(job) / bandwidth
    if written >= 2 * mean or restart >= 100 * mean:
        raise RuleError(
            f"{job.gpus:,} GPUs fail every {mean:.3g} s, a checkpoint takes {written:.3g} s, and a restart "
            f"{restart:.3g} s: nothing is ever trained. Take a higher bandwidth, or fewer GPUs"
        )
    ratio = written / (2 * mean)
    interval = sqrt(2 * written * mean) * (1 + sqrt(ratio) / 3 + ratio / 9) - written
    share = interval / (mean * expm1((interval + written) / mean)) if interval else 1.0
    return Goodput(mean, written, interval, share * exp(-restart / mean))


def training_seconds(job: Job, seconds: float, tokens: float, share: float = 1.0) -> float:
    """Seconds to train `tokens` tokens with steps of `seconds`, if a `share` of the time is spent training."""
    return tokens / job.tokens * seconds / share


SAYS = Sentences(
    {
        "share above 1": "gpu.{name} is a share, at most 1; got {got!r}",
        "no such kernels": "there are no kernels {got!r:.40}; there are {known}",
        "none of these": "{name} is one of {known}; got {got!r:.40}",
    }
)
