"""Clients that do not wait for one another: requests leave at random instants, at a mean rate per host.

A client leaves after 2 s without an answer. Response times are of answers with status 200.
Usage: python3 load.py PORT SECONDS HOST=REQUESTS_PER_SECOND ...
Example: python3 load.py 8080 10 shop.test=50 partner.test=400
"""

import asyncio
import random
import sys
import time

PATIENCE = 2.0


async def ask(port, host, answers):
    began = time.monotonic()
    writer = None
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            status = (await reader.read()).split(b" ", 2)[1].decode()
    except (OSError, IndexError):  # a TimeoutError is an OSError
        status = "none"
    finally:
        if writer:
            writer.close()
    answers.append((status, time.monotonic() - began))


async def clients(port, host, rate, seconds, answers):
    asked, began, at = [], time.monotonic(), 0.0
    while (at := at + random.expovariate(rate)) < seconds:
        await asyncio.sleep(max(0.0, began + at - time.monotonic()))
        asked.append(asyncio.create_task(ask(port, host, answers)))
    await asyncio.gather(*asked)


async def main(port, seconds, *hosts):
    random.seed(1)
    rates = {host: float(rate) for host, _, rate in (word.partition("=") for word in hosts)}
    answers = {host: [] for host in rates}
    await asyncio.gather(*(clients(int(port), h, rates[h], float(seconds), answers[h]) for h in rates))
    print(f"{'host':14} {'asked':>6} {'served':>7} {'refused':>8} {'gave up':>8} {'median':>9} {'p95':>9}")
    for host, got in answers.items():
        times = sorted(t for status, t in got if status == "200")
        refused = sum(status in ("503", "429") for status, _ in got)
        figures = [f"{1000 * times[int(q * (len(times) - 1))]:.0f} ms" if times else "-" for q in (0.5, 0.95)]
        print(f"{host:14} {len(got):6} {len(times):7} {refused:8} {len(got) - len(times) - refused:8} "
              f"{figures[0]:>9} {figures[1]:>9}")


asyncio.run(main(*sys.argv[1:]))
