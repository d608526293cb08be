"""A WebSocket on a stream of HTTP/2 (RFC 8441): frames of the library websockets in streams of python-h2.

It has the methods of a connection of websockets that the case `tunnels` uses.
"""

import asyncio

import h2.config
import h2.connection
import h2.events
import h2.settings
from websockets.frames import Opcode
from websockets.protocol import OPEN, Protocol, Side


class WebSocket:
    """A WebSocket that is alone on its connection."""

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.reading.cancel()
        self.writer.close()

    @staticmethod
    async def connect(port):
        self = WebSocket()
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.frames = Protocol(Side.CLIENT, state=OPEN, max_size=None)
        self.messages, self.pongs = asyncio.Queue(), asyncio.Queue()
        self.parts, self.text = [], False
        self.moved, self.status, self.error = asyncio.Event(), None, None
        self.h2.initiate_connection()
        await self.flush()
        self.reading = asyncio.create_task(self.read())
        extended = h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL
        await self.until(lambda: self.h2.remote_settings.get(extended) == 1)
        self.stream = self.h2.get_next_available_stream_id()
        head = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":authority", "edge.test"),
                (":path", "/"), ("sec-websocket-version", "13")]
        self.h2.send_headers(self.stream, head)
        await self.flush()
        await self.until(lambda: self.status is not None)
        if self.status != b"200":
            raise OSError(f"status {self.status}")
        return self

    async def flush(self):
        self.writer.write(self.h2.data_to_send())
        await self.writer.drain()

    async def until(self, done):
        """Waits until `done()` holds after something has arrived."""
        while not done():
            if self.error is not None:
                raise self.error
            self.moved.clear()
            await asyncio.wait_for(self.moved.wait(), 20)

    async def read(self):
        try:
            while data := await self.reader.read(1 << 16):
                for event in self.h2.receive_data(data):
                    if isinstance(event, h2.events.ResponseReceived):
                        self.status = dict(event.headers)[b":status"]
                    elif isinstance(event, h2.events.DataReceived):
                        self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                        self.take(event.data)
                    elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset, h2.events.ConnectionTerminated)):
                        raise OSError(repr(event))
                self.writer.write(self.h2.data_to_send())
                self.moved.set()
            raise OSError("the connection ended")
        except Exception as error:
            self.error = error
            self.moved.set()
            self.messages.put_nowait(error)

    def take(self, data):
        """Puts the frames of `data` together to messages."""
        self.frames.receive_data(data)
        for frame in self.frames.events_received():
            if frame.opcode is Opcode.PONG:
                self.pongs.put_nowait(None)
                continue
            if frame.opcode is not Opcode.CONT:
                self.parts, self.text = [], frame.opcode is Opcode.TEXT
            self.parts.append(bytes(frame.data))
            if frame.fin:
                whole = b"".join(self.parts)
                self.messages.put_nowait(whole.decode() if self.text else whole)

    async def write(self):
        """Sends the frames that are ready, as the windows admit."""
        data = b"".join(self.frames.data_to_send())
        while data:
            await self.until(lambda: self.h2.local_flow_control_window(self.stream) > 0)
            room = min(self.h2.local_flow_control_window(self.stream), self.h2.max_outbound_frame_size)
            self.h2.send_data(self.stream, data[:room])
            data = data[room:]
            await self.flush()

    async def send(self, pieces):
        whole = isinstance(pieces, (str, bytes))
        pieces = [pieces] if whole else pieces
        for at, piece in enumerate(pieces):
            fin = at + 1 == len(pieces)
            encoded = piece.encode() if isinstance(piece, str) else piece
            if at > 0:
                self.frames.send_continuation(encoded, fin)
            elif isinstance(piece, str):
                self.frames.send_text(encoded, fin)
            else:
                self.frames.send_binary(encoded, fin)
            await self.write()

    async def recv(self):
        received = await self.messages.get()
        if isinstance(received, Exception):
            raise received
        return received

    async def ping(self, data):
        self.frames.send_ping(data)
        await self.write()
        return self.pongs.get()
