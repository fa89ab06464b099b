"""What the cluster needs of MPI: ranks that send each other messages, and no wait without a limit.

`taillab.cluster.mpi` is the one over mpi4py; tests have another one over sockets.
"""

from __future__ import annotations

from typing import Any, Protocol

MASTER = 0


class Link(Protocol):
    """One rank's way to the others. A message is any object that can be pickled."""

    rank: int
    size: int

    def send(self, to: int, message: Any, doing: str) -> None:
        """Sends a message.

        Raises:
            LostRankError: the other rank has ended.
            SilentRankError: it took nothing for a minute.
        """

    def receive(self, source: int, within_s: float, doing: str, spin: bool = False) -> Any:
        """The next message from a rank. It sleeps while it waits, unless `spin`, which is for clocks.

        Raises:
            LostRankError: the other rank has ended.
            SilentRankError: nothing came in time.
        """

    def host(self, rank: int) -> str:
        """The name of a rank's host, as far as it is known."""
