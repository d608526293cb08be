"""Two kinds of visitors of the shop: people who buy, and crawlers that read every page.

People arrive at random instants at a given rate, and leave after 3 s without an answer. Each has an address, a cookie
and a browser. A crawler keeps a number of connections busy: the next request leaves when the last one was answered. It
waits up to 30 s for an answer, and after a refusal as long as `Retry-After` says.
Usage: python3 visitors.py SECONDS PEOPLE_PER_SECOND CRAWLER_CONNECTIONS [PORT]
"""

import asyncio
import random
import sys
import time

PEOPLE, CRAWLERS = "people who buy", "crawlers"
PRODUCTS = 20000
WORDS = "oak steel blue small garden lamp chair table wool cotton glass light heavy red round kitchen".split()
BROWSER = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
BOT = "Mozilla/5.0 (compatible; GreedyBot/1.2; +https://bot.example/)"


def person_asks(dice):
    visitor = dice.randrange(20000)
    path = dice.choices(
        [f"/product/p{1 + int(PRODUCTS * dice.random() ** 3)}/", "/shop/", f"/cart/?add={dice.randrange(6, PRODUCTS)}",
         "/order/", f"/?s={dice.choice(WORDS)}"],
        [50, 10, 20, 10, 10])[0]
    return path, f"127.1.{visitor // 200}.{1 + visitor % 200}", BROWSER, f"Cookie: shop_session=v{visitor}\r\n"


def crawler_asks(dice):
    path = dice.choices(
        [f"/product/p{dice.randrange(1, PRODUCTS)}/", f"/shop/page/{dice.randrange(1, 2000)}/",
         f"/?s={dice.choice(WORDS)}+{dice.choice(WORDS)}"],
        [60, 30, 10])[0]
    return path, f"127.2.0.{dice.randrange(1, 21)}", BOT, ""


async def ask(port, request, patience, answers):
    path, address, browser, cookie = request
    began, writer, status, wait = time.monotonic(), None, "none", 0.0
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
            head = f"GET {path} HTTP/1.1\r\nHost: shop.test\r\nUser-Agent: {browser}\r\n{cookie}Connection: close\r\n\r\n"
            writer.write(head.encode())
            answer = await reader.read(-1)
            status = answer.split(b" ", 2)[1].decode()
            _, _, after = answer.lower().partition(b"retry-after: ")
            wait = float(after.split(b"\r", 1)[0] or 0)
    except (OSError, IndexError, ValueError):  # a TimeoutError is an OSError
        pass
    finally:
        if writer:
            writer.close()
    answers.append((status, time.monotonic() - began))
    return wait


async def people(port, rate, seconds, answers):
    dice, asked, began, at = random.Random(1), [], time.monotonic(), 0.0
    while rate and (at := at + dice.expovariate(rate)) < seconds:
        await asyncio.sleep(max(0.0, began + at - time.monotonic()))
        asked.append(asyncio.create_task(ask(port, person_asks(dice), 3.0, answers)))
    await asyncio.gather(*asked)


async def crawler(port, seed, seconds, answers):
    dice, end = random.Random(seed), time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(await ask(port, crawler_asks(dice), 30.0, answers))


async def main(seconds, rate, connections, port=80):
    seconds, answers = float(seconds), {PEOPLE: [], CRAWLERS: []}
    crawlers = [crawler(int(port), 2 + n, seconds, answers[CRAWLERS]) for n in range(int(connections))]
    await asyncio.gather(people(int(port), float(rate), seconds, answers[PEOPLE]), *crawlers)
    print(f"{'':15} {'asked':>6} {'served':>7} {'a second':>9} {'refused':>8} {'gave up':>8} {'failed':>7} "
          f"{'median':>9} {'p95':>9}")
    for kind, got in answers.items():
        times = sorted(t for status, t in got if status == "200")
        refused = sum(status in ("503", "429") for status, _ in got)
        left = sum(status == "none" for status, _ in got)
        figures = [f"{1000 * times[int(q * (len(times) - 1))]:.0f} ms" if times else "-" for q in (0.5, 0.95)]
        print(f"{kind:15} {len(got):6} {len(times):7} {len(times) / seconds:9.1f} {refused:8} {left:8} "
              f"{len(got) - len(times) - refused - left:7} {figures[0]:>9} {figures[1]:>9}")


asyncio.run(main(*sys.argv[1:]))
