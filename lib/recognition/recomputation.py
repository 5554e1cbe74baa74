"""Finds what a rank computes again (Chen et al. 2016): forwards that it did before, with no backward since."""

from collections.abc import Sequence

from lib.trace.ops import Op, halves

BACKWARD = frozenset(("backward", "backward_input", "backward_weight"))


def recomputed(ops: Sequence[Op], steps: Sequence[int] = ()) -> set[int]:
    """The indices of the forwards that repeat one of the same layer, microbatches and training step. `steps` has the
    step of each operation; without it, a forward is told from that of the step before by the backward between them."""
    found = set()
    done: dict[tuple[int | None, int], frozenset[int]] = {}
    for i, op in ((i, half) for i, whole in enumerate(ops) for half in halves(whole)):
        if op.name != "forward" and op.name not in BACKWARD:
            continue
        key = op.layer, steps[i] if steps else 0
        before = done.get(key, frozenset())
        if op.name == "forward":
            if op.batches and op.batches <= before:
                found.add(i)
            done[key] = before | op.batches
        else:
            done[key] = before - op.batches
    return found
