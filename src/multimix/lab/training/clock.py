"""Seconds of training, apart from what is done between."""

import time


class Clock:
    """Wall and CPU seconds of this process since it was last asked."""

    def __init__(self) -> None:
        self.lap()

    def lap(self) -> dict[str, float]:
        """``seconds`` and ``cpu_seconds`` since the last lap."""
        now = {"seconds": time.perf_counter(), "cpu_seconds": time.process_time()}
        passed = {name: now[name] - getattr(self, name, now[name]) for name in now}
        self.__dict__.update(now)
        return passed
