"""Processes, certificates and measurements that all cases share.

A stage owns a temporary directory and every process that it starts, and ends them when it is left. The gateway runs
with one thread, like the other proxies, so that a CPU second means the same for all.
"""

import datetime
import ipaddress
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).parent
TICKS = os.sysconf("SC_CLK_TCK")


class Skipped(Exception):
    """A case cannot run on this machine."""


class Process:
    """A process with a log file."""

    def __init__(self, words, log):
        self.words = [str(word) for word in words]
        self.log = log
        with open(log, "wb") as out:
            self.child = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)

    def cpu(self):
        """CPU seconds so far, user and system."""
        fields = pathlib.Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self, name="VmRSS"):
        """Resident memory in MiB. `VmHWM` is the most since `reset_peak`."""
        for line in pathlib.Path(f"/proc/{self.child.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) / 1024
        return 0.0

    def reset_peak(self):
        pathlib.Path(f"/proc/{self.child.pid}/clear_refs").write_text("5")

    def signal(self, number):
        self.child.send_signal(number)

    def said(self):
        return pathlib.Path(self.log).read_text(errors="replace")

    def stop(self):
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(5)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()


class Stage:
    """What a case works with."""

    def __init__(self, gateway, tools, output, seed, seconds):
        self.gateway_program, self.tools, self.output = pathlib.Path(gateway), pathlib.Path(tools), pathlib.Path(output)
        self.seed, self.seconds = seed, seconds
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="weirgate-edge-"))
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def clear(self):
        """Ends all processes."""
        for process in reversed(self.processes):
            process.stop()
        self.processes = []

    def program(self, name, hint):
        """The path of an installed program."""
        for folder in (self.tools / "bin", self.tools / "venv/bin"):
            if (folder / name).exists():
                return folder / name
        found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin")
        if found is None:
            raise Skipped(f"{name} is missing: {hint}")
        return pathlib.Path(found)

    def start(self, words, port=None):
        """Starts a process and waits until it listens on `port`."""
        process = Process(words, self.directory / f"{len(self.processes)}-{pathlib.Path(str(words[0])).name}.log")
        self.processes.append(process)
        due = time.monotonic() + 20
        while port is not None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return process
            if process.child.poll() is not None or time.monotonic() > due:
                raise RuntimeError(f"{' '.join(process.words)} does not listen on {port}:\n{process.said()}")
            time.sleep(0.05)
        return process

    def await_file(self, name):
        """Waits until a process has made a file in the directory."""
        due = time.monotonic() + 20
        while not (self.directory / name).exists():
            if time.monotonic() > due:
                raise RuntimeError(f"{name} does not appear:\n{self.processes[-1].said()}")
            time.sleep(0.02)

    def file(self, name, **values):
        """Copies a file of this folder to the directory, with `@NAME@` replaced. Returns the copy's path."""
        text = (HERE / name).read_text()
        for key, value in {"directory": self.directory, **values}.items():
            text = text.replace(f"@{key}@", str(value))
        copy = self.directory / name
        copy.write_text(text)
        return copy

    def gateway(self, policy, port, **values):
        """Starts Weirgate with a policy of this folder."""
        return self.start([self.gateway_program, "run", self.file(policy, **values)], port)

    def nginx_node(self):
        """Starts nginx as the node: `/` and `/polite` are short, `/large` has 4 MiB."""
        program = self.program("nginx", "apt-get install nginx-light")
        (self.directory / "large").write_bytes(bytes(range(256)) * (4 * 1024 * 4))
        words = [program, "-p", self.directory, "-e", "stderr", "-c", self.file("node.conf")]
        return self.start(words, 18410)

    def certificate(self, name, authority=None, days=90):
        """Writes `NAME.pem` and `NAME.key` for `edge.test` and 127.0.0.1. Without an authority it is one itself."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signer, issuer = authority if authority else (key, subject)
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
        signs = authority is None
        usage = x509.KeyUsage(
            digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False)
        builder = builder.add_extension(usage, critical=True)
        if authority:
            names = [x509.DNSName("edge.test"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
            lists = x509.DistributionPoint([x509.UniformResourceIdentifier("http://127.0.0.1:1/crl")], None, None, None)
            builder = builder.add_extension(x509.CRLDistributionPoints([lists]), critical=False)
            usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
            builder = builder.add_extension(usage, critical=False)
        certificate = builder.sign(signer, hashes.SHA256())
        pem = serialization.Encoding.PEM
        plain = serialization.NoEncryption()
        (self.directory / f"{name}.key").write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
        (self.directory / f"{name}.pem").write_bytes(certificate.public_bytes(pem))
        return (key, subject), certificate.serial_number

    def reload(self, process):
        process.signal(signal.SIGHUP)


def table(head, rows):
    """A Markdown table."""
    rows = [[str(cell) for cell in row] for row in rows]
    line = lambda cells: "| " + " | ".join(cells) + " |"
    return "\n".join([line(head), line(["---"] * len(head)), *map(line, rows)]) + "\n"
