"""A central server of a paper's own architecture: requests wait in one queue for a worker, and each takes a time of its own
and one for every item that it looks at. A model on the virtual clock; Shoal's own server is never modelled by it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from shoal.sim.clock import Clock


class CentralServer:
    """Workers that serve requests in the order of their arrival."""

    def __init__(self, clock: Clock, per_request: float, per_item: float = 0.0, workers: int = 1) -> None:
        if per_request < 0 or per_item < 0 or workers < 1:
            raise ValueError("a server has workers, and its service takes no negative time")
        self._clock, self.per_request, self.per_item = clock, per_request, per_item
        self._free = workers
        self._waiting: deque[tuple[float, float, Callable[[], None]]] = deque()
        self.served = 0
        self.busy_seconds = 0.0  # of all workers, for requests that were begun
        self.waited_seconds = 0.0  # of all requests, before they were begun
        self.longest_queue = 0

    @property
    def waiting(self) -> int:
        """Requests that no worker has begun."""
        return len(self._waiting)

    def service_time(self, items: int = 0) -> float:
        """Seconds that a request takes once a worker has it."""
        return self.per_request + self.per_item * items

    def request(self, answered: Callable[[], None], items: int = 0) -> None:
        """A request arrives; `answered` is called when it has been served."""
        self._waiting.append((self._clock.now, self.service_time(items), answered))
        self._begin()
        self.longest_queue = max(self.longest_queue, len(self._waiting))

    def _begin(self) -> None:
        while self._free and self._waiting:
            arrived, seconds, answered = self._waiting.popleft()
            self._free -= 1
            self.busy_seconds += seconds
            self.waited_seconds += self._clock.now - arrived
            self._clock.after(seconds, lambda answered=answered: self._end(answered))  # type: ignore[misc]  # bound now

    def _end(self, answered: Callable[[], None]) -> None:
        self._free += 1
        self.served += 1
        self._begin()
        answered()
