"""What the ring algorithms send, and in how many hops."""


def elements_sent(operation: str, elements: int, ranks: int) -> int:
    """Elements one rank sends when it contributes `elements` to an operation of a group of `ranks`, by the ring
    algorithms.

    All-reduce 2(N-1)/N S, reduce-scatter (N-1)/N S, all-gather (N-1) times the shard (Patarasuk and Yuan 2009,
    "Bandwidth optimal all-reduce algorithms for clusters of workstations", section 3); the all-to-alls (N-1)/N S; a
    message S; along the chain of a broadcast or a reduce, all but one rank S.
    """
    match operation:
        case "allreduce":
            return 2 * (ranks - 1) * elements // ranks
        case "scatterreduce" | "dispatch" | "collect" | "heads" | "tokens":
            return (ranks - 1) * elements // ranks
        case "allgather":
            return (ranks - 1) * elements
        case "pass_to":
            return elements
        case "broadcast" | "reduce":
            return elements if ranks > 1 else 0
    return 0


def hops(operation: str, ranks: int) -> int:
    """Sequential hops of the ring algorithm: 2(n-1) for an all-reduce, n-1 for other collectives, 1 for a message."""
    match operation:
        case "allreduce":
            return 2 * (ranks - 1)
        case "pass_to":
            return 1
        case "receive":
            return 0
    return ranks - 1
