"""Results that the tests read: made once, with the real program."""

import json
import os
import signal
import subprocess
from pathlib import Path

import matplotlib
import pytest

import taillab
from taillab import _program

# a server that another thread disturbs, for two seconds
RECORDING = Path(__file__).with_name("data") / "capture.tlc"


def pytest_configure():
    """Figures need no screen, and Jupyter's new paths no warning."""
    # not by the environment, which kernels of notebooks inherit
    matplotlib.use("Agg")
    os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")


@pytest.fixture(scope="session")
def recording():
    """A recording with all stamps and disturbances."""
    return RECORDING


@pytest.fixture(scope="session")
def explained(tmp_path_factory, recording):
    """The analysis of the recording."""
    return taillab.explain(recording, output=tmp_path_factory.mktemp("explained"))


@pytest.fixture(scope="session")
def simulated(tmp_path_factory):
    """Two queues with the same arrivals."""
    return taillab.sim(
        service="exponential:50us",
        discipline=["fifo", "lifo"],
        requests=200_000,
        output=tmp_path_factory.mktemp("simulated"),
    )


@pytest.fixture(scope="session")
def round_trips(tmp_path_factory):
    """Round trips over a Unix socket, with two sizes."""
    return taillab.rtt(
        proto="unix",
        mode="blocking",
        size=[64, 1024],
        count=2_000,
        runs=1,
        warmup=100,
        timeout="20s",
        output=tmp_path_factory.mktemp("rtt"),
    )


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """The target of a built-in server on a Unix socket."""
    where = tmp_path_factory.mktemp("server") / "echo.sock"
    words = [_program.find(), "serve", "epoll-shared", f"--listen=unix:{where}", "--json", "--quiet"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        listening = json.loads(child.stdout.readline())
        yield listening["target"]
        child.send_signal(signal.SIGINT)
        child.stdout.read()


@pytest.fixture(scope="session")
def loaded(tmp_path_factory, server):
    """A short load on the built-in server."""
    return taillab.load_test(
        server,
        rate=2_000,
        duration="1s",
        warmup="100ms",
        connections=4,
        floor="off",
        output=tmp_path_factory.mktemp("loaded"),
    )
