"""Measures what TLS costs in Weirgate, HAProxy and nginx: CPU time and memory.

`cargo xtask bench tls` builds Weirgate and calls this. README.md describes the measurement.
"""

import argparse
import concurrent.futures
import csv
import os
import pathlib
import re
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).parent
PROXIES = {"weirgate": 1, "haproxy": 2, "nginx": 3}
PLAIN, SECURE, NODE = 18200, 18210, 18100
# The cores of the proxies, and of the node and the load.
PROXY_CORE, LOAD_CORE = "0", "1"
REQUEST = b"GET /page HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\n\r\n"
KEPT = REQUEST.replace(b"close", b"keep-alive")
# A run has a number of requests and no length, so that a busy machine makes it longer and not less exact.
CONNECTIONS, CLIENTS = 1000, 8
REQUESTS = 20_000
HELD = 1000
# Seconds without a change after which memory has settled.
QUIET = 3
# Memory hardly differs from one process to the next.
MEMORY_ROUNDS = 3
CIPHER = "TLS_AES_128_GCM_SHA256"
# Words of h2load: 64 requests at once in each case.
LOADS = {
    "HTTP/1.1 in the clear": ("http", ["--h1", "-c64"]),
    "HTTP/1.1 over TLS": ("https", ["--h1", "-c64"]),
    "HTTP/2 over TLS": ("https", ["-c8", "-m8"]),
}
CONNECTS = ["connection in the clear", "connection, full handshake", "connection, resumed session"]
CASES = [*CONNECTS, *LOADS]
UNITS = {case: "connection" for case in CONNECTS} | {case: "request" for case in LOADS}


# The settings of the clients' OpenSSL are not those of the servers.
SERVERS = {name: value for name, value in os.environ.items() if name != "OPENSSL_CONF"}


class Failed(Exception):
    """A run that measures something else than it should."""


def program(name):
    found = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    if not found:
        raise Failed(f"{name} is missing: install the Debian packages nginx-light, haproxy and nghttp2-client")
    return found


class Process:
    """A server on a core. It ends with the block."""

    def __init__(self, core, command, folder, port):
        with socket.socket() as taken:
            if taken.connect_ex(("127.0.0.1", port)) == 0:
                raise Failed(f"port {port} of 127.0.0.1 is taken, and the experiment needs it")
        self.child = subprocess.Popen(["taskset", "-c", core, *map(str, command)], cwd=folder, env=SERVERS,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            if self.child.poll() is not None or time.monotonic() > until:
                self.end()
                raise Failed(f"{command[0]} does not serve")
            time.sleep(0.05)

    def all(self):
        """The process and its children."""
        root = self.child.pid
        yield root
        for task in pathlib.Path(f"/proc/{root}/task").iterdir():
            yield from map(int, (task / "children").read_text().split())

    def cpu_seconds(self):
        """CPU seconds, user and system, of all threads, in nanoseconds of the scheduler."""
        tasks = (task for pid in self.all() for task in pathlib.Path(f"/proc/{pid}/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def memory(self):
        """Resident bytes of its own."""
        texts = (pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in self.all())
        return sum(int(kib) for text in texts for kib in re.findall(r"Private_\w+:\s+(\d+) kB", text)) * 1024

    def settled_memory(self):
        """The same once it has not changed for QUIET seconds, because allocators give memory back with a delay."""
        until, since, last = time.monotonic() + 60, time.monotonic(), self.memory()
        while time.monotonic() - since < QUIET:
            time.sleep(0.2)
            now = self.memory()
            if now != last:
                since, last = time.monotonic(), now
            if time.monotonic() > until:
                raise Failed(f"the memory of process {self.child.pid} changes for ever")
        return last

    def end(self):
        self.child.terminate()
        self.child.wait()


def certificate(folder):
    """One certificate with a P-256 key for all."""
    subprocess.run([program("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-keyout", "site.key", "-out", "site.pem", "-days", "30", "-subj", "/CN=site.test",
                    "-addext", "subjectAltName=DNS:site.test"], cwd=folder, env=SERVERS, check=True, capture_output=True)
    both = (folder / "site.pem").read_text() + (folder / "site.key").read_text()
    (folder / "site-with-key.pem").write_text(both)


def start(gateway, folder):
    nginx = [program("nginx"), "-p", folder, "-e", "stderr", "-c"]
    commands = {
        "weirgate": [gateway, "run", folder / "weirgate.yaml"],
        "haproxy": [program("haproxy"), "-db", "-f", folder / "haproxy.cfg"],
        "nginx": [*nginx, folder / "nginx.conf"],
    }
    return {name: Process(PROXY_CORE, command, folder, SECURE + PROXIES[name]) for name, command in commands.items()}


def context():
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
    return found


def connect(port, tls, session):
    stream = socket.create_connection(("127.0.0.1", port), timeout=60)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return tls.wrap_socket(stream, server_hostname="site.test", session=session) if tls else stream


def once(port, tls, session):
    """One connection with one request. Returns its session."""
    with connect(port, tls, session) as stream:
        if tls and (stream.version(), stream.cipher()[0]) != ("TLSv1.3", CIPHER):
            raise Failed(f"{stream.version()} with {stream.cipher()}")
        if tls and stream.session_reused != (session is not None):
            raise Failed("a session was resumed, or was not")
        stream.sendall(REQUEST)
        answer = b""
        while piece := stream.recv(65536):
            answer += piece
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise Failed(f"answer {answer[:60]!r}")
        return stream.session if tls else None


def connections(proxy, case):
    """Makes connections from several clients. Returns their number."""
    resumes, tls = case == CONNECTS[2], None if case == CONNECTS[0] else context()
    port = (SECURE if tls else PLAIN) + PROXIES[proxy]
    faults = []
    first = once(port, tls, None) if resumes else None

    def client():
        session = first
        try:
            for _ in range(CONNECTIONS // CLIENTS):
                found = once(port, tls, session)
                session = found if resumes else None
        except (OSError, Failed) as fault:
            faults.append(fault)

    clients = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    if faults:
        raise Failed(f"{proxy}, {case}: {faults[0]}")
    return CONNECTIONS // CLIENTS * CLIENTS


def requests(proxy, case, count=REQUESTS):
    """Sends requests with h2load. Returns their number."""
    scheme, words = LOADS[case]
    port = (SECURE if scheme == "https" else PLAIN) + PROXIES[proxy]
    command = ["taskset", "-c", LOAD_CORE, program("h2load"), *words, f"-n{count}", "-t1",
               f"--tls13-ciphers={CIPHER}",
               f"--connect-to=127.0.0.1:{port}", f"{scheme}://site.test:{port}/page"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if f" {count} succeeded, 0 failed, 0 errored, 0 timeout" not in report or f"status codes: {count} 2xx" not in report:
        raise Failed(f"{proxy}, {case}: failed requests:\n{report}")
    if scheme == "https" and f"Cipher: {CIPHER}" not in report:
        raise Failed(f"another cipher:\n{report}")
    return count


def cpu(proxies, number, write):
    """CPU time of every case, in one round."""
    names = list(PROXIES)
    for case in CASES:
        for turn in range(len(names)):
            name = names[(number + turn) % len(names)]
            if case in LOADS:
                # Its connections begin cold.
                requests(name, case, 1000)
            before = proxies[name].cpu_seconds()
            count = connections(name, case) if case in CONNECTS else requests(name, case)
            write(number, case, name, (proxies[name].cpu_seconds() - before) * 1e6 / count)


def memory(gateway, folder, number, write):
    """Private memory of connections that have had one request each and are idle."""
    proxies = start(gateway, folder)
    for name, proxy in proxies.items():
        kept = []
        try:
            for case, base in [("idle connection in the clear", PLAIN), ("idle connection over TLS", SECURE)]:
                tls = context() if base == SECURE else None

                def hold(_):
                    stream = connect(base + PROXIES[name], tls, None)
                    stream.sendall(KEPT)
                    if not stream.recv(65536).startswith(b"HTTP/1.1 200 "):
                        raise Failed(f"{name}: {case}")
                    kept.append(stream)

                # All stay open, so that no case uses the memory of another one.
                with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
                    list(clients.map(hold, range(100)))
                    before = proxy.settled_memory()
                    list(clients.map(hold, range(HELD)))
                write(number, case, name, (proxy.settled_memory() - before) / HELD / 1024)
            for one in kept:
                # Also the first ones: nothing more has come, and no end.
                one.setblocking(False)
                try:
                    if not one.recv(65536):
                        raise Failed(f"{name} has closed idle connections")
                except (BlockingIOError, ssl.SSLWantReadError):
                    pass
        finally:
            for one in kept:
                one.close()
            proxy.end()


def spread(values):
    values = sorted(values)
    digits = 0 if statistics.median(values) >= 100 else 1
    return f"{statistics.median(values):.{digits}f} ({values[0]:.{digits}f}–{values[-1]:.{digits}f})"


def ratio(mine, theirs):
    values = sorted(a / b for a, b in zip(mine, theirs))
    return f"{statistics.median(values):.2f} ({values[0]:.2f}–{values[-1]:.2f})"


def summary(rows):
    def of(case, proxy):
        return [value for _, found, name, value in rows if (found, name) == (case, proxy)]

    text = ("# Cost of TLS\n\nMedians over the rounds, with the lowest and the highest in brackets. A ratio is within a "
            "round. TLS 1.3 with TLS_AES_128_GCM_SHA256, X25519 and a P-256 key.\n\n"
            "| case | proxy | µs of CPU | to HAProxy |\n|---|---|---|---|\n")
    for case in CASES:
        for proxy in PROXIES:
            mine = of(case, proxy)
            text += f"| {case} | {proxy} | {spread(mine)} a {UNITS[case]} | {ratio(mine, of(case, 'haproxy'))} |\n"
    text += ("\nA handshake is the difference to a connection in the clear in the same round.\n\n"
             "| handshake | proxy | µs of CPU | handshakes a second and core | to HAProxy |\n|---|---|---|---|---|\n")
    for case in CONNECTS[1:]:
        cost = {proxy: [a - b for a, b in zip(of(case, proxy), of(CONNECTS[0], proxy))] for proxy in PROXIES}
        for proxy in PROXIES:
            rate = 1e6 / statistics.median(cost[proxy])
            text += (f"| {case.split(', ')[1]} | {proxy} | {spread(cost[proxy])} | {rate:.0f} | "
                     f"{ratio(cost[proxy], cost['haproxy'])} |\n")
    text += "\n| memory | proxy | KiB a connection | to HAProxy |\n|---|---|---|---|\n"
    for case in ["idle connection in the clear", "idle connection over TLS"]:
        for proxy in PROXIES:
            mine = of(case, proxy)
            text += f"| {case} | {proxy} | {spread(mine)} | {ratio(mine, of(case, 'haproxy'))} |\n"
    return text


def average():
    return pathlib.Path("/proc/loadavg").read_text().split()[0]


def line(*command):
    return subprocess.run(command, capture_output=True, text=True, cwd=HERE).stdout.strip().split("\n")[0]


def setup(rounds, load):
    packages = ["nginx-light", "haproxy", "nghttp2-client", "libssl3"]
    versions = ", ".join(line("dpkg-query", "--show", "--showformat=${Package} ${Version}", name) for name in packages)
    cpu = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", cpu)
    return (f"# Setup\n\n`cargo xtask bench tls`, see `experiments/tls/README.md` for the method and the configurations.\n\n"
            f"- {line('date', '+%Y-%m-%d %H:%M %Z')}, commit {line('git', 'rev-parse', '--short', 'HEAD')}\n"
            f"- {cpu.count('processor')} cores, {model[1] if model else 'unknown'}; Linux {line('uname', '-r')}; load average "
            f"{load} before the first run and {average()} after the last\n"
            f"- {line('rustc', '--version')}, the program of `cargo xtask release`\n- {versions} (Debian), {ssl.OPENSSL_VERSION} in the client\n"
            f"- {rounds} rounds; in each, every proxy in turn: {CONNECTIONS} connections, or {REQUESTS} requests after "
            f"1,000 unmeasured ones. {MEMORY_ROUNDS} rounds with {HELD} idle connections\n"
            f"- proxies with one thread on core {PROXY_CORE}; node and load on core {LOAD_CORE}\n")


def save(place, rounds, load, rows):
    place.mkdir(parents=True, exist_ok=True)
    busy = (f"\nThe load average was {load} before the first round and {average()} after the last one. Above 2, other "
            "programs had a part of the two cores and of their caches. Ratios suffer less from that than times do.\n")
    (place / "summary.md").write_text(summary(rows) + busy)
    (place / "SETUP.md").write_text(setup(rounds, load))
    with open(place / "raw.csv", "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["round", "case", "proxy", "us_or_kib"])
        table.writerows((number, case, proxy, f"{value:.3f}") for number, case, proxy, value in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateway", required=True, type=pathlib.Path, help="the program weirgate")
    parser.add_argument("--output", required=True, type=pathlib.Path, help="directory for the results")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds is at least 1")
    load = average()
    rows = []

    def write(number, case, proxy, value):
        rows.append((number, case, proxy, value))
        print(f"   round {number} of {options.rounds}: {case}, {proxy}: {value:.2f}", flush=True)

    subprocess.run(["taskset", "-pc", LOAD_CORE, str(threading.get_native_id())], check=True, capture_output=True)
    with tempfile.TemporaryDirectory(prefix="weirgate-tls-") as folder:
        folder = pathlib.Path(folder)
        # The workers of nginx are another user's, if root measures.
        folder.chmod(0o755)
        for name in ["weirgate.yaml", "haproxy.cfg", "nginx.conf", "node.conf"]:
            shutil.copy(HERE / name, folder)
        (folder / "page").write_bytes(b"w" * 1024)
        certificate(folder)
        running = [Process(LOAD_CORE, [program("nginx"), "-p", folder, "-e", "stderr", "-c", folder / "node.conf"], folder,
                           NODE)]
        try:
            for number in range(1, MEMORY_ROUNDS + 1):
                memory(options.gateway, folder, number, write)
            proxies = start(options.gateway, folder)
            running += proxies.values()
            for number in range(1, options.rounds + 1):
                cpu(proxies, number, write)
                # After each round, so that an interrupted measurement is one with fewer rounds.
                save(options.output, number, load, rows)
        finally:
            for one in running:
                one.end()
    print(summary(rows))


if __name__ == "__main__":
    try:
        main()
    except Failed as why:
        sys.exit(f"tls.py: {why}")
