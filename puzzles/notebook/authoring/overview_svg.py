"""Overview picture of a schedule puzzle: which part of each layer a rank keeps, its batches, and its partners.

It shows only placement, not the order of operations, because finding the order is the puzzle.
"""

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from drawing.palette import layer_colour
from puzzles.catalog.schedule import SchedulePuzzle
from puzzles.reports.html import rendered

Share = tuple[int, int] | None


@dataclass(frozen=True)
class PuzzlePlacement:
    """Placement of weights and batches on ranks. `part` is the share of a layer that a rank keeps, as (index, total),
    or None.

    `batches` names what a rank reads. `talk` labels what connects the ranks: a bracket (`everybody`), or arrows from
    rank to rank (`chain`).
    """

    part: Callable[[int, int], Share]
    batches: Callable[[int], str]
    talk: str = ""
    everybody: bool = False
    chain: Callable[[int], bool] = lambda rank: False
    """True for a rank that passes activations to the next one."""
    works: Callable[[int, int], bool] = lambda rank, layer: True
    """True if a rank computes a layer."""


def placement_of(puzzle: SchedulePuzzle) -> PuzzlePlacement:
    layers, batches, ranks = puzzle.goal.size
    stage = layers // ranks if ranks <= layers else 1

    def own(rank: int, layer: int) -> Share:
        return (0, 1) if layer // stage == rank else None

    def whole(rank: int, layer: int) -> Share:
        return 0, 1

    def shard(rank: int, layer: int) -> Share:
        return rank, ranks

    def each(rank: int) -> str:
        return f"batch {rank}"

    def fours(rank: int) -> str:
        return f"batches {4 * rank}-{4 * rank + 3}"

    def first(text: str) -> Callable[[int], str]:
        return lambda rank: text if rank == 0 else ""

    def same(text: str) -> Callable[[int], str]:
        return lambda rank: text

    def down(rank: int) -> bool:
        return rank < ranks - 1

    at_once, in_turn = (first(f"batches 0-{batches - 1}, {how}") for how in ("at once", "in turn"))
    alone, group = PuzzlePlacement, partial(PuzzlePlacement, everybody=True)
    line = partial(PuzzlePlacement, chain=down)
    stages = line(own, in_turn, "activations down, gradients up")
    parked = alone(whole, first("batch 0"), "activations to the host and back")
    ahead = "weights are gathered ahead, gradients scattered"
    return {
        "basic": alone(whole, at_once),
        "grad_accum": alone(whole, in_turn),
        "ddp": group(whole, each, "gradients are summed over all ranks"),
        "wsdp": group(shard, each, "weights are gathered, gradients summed"),
        "fsdp": group(shard, each, "weights are gathered, gradients scattered"),
        "pipeline": line(own, at_once, "activations down, gradients up"),
        **dict.fromkeys(("gpipe", "one_f_one_b", "zb_h1", "zb_h2", "weight_versions"), stages),
        "zero1": group(whole, each, "gradients are scattered, weights gathered"),
        "zero2": group(whole, fours, "gradients are scattered, weights gathered"),
        "checkpoint": alone(whole, first("batch 0")),
        **dict.fromkeys(("offload", "park_or_recompute"), parked),
        "host_update": alone(whole, at_once, "gradients to the host, weights back"),
        "interleaved": line(
            lambda r, layer: (0, 1) if layer % ranks == r else None, in_turn, "twice down the ranks, and twice back up"
        ),
        "breadth_first": group(
            lambda rank, layer: (rank // 2, 2) if layer % 2 == rank % 2 else None,
            lambda rank: "" if rank % 2 else f"batches {rank // 2}, {rank // 2 + 2} ... {rank // 2 + 6}",
            "messages over pp, shards over dp",
        ),
        "two_ways": line(
            lambda r, layer: (0, 1) if layer in (r, layers - 1 - r) else None,
            lambda r: f"batches {'0-3' if r == 0 else '4-7'}" if r in (0, ranks - 1) else "",
            "down from one end, up from the other",
        ),
        "vocab_parallel": line(
            lambda r, layer: (r, ranks) if layer == layers - 1 else (0, 1) if layer // 2 == r else None,
            in_turn,
            "activations down, sums of the head, gradients up",
        ),
        "zb_v": line(
            lambda r, layer: (0, 1) if layer in (r, layers - 1 - r) else None, in_turn, "down and up the V, and back"
        ),
        "ddp_overlap": group(whole, each, "gradients are summed while backward goes on"),
        "fsdp_prefetch": group(shard, each, ahead),
        "stream_inference": alone(whole, at_once, "weights from the host, one by one"),
        "tensor_parallel": group(shard, same("batch 0"), "activations are summed"),
        "sequence_parallel": group(shard, same("batch 0"), "tokens are scattered and gathered"),
        "expert_parallel": group(shard, lambda r: f"batches {r}, {r + 4}", "tokens go to experts and back"),
        "three_d": group(
            lambda rank, layer: (rank % 2, 2) if layer // 2 == rank // 2 % 2 else None,
            lambda rank: f"batches {rank // 4 * 2}-{rank // 4 * 2 + 1}" if rank % 4 < 2 else "",
            "sums over tp, messages over pp, sums over dp",
        ),
        "hybrid_shard": group(
            lambda rank, layer: (rank % 4, 4), each, "weights within a machine, sums of shards between"
        ),
        "streaming_diloco": group(whole, each, "one layer's changes are averaged in each step"),
        "local_sgd": group(whole, each, "weights are averaged"),
        "fsdp_bound": group(shard, fours, ahead),
        "axis_inside": group(lambda rank, layer: (rank % 4, 4), same(""), "which groups share a batch?"),
        "tp_limit": group(lambda rank, layer: (rank % 2, 2), same(""), "how many share a batch?"),
        "hierarchy": group(whole, each, "gradients are summed in two levels"),
        "bucket_size": group(whole, each, "gradients are summed in buckets"),
        "straggler": group(whole, same(""), "who has which batches?"),
        "uneven_stages": line(lambda rank, layer: None, in_turn, "who has which layers?"),
        "v_half": line(
            lambda rank, layer: (0, 1) if layer in (rank, layers - 1 - rank) else None,
            in_turn,
            "down and up the V, and back",
        ),
        "seq_pipeline": line(own, first("two sequences, in shares"), "activations down, gradients up"),
        "ring_context": group(whole, same(""), "key-value blocks go round; who has which tokens?"),
        "ulysses": group(whole, lambda rank: f"shares {2 * rank}, {2 * rank + 1}", "tokens are exchanged for heads"),
        "pipeline_fsdp": group(
            shard,
            lambda rank: f"batch {rank // 4}" if rank % 4 == 0 else "",
            "all ranks share shards; a frame marks who computes",
            chain=lambda rank: rank % 4 < 3,
            works=lambda rank, layer: layer == rank % 4,
        ),
    }[puzzle.slug]


def overview_svg(puzzle: SchedulePuzzle) -> str:
    placement, (layers, _, ranks) = placement_of(puzzle), puzzle.goal.size
    colours = [layer_colour(layer, layers) for layer in range(layers)]
    has_chain = any(map(placement.chain, range(ranks)))
    given = {"placement": placement, "layers": layers, "ranks": ranks, "colours": colours, "has_chain": has_chain}
    return rendered("overview.svg", **given)


def overview_markdown(puzzle: SchedulePuzzle) -> str:
    data = b64encode(overview_svg(puzzle).encode()).decode()
    return f"![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,{data})"
