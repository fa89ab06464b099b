"""slow_backend.py PORT SLOW_MS EVERY LOG: an HTTP server that answers one request of EVERY after SLOW_MS, the others
at once.

A slow answer holds up no other: it waits for its time on a heap, and the server goes on. At its end it writes the
log, a line for each request: when it was read and when its answer was written, in nanoseconds of CLOCK_MONOTONIC.
"""

import heapq
import selectors
import signal
import socket
import sys
import time

port, slow_ms, every = map(int, sys.argv[1:4])
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"


def stop(*_):
    raise SystemExit


signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
listener = socket.create_server(("127.0.0.1", port), backlog=1024)
listener.setblocking(False)
selector = selectors.DefaultSelector()
selector.register(listener, selectors.EVENT_READ, None)
late, log, asked = [], [], 0


def answer(connection, read_ns):
    try:
        connection.sendall(ANSWER)
    except OSError:
        return
    log.append((read_ns, time.monotonic_ns()))


def read(connection):
    """The requests that have come in; a request has no body."""
    global asked
    try:
        piece = connection.recv(65536)
    except OSError:
        piece = b""
    if not piece:
        selector.unregister(connection)
        connection.close()
        return
    now = time.monotonic_ns()
    for _ in range(piece.count(b"\r\n\r\n")):
        asked += 1
        if asked % every == 0:
            heapq.heappush(late, (now + slow_ms * 1_000_000, now, asked, connection))
        else:
            answer(connection, now)


try:
    while True:
        wait = max(0, late[0][0] - time.monotonic_ns()) / 1e9 if late else None
        for key, _ in selector.select(wait):
            if key.fileobj is listener:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(connection, selectors.EVENT_READ, None)
            else:
                read(key.fileobj)
        while late and late[0][0] <= time.monotonic_ns():
            _, read_ns, _, connection = heapq.heappop(late)
            answer(connection, read_ns)
finally:
    with open(sys.argv[4], "w") as out:
        out.writelines(f"{one} {other}\n" for one, other in log)
