"""WebSockets of the library websockets, on both ends, through a gateway that is reloaded each second.

Every connection sends messages of random kinds, sizes and fragments with random pauses, and pings in between. The node
sends each one back. A message that comes back changed, out of order or not at all is a fault, and so is a connection
that ends. A third of the connections are over TLS, and a third are streams of HTTP/2. Every other reload puts another
policy in force.
"""

import asyncio
import random
import ssl
import time

import stage

SECONDS = 60.0
CONNECTIONS = 24
# Larger than a window, the buffers of a tunnel and a frame of TLS.
LARGEST = 300_000
TEXT = "".join(random.Random(1).choices("aéß漢😀\r\n\0", k=2 * LARGEST))


def run(here):
    authority, _ = here.certificate("authority")
    here.certificate("edge", authority)
    return asyncio.run(play(here))


def message(numbers):
    """A message, and the fragments in which it is sent."""
    size = numbers.choice([0, 1, 125, 126, 127, numbers.randrange(70_000), numbers.randrange(LARGEST)])
    if numbers.random() < 0.5:
        whole = numbers.randbytes(size)
    else:
        # At most four bytes for each character.
        at = numbers.randrange(len(TEXT) // 2)
        whole = TEXT[at : at + size // 4]
    if numbers.random() < 0.5 or len(whole) < 2:
        return whole, whole
    cuts = sorted(numbers.randrange(len(whole)) for _ in range(numbers.randrange(1, 6)))
    return whole, [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)])]


async def play(here):
    from websockets.asyncio.client import connect
    from websockets.asyncio.server import serve

    from streams import WebSocket

    async def echo(connection):
        async for received in connection:
            await connection.send(received)

    seconds = here.seconds or SECONDS
    faults, counts = [], {"messages": 0, "bytes": 0, "reloads": 0}
    trust = ssl.create_default_context(cafile=here.directory / "authority.pem")
    async with serve(echo, "127.0.0.1", 18440, max_size=None, ping_interval=None):
        gateway = here.gateway("tunnels.yaml", 18441)
        end = time.monotonic() + seconds

        async def client(number):
            numbers = random.Random(f"{here.seed}/{number}")
            options = {
                "max_size": None, "ping_interval": None, "open_timeout": 20,
                "compression": numbers.choice([None, "deflate"]),
            }
            try:
                async with await [
                    lambda: connect("ws://127.0.0.1:18441/", **options),
                    lambda: connect("wss://127.0.0.1:18442/", ssl=trust, **options),
                    lambda: WebSocket.connect(18441),
                ][number % 3]() as connection:
                    while time.monotonic() < end:
                        expected = []
                        for _ in range(numbers.randrange(1, 5)):
                            whole, pieces = message(numbers)
                            expected.append(whole)
                            await connection.send(pieces)
                        if numbers.random() < 0.3:
                            await asyncio.wait_for(await connection.ping(numbers.randbytes(8)), 20)
                        for whole in expected:
                            received = await asyncio.wait_for(connection.recv(), 20)
                            if received != whole:
                                faults.append(f"connection {number}: {len(whole)} came back as {len(received)}")
                                return
                            counts["messages"] += 1
                            counts["bytes"] += len(whole.encode() if isinstance(whole, str) else whole)
                        await asyncio.sleep(numbers.random() ** 4 * 0.5)
            except Exception as error:
                faults.append(f"connection {number}: {type(error).__name__}: {error}")

        async def reloads():
            policy = here.directory / "tunnels.yaml"
            first = policy.read_text()
            while time.monotonic() < end - 0.5:
                await asyncio.sleep(1)
                counts["reloads"] += 1
                other = counts["reloads"] % 2 == 1
                policy.write_text(first.replace("name: all", "name: other") if other else first)
                here.reload(gateway)

        await asyncio.gather(reloads(), *(client(number) for number in range(CONNECTIONS)))
        done = gateway.said().count("in force")
        if gateway.child.poll() is not None:
            faults.append("the gateway ended")
    rows = [[CONNECTIONS, f"{seconds:.0f}", counts["reloads"], counts["messages"], f"{counts['bytes'] / 1e6:.0f}", len(faults)]]
    head = ["connections", "seconds", "reloads", "messages", "MB each way", "faults"]
    if counts["messages"] == 0:
        faults.append("no message came back")
    return stage.table(head, rows) + f"\nSeed {here.seed}. The gateway's log names {done} reloads.\n", faults
