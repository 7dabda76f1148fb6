"""A clock that tests set."""


class HandClock:
    """Stands still until a test sets its seconds."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def now(self) -> float:
        return self.seconds

    def time(self) -> float:
        return self.seconds
