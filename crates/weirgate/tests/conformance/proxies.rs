//! Proxies as processes of their own, each with a configuration that sends every lane to its node.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};

use crate::processes::{Directory, Process, free_address, program};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Weirgate,
    /// Debian's nginx.
    Nginx,
    /// Debian's HAProxy.
    Haproxy,
}

/// A running proxy. It ends with this value.
pub(crate) struct Proxy {
    /// The address for clients.
    pub(crate) address: SocketAddr,
    pub(crate) process: Process,
    _directory: Directory,
}

/// Starts `kind` on a free port. `None` if its program is not installed and the environment allows that.
pub(crate) fn start(kind: Kind, lanes: &[Ipv4Addr], node_port: u16) -> Option<Proxy> {
    let address = free_address();
    let directory = Directory::new();
    let file = |text: String| directory.write("configuration", &text);
    let command = match kind {
        Kind::Weirgate => crate::processes::weirgate(&file(weirgate(address, lanes, node_port))),
        Kind::Nginx => {
            let mut command = program("nginx")?;
            command.arg("-p").arg(directory.path()).args(["-e", "stderr", "-c"]);
            command.arg(file(nginx(address, lanes, node_port)));
            command
        }
        Kind::Haproxy => {
            let mut command = program("haproxy")?;
            command.args(["-q", "-db", "-f"]).arg(file(haproxy(address, node_port)));
            command
        }
    };
    let process = Process::start(command, &directory, address);
    Some(Proxy { address, process, _directory: directory })
}

/// One class and one pool per lane, distinguished by the client's address. There is no limit: payloads
/// without an end keep their slots for as long as they are watched.
fn weirgate(address: SocketAddr, lanes: &[Ipv4Addr], node_port: u16) -> String {
    let mut text = format!("listen: {address}\nadmin: off\ndiscipline: none\nthreads: 1\nupstreams:\n");
    for lane in lanes {
        let _ = writeln!(text, "  lane-{lane}: {{ nodes: [\"{lane}:{node_port}\"] }}");
    }
    text.push_str("classes:\n");
    for lane in lanes {
        let _ = writeln!(text, "  - {{ name: \"{lane}\", match: {{ source: {lane}/32 }}, upstream: lane-{lane} }}");
    }
    // A policy must have a class for all other requests, although none comes.
    let _ = writeln!(text, "  - {{ name: other, upstream: lane-{} }}", lanes[0]);
    text
}

fn nginx(address: SocketAddr, lanes: &[Ipv4Addr], node_port: u16) -> String {
    let mut text = String::from(
        "daemon off; master_process off; pid nginx.pid; error_log stderr crit;\nevents { worker_connections 4096; }\n\
         http {\naccess_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;\n\
         uwsgi_temp_path uwsgi; scgi_temp_path scgi; map_hash_max_size 8192; proxy_request_buffering off;\n\
         map $remote_addr $lane {\n",
    );
    for lane in lanes {
        let _ = writeln!(text, "{lane} lane-{lane};");
    }
    text.push_str("}\n");
    for lane in lanes {
        let _ = writeln!(text, "upstream lane-{lane} {{ server {lane}:{node_port}; keepalive 4; }}");
    }
    let _ = writeln!(
        text,
        "server {{ listen {address}; location / {{ proxy_pass http://$lane; proxy_http_version 1.1;\n\
         proxy_set_header Connection \"\"; proxy_set_header Host $http_host; }} }}\n}}"
    );
    text
}

fn haproxy(address: SocketAddr, node_port: u16) -> String {
    format!(
        "global\n maxconn 4000\ndefaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
         frontend clients\n bind {address}\n default_backend nodes\n\
         backend nodes\n http-reuse always\n http-request set-dst src\n http-request set-dst-port int({node_port})\n \
         server node 0.0.0.0:0\n"
    )
}
