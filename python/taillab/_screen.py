"""Where remarks and the progress of the program are shown: a terminal, a notebook, or neither."""

from __future__ import annotations

import html
import re
import shutil
import sys
from dataclasses import dataclass
from typing import Any, Protocol

# a bar of the program: its name, the bar, how far it is, and what stands after that, up to the blanks that fill the line
_BAR = re.compile(r"(?P<name>\S[^\[]*?)\s+\[[=> ]*\]\s+(?P<percent>\d+) %\s*(?P<rest>.*?)(?=\s{8}|$)")


@dataclass(frozen=True)
class Step:
    """A part of the work, and how much of it is done, from 0 to 1."""

    name: str
    done: float
    rest: str

    @classmethod
    def of(cls, line: str) -> Step | None:
        """What the last bar of a line says: a new one goes on where one has filled its line. `None` without a bar."""
        found = None
        for found in _BAR.finditer(line.strip()):
            pass
        return found and cls(found["name"], int(found["percent"]) / 100, found["rest"].strip())

    def __str__(self) -> str:
        return f"{self.name} {100 * self.done:.0f} %  {self.rest}".rstrip()


class Screen(Protocol):
    """Shows what the program says while it works."""

    draws: bool
    """Whether it shows progress; the program draws none where nobody sees it."""

    def remark(self, line: str) -> None:
        """Something that the user should know."""

    def progress(self, step: Step) -> None:
        """How far the work is."""

    def close(self) -> None:
        """The work has ended: no progress is left."""


class Silence:
    """Shows nothing."""

    draws = False

    def remark(self, line: str) -> None: ...

    def progress(self, step: Step) -> None: ...

    def close(self) -> None: ...


class Lines(Silence):
    """Remarks on stderr, and no progress: for scripts and logs."""

    def remark(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


class Terminal:
    """Remarks, and below them one line of progress that is drawn over itself."""

    draws = True

    def __init__(self) -> None:
        self._drawn = False

    def remark(self, line: str) -> None:
        self.close()
        print(line, file=sys.stderr, flush=True)

    def progress(self, step: Step) -> None:
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[2K{str(step)[:width]}", end="", file=sys.stderr, flush=True)
        self._drawn = True

    def close(self) -> None:
        if self._drawn:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
        self._drawn = False


class Notebook(Lines):
    """A bar in the output of the cell, which disappears at the end; remarks stay."""

    draws = True

    def __init__(self) -> None:
        self._handle: Any = None

    def progress(self, step: Step) -> None:
        import IPython.display

        if self._handle is None:
            display: Any = IPython.display.display
            self._handle = display(_Shown(step), display_id=True)
        else:
            self._handle.update(_Shown(step))

    def close(self) -> None:
        if self._handle is not None:
            self._handle.update(_Shown(None))
        self._handle = None


@dataclass(frozen=True)
class _Shown:
    """A step as a notebook shows it; nothing without one."""

    step: Step | None

    def __repr__(self) -> str:
        return str(self.step or "")

    def _repr_html_(self) -> str:
        if self.step is None:
            return ""
        return f'<progress value="{self.step.done:.2f}" max="1"></progress> {html.escape(str(self.step))}'


def choose(progress: bool | None) -> Screen:
    """The screen of this process. `None`: progress where a person sees it; `False`: nothing at all."""
    if progress is False:
        return Silence()
    if _in_notebook():
        return Notebook()
    return Terminal() if sys.stderr.isatty() else Lines()


def _in_notebook() -> bool:
    # whoever runs in a notebook has imported it
    shell = sys.modules.get("IPython")
    return shell is not None and hasattr(shell.get_ipython(), "kernel")
