"""The published client of gRPC against the published server, through the gateway.

The cases are those of the client. Eight of them are left out, as the script that is published with them does: they
need accounts of a cloud, or several servers with names of their own.
"""

import json
import subprocess

import stage

CASES = [
    "empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream",
    "timeout_on_sleeping_server", "cancel_after_begin", "cancel_after_first_response", "status_code_and_message",
    "special_status_message", "custom_metadata", "unimplemented_method", "unimplemented_service", "orca_per_rpc",
    "orca_oob", "rpc_soak", "channel_soak",
]
LEFT_OUT = [
    "compute_engine_creds", "service_account_creds", "jwt_token_creds", "per_rpc_creds", "oauth2_auth_token",
    "google_default_credentials", "compute_engine_channel_credentials", "pick_first_unary",
]
BALANCER = json.dumps({"loadBalancingConfig": [{"test_backend_metrics_load_balancer": {}}]})


def run(here):
    client = here.program("client", "go install google.golang.org/grpc/interop/client@latest")
    server = here.program("server", "go install google.golang.org/grpc/interop/server@latest")
    authority, _ = here.certificate("authority")
    here.certificate("edge", authority)
    certificate = ["-tls_cert_file", here.directory / "edge.pem", "-tls_key_file", here.directory / "edge.key"]
    here.start([server, "-port", 18420], 18420)
    here.start([server, "-port", 18421, "-use_tls", *certificate], 18421)
    here.gateway("interop.yaml", 18400)
    trust = ["-use_tls", "-use_test_ca", "-ca_file", here.directory / "authority.pem"]
    ways = {
        "without gateway": ["-server_port", 18420],
        "in the clear": ["-server_port", 18400],
        "TLS on both sides": ["-server_port", 18401, *trust, "-server_host_override", "edge.test"],
    }
    rows, faults = [], []
    for case in CASES:
        row = [case]
        for way, words in ways.items():
            words = [client, "-server_host", "127.0.0.1", "-test_case", case, *words]
            words += ["-service_config_json", BALANCER] if case.startswith("orca") else []
            try:
                done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=90)
                passed, said = done.returncode == 0, done.stderr[-300:]
            except subprocess.TimeoutExpired:
                passed, said = False, "no end after 90 s"
            row.append("pass" if passed else "FAIL")
            if not passed:
                faults.append(f"{case} {way}: {said}")
        rows.append(row)
    text = stage.table(["case", *ways], rows)
    return text + f"\nLeft out, as in the published script: {', '.join(LEFT_OUT)}.\n", faults
