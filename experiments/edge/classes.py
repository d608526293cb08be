"""Two classes and a long stream on one HTTP/2 connection, in front of nginx with PHP.

PHP has a fixed number of workers, and a request occupies one for its service time, so the capacity is known. One
client of python-h2 sends everything on one connection: `steady` at 80 % of its guarantee, `surge` at many times the
capacity in the middle third, and one long stream of events for the whole time. A request counts from the time at which
it should have been sent, also if the limit of streams held it back. Two kinds of client: one that sends each request as
soon as the limit admits it, before a gateway that admits 1,000 streams, and one that keeps a tenth of the streams for
the steady class, before a gateway with the default of 100.
"""

import collections
import heapq
import random
import select
import socket
import subprocess
import time

import h2.config
import h2.connection
import h2.events
import h2.exceptions

import stage

SECONDS = 24.0
WORKERS = 4
# Seconds of a worker for each request, as in page.php. The capacity is WORKERS / SERVICE, 100 requests a second.
SERVICE = 0.04
# Requests a second. The guarantee is 30.
STEADY, CALM, SURGE = 24.0, 20.0, 300.0
LIMIT = 0.4
# Seeds of one run: this one and the next two.
SEEDS = 3
# Longest time without an event of the long stream, which has one each 100 ms, that is no starvation.
GAP = 1.0
# Time for which the client holds a request of the surge back before it gives up.
PATIENCE = 1.0


def run(here):
    fpm = here.program("php-fpm8.2", "apt-get install php-fpm")
    page = here.file("page.php")
    nginx = here.program("nginx", "apt-get install nginx-light")
    rows, faults = [], []
    for kind, streams, share in (("plain", 1000, 1.0), ("with priorities", 100, 0.9)):
        for seed in range(here.seed, here.seed + SEEDS):
            # A worker more for the long stream, which takes one for as long as it lasts.
            pool = here.file("fpm.conf", workers=WORKERS + 1)
            here.start([fpm, "--nodaemonize", "--allow-to-run-as-root", "--fpm-config", pool])
            here.await_file("php.sock")
            here.start([nginx, "-p", here.directory, "-e", "stderr", "-c", here.file("php.conf", page=page)], 18460)
            here.gateway("classes.yaml", 18461, workers=WORKERS + 1, streams=streams)
            result = Client(18461, seed, here.seconds or SECONDS, share).play()
            here.clear()
            (here.directory / "php.sock").unlink(missing_ok=True)
            for phase in ("calm", "surge", "after"):
                rows.append([kind, seed, phase, *result.row(phase), f"{result.gap(phase):.2f}", f"{result.lag * 1000:.0f}"])
                faults += [f"{kind}, seed {seed}, {phase}: {fault}" for fault in result.faults(phase)]
    head = ["client", "seed", "phase", "steady sent", "in time", "refused", "failed", "p95 ms", "surge sent", "served", "refused",
            "held back", "longest gap of the long stream s", "client late by ms"]
    versions = subprocess.run([fpm, "-v"], capture_output=True, text=True).stdout.splitlines()[0]
    return f"{stage.table(head, rows)}\n{versions}, {WORKERS} workers, {SERVICE * 1000:.0f} ms each.\n", faults


class Result:
    """The outcomes of a run, by phase."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.outcomes = collections.defaultdict(list)
        self.events = []
        # Longest delay of the client itself.
        self.lag = 0.0

    def phase(self, at):
        return ("calm", "surge", "after")[min(2, int(3 * at / self.seconds))]

    def row(self, phase):
        steady, surge = self.outcomes[phase, "steady"], self.outcomes[phase, "surge"]
        count = lambda of, word: sum(1 for outcome, _ in of if outcome == word)
        times = sorted(took for outcome, took in steady if outcome == "served")
        p95 = times[int(len(times) * 0.95)] if times else 0.0
        in_time = sum(1 for took in times if took <= LIMIT)
        return [len(steady), in_time, count(steady, "refused"), count(steady, "failed"), f"{p95 * 1000:.0f}", len(surge),
                count(surge, "served"), count(surge, "refused"), count(surge, "failed")]

    def gap(self, phase):
        times = [at for at in self.events if self.phase(at) == phase]
        third = self.seconds / 3
        begin = ("calm", "surge", "after").index(phase) * third
        marks = [begin + (0.5 if phase == "calm" else 0), *times, begin + third]
        return max(b - a for a, b in zip(marks, marks[1:]))

    def faults(self, phase):
        steady = self.outcomes[phase, "steady"]
        served = sum(1 for outcome, _ in steady if outcome == "served")
        times = sorted(took for outcome, took in steady if outcome == "served")
        if served < 0.99 * len(steady):
            yield f"{served} of {len(steady)} steady requests were served"
        if times and times[int(len(times) * 0.95)] > LIMIT:
            yield f"the p95 of steady requests is {times[int(len(times) * 0.95)] * 1000:.0f} ms"
        if self.gap(phase) > GAP:
            yield f"the long stream had no event for {self.gap(phase):.2f} s"


class Client:
    """One connection."""

    def __init__(self, port, seed, seconds, share):
        self.seconds, self.share, self.numbers = seconds, share, random.Random(seed)
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.connection.initiate_connection()
        self.result = Result(seconds)
        self.open = {}

    def arrivals(self):
        """Times and classes of all requests, Poisson for each class."""
        found = []
        for name, rates in (("steady", [STEADY] * 3), ("surge", [CALM, SURGE, CALM])):
            for third, rate in enumerate(rates):
                at, end = third * self.seconds / 3, (third + 1) * self.seconds / 3
                while (at := at + self.numbers.expovariate(rate)) < end:
                    found.append((at, name))
        heapq.heapify(found)
        return found

    def request(self, due, name):
        stream = self.connection.get_next_available_stream_id()
        fields = [(":method", "GET"), (":scheme", "http"), (":authority", f"{name}.test"), (":path", f"/{name}")]
        self.connection.send_headers(stream, fields, end_stream=True)
        self.open[stream] = (due, name)

    def play(self):
        arrivals, began = self.arrivals(), time.monotonic()
        waiting = collections.deque()
        self.request(0.0, "long")
        now = 0.0
        while now < self.seconds + 5 and (now < self.seconds or any(open[1] != "long" for open in self.open.values())):
            now = time.monotonic() - began
            while arrivals and arrivals[0][0] <= now:
                waiting.append(heapq.heappop(arrivals))
            held = collections.deque()
            while waiting and len(self.open) < self.most():
                at, name = waiting.popleft()
                if self.may_open(name):
                    self.request(at, name)
                else:
                    held.append((at, name))
            waiting = held + waiting
            while waiting and waiting[0][1] == "surge" and now > waiting[0][0] + PATIENCE:
                self.done(*waiting.popleft(), "failed", now)
            self.socket.sendall(self.connection.data_to_send())
            next_at = arrivals[0][0] if arrivals else now + 0.05
            wait = min(max(next_at - now, 0.0), 0.05)
            ready = select.select([self.socket], [], [], wait)[0]
            self.result.lag = max(self.result.lag, time.monotonic() - began - now - wait)
            if ready:
                data = self.socket.recv(1 << 16)
                if not data:
                    break
                self.take(self.connection.receive_data(data), time.monotonic() - began)
        for due, name, *_ in [*self.open.values(), *waiting]:
            if name != "long":
                self.done(due, name, "failed", now)
        return self.result

    def most(self):
        return self.connection.remote_settings.max_concurrent_streams

    def may_open(self, name):
        return len(self.open) < self.most() * (self.share if name == "surge" else 1.0)

    def done(self, due, name, outcome, now):
        self.result.outcomes[self.result.phase(due), name].append((outcome, now - due))

    def take(self, events, now):
        for event in events:
            stream = getattr(event, "stream_id", None)
            if isinstance(event, h2.events.ResponseReceived):
                due, name, *_ = self.open[stream]
                self.open[stream] = (due, name, dict(event.headers)[b":status"])
            elif isinstance(event, h2.events.DataReceived):
                self.connection.acknowledge_received_data(event.flow_controlled_length, stream)
                if self.open.get(stream, ("", ""))[1] == "long":
                    self.result.events.append(now)
            elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)) and stream in self.open:
                due, name, *status = self.open.pop(stream)
                outcome = "served" if status == [b"200"] else "refused" if status in ([b"503"], [b"429"]) else "failed"
                if name != "long":
                    self.done(due, name, outcome, now)
