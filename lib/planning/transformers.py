"""A transformer's sizes: its weights, the work of a token in each layer, and the bytes that its backward needs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields

from lib.errors import RuleError

MAX_NUMBER, MAX_LAYERS = 10**9, 10**4
"""The largest numbers of a model. A run has an event for each layer."""


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
