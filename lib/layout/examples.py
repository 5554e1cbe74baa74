"""Example graphs: a matmul, the feed-forward network, and parts of transformers."""

from lib.layout.graph import Graph
from lib.layout.layouts import DeviceMatrix


def one_matmul(devices: int = 8, rows: int = 64, inner: int = 64, columns: int = 64) -> Graph:
    """y = x w."""
    graph = Graph(devices)
    graph.input("x", (rows, inner))
    graph.parameter("w", (inner, columns))
    graph.matmul("matmul", "x", "w")
    return graph


def feed_forward(devices: int = 8, batch: int = 64, width: int = 64, hidden: int = 64) -> Graph:
    """The example of the Sharding Propagation documentation: Dense, ReLU, Dense."""
    graph = Graph(devices)
    graph.input("x", (batch, width))
    for i, (rows, columns) in enumerate(((width, hidden), (hidden, width)), start=1):
        graph.parameter(f"weight{i}", (rows, columns))
        graph.parameter(f"bias{i}", (columns,))
    graph.add("add1", graph.matmul("matmul1", "x", "weight1"), "bias1")
    graph.relu("relu", "add1")
    graph.add("add2", graph.matmul("matmul2", "relu", "weight2"), "bias2")
    return graph


def megatron_mlp(devices: int = 8, tokens: int = 64, width: int = 64, ratio: int = 4) -> Graph:
    """Two matmuls with a gelu between, and the residual (Shoeybi et al. 2019, section 3)."""
    graph = Graph(devices)
    graph.input("x", (tokens, width))
    graph.parameter("up", (width, ratio * width))
    graph.parameter("down", (ratio * width, width))
    graph.gelu("gelu", graph.matmul("matmul1", "x", "up"))
    graph.add("residual", graph.matmul("matmul2", "gelu", "down"), "x")
    return graph


def attention(devices: int = 8, batch: int = 4, length: int = 16, heads: int = 8, width: int = 64) -> Graph:
    """Multi-head attention with its residual (Vaswani et al. 2017)."""
    graph = Graph(devices)
    graph.input("x", (batch, length, width))
    add_attention(graph, "", "x", batch, length, heads, width)
    return graph


def embedding_and_head(devices: int = 8, batch: int = 8, length: int = 16, words: int = 512, width: int = 32) -> Graph:
    """An embedding and the output head that shares its table (Press and Wolf 2017)."""
    graph = Graph(devices)
    graph.input("tokens", (batch, length))
    graph.parameter("table", (words, width))
    graph.parameter("mix", (width, width))
    graph.gelu("gelu", graph.matmul("hidden", graph.gather("embed", "table", "tokens"), "mix"))
    graph.matmul("head", "gelu", "table", transpose_b=True)
    return graph


def boundary(devices: int = 8, batch: int = 256, width: int = 32, hidden: int = 1024) -> Graph:
    """Two blocks, each two matmuls with their residual: a narrow one on many pixels, then a mean and a wide one."""
    graph = Graph(devices)
    graph.input("pixels", (batch, 16, width))
    for name, inner in (("front", 4 * width), ("tail", hidden)):
        graph.parameter(f"{name}_up", (width, inner))
        graph.parameter(f"{name}_down", (inner, width))
    graph.relu("relu1", graph.matmul("matmul1", "pixels", "front_up"))
    graph.add("front", graph.matmul("matmul2", "relu1", "front_down"), "pixels")
    graph.reduce_mean("mean", "front", 1)
    graph.relu("relu2", graph.matmul("matmul3", "mean", "tail_up"))
    graph.add("tail", graph.matmul("matmul4", "relu2", "tail_down"), "mean")
    return graph


def vocabulary_loss(mesh: DeviceMatrix, tokens: int = 64, width: int = 32, words: int = 128) -> Graph:
    """The cross-entropy of an output head, with labels as rows of a one-hot table."""
    graph = Graph(mesh=mesh)
    graph.input("x", (tokens, width))
    graph.parameter("table", (words, width))
    graph.input("labels", (tokens, words))
    graph.reduce_max("largest", graph.matmul("logits", "x", "table", transpose_b=True), 1)
    graph.subtract("shifted", "logits", graph.reshape("most", "largest", (tokens, 1)))
    graph.log("logs", graph.reduce_sum("total", graph.exp("raised", "shifted"), 1))
    graph.reduce_sum("chosen", graph.multiply("masked", "shifted", "labels"), 1)
    graph.subtract("loss", "logs", "chosen")
    return graph


def add_attention(graph: Graph, prefix: str, x: str, batch: int, length: int, heads: int, width: int) -> str:
    """Projections, scores, softmax, mixture, output projection, residual. Returns the residual's name."""
    head_width = width // heads
    turned = {}
    for role in "qkv":
        graph.parameter(f"{prefix}w{role}", (width, width))
        projected = graph.matmul(f"{prefix}{role}", x, f"{prefix}w{role}")
        cut = graph.reshape(f"{prefix}{role}_heads", projected, (batch, length, heads, head_width))
        turned[role] = graph.transpose(f"{prefix}{role}_turned", cut, (0, 2, 1, 3))
    scores = graph.matmul(f"{prefix}scores", turned["q"], turned["k"], transpose_b=True)
    mixed = graph.matmul(f"{prefix}mixed", graph.softmax(f"{prefix}softmax", scores), turned["v"])
    back = graph.transpose(f"{prefix}mixed_turned", mixed, (0, 2, 1, 3))
    flat = graph.reshape(f"{prefix}mixed_flat", back, (batch, length, width))
    graph.parameter(f"{prefix}wo", (width, width))
    return graph.add(f"{prefix}attended", graph.matmul(f"{prefix}out", flat, f"{prefix}wo"), x)
