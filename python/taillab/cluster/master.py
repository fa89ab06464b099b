"""What the first rank does: it greets, measures clocks, fixes the start, sleeps, and gathers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from taillab.cluster.clocks import HostClock, Offset, Sample, now_ns, offset_of
from taillab.cluster.faults import (
    ClientFailedError,
    ClockJumpedError,
    ClusterError,
    HungProgramError,
    LostRankError,
    SilentRankError,
    UsageError,
    VersionsError,
)
from taillab.cluster.link import Link
from taillab.cluster.worker import Done, Hello

T = TypeVar("T")
Planner = Callable[[int, dict[int, HostClock]], dict[int, dict[str, Any]]]
"""From the start by our clock, and the clocks of those that take part by their numbers, to the plan of each."""
QUESTIONS = 200
_CLOCK_S = 10.0
# between two measurements of the clocks before the start, for their drift
_BETWEEN_S = 0.5
# a client measures its floor after the load, and waits for the last answers
_AFTER_S = 6.0
# what a rank gets at least to say how its program ended
_LEAST_S = 0.3
# A piece of a result is there already: a client that gets no CPU for a moment need not lose what it has measured.
_PIECE_S = 5.0
# exit codes of an agent with a result
_WITH_RESULT = (0, 3, 4, 130)


@dataclass
class Member:
    """A rank, as the first one knows it."""

    rank: int
    host: str = "a host that has not said its name"
    version: str = ""
    offsets: list[Offset] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """What went wrong, one line each."""
    is_lost: bool = False
    is_busy: bool = False
    """Its program runs, so that it does not answer."""
    is_jumped: bool = False
    """Its clock was moved: its instants cannot be put on ours."""
    done: Done | None = None
    directory: Path | None = None

    @property
    def number(self) -> int:
        """Its number among those that the first rank leads, from 0."""
        return self.rank - 1

    @property
    def is_ready(self) -> bool:
        """It answers, and its clock is known."""
        return not self.is_lost and not self.is_jumped and bool(self.offsets)

    def clock(self) -> HostClock:
        """Its clock against ours."""
        return HostClock(self.host, tuple(self.offsets))

    @property
    def has_result(self) -> bool:
        """Its files are here."""
        return self.directory is not None and (self.directory / "result.json").is_file()


@dataclass(frozen=True)
class Waits:
    """Limits in seconds."""

    patience_s: float = 30.0
    """How long a rank may take for an answer, and how much longer than planned for a measurement."""
    lead_s: float = 3.0
    """From the plan to the start: clients start their programs and connect."""


class Master:
    """The first rank. `say` gets lines about what is happening, for stderr."""

    def __init__(self, link: Link, waits: Waits, say: Callable[[str], None]) -> None:
        if link.size < 2:
            raise UsageError("there is no client: start two ranks or more, e.g. mpirun -n 2; the first one leads")
        self._link = link
        self._waits = waits
        self._say = say
        self.members = [Member(rank) for rank in range(1, link.size)]
        self.at_ns = 0
        """The last start by our clock."""

    @property
    def alive(self) -> list[Member]:
        """Those that answer."""
        return [member for member in self.members if not member.is_lost]

    def greet(self, version: str) -> None:
        """Learns who the others are.

        Raises:
            LostRankError, SilentRankError: one does not answer.
            VersionsError: one has another version of the program.
        """
        for member in self.members:
            self._ask(member, "hello", None)
        for member in self.members:
            hello: Hello = self._answer(member, "starting")
            member.host, member.version = hello.host, hello.version
            know = getattr(self._link, "know", None)
            if know is not None:
                know(member.rank, hello.host)
        others = {member.host: member.version for member in self.members if member.version != version}
        if others:
            raise VersionsError(version, others)

    def measure_clocks(self) -> None:
        """Measures the offset of the clock of each member that has nothing else to do, one after the other. Who fails has
        a failure.
        """
        for member in self.alive:
            if member.is_jumped or member.is_busy:
                continue
            with self._failing(member):
                self._ask(member, "clock", QUESTIONS)
                self._answer(member, "reading its clock")
                offset = offset_of(list(self._samples(member)), member.host)
                HostClock(member.host, (*member.offsets, offset))
                member.offsets.append(offset)

    def _samples(self, member: Member) -> Any:
        for _ in range(QUESTIONS):
            sent = now_ns()
            self._link.send(member.rank, None, "asking for the time")
            there: int = self._link.receive(member.rank, _CLOCK_S, "reading its clock", spin=True)
            yield Sample(sent, there, now_ns())

    def measure(self, length_ns: int, plan: Planner, clients: list[Member]) -> None:
        """Has these members send their parts of a load together, and waits until they are done."""
        self.measure_clocks()
        time.sleep(_BETWEEN_S)
        self.measure_clocks()
        known = {member.number: member for member in clients if member.is_ready}
        self.at_ns = at_ns = now_ns() + round(self._waits.lead_s * 1e9)
        within_s = self._waits.lead_s + length_ns / 1e9 + _AFTER_S + self._waits.patience_s
        clocks = {number: member.clock() for number, member in known.items()}
        for number, each in plan(at_ns, clocks).items():
            with self._failing(known[number]):
                self._ask(known[number], "plan", (each, within_s), within_s)
        self.finish(list(known.values()), at_ns + length_ns, within_s)
        self.measure_clocks()

    def command(self, member: Member, words: list[str], within_s: float) -> None:
        """Has a member run a command of the program; `finish` waits for it."""
        member.done, member.directory = None, None
        with self._failing(member):
            self._ask(member, "command", (words, within_s), within_s)

    def rescue(self) -> None:
        """Hears at once how programs ended that somebody has interrupted; from now on nobody is waited for."""
        self._waits = replace(self._waits, patience_s=_LEAST_S)
        self._hear([member for member in self.alive if member.done is None], time.monotonic(), 0.0)

    def finish(self, members: list[Member], until_ns: int, within_s: float) -> None:
        """Sleeps until the measurement is over, and hears how it ended."""
        time.sleep(max(0, until_ns - now_ns()) / 1e9)
        self._hear(members, time.monotonic() + within_s + self._waits.patience_s, within_s)

    def _hear(self, members: list[Member], end: float, within_s: float) -> None:
        for member in members:
            if member.is_lost:
                continue
            member.done, member.directory = None, None
            with self._failing(member):
                done = self._next(member, Done, max(_LEAST_S, end - time.monotonic()), "measuring")
                member.done, member.is_busy = done, False
                if not done.ended.in_time and done.ended.exit_code != 130:
                    raise HungProgramError(member.number, member.host, within_s)
                if done.ended.exit_code not in _WITH_RESULT:
                    raise ClientFailedError(member.number, member.host, done.ended.exit_code, done.ended.said)

    def _next(self, member: Member, kind: type[T], within_s: float, doing: str) -> T:
        """The next message of this kind. Answers to what was broken off may come before it."""
        until = time.monotonic() + within_s
        while True:
            message = self._link.receive(member.rank, max(0.0, until - time.monotonic()), doing)
            if isinstance(message, kind):
                return message

    def gather(self, out: Path, names: Callable[[str], bool], called: Callable[[Member], str]) -> None:
        """Fetches the files with these names, one member after the other, a piece at a time."""
        for member in self.alive:
            if member.done is None or not member.done.files:
                continue
            directory = out / called(member)
            directory.mkdir(parents=True, exist_ok=True)
            with self._failing(member):
                for name, length in member.done.files.items():
                    if names(name):
                        self._fetch(member, name, length, directory / name)
                member.directory = directory

    def _fetch(self, member: Member, name: str, length: int, path: Path) -> None:
        part = path.with_name(path.name + ".part")
        with open(part, "wb") as file:
            while file.tell() < length:
                self._ask(member, "piece", (name, file.tell()))
                patience_s = max(self._waits.patience_s, _PIECE_S)
                piece = self._next(member, bytes, patience_s, f"handing over {name}")
                if not piece:
                    raise LostRankError(member.rank, member.host, f"handing over {name}")
                file.write(piece)
        # a file that is there is whole
        part.rename(path)

    def end(self) -> None:
        """Lets all that still answer go."""
        for member in self.alive:
            with contextlib.suppress(ClusterError):
                self._ask(member, "end", None)

    @contextlib.contextmanager
    def _failing(self, member: Member) -> Any:
        """What goes wrong with one member is its failure, and the others go on."""
        try:
            yield
        except (LostRankError, SilentRankError) as error:
            member.is_lost = True
            self._note(member, error)
        except ClockJumpedError as error:
            member.is_jumped = True
            self._note(member, error)
        except (ClientFailedError, HungProgramError) as error:
            self._note(member, error)

    def _note(self, member: Member, error: ClusterError) -> None:
        member.failures.append(str(error))
        self._say(f"taillab: {error}")

    def _ask(self, member: Member, word: str, argument: Any, busy_s: float = 0.0) -> None:
        # the next question may come only after all others are done
        next_s = busy_s * 2 + self._waits.patience_s * (2 + len(self.members)) + 60
        self._link.send(member.rank, (word, argument, next_s), f"being asked ({word})")
        member.is_busy = word in ("plan", "command")

    def _answer(self, member: Member, doing: str) -> Any:
        return self._link.receive(member.rank, self._waits.patience_s, doing)
