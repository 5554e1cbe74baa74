"""Groups of ranks that can communicate: each rank gets its model, and all share one live run."""

from collections.abc import Mapping
from dataclasses import replace

from lib.communication.mesh import axes_of
from lib.errors import RuleError
from lib.game.setting import CLASSIC_SETTING, Setting, Size
from lib.values import algebra

from .live_run import LiveRun
from .words import SAYS


class Dist:
    """A group of ranks that can communicate: `Dist(4)` for ranks 0 to 3.

    `mesh` puts the ranks on named axes, as in `Dist(8, mesh={"dp": 2, "pp": 2, "tp": 2})`; it becomes part of the
    setting. `setting` holds everything else that the game fixes: costs, steps, the kind of layers. Giving a rank a
    second Model starts a new run, so that a notebook cell can be run again.
    """

    def __init__(self, ranks: int, mesh: Mapping[str, int] | None = None, setting: Setting = CLASSIC_SETTING) -> None:
        self.ranks = algebra.whole_number(ranks, "ranks", "Dist", least=1)
        if not isinstance(setting, Setting):
            raise RuleError(SAYS("no setting", got=setting))
        axes = axes_of(setting.mesh if mesh is None else mesh, self.ranks)
        self.setting = setting if axes == setting.mesh else replace(setting, mesh=axes)
        self._run: LiveRun | None = None

    def __repr__(self) -> str:
        return f"Dist({self.ranks})"

    def enter(self, rank: object, layers: object, batches: object) -> tuple[LiveRun, int]:
        """The run that a new Model for `rank` belongs to, and the checked rank.

        Raises:
            RuleError: there is no such rank, or earlier ranks have named another size.
        """
        rank = algebra.number(rank, self.ranks, "rank", "Model")
        size = Size(
            algebra.whole_number(layers, "layers", "Model", least=1),
            algebra.whole_number(batches, "batches", "Model", least=1),
            self.ranks,
        )
        run = self._run
        if run is None or rank in run.with_model:
            run = self._run = LiveRun(size, self.setting)
        elif run.size != size:
            raise RuleError(
                SAYS(
                    "sizes differ",
                    rank=rank,
                    layers=size.layers,
                    batches=size.batches,
                    other=min(run.with_model),
                    other_layers=run.size.layers,
                    other_batches=run.size.batches,
                )
            )
        run.with_model.add(rank)
        return run, rank
