"""Scanners of TLS: sslyze with Mozilla's profile, and testssl.sh. No finding may be above "low"."""

import json
import subprocess

import stage

# Results of sslyze and the value that each must have.
SOUND = {
    "heartbleed": ("is_vulnerable_to_heartbleed", False),
    "openssl_ccs_injection": ("is_vulnerable_to_ccs_injection", False),
    "tls_compression": ("supports_compression", False),
    "session_renegotiation": ("is_vulnerable_to_client_renegotiation_dos", False),
    "tls_fallback_scsv": ("supports_fallback_scsv", True),
    "tls_1_3_early_data": ("supports_early_data", False),
    "elliptic_curves": ("supports_ecdh_key_exchange", True),
    "tls_extended_master_secret": ("supports_ems_extension", True),
}
OLD = ["ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1"]


def run(here):
    authority, _ = here.certificate("authority")
    here.certificate("edge", authority)
    here.nginx_node()
    here.gateway("conformance.yaml", 18401)
    rows, faults = [], []
    scanners = [sslyze, testssl]
    missing = []
    for scanner in scanners:
        try:
            scanner(here, rows, faults)
        except stage.Skipped as why:
            print(f"SKIPPED: scan: {why}", flush=True)
            missing.append(why)
    if len(missing) == len(scanners):
        raise missing[0]
    return stage.table(["scanner", "finding", "severity", "text"], rows), faults


def sslyze(here, rows, faults):
    program = here.program("sslyze", "pip install sslyze")
    report = here.output / "sslyze.json"
    words = [program, "--json_out", report, "--mozilla_config", "intermediate", "--early_data", "--certinfo",
             "--certinfo_ca_file", here.directory / "authority.pem", "127.0.0.1:18401"]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300)
    (here.output / "sslyze.txt").write_text(done.stdout)
    results = json.loads(report.read_text())["server_scan_results"][0]["scan_result"]
    # The report has every certificate and cipher in full. The text has the results.
    report.unlink()
    for name, (field, sound) in SOUND.items():
        value = results[name]["result"][field] if results[name]["result"] else results[name]["status"]
        rows.append(["sslyze", name, "ok" if value == sound else "HIGH", f"{field}: {value}"])
        if value != sound:
            faults.append(f"sslyze: {name}: {field} is {value}")
    robot = results["robot"]["result"]["robot_result"]
    rows.append(["sslyze", "robot", "ok" if robot.startswith("NOT_VULNERABLE") else "HIGH", robot])
    if not robot.startswith("NOT_VULNERABLE"):
        faults.append(f"sslyze: robot: {robot}")
    for version in OLD:
        accepted = results[f"{version}_cipher_suites"]["result"]["accepted_cipher_suites"]
        rows.append(["sslyze", version, "HIGH" if accepted else "ok", f"{len(accepted)} suites accepted"])
        if accepted:
            faults.append(f"sslyze: {version} is accepted")
    for version in ["tls_1_2", "tls_1_3"]:
        accepted = results[f"{version}_cipher_suites"]["result"]["accepted_cipher_suites"]
        names = ", ".join(suite["cipher_suite"]["name"] for suite in accepted)
        rows.append(["sslyze", version, "info", names])
    said = done.stdout.partition("COMPLIANCE AGAINST")[2].strip().splitlines()
    for line in (line.strip() for line in said if "127.0.0.1" in line or "*" in line):
        rows.append(["sslyze", "Mozilla intermediate", "info", line.lstrip("* ")])


def testssl(here, rows, faults):
    program = here.program("testssl", "apt-get install testssl.sh")
    report = here.output / "testssl.json"
    report.unlink(missing_ok=True)
    words = [program, "--quiet", "--color", "0", "--add-ca", here.directory / "authority.pem", "--jsonfile", report,
             "--ip", "127.0.0.1", "--warnings", "off", "https://edge.test:18401"]
    subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=1500)
    found = json.loads(report.read_text())
    counts = {}
    for finding in found:
        severity = finding["severity"]
        counts[severity] = counts.get(severity, 0) + 1
        if severity in ("LOW", "MEDIUM", "HIGH", "CRITICAL", "WARN", "FATAL"):
            rows.append(["testssl.sh", finding["id"], severity, finding["finding"].replace("|", "/")])
        if severity in ("MEDIUM", "HIGH", "CRITICAL", "FATAL"):
            faults.append(f"testssl.sh: {finding['id']}: {finding['finding']}")
    rows.append(["testssl.sh", "all", "info", ", ".join(f"{n} {name}" for name, n in sorted(counts.items()))])
