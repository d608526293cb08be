"""Attacks and measures the edge of the gateway with other people's programs.

`cargo xtask bench edge` installs what is needed and calls this. README.md has the cases.
"""

import argparse
import importlib
import pathlib
import sys
import time

import stage

CASES = {
    "conformance": "h2spec, strict, in the clear and over TLS",
    "interop": "the published test cases of gRPC, in the clear and over TLS on both sides",
    "scan": "sslyze and testssl.sh against a listener with TLS",
    "tunnels": "WebSockets across reloads",
    "renewal": "certificates that change under load",
    "classes": "two classes and a long stream on one HTTP/2 connection",
    "attacks": "hostile HTTP/2 clients, beside HAProxy and Envoy",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateway", required=True, help="the program weirgate")
    parser.add_argument("--tools", required=True, help="directory with bin/ and venv/")
    parser.add_argument("--output", required=True, help="directory for the results")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0, help="length of each measurement. 0 is that of the case")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), help="all by default")
    options = parser.parse_args()
    output = pathlib.Path(options.output)
    output.mkdir(parents=True, exist_ok=True)
    failed, skipped = [], []
    for name in options.cases or CASES:
        print(f"== {name}: {CASES[name]} (seed {options.seed})", flush=True)
        began = time.monotonic()
        try:
            with stage.Stage(options.gateway, options.tools, output, options.seed, options.seconds) as here:
                text, faults = importlib.import_module(name).run(here)
        except stage.Skipped as why:
            print(f"SKIPPED: {name}: {why}", file=sys.stderr, flush=True)
            skipped.append(name)
            continue
        (output / f"{name}.md").write_text(f"# {CASES[name][0].upper()}{CASES[name][1:]}\n\n{text}")
        print(text)
        for fault in faults:
            print(f"FAILED: {name}: {fault}", flush=True)
        failed += [name] if faults else []
        print(f"   {time.monotonic() - began:.0f} s\n", flush=True)
    print(f"failed: {', '.join(failed) or 'none'}. Skipped: {', '.join(skipped) or 'none'}.")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
