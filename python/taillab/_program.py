"""Starts the program, follows what it says, and ends it on Ctrl-C."""

from __future__ import annotations

import codecs
import errno
import os
import pty
import re
import selectors
import shutil
import signal
import subprocess
import sys
import sysconfig
import termios
import threading
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from taillab._screen import Screen, Step, choose
from taillab.errors import MissingProgramError

VARIABLE = "TAILLAB_BINARY"
_PREFIX = "taillab: "
_ERROR = "taillab: error: "
# what moves the cursor or sets a colour
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# after the program has ended, a process that it left behind may still hold its pipes
_REST_S = 0.5
_ROWS, _COLUMNS = 24, 120


def find() -> str:
    """The program: what `TAILLAB_BINARY` names, else the one of this package, else the one on the PATH.

    Raises:
        MissingProgramError: it is nowhere.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if not os.access(named, os.X_OK):
            raise MissingProgramError(f"{VARIABLE} names {named}, which is no program: correct it, or unset it")
        return named
    schemes = (sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user"))
    found = next((path for path in (Path(scheme) / "taillab" for scheme in schemes) if os.access(path, os.X_OK)), None)
    program = str(found) if found else shutil.which("taillab")
    if program is None:
        raise MissingProgramError(
            f"the program `taillab` is not there: install the package with pip, which brings it, or name it in {VARIABLE}"
        )
    return program


@dataclass(frozen=True)
class Ended:
    """How the program ended."""

    exit_code: int
    """Negative: the signal that ended it."""
    stdout: bytes
    error: str
    """Its error, without its name; empty where it reported none."""
    interrupted: KeyboardInterrupt | None
    """Ctrl-C, where that was why it ended."""


def start(words: list[str], progress: bool | None) -> Ended:
    """Runs the program until its end. Ctrl-C interrupts it, and it then keeps what it has measured; the second
    one, half a second later or more, ends it at once.
    """
    screen = choose(progress)
    with _HeldBack() as ctrl_c, _Child(words, screen) as child:
        interrupted = None
        while True:
            try:
                ctrl_c.release()
                child.follow()
                break
            except KeyboardInterrupt as stop:
                interrupted = stop
                child.interrupt()
        return Ended(child.process.wait(), bytes(child.stdout), child.speech.error(), interrupted)


class _HeldBack:
    """Ctrl-C while the program is started: it counts once there is something to interrupt, so that nothing is left behind."""

    def __init__(self) -> None:
        self._handler = signal.getsignal(signal.SIGINT)
        # what is ignored stays ignored, also by the program; only the main thread may choose
        self._holds = callable(self._handler) and threading.current_thread() is threading.main_thread()
        self._came: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> _HeldBack:
        if self._holds:
            signal.signal(signal.SIGINT, lambda number, frame: self._came.append((number, frame)))
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def release(self) -> None:
        """From here on Ctrl-C is raised at once; here, if it came before."""
        self._restore()
        while self._came and callable(self._handler):
            self._handler(*self._came.pop())

    def _restore(self) -> None:
        if self._holds:
            signal.signal(signal.SIGINT, self._handler)
            self._holds = False


class _Child:
    """The process, with its stdout and stderr. It is in our process group: what ends that ends it, too."""

    def __init__(self, words: list[str], screen: Screen) -> None:
        self.stdout = bytearray()
        self.speech = _Speech(screen)
        self._screen = screen
        # the program draws bars only on a terminal
        self._stderr, theirs = _terminal() if screen.draws else os.pipe()
        try:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=theirs,
                env=_with_terminal() if screen.draws else None,
            )
        except BaseException:
            os.close(self._stderr)
            raise
        finally:
            os.close(theirs)
        assert self.process.stdout is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.process.stdout.fileno(), selectors.EVENT_READ, self.stdout.extend)
        self._selector.register(self._stderr, selectors.EVENT_READ, self.speech.hear)

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self._selector.close()
        self.process.stdout.close()
        os.close(self._stderr)
        self._screen.close()

    def follow(self) -> None:
        """Reads until the end of both streams, or of the process."""
        while self._selector.get_map():
            ready = self._selector.select(_REST_S)
            if not ready and self.process.poll() is not None:
                return
            for key, _ in ready:
                piece = _read(key.fd)
                key.data(piece)
                if not piece:
                    self._selector.unregister(key.fd)

    def interrupt(self) -> None:
        """Passes Ctrl-C on. Where the terminal sent it to both of us, the program takes the two for one."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)


class _Speech:
    """What the program says on stderr: remarks, errors, bars, and lines that belong to a bar."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._errors: list[str] = []
        self._other: list[str] = []
        self._rest = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def hear(self, piece: bytes) -> None:
        """Some bytes; none: the end."""
        text = self._rest + self._decoder.decode(piece, final=not piece)
        text = text.replace("\r\n", "\n") if piece else text + "\n"
        *lines, self._rest = text.split("\n")
        for line in lines:
            self._line(_visible(line))
        # a bar has no line break behind it until it has ended
        step = Step.of(_visible(self._rest))
        if step:
            self._screen.progress(step)

    def _line(self, line: str) -> None:
        remark = line.find(_PREFIX)
        if remark > 0 and Step.of(line[:remark]):
            # it goes on where a bar has filled its line
            line = line[remark:]
        step = Step.of(line)
        if line.startswith(_ERROR):
            self._errors.append(line.removeprefix(_ERROR))
        elif line.startswith(_PREFIX):
            self._screen.remark(line)
        elif step:
            self._screen.progress(step)
        elif line:
            self._other.append(line)

    def error(self) -> str:
        """The error that ended the program, in one line."""
        if self._errors:
            return self._errors[-1]
        panics = [at for at, line in enumerate(self._other) if "panicked" in line]
        if not panics:
            return ""
        return f"the program failed: {' '.join(self._other[panics[0] :][:2])}; please report it"


def _visible(line: str) -> str:
    """What a terminal shows of a line: after the last carriage return, without escapes."""
    parts = [part for part in _ESCAPE.sub("", line).split("\r") if part.strip()]
    return parts[-1].strip() if parts else ""


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError as error:
        if error.errno == errno.EIO:  # how a terminal ends
            return b""
        raise


def _terminal() -> tuple[int, int]:
    """Both ends of a terminal, wide enough for a bar."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (_ROWS, _COLUMNS))
    return ours, theirs


def _with_terminal() -> dict[str, str]:
    # a notebook's server may have none, and then its kernel says `dumb`, on which no bar is drawn
    return {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}


def main() -> int:
    """`python -m taillab`: the program itself."""
    program = find()
    sys.stdout.flush()
    os.execv(program, [program, *sys.argv[1:]])
    return 1
