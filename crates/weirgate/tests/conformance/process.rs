//! Proxies as processes of their own, each with a configuration that sends every lane to its node.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tokio::net::TcpStream;

use crate::clock::{PATIENCE, between_looks, within};

/// A running proxy; it ends with this value.
pub(crate) struct Proxy {
    /// Where clients connect.
    pub(crate) address: SocketAddr,
    child: Child,
    directory: PathBuf,
}

/// Which proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The gateway.
    Weirgate,
    /// Debian's nginx.
    Nginx,
    /// Debian's HAProxy.
    Haproxy,
}

impl Proxy {
    /// Starts `kind` on a free port. `None` if its program is not installed.
    pub(crate) async fn start(kind: Kind, lanes: &[Ipv4Addr], node_port: u16) -> Option<Proxy> {
        let address = free_address();
        let directory =
            std::env::temp_dir().join(format!("weirgate-conformance-{}-{}", std::process::id(), address.port()));
        std::fs::create_dir_all(&directory).expect("a temporary directory");
        let file = directory.join("configuration");
        let (mut command, text) = match kind {
            Kind::Weirgate => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
                command.arg("run").arg(&file);
                (command, weirgate(address, lanes, node_port))
            }
            Kind::Nginx => {
                let mut command = Command::new(program("nginx")?);
                command.arg("-p").arg(&directory).arg("-c").arg(&file).args(["-e", "stderr"]);
                (command, nginx(address, lanes, node_port))
            }
            Kind::Haproxy => {
                let mut command = Command::new(program("haproxy")?);
                command.args(["-q", "-db", "-f"]).arg(&file);
                (command, haproxy(address, node_port))
            }
        };
        std::fs::write(&file, text).expect("the temporary directory is writable");
        let log = std::fs::File::create(directory.join("log")).expect("the temporary directory is writable");
        let also = log.try_clone().expect("a file handle can be copied");
        let child = command.stdin(Stdio::null()).stdout(log).stderr(also).spawn().expect("the program starts");
        let mut proxy = Proxy { address, child, directory };
        let up = within(PATIENCE, async {
            while TcpStream::connect(address).await.is_err() && proxy.alive() {
                between_looks().await;
            }
        });
        up.await;
        assert!(proxy.alive(), "{kind:?} ended at its start: {}", proxy.log());
        Some(proxy)
    }

    /// Does it run?
    pub(crate) fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// What it printed.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It is ours and holds nothing that must be saved.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Where Debian puts servers, which is not on every user's path.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    directories.map(|directory| directory.join(name)).find(|file| file.exists())
}

/// An address that nobody listens on now.
fn free_address() -> SocketAddr {
    let socket = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    socket.local_addr().expect("a bound socket has an address")
}

/// One class and one pool per lane, told apart by the client's address. Nothing is held back: payloads
/// without an end keep their slots for as long as they are watched.
fn weirgate(address: SocketAddr, lanes: &[Ipv4Addr], node_port: u16) -> String {
    let mut text = format!("listen: {address}\ndiscipline: none\nthreads: 1\nupstreams:\n");
    for lane in lanes {
        let _ = writeln!(text, "  lane-{lane}: {{ nodes: [\"{lane}:{node_port}\"] }}");
    }
    text.push_str("classes:\n");
    for lane in lanes {
        let _ = writeln!(text, "  - {{ name: \"{lane}\", match: {{ source: {lane}/32 }}, upstream: lane-{lane} }}");
    }
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
