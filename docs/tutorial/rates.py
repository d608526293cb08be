"""Requests per second and times at the nodes, per class, from Weirgate's access log.

Usage: python3 rates.py access.json
"""

import collections
import json
import sys

seconds = collections.defaultdict(collections.Counter)
times = collections.defaultdict(list)
with open(sys.argv[1], encoding="utf-8") as log:
    for line in log:
        request = json.loads(line)
        seconds[request["class"]][request["time"][:19]] += 1
        if request["ending"] == "served":
            times[request["class"]].append(request["service_time_ms"])


def at(values, share):
    return sorted(values)[int(share * (len(values) - 1))] if values else float("nan")


for name, counts in seconds.items():
    print(f"{name}: p99 of its seconds {at(list(counts.values()), 0.99)}/s, "
          f"time at the nodes: median {at(times[name], 0.5):.0f} ms, p95 {at(times[name], 0.95):.0f} ms")
