"""Checks that the group, label and tag of a recorded call are in canonical form."""

from collections.abc import Sequence

from lib.communication.mesh import Mesh
from lib.errors import TraceError
from lib.game.setting import Game
from lib.rules import operations
from lib.rules.collectives import Group
from lib.trace.ops import Op, group_of, shortest
from lib.values.base import Value


def require_group(mesh: Mesh, rank: int, op: Op, used: Sequence[Value]) -> Group | None:
    """The group of a collective, if its record is as a run writes it."""
    if op.layer != used[0].layer:
        raise TraceError(f"it is of layer {used[0].layer}, that of the {used[0]}, not {op.layer}")
    if not op.args:
        return None
    group, label = group_of(op), op.args[1] if len(op.args) > 1 else None
    layers = tuple([value.layer for value in used])
    if op.args != shortest(group, None if label in (layers, op.layer) and len(op.args) > 1 else label):
        raise TraceError(f"a record leaves out arguments that have their default; this one is {op}")
    labels = label if type(label) is tuple else (0 if label is None else label,) * len(used)
    if [type(one) for one in labels] != [int] * len(used):
        raise TraceError(f"a label is a whole number for each value; this record is {op}")
    if group is not None:
        mesh.require()
        if not mesh.recorded(group):
            raise TraceError(f"a group is some of the ranks, ascending; this record is {op}")
        mesh.require_member(rank, group)
    return group


def require_tag(game: Game, op: Op) -> None:
    """Refuses a message whose record has a tag that cannot be."""
    if len(op.args) > 1 and (type(op.args[1]) is not int or not operations.tag(game, op.args[1])):
        raise TraceError(f"a record leaves out arguments that have their default; this one is {op}")
