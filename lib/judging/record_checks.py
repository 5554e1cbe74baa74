"""Checks of records: stored and deleted values, the group and label of a collective, the tag of a message."""

from collections.abc import Iterable, Sequence

from lib.communication.mesh import Mesh
from lib.errors import RuleError, TraceError
from lib.game.setting import Game
from lib.rules import operations
from lib.rules.collectives import Group
from lib.rules.rooted import ROOT_OF, require_root, root_in
from lib.trace.ops import NO_BATCHES, Op, group_of, shortest
from lib.values.base import Value
from lib.values.kinds import HOLDS

from .rank_state import RankState
from .words import SAYS


def follow_stored(rank: RankState) -> None:
    """Follows a rank's storage through its next operation, which stores or deletes a value."""
    rank.liveness.advance(rank.at)
    try:
        rank.liveness.advance(rank.at + 1)
    except TraceError:
        _explain(rank, rank.op)
        raise


def _explain(rank: RankState, op: Op) -> None:
    timeless = op.start == rank.clock == op.end and op.layer is None and op.batches == NO_BATCHES
    if not timeless or op.outputs != () or len(op.args) != 2 or type(op.inputs) is not tuple:
        raise TraceError(SAYS("takes no time", name=op.name, op=op))
    if op.name == "delete":
        raise RuleError(SAYS("nothing stored"))
    (number,), where = op.inputs, op.args[0]
    value = rank.values.get(number)
    if value is None:
        raise TraceError(SAYS("stored value not made", number=number))
    if HOLDS.get(where) is not type(value):
        raise RuleError(SAYS("wrong dictionary", dictionary=where, kind=value.kind))
    refuse_pending(rank, op.inputs)
    refuse_handmade(rank, op)


def refuse_pending(rank: RankState, numbers: Iterable[int]) -> None:
    """Refuses the result of a call that has not been awaited."""
    if pending := rank.pending.keys() & {*numbers}:
        raise RuleError(SAYS("still pending", value=rank.values[min(pending)]))


def refuse_handmade(rank: RankState, op: Op) -> None:
    """Refuses values that no operation has made."""
    for number in rank.handmade.intersection(op.inputs):
        raise RuleError(SAYS("made by hand", value=rank.values[number]))


def require_group(mesh: Mesh, rank: int, op: Op, used: Sequence[Value]) -> Group | None:
    """The group of a collective; refuses a record that no run writes."""
    if used and op.layer != used[0].layer:
        raise TraceError(SAYS("other layer", layer=used[0].layer, value=used[0], op_layer=op.layer))
    if op.name in ROOT_OF and (len(op.args) < 3 or type(op.args[2]) is not int):
        raise TraceError(SAYS("no root", name=op.name, op=op))
    if not op.args:
        return None
    group, label = group_of(op), op.args[1] if len(op.args) > 1 else None
    layers, root = tuple([value.layer for value in used]), root_in(op.name, op.args)
    if op.args != shortest(group, None if label in (layers, op.layer) and len(op.args) > 1 else label, root):
        raise TraceError(SAYS("default recorded", op=op))
    labels = label if type(label) is tuple else (0 if label is None else label,) * len(used)
    if [type(number) for number in labels] != [int] * len(used) or not (used or label is None):
        raise TraceError(SAYS("no labels", op=op))
    if group is not None:
        mesh.require()
        if not mesh.recorded(group):
            raise TraceError(SAYS("no group", op=op))
        mesh.require_member(rank, group)
    if root is not None:
        require_root(op.name, root, rank, group or range(mesh.ranks), bool(used))
    return group


def require_tag(game: Game, op: Op) -> None:
    """Refuses a message whose tag is impossible."""
    if len(op.args) > 1 and (type(op.args[1]) is not int or not operations.tag(game, op.args[1])):
        raise TraceError(SAYS("default recorded", op=op))
