"""What can go wrong, as exceptions. Each says in one line what happened and what to do."""

from __future__ import annotations

from typing import Any


class TaillabError(Exception):
    """The base of all errors of this package."""


class ResultError(TaillabError):
    """A directory that holds no result, or not the part that was asked for."""


class MissingProgramError(TaillabError):
    """The program `taillab` is not installed."""


class ProgramError(TaillabError):
    """The program ended with an exit code other than 0.

    Attributes:
        line: the program's own words, one line: what happened and what to do.
        exit_code: its exit code (1 where it has no class of its own below); negative: the signal that ended it.
        command: the command line.
        result: what it measured before, a `Run`, or `None`.
    """

    def __init__(self, line: str, exit_code: int, command: list[str], result: Any = None) -> None:
        super().__init__(line)
        self.line = line
        self.exit_code = exit_code
        self.command = command
        self.result = result


class UsageError(ProgramError):
    """Exit code 2: an option or an experiment file is wrong."""


class LimitMissedError(ProgramError):
    """Exit code 3: a limit is not met. `result` has the measurement."""


class UndecidedError(ProgramError):
    """Exit code 4: no request was answered, or the interval of a limit does not decide."""


class UnsupportedError(ProgramError):
    """Exit code 5: a privilege, or a feature of the machine or its kernel, is missing."""


class InterruptedRunError(ProgramError):
    """Exit code 130: somebody else interrupted the program. What was measured until then is in `result`."""


_BY_CODE: dict[int, type[ProgramError]] = {
    2: UsageError,
    3: LimitMissedError,
    4: UndecidedError,
    5: UnsupportedError,
    130: InterruptedRunError,
}


def of_exit(line: str, exit_code: int, command: list[str], result: Any = None) -> ProgramError:
    """The exception for an exit code."""
    return _BY_CODE.get(exit_code, ProgramError)(line, exit_code, command, result)
