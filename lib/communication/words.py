"""Words the refusals of how ranks meet: a reason, and a sentence over its facts."""

from lib.errors import Sentences

SAYS = Sentences(
    {
        "result not awaited": "this is {this}",
        "nobody can move": "nobody can move: {clauses}",
        "no mesh lengths": "a mesh gives the length of each axis, such as {{'dp': 2, 'tp': 4}}; got {got!r}",
        "axes share a name": "a mesh needs a different name for each axis; got {names!r}",
        "other number of ranks": "the mesh has {lengths}{product}, but there {are} {ranks}; the lengths of its axes multiply to the number of ranks",
        "no group": "a group is an axis, a tuple of axes, or ranks such as [0, 2]; got {got!r}",
        "axis twice": "this group names an axis twice: {axes}; name it once",
        "rank twice": "this group names a rank twice: {ranks}; name it once",
        "no mesh": "a group needs a mesh, and this game has none; make one with Dist(8, mesh={{'dp': 4, 'tp': 2}})",
        "not in this group": "this rank is not in the group {group}; it can call collectives of its own groups only",
        "no such axis": "there is no axis {axis!r}; this Dist has {axes}",
        "not pending": "rank {rank} awaits operation {operation}, which is not a pending call",
        "sent to nobody": "rank {rank} sends to rank {to}, which does not exist",
    }
)
