"""Ways around a lesson that the targets allow, each with three stars. One that is stopped goes to its chapter's table.

Two stars of a classic are decided by the original's targets. For the third star of `pipeline` and `gpipe` a rank may
send 2.1M elements, because a pipeline of two laps sends 2,097,152; two pipelines of two stages send less. They are
pipelines: each rank has some of the layers, and activations travel in messages. The catalog has them as a record.
"""

from __future__ import annotations

from tests.catalog.lessons.tables.common import Skips, two_by_two

UNSTOPPED: Skips = {
    "pipeline": {"two pipelines of two stages": (two_by_two(), set())},
    "gpipe": {"two pipelines of two stages": (two_by_two(), set())},
}
