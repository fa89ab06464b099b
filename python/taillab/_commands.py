"""The program's commands as functions. Each starts it, shows its progress, and returns the result as a `Run`.

Options have the names of the command line with `_` for `-`, and its notations: `duration="10s"` (or a `timedelta`),
`rate="20k"` or `20_000` (requests per second), `utilization=0.5` or `"50%"`. `taillab COMMAND --help-all` lists them;
those without a parameter here are passed on as they are: `run("nginx", server_arg=["-q"])`. A list becomes `a,b,c`, or
several options where the program wants that.
"""

from __future__ import annotations

import datetime
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from taillab import _program
from taillab._result import AnyReport, Run, summary_of
from taillab.errors import of_exit
from taillab.records import BudgetReport, LoadReport, NoiseReport, Report, RttReport, SimReport

Time = str | datetime.timedelta
"""A length of time: `"10s"`, `"500us"`, or a timedelta."""
Limits = str | Sequence[str]
"""Limits that a result must meet: `"p99.9<=2ms"`, or several."""

# options that the program wants again for each value
_REPEATED = ("assert", "header", "plot", "server-arg", "sweep", "topology")
# what this module itself decides
_OURS = ("help", "help-all", "json", "live", "no-save", "output", "quiet", "verbose", "version")


def run(
    server: str | None = None,
    *,
    rate: float | str | None = None,
    utilization: float | str | None = None,
    duration: Time | None = None,
    connect: str | None = None,
    experiment: str | Path | None = None,
    fix: bool = False,
    save_capture: bool = False,
    limits: Limits = (),
    output: str | Path | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Run[Report]:
    """Measures a server under controlled load against its ideal (`taillab run`). Needs root.

    Args:
        server: memcached, nginx, null-rpc, or `preset:NAME`; or leave it out, and name an `experiment`, or your own
            server with `server_command=`, `port=` and `protocol=`.
        rate: load in requests per second.
        utilization: load as a share of the capacity, from 0 to 1, or `"50%"`.
        duration: length of the measurement.
        connect: whether TCP connections are opened `"once"`, before the load, or by `"each"` request when it is due.
        experiment: an experiment file (TOML).
        fix: try the mitigations with the best forecasts.
        save_capture: also save the recorded kernel events, for `explain`.
        limits: limits on the sojourn; `LimitMissedError` if one is not met.
        output: a new directory for the files [default: taillab-SERVER-TIME, since a measurement cannot be repeated].
        progress: `False`: say nothing [default: progress on a terminal and in a notebook].
        options: all other options of the program.

    Raises:
        ProgramError: the program reported an error; it has its line, its exit code, and what was measured.
        KeyboardInterrupt: Ctrl-C. What was measured until then is kept in the directory.
    """
    given = _some(
        rate=rate,
        utilization=utilization,
        duration=duration,
        connect=connect,
        experiment=experiment,
        fix=fix,
        save_capture=save_capture,
    )
    given["server"] = options.pop("server_command", None)
    name = (server or "run").replace(":", "-")
    return _start("run", [server], {**given, **options}, limits, _named(output, name), progress)


def trace(
    pid: int | None = None,
    *,
    port: int | None = None,
    cgroup: str | Path | None = None,
    command: Sequence[str] | None = None,
    duration: Time | None = None,
    limits: Limits = (),
    output: str | Path | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Run[Report]:
    """Measures a running server under the requests of its own clients (`taillab trace`). Changes nothing. Needs root,
    or the capabilities that `taillab trace --help` names.

    Args:
        pid: the server's process, or one of its processes.
        port: its port.
        cgroup: its control group.
        command: start this server, trace it, and stop it.
        duration: length of the recording [default: 10s].
        limits, output, progress, options: as in `run`.

    Raises:
        ProgramError, KeyboardInterrupt: as in `run`.
    """
    given = _some(pid=pid, port=port, cgroup=cgroup, duration=duration)
    behind = ["--", *command] if command else []
    return _start("trace", [], {**given, **options}, limits, _named(output, "trace"), progress, behind)


def explain(
    recording: str | Path | Run[Report],
    *,
    service_time: Time | None = None,
    workers: int | None = None,
    limits: Limits = (),
    output: str | Path | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Run[Report]:
    """Analyses a recording again, without root, on any machine (`taillab explain`).

    Args:
        recording: capture.tlc, the directory that has it, or the run that recorded it (`save_capture=True`).
        service_time: service time of the ideal server [default: the workers' busy time per request].
        workers: workers of the ideal server [default: the threads that served requests].
        output: a new directory for the files [default: a temporary one, which lives as long as the result].
        limits, progress, options: as in `run`.

    Raises:
        ProgramError, KeyboardInterrupt: as in `run`.
    """
    path = recording.directory if isinstance(recording, Run) else recording
    given = _some(service_time=service_time, workers=workers)
    return _start("explain", [path], {**given, **options}, limits, output, progress)


def load_test(
    target: str,
    *,
    rate: float | str | Sequence[float] | None = None,
    utilization: float | str | Sequence[float] | None = None,
    duration: Time | None = None,
    connect: str | None = None,
    connections: int | None = None,
    threads: int | None = None,
    find: str | None = None,
    limits: Limits = (),
    output: str | Path | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Run[LoadReport]:
    """Loads a server with an open-loop generator that checks itself (`taillab load`). `taillab.load` is something
    else: it reads a directory.

    Args:
        target: the server, e.g. `"memcached+udp://127.0.0.1:11211"`.
        rate: load in requests per second; several, `"5k..50k:5k"` (a sweep), or `"max"`.
        utilization: load as a share of the capacity, from 0 to 1, which is measured first; or several.
        duration: length of the measurement [default: 10s].
        connect: whether TCP connections are opened `"once"`, before the load, or by `"each"` request when it is due;
            at most `connections` are then open at once.
        connections: connections [default: 128 where `pipeline` has a limit, else 16; with `connect="each"` 1024].
        threads: threads that send and receive, each on its own CPU [default: 1].
        find: search for the highest rate that meets this, e.g. `"p99.9<=200us"`.
        limits: limits on the client's response time.
        output: a new directory for the files [default: a temporary one, which lives as long as the result].
        progress, options: as in `run`.

    Raises:
        ProgramError, KeyboardInterrupt: as in `run`.
    """
    given = _some(
        rate=rate,
        utilization=utilization,
        duration=duration,
        connect=connect,
        connections=connections,
        threads=threads,
        find=find,
    )
    return _start("load", [target], {**given, **options}, limits, output, progress)


def sim(
    *,
    arrivals: str | None = None,
    service: str | None = None,
    workers: int | None = None,
    utilization: float | str | None = None,
    discipline: str | Sequence[str] | None = None,
    requests: int | str | None = None,
    seed: int | None = None,
    exact: bool = False,
    sweep: str | Sequence[str] | None = None,
    output: str | Path | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Run[SimReport]:
    """Simulates a queue (`taillab sim`). The same seed gives the same result.

    Args:
        arrivals: the arrival process [default: poisson].
        service: the service times [default: deterministic:50us].
        workers: the number of workers [default: 1].
        utilization: their utilisation, from 0 to 1 [default: 0.8].
        discipline: the queueing discipline, or several to compare [default: fifo].
        requests: the number of requests [default: 20M].
        seed: the seed of every random choice [default: 1].
        exact: also give the result of queueing theory.
        sweep: vary one parameter, e.g. `"utilization=0.5..0.95:0.05"`; or several.
        output: a new directory for the files [default: a temporary one, which lives as long as the result].
        progress, options: as in `run`.

    Raises:
        ProgramError, KeyboardInterrupt: as in `run`.
    """
    given = _some(
        arrivals=arrivals,
        service=service,
        workers=workers,
        utilization=utilization,
        discipline=discipline,
        requests=requests,
        seed=seed,
        exact=exact,
        sweep=sweep,
    )
    return _start("sim", [], {**given, **options}, (), output, progress)


def rtt(
    *,
    proto: str | Sequence[str] | None = None,
    mode: str | Sequence[str] | None = None,
    size: int | str | Sequence[int | str] | None = None,
    conns: int | Sequence[int] | None = None,
    count: int | None = None,
    runs: int | None = None,
    explain: bool = False,
    output: str | Path | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Run[RttReport]:
    """Measures round trips of single messages over network protocols (`taillab rtt`).

    Args:
        proto: tcp, udp, unix, shm, xdp, rdma-send …, or several [default: tcp and udp].
        mode: how both ends wait: blocking, nonblocking, epoll, busy-poll or io_uring, or several.
        size: bytes of a message, or several, or `"64..512K"` (doublings) [default: 1K].
        conns: simultaneous connections, or several numbers of them [default: 1].
        count: round trips in a run [default: 100,000].
        runs: runs, each with new connections [default: 10].
        explain: also divide each round trip into its parts (as root).
        output: a new directory for the files [default: a temporary one, which lives as long as the result].
        progress, options: as in `run`.

    Raises:
        ProgramError, KeyboardInterrupt: as in `run`.
    """
    given = _some(proto=proto, mode=mode, size=size, conns=conns, count=count, runs=runs, explain=explain)
    return _start("rtt", [], {**given, **options}, (), output, progress)


def budget(
    *,
    duration: Time | None = None,
    cpus: str | None = None,
    output: str | Path | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Run[BudgetReport]:
    """Measures the latency of each component between two programs on a network (`taillab budget`). Rows that need root
    are marked as unavailable without it.

    Args:
        duration: how long each row is measured [default: 2s].
        cpus: two CPUs, for the client and the server, e.g. `"2,3"`.
        output: a new directory for the files [default: a temporary one, which lives as long as the result].
        progress, options: as in `run`.

    Raises:
        ProgramError, KeyboardInterrupt: as in `run`.
    """
    return _start("budget", [], {**_some(duration=duration, cpus=cpus), **options}, (), output, progress)


def noise(
    *,
    duration: Time | None = None,
    cpus: str | None = None,
    loops: str | Sequence[str] | None = None,
    output: str | Path | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Run[NoiseReport]:
    """Measures what takes CPU time from a thread that never sleeps (`taillab noise`).

    Args:
        duration: how long each loop runs [default: 10s].
        cpus: the CPUs to measure at the same time, e.g. `"0-3"` [default: all].
        loops: user, kernel and masked, or `"all"` [default: user].
        output: a new directory for the files [default: a temporary one, which lives as long as the result].
        progress, options: as in `run`.

    Raises:
        ProgramError, KeyboardInterrupt: as in `run`.
    """
    return _start("noise", [], {**_some(duration=duration, cpus=cpus, loops=loops), **options}, (), output, progress)


def _start(
    command: str,
    operands: Sequence[str | Path | None],
    options: Mapping[str, Any],
    limits: Limits,
    output: str | Path | None,
    progress: bool | None,
    behind: Sequence[str] = (),
) -> Run[Any]:
    """Runs a command and reads what it has written."""
    given = {"assert": [limits] if isinstance(limits, str) else list(limits), **options}
    program = _program.find()
    directory, temporary = _place(output)
    quiet = ["--quiet"] if progress is False else []
    words = [
        *[program, command, "--json", *quiet, f"--output={directory}"],
        *(word for name, value in given.items() for word in _option(name, value)),
        *([str(operand) for operand in operands if operand is not None]),
        *behind,
    ]
    ended = _program.start(words, progress)
    if ended.interrupted:
        if temporary is None and any(directory.glob("*")):
            ended.interrupted.add_note(f"taillab: what was measured until then is in {directory}")
        raise ended.interrupted
    result = _result(ended.stdout, directory, temporary)
    if ended.exit_code != 0 or result is None:
        line = ended.error or _reason(result.summary if result else None, ended.exit_code)
        raise of_exit(line, ended.exit_code, words, result)
    return result


def _result(stdout: bytes, directory: Path, temporary: _Temporary | None) -> Run[Any] | None:
    """What the program printed, with its files; `None` where it printed nothing, or was ended while it did."""
    try:
        return Run(directory, summary_of(stdout), temporary)
    except ValueError:
        return None


def _reason(summary: AnyReport | None, exit_code: int) -> str:
    """Why it ended so, where it reported no error: a limit that is not met, or why the result is not valid."""
    if isinstance(summary, Report | LoadReport):
        said = {"fail": "is not met", "undecided": "is not decided"}
        limits = [limit for limit in summary.assertions or () if limit.outcome != "pass"]
        missed = [f"{limit.assertion} {said[limit.outcome]}: {limit.text}" for limit in limits]
        reasons = [reason.text for reason in summary.verdict.reasons]
        if missed or reasons:
            return (missed or reasons)[0]
    return f"the program ended with exit code {exit_code}"


def _option(name: str, value: Any) -> list[str]:
    """An option as words: nothing for `None` and `False`."""
    option = name.removesuffix("_").replace("_", "-")
    if option in _OURS:
        raise TypeError(f"{name} is no option here: the result is read as JSON and from files; use output= or progress=")
    if value is None or value is False:
        return []
    if value is True:
        return [f"--{option}"]
    values = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    texts = [_text(each) for each in values]
    if option in _REPEATED:
        return [f"--{option}={text}" for text in texts]
    return [f"--{option}={','.join(texts)}"] if texts else []


def _text(value: Any) -> str:
    """A value as the command line writes it."""
    if isinstance(value, datetime.timedelta):
        return f"{value // datetime.timedelta(microseconds=1)}us"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _some(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None and value is not False}


def _named(output: str | Path | None, what: str) -> str | Path:
    """The directory of a measurement: as asked, or in the working directory by the program's own rule."""
    return output if output is not None else f"taillab-{what}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"


def _place(output: str | Path | None) -> tuple[Path, _Temporary | None]:
    """Where the files go, and what removes them, where nobody asked for them."""
    if output is not None:
        return Path(output), None
    temporary = _Temporary()
    return temporary.path, temporary


class _Temporary:
    """A directory that is removed with this object, or at the end of the process."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="taillab-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
        # under sudo, the program writes with the rights of the user who called it
        user, group = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
        if os.geteuid() == 0 and user and group:
            os.chown(self.path, int(user), int(group))
