"""A client of MariaDB.

queries.py PORT prepare: fills a table.
queries.py PORT CONNECTIONS PER_S SCAN_EVERY SECONDS: asks for rows by their keys, and every so many times scans the table.
Each connection sends by a schedule of its own. It leaves client.json: how many queries there were, how many of them scans,
and their mean time by this clock.
"""

import json
import random
import socket
import sys
import threading
import time

ROWS, ROWS_OF_AN_INSERT = 100_000, 2_000
PROTOCOL_41, SECURE_CONNECTION, PLUGIN_AUTH = 0x200, 0x8000, 0x80000
QUERY = b"\x03"
# what ends the rows of an answer, and an error
EOF, ERROR, OK = 0xFE, 0xFF, 0x00


class Connection:
    """A client of the protocol of MySQL: without a password, which a server without grants does not ask for."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")
        self.packet()
        flags = PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH
        login = flags.to_bytes(4, "little") + (1 << 24).to_bytes(4, "little") + b"\x21" + bytes(23)
        self.send(login + b"root\0" + b"\0" + b"mysql_native_password\0", 1)
        answer = self.packet()
        if answer[0] == EOF:
            self.send(b"", 3)
            answer = self.packet()
        self.check(answer)

    def send(self, body, number):
        self.socket.sendall(len(body).to_bytes(3, "little") + bytes([number]) + body)

    def packet(self):
        head = self.file.read(4)
        if len(head) < 4:
            raise SystemExit("the server has closed the connection")
        return self.file.read(int.from_bytes(head[:3], "little"))

    def check(self, packet):
        if packet[0] == ERROR:
            raise SystemExit(packet[9:].decode(errors="replace"))

    def query(self, text):
        """Sends a query and reads all of its answer."""
        self.send(QUERY + text.encode(), 0)
        first = self.packet()
        self.check(first)
        if first[0] == OK:
            return
        # the columns end with one EOF, the rows with another
        for _ in range(2):
            while True:
                packet = self.packet()
                self.check(packet)
                if packet[0] == EOF and len(packet) < 9:
                    break


def prepare(port):
    connection = Connection(port)
    connection.query("CREATE DATABASE mixed")
    connection.query("CREATE TABLE mixed.t (id INT PRIMARY KEY, v INT) ENGINE=InnoDB")
    for first in range(0, ROWS, ROWS_OF_AN_INSERT):
        rows = ",".join(f"({row},{row * 7919 % 1000})" for row in range(first, first + ROWS_OF_AN_INSERT))
        connection.query(f"INSERT INTO mixed.t VALUES {rows}")
    for _ in range(20):
        connection.query(scan())
    for row in range(200):
        connection.query(one_row(row))


def scan():
    return "SELECT SUM(v * v) FROM mixed.t WHERE v % 7 = 3"


def one_row(row):
    return f"SELECT v FROM mixed.t WHERE id = {row}"


class Client(threading.Thread):
    """A connection that asks until the time is over."""

    def __init__(self, port, number, gap_s, scan_every, offset, until):
        super().__init__(daemon=True)
        self.connection, self.draw = Connection(port), random.Random(number)
        self.gap_s, self.scan_every, self.asked, self.until = gap_s, scan_every, offset, until
        self.times, self.scans = [], 0

    def run(self):
        due = time.monotonic()
        while (due := due + self.draw.expovariate(1 / self.gap_s)) < self.until:
            time.sleep(max(0, due - time.monotonic()))
            self.asked += 1
            is_scan = self.asked % self.scan_every == 0
            self.scans += is_scan
            began = time.monotonic_ns()
            self.connection.query(scan() if is_scan else one_row(self.draw.randrange(ROWS)))
            self.times.append(time.monotonic_ns() - began)


def load(port, connections, per_s, scan_every, seconds):
    until = time.monotonic() + seconds
    clients = [Client(port, number, connections / per_s, scan_every, number * scan_every // connections, until)
               for number in range(connections)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    times = [each for client in clients for each in client.times]
    with open("client.json", "w") as out:
        json.dump({"requests": len(times), "scans": sum(client.scans for client in clients),
                   "mean": sum(times) / len(times)}, out)


port, *words = sys.argv[1:]
if words == ["prepare"]:
    prepare(int(port))
else:
    load(int(port), *map(int, words))
