"""What a rank does that is not the first: it answers questions, runs one program at a time, and hands files over.

While its program measures, it sleeps in one system call, outside of MPI.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taillab import _program
from taillab.cluster import agent
from taillab.cluster.clocks import now_ns
from taillab.cluster.faults import ClusterError
from taillab.cluster.link import MASTER, Link
from taillab.errors import TaillabError

# a larger file goes in pieces, so that the first rank holds one piece at a time
PIECE_BYTES = 1 << 20
_FIRST_S = 300.0
_CLOCK_S = 10.0
# from when we are ended until we end: the first rank may still ask for what was measured
_LAST_S = 10


@dataclass(frozen=True)
class Hello:
    """Who a rank is."""

    host: str
    version: str
    cpus: int


@dataclass(frozen=True)
class Done:
    """How a rank's program ended, and which files it left, with their bytes."""

    ended: agent.Ended
    files: dict[str, int]
    directory: str


class Worker:
    """One rank. Messages of the first rank are (word, argument, seconds until the next at most)."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._directory: Path | None = None
        self._keep = False

    def serve(self) -> int:
        """Does what the first rank asks until it says `end`, or says nothing for too long. Returns the exit code."""
        within_s = _FIRST_S
        before = {each: signal.signal(each, _last_orders) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            message = None
            while True:
                message = message or self._link.receive(MASTER, within_s, "leading the experiment")
                # a question for the time whose series was broken off
                if message is None:
                    continue
                word, argument, within_s = message
                if word == "end":
                    return 0
                message = getattr(self, f"_{word}")(argument)
        except ClusterError as error:
            self._keep = True
            where = f"; what it measured is in {self._directory}" if self._directory else ""
            print(f"taillab: rank {self._link.rank} on {socket.gethostname()} ends: {error}{where}", flush=True)
            return 1
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
            if self._directory and not self._keep:
                shutil.rmtree(self._directory, ignore_errors=True)

    def _hello(self, _: None) -> None:
        try:
            version = agent.version(_program.find())
        except (TaillabError, OSError) as error:
            version = f"no program ({error})"
        self._send(Hello(socket.gethostname(), version, os.cpu_count() or 1))

    def _clock(self, questions: int) -> Any:
        """Answers questions for the time. Returns the message that broke them off, if one did."""
        self._send(now_ns())
        for _ in range(questions):
            message = self._link.receive(MASTER, _CLOCK_S, "asking for the time", spin=True)
            if message is not None:
                return message
            self._send(now_ns())
        return None

    def _plan(self, given: tuple[dict[str, Any], float]) -> None:
        plan, within_s = given
        directory = self._fresh()
        self._run(lambda: agent.run_plan(_program.find(), plan, directory, within_s))

    def _command(self, given: tuple[list[str], float]) -> None:
        words, within_s = given
        directory = self._fresh()
        words = [_program.find(), *words, f"--output={directory}"]
        self._run(lambda: agent.run(words, b"", within_s))

    def _piece(self, given: tuple[str, int]) -> None:
        name, offset = given
        assert self._directory is not None
        with open(self._directory / "result" / name, "rb") as file:
            file.seek(offset)
            self._send(file.read(PIECE_BYTES))

    def _fresh(self) -> Path:
        """A new directory for the next result; what was there is gathered already."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._directory = Path(tempfile.mkdtemp(prefix="taillab-cluster-"))
        return self._directory / "result"

    def _run(self, start: Any) -> None:
        before = {each: signal.signal(each, signal.default_int_handler) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            ended = start()
        except KeyboardInterrupt:
            signal.alarm(_LAST_S)
            ended = agent.Ended(130, "interrupted; what was measured until then is kept", b"", False)
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
        assert self._directory is not None
        result = self._directory / "result"
        files = {each.name: each.stat().st_size for each in sorted(result.glob("*")) if each.is_file()}
        self._send(Done(ended, files, str(self._directory)))

    def _send(self, message: Any) -> None:
        self._link.send(MASTER, message, "answering the first rank")


def _last_orders(*_: object) -> None:
    """Somebody ends us: the first rank gets a moment to ask for what was measured. The alarm then ends the process."""
    signal.alarm(_LAST_S)
