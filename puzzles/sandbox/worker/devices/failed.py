"""The end of a run by one of its devices."""

from puzzles.failure import Failure


class DeviceFailedError(Exception):
    """A device has ended the run; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.sentence)
        self.failure = failure
