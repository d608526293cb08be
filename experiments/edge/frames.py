"""Clients that write frames themselves, built with the libraries hyperframe and hpack of python-h2.

python-h2's own connection refuses to send most of what an attack needs, so an attack serialises frames, and uses the
library's types for them. A polite client uses python-h2 as it is.
"""

import socket
import struct
import time

import h2.config
import h2.connection
import h2.events
import hpack
from hyperframe import frame as frames

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def head(path="/", method="GET", more=()):
    """A header block that uses the static table alone, so that it may be sent again and again."""
    fields = [(":method", method), (":scheme", "http"), (":authority", "edge.test"), (":path", path), *more]
    return hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(*field) for field in fields])


def headers(stream, block, *flags):
    return frames.HeadersFrame(stream, block, flags=list(flags)).serialize()


class Attacker:
    """A connection that counts what the server does with it."""

    def __init__(self, port, settings=None):
        self.socket = socket.create_connection(("127.0.0.1", port), 2)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = -1
        self.open = True
        first = frames.SettingsFrame(0, settings=settings or {}).serialize()
        self.send(PREFACE + first + frames.SettingsFrame(0, flags=["ACK"]).serialize())

    def next_stream(self):
        self.stream += 2
        return self.stream

    def send(self, data, patience=0.5):
        """Sends, and throws away what the server has sent. Returns whether the connection is still open."""
        if not self.open:
            return False
        try:
            self.drain()
            self.socket.settimeout(patience)
            self.socket.sendall(data)
            self.drain()
        except socket.timeout:
            # The server does not read. The rest of the data is lost, so the connection is of no more use.
            self.close()
        except OSError:
            self.close()
        return self.open

    def drain(self):
        self.socket.setblocking(False)
        try:
            while True:
                if not self.socket.recv(1 << 16):
                    self.close()
                    return
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def close(self):
        if self.open:
            self.open = False
            self.socket.close()


class Polite:
    """A client of python-h2 that asks for one page at a time, on a connection that it keeps."""

    def __init__(self, port):
        self.port, self.socket = port, None

    def connect(self):
        self.socket = socket.create_connection(("127.0.0.1", self.port), 2)
        self.socket.settimeout(2)
        self.connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.connection.initiate_connection()
        self.socket.sendall(self.connection.data_to_send())

    def ask(self, path, fields=()):
        """Returns whether the response is 200, and the seconds that it took."""
        began = time.monotonic()
        try:
            if self.socket is None:
                self.connect()
            stream = self.connection.get_next_available_stream_id()
            request = [(":method", "GET"), (":scheme", "http"), (":authority", "edge.test"), (":path", path), *fields]
            self.connection.send_headers(stream, request, end_stream=True)
            self.socket.sendall(self.connection.data_to_send())
            status = None
            while True:
                data = self.socket.recv(1 << 16)
                if not data:
                    raise OSError("closed")
                for event in self.connection.receive_data(data):
                    if isinstance(event, h2.events.ResponseReceived):
                        status = dict(event.headers)[b":status"]
                    if isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
                        self.socket.sendall(self.connection.data_to_send())
                        return status == b"200", time.monotonic() - began
                    if isinstance(event, h2.events.ConnectionTerminated):
                        raise OSError("GOAWAY")
                self.socket.sendall(self.connection.data_to_send())
        except (OSError, h2.exceptions.ProtocolError):
            self.socket = None
            return False, time.monotonic() - began


def update(stream, by):
    """A WINDOW_UPDATE with any increment. The library refuses those that a sound client does not send."""
    return b"\x00\x00\x04\x08\x00" + struct.pack(">II", stream, by)


def raw(kind, flags, stream, payload=b""):
    """A frame of any type."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload
