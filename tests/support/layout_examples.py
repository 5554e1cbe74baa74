"""Graphs of modern layers, of grouped attention and of chains of blocks, which tests plan."""

from lib.layout import DeviceMatrix, Graph
from lib.layout.examples import add_attention


def swiglu(devices: int = 8, tokens: int = 64, width: int = 64, hidden: int = 128) -> Graph:
    """The gated MLP of recent transformers: silu(x gate) * (x up), then down (Shazeer 2020, "GLU Variants")."""
    graph = Graph(devices)
    graph.input("x", (tokens, width))
    for name in ("gate", "up"):
        graph.parameter(name, (width, hidden))
    graph.parameter("down", (hidden, width))
    graph.silu("silu", graph.matmul("gated", "x", "gate"))
    graph.multiply("product", "silu", graph.matmul("raised", "x", "up"))
    graph.matmul("lowered", "product", "down")
    return graph


def layer_norm(devices: int = 8, tokens: int = 64, width: int = 64) -> Graph:
    """Layer normalization, operator by operator (Ba, Kiros and Hinton 2016)."""
    graph = Graph(devices)
    graph.input("x", (tokens, width))
    graph.input("epsilon", (1,))
    graph.parameter("scale", (width,))
    graph.parameter("shift", (width,))
    graph.subtract("centered", "x", graph.repeat("mean", graph.reduce_mean("averages", "x", 1), 1, width))
    graph.reduce_mean("variances", graph.multiply("squares", "centered", "centered"), 1)
    graph.rsqrt("roots", graph.add("positive", "variances", "epsilon"))
    graph.multiply("normal", "centered", graph.repeat("factors", "roots", 1, width))
    graph.add("shifted", graph.multiply("scaled", "normal", "scale"), "shift")
    return graph


def rotary(devices: int = 8, batch: int = 4, length: int = 16, heads: int = 8, each: int = 8) -> Graph:
    """Rotary position embedding of queries (Su et al. 2021): halves of each head are rotated against each other."""
    graph = Graph(devices)
    graph.input("x", (batch, length, heads * each))
    graph.parameter("wq", (heads * each, heads * each))
    graph.reshape("queries", graph.matmul("projected", "x", "wq"), (batch, length, heads, each))
    for name in ("cosines", "sines"):
        graph.input(name, (length, 1, each))
    add_rotary(graph, "", "queries", each)
    return graph


def mixture_of_experts(
    devices: int = 8, groups: int = 8, tokens: int = 16, experts: int = 8, width: int = 16, hidden: int = 64
) -> Graph:
    """A layer of experts with one expert per token (Lepikhin et al. 2020, "GShard", algorithm 1; Fedus et al. 2022)."""
    graph = Graph(devices)
    graph.input("x", (groups, tokens, width))
    graph.parameter("router", (width, experts))
    graph.parameter("up", (experts, width, hidden))
    graph.parameter("down", (experts, hidden, width))
    gates = graph.softmax("gates", graph.matmul("scores", "x", "router"))
    capacity = 2 * tokens // experts
    graph.route("dispatch", gates, capacity, ones=True)
    graph.route("combine", gates, capacity)
    graph.einsum("sent", "dispatch", "x", spec="gsec,gsd->egcd")
    graph.relu("relu", graph.einsum("raised", "sent", "up", spec="egcd,edf->egcf"))
    graph.einsum("lowered", "relu", "down", spec="egcf,efd->egcd")
    graph.einsum("combined", "combine", "lowered", spec="gsec,egcd->gsd")
    return graph


def grouped_attention(
    layers: int,
    mesh: DeviceMatrix,
    batch: int = 4,
    length: int = 16,
    heads: int = 8,
    groups: int = 2,
    width: int = 64,
    hidden: int = 128,
) -> Graph:
    """Blocks of grouped-query attention (Ainslie et al. 2023) with rotary embedding, and a gated MLP."""
    each = width // heads
    graph = Graph(mesh=mesh)
    x = graph.input("x", (batch, length, width))
    for name in ("cosines", "sines"):
        graph.input(name, (length, 1, each))
    for layer in range(layers):
        prefix = f"l{layer}."
        turned = []
        for role, count in (("q", heads), ("k", groups), ("v", groups)):
            name = f"{prefix}{role}"
            graph.parameter(f"{prefix}w{role}", (width, count * each))
            cut = graph.reshape(
                f"{name}_heads", graph.matmul(name, x, f"{prefix}w{role}"), (batch, length, count, each)
            )
            turned.append(cut if role == "v" else add_rotary(graph, f"{name}_", cut, each))
        query, key, value = turned
        grouped = graph.reshape(f"{prefix}grouped", query, (batch, length, groups, heads // groups, each))
        scores = graph.einsum(f"{prefix}scores", grouped, key, spec="blkge,bmke->bkglm")
        mixed = graph.einsum(
            f"{prefix}mixed", graph.softmax(f"{prefix}softmax", scores), value, spec="bkglm,bmke->blkge"
        )
        graph.parameter(f"{prefix}wo", (width, width))
        flat = graph.reshape(f"{prefix}flat", mixed, (batch, length, width))
        x = graph.add(f"{prefix}attended", graph.matmul(f"{prefix}out", flat, f"{prefix}wo"), x)
        for name, shape in (("gate", (width, hidden)), ("up", (width, hidden)), ("down", (hidden, width))):
            graph.parameter(f"{prefix}{name}", shape)
        gate = graph.silu(f"{prefix}silu", graph.matmul(f"{prefix}gated", x, f"{prefix}gate"))
        product = graph.multiply(f"{prefix}product", gate, graph.matmul(f"{prefix}raised", x, f"{prefix}up"))
        x = graph.add(f"{prefix}lowered", graph.matmul(f"{prefix}mlp", product, f"{prefix}down"), x)
    return graph


def add_rotary(graph: Graph, prefix: str, x: str, each: int) -> str:
    """Rotates the halves of heads (..., each) against each other, by the inputs `cosines` and `sines`."""
    axis = len(graph.shapes[x]) - 1
    first = graph.slice(f"{prefix}first", x, axis, 0, each // 2)
    second = graph.negative(f"{prefix}second", graph.slice(f"{prefix}last", x, axis, each // 2, each))
    turned = graph.concat(f"{prefix}turned", second, first, axis=axis)
    along, across = graph.multiply(f"{prefix}along", x, "cosines"), graph.multiply(f"{prefix}across", turned, "sines")
    return graph.add(f"{prefix}rotated", along, across)


def transformer(
    layers: int, mesh: DeviceMatrix, batch: int = 64, length: int = 512, heads: int = 32, width: int = 2048
) -> Graph:
    """A chain of transformer blocks on a mesh: attention and MLP, each with its residual."""
    graph = Graph(mesh=mesh, itemsize=2)
    graph.input("x", (batch, length, width))
    stream = "x"
    for layer in range(layers):
        stream = add_attention(graph, f"l{layer}.", stream, batch, length, heads, width)
        stream = add_mlp(graph, f"l{layer}.", stream, width)
    return graph


def add_mlp(graph: Graph, prefix: str, x: str, width: int, ratio: int = 4) -> str:
    """Up, gelu, down, residual. Returns the residual's name."""
    graph.parameter(f"{prefix}up", (width, ratio * width))
    graph.parameter(f"{prefix}down", (ratio * width, width))
    hidden = graph.gelu(f"{prefix}gelu", graph.matmul(f"{prefix}matmul1", x, f"{prefix}up"))
    return graph.add(f"{prefix}added", graph.matmul(f"{prefix}matmul2", hidden, f"{prefix}down"), x)
