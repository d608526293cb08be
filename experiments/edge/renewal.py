"""Certificates that are replaced while clients connect: no handshake and no request may fail.

Two kinds of replacement: both files renamed over the old ones and then SIGHUP, fifty times, and files renamed without
a word to the gateway, which has to find them within twenty seconds. Clients are OpenSSL's (Python's `ssl`): new
connections without pause, each of which verifies the certificate, and requests on connections that stay.
"""

import http.client
import os
import ssl
import threading
import time

import stage

SWAPS = 50
# Time in which files that changed without a signal are served: two looks of ten seconds, and some for a busy machine.
UNASKED = 25.0


def run(here):
    here.nginx_node()
    authority, _ = here.certificate("authority")
    _, serial = here.certificate("edge", authority)
    gateway = here.gateway("renewal.yaml", 18450)
    trust = ssl.create_default_context(cafile=here.directory / "authority.pem")
    faults, stop = [], threading.Event()
    counts = {"new": 0, "kept": 0}
    lock = threading.Lock()

    def look():
        connection = http.client.HTTPSConnection("127.0.0.1", 18450, context=trust, timeout=10)
        connection.connect()
        serial = int(connection.sock.getpeercert()["serialNumber"], 16)
        return connection, serial

    def ask(connection):
        connection.request("GET", "/")
        response = connection.getresponse()
        if response.status != 200 or response.read() != b"hello\n":
            raise OSError(f"status {response.status}")

    def client(kept):
        connection = None
        while not stop.is_set():
            try:
                if connection is None:
                    connection, _ = look()
                ask(connection)
                if not kept:
                    connection.close()
                    connection = None
                with lock:
                    counts["kept" if kept else "new"] += 1
            except (OSError, http.client.HTTPException) as error:
                faults.append(f"{'kept' if kept else 'new'} connection: {type(error).__name__}: {error}")
                connection = None

    def swap():
        """Puts a new certificate in place of the old one. Returns its number."""
        _, number = here.certificate("next", authority)
        for end in ("key", "pem"):
            os.replace(here.directory / f"next.{end}", here.directory / f"edge.{end}")
        return number

    def served(number, within):
        due = time.monotonic() + within
        while time.monotonic() < due:
            connection, serial = look()
            connection.close()
            if serial == number:
                return True
            time.sleep(0.05)
        return False

    clients = [threading.Thread(target=client, args=(kept,)) for kept in (False, False, True, True)]
    for thread in clients:
        thread.start()
    late = 0
    for _ in range(SWAPS):
        number = swap()
        here.reload(gateway)
        late += not served(number, 5)
    began, number = time.monotonic(), swap()
    if not served(number, UNASKED):
        faults.append("a certificate that changed without a signal is not served")
    unasked = time.monotonic() - began
    stop.set()
    for thread in clients:
        thread.join()
    if late:
        faults.append(f"{late} of {SWAPS} certificates were not served 5 s after SIGHUP")
    head = ["swaps with SIGHUP", "served after it", "new connections", "requests on kept ones", "failures",
            "served without SIGHUP after"]
    rows = [[SWAPS, SWAPS - late, counts["new"], counts["kept"], len(faults), f"{unasked:.0f} s"]]
    return stage.table(head, rows), faults
