"""What can go wrong among several hosts, each in one line: whom it concerns, what was seen, what to do."""

from __future__ import annotations

from taillab.errors import TaillabError


class ClusterError(TaillabError):
    """Something that ends the part of one host, or of all."""


class LostRankError(ClusterError):
    """A rank has ended, or its connection has."""

    def __init__(self, rank: int, host: str, doing: str) -> None:
        super().__init__(
            f"rank {rank} on {host} ended while {doing}: see what it said above, and whether its host still runs (memory, ssh)"
        )


class SilentRankError(ClusterError):
    """A rank that did not answer in time."""

    def __init__(self, rank: int, host: str, doing: str, waited_s: float) -> None:
        super().__init__(
            f"rank {rank} on {host} said nothing for {waited_s:.3g} s while {doing}: its host is too slow or hangs; "
            "leave it out, or wait longer (--patience)"
        )


class ClockJumpedError(ClusterError):
    """A clock that was moved."""

    def __init__(self, host: str, by_ns: float, when: str) -> None:
        super().__init__(
            f"the CLOCK_MONOTONIC of {host} jumped by at least {by_ns / 1e3:.3g} µs {when}: was its guest moved or "
            "suspended? Its times cannot be put beside those of the others; measure again"
        )


class VersionsError(ClusterError):
    """Hosts with different programs."""

    def __init__(self, ours: str, others: dict[str, str]) -> None:
        listed = ", ".join(f"{host} has {version}" for host, version in sorted(others.items()))
        super().__init__(f"the hosts have different versions: {listed}, and the first rank has {ours}: install {ours} on all")


class ClientFailedError(ClusterError):
    """The agent of one client ended with an error."""

    def __init__(self, client: int, host: str, exit_code: int, said: str) -> None:
        signal = f"was killed by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
        super().__init__(f"client {client} on {host} {signal}: {said or 'it gave no reason; run its plan by hand'}")


class HungProgramError(ClusterError):
    """The program of one client did not end in time, and was ended."""

    def __init__(self, client: int, host: str, within_s: float) -> None:
        super().__init__(
            f"client {client} on {host} was ended after {within_s:.3g} s: its program hangs, or its host is too slow; leave it "
            "out, or wait longer (--patience)"
        )


class UsageError(ClusterError):
    """A command line that cannot be carried out."""
