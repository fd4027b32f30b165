"""The bytes that all connections of a server may hold together. One thread: the loop's."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Budget:
    """
    Grants reservations in the order in which they were asked for.

    Nobody who holds one has to ask for a second before it can let go of the first, so everybody gets a turn. A
    reservation beyond the whole limit counts as the limit: it goes alone.

    Attributes:
        limit: In bytes.
        held: What is granted now.
    """

    def __init__(self, limit: int) -> None:
        """Begin with nothing held."""
        self.limit, self.held = limit, 0
        self._waiting: deque[tuple[int, Callable[[], bool]]] = deque()

    def take(self, size: int, granted: Callable[[], bool]) -> bool:
        """
        Hold *size* bytes; where they are not free, give False, and call *granted* once they are held.

        *granted* says whether they are still wanted.
        """
        size = min(size, self.limit)
        if self._waiting or self.held + size > self.limit:
            self._waiting.append((size, granted))
            return False
        self.held += size
        return True

    def give_back(self, size: int) -> None:
        """Let go of *size* bytes that were held."""
        self.held -= min(size, self.limit)
        while self._waiting and self.held + self._waiting[0][0] <= self.limit:
            waiting, granted = self._waiting.popleft()
            self.held += waiting
            if not granted():
                self.held -= waiting
