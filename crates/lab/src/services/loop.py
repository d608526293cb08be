# An API that costs `us` microseconds of CPU time: it computes until its thread has used so much more than when the
# request began. Then it waits `wait` microseconds without a processor, as for a database, and sends events for `stream`
# microseconds: a line at once and one every half second. It ends with the CPU time that it used.
import re
import time
from urllib.parse import parse_qs


def micros(query, name, default):
    """Returns a parameter in microseconds, at most a minute."""
    text = query.get(name, [default])[0] or ""
    if not re.fullmatch("[0-9]{1,8}", text) or int(text) > 60_000_000:
        raise ValueError(f"{name}: a time in microseconds, at most a minute, as in /loop?us=8000&wait=20000\n")
    return int(text)


def answer(before, us, wait, stream):
    x = 1
    while (time.thread_time_ns() - before) // 1000 < us:
        # Some microseconds, so that the loop is mostly this and not the question how late it is.
        for _ in range(100):
            x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    time.sleep(wait / 1e6)
    # Sleeps end late, so that all are counted from the first.
    start, events = time.monotonic(), 1
    while (left := start + stream / 1e6 - time.monotonic()) > 0:
        yield b"event\n"
        time.sleep(max(0, min(left, start + events / 2 - time.monotonic())))
        events += 1
    yield f"{(time.thread_time_ns() - before) // 1000}\n".encode()


def application(environ, start_response):
    before = time.thread_time_ns()
    if environ["PATH_INFO"] != "/loop":
        start_response("404 Not Found", [("Content-Type", "text/plain"), ("Content-Length", "0")])
        return []
    try:
        query = parse_qs(environ["QUERY_STRING"], keep_blank_values=True)
        times = [micros(query, *of) for of in (("us", None), ("wait", "0"), ("stream", "0"))]
    except ValueError as why:
        text = str(why).encode()
        start_response("400 Bad Request", [("Content-Type", "text/plain"), ("Content-Length", str(len(text)))])
        return [text]
    # Without a stream, the head waits for the work, as in an application that makes its whole reply first.
    body = answer(before, *times)
    body = body if times[2] else [b"".join(body)]
    start_response("200 OK", [("Content-Type", "text/plain")])
    return body
