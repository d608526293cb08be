"""h2spec in strict mode: every case has to pass, on a listener in the clear and on one with TLS."""

import re
import subprocess

import stage


def run(here):
    program = here.program("h2spec", "go install github.com/summerwind/h2spec/cmd/h2spec@latest")
    authority, _ = here.certificate("authority")
    here.certificate("edge", authority)
    here.nginx_node()
    here.gateway("conformance.yaml", 18400)
    rows, faults = [], []
    for name, words in [("in the clear", ["-p", "18400"]), ("TLS", ["-p", "18401", "-t", "-k"])]:
        words = [program, "-h", "127.0.0.1", "-P", "/", "-o", "5", "--strict", *words]
        done = subprocess.run(words, capture_output=True, text=True, timeout=600)
        (here.output / f"h2spec-{name.replace(' ', '-').lower()}.txt").write_text(done.stdout)
        counts = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", done.stdout)
        if counts is None:
            faults.append(f"{name}: h2spec ended with {done.returncode}: {done.stderr[-200:]}")
            continue
        rows.append([name, *counts.groups()])
        if counts[1] != counts[2]:
            faults.append(f"{name}: {counts[0]}")
    return stage.table(["listener", "cases", "passed", "skipped", "failed"], rows), faults
