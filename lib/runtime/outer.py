"""The player's calls of an outer step: the change of a copy, the outer update, and the merge of a late average."""

from typing import Any

from lib.rules import outer
from lib.values.kinds import Delta, OuterState, Weight

from .attention import AttentionCalls


class OuterCalls(AttentionCalls):
    """The calls of a rank in the task "outer"."""

    def delta(self, layer: int, before: Weight, after: Weight) -> Delta:
        """Returns the outer gradient: by how much the copy `after` has moved away from the agreed weight `before`.
        All-reduce it over the replicas. Takes no time."""
        made: tuple[Delta] = self._compute("delta", outer.delta, layer, before, after)
        return made[0]

    def outer_update(
        self, layer: int, before: Weight, delta: Delta, outer_state: OuterState
    ) -> tuple[Weight, OuterState]:
        """Returns the agreed weight of the next round and its outer state, from the changes of all copies."""
        made: tuple[Weight, OuterState]
        made = self._compute("outer_update", outer.outer_update, layer, before, delta, outer_state)
        return made

    def merge(self, layer: int, copy: Weight, agreed: Weight) -> Weight:
        """Returns a mixture of a copy that has gone on and the agreed weight of the next round. Takes no time."""
        made: tuple[Weight] = self._compute("merge", outer.merge, layer, copy, agreed)
        return made[0]

    def set_final_copy(self, layer: int, copy: Any) -> None:
        """Declares this replica's own weight after all steps to be final, besides the agreed weight."""
        self._compute("set_final_copy", outer.set_final_copy, layer, copy)
