//! `weirgate agent` as a process, with a real nginx and a real Apache: its counts while they work.

// Other tests use more of it.
#[allow(dead_code)]
mod processes;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use processes::{Directory, Process, free_address, program};
use weirgate_http_client::blocking::exchange;
use weirgate_http_client::{Address, Limits, Request};
use weirgate_wire::{Active, Report};

/// Limits of a request, far above any actual answer.
const LIMITS: Limits = Limits::new(Duration::from_secs(20), 4 << 20);

/// Directory of Apache's modules on Debian.
const MODULES: &str = "/usr/lib/apache2/modules";

/// Requests `path`. Returns the status and the body.
fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let request = Request::get(&address.to_string(), path);
    let answer = exchange(&Address::Tcp(address.to_string()), request, &LIMITS).expect("an answer");
    (answer.status, answer.text())
}

fn agent(args: &[&str], directory: &Directory) -> (Process, SocketAddr) {
    let listen = free_address();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
    command.arg("agent").args(args).args(["--listen", &listen.to_string()]);
    (Process::start(command, directory, listen), listen)
}

fn report(agent: SocketAddr) -> Report {
    let (status, body) = get(agent, "/weirgate/report");
    assert_eq!(status, 200, "{body}");
    Report::parse(body.as_bytes()).expect("a report")
}

fn counted(agent: SocketAddr) -> Active {
    report(agent).active
}

/// Requests more than fits into the sockets' buffers, and reads only the start of the reply.
fn slow_client(server: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server).expect("it accepts");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: a.test\r\n\r\n").expect("it takes the request");
    stream.read_exact(&mut [0; 15]).expect("the answer has begun");
    stream
}

fn large_file(directory: &Path, name: &str) {
    let file = std::fs::File::create(directory.join(name)).expect("a file");
    file.set_len(1 << 28).expect("it can be sparse");
}

#[test]
fn nginx_is_counted_and_its_end_is_said() {
    let Some(mut command) = program("nginx") else { return };
    let directory = Directory::new();
    large_file(directory.path(), "large.bin");
    let server = free_address();
    let text = format!(
        "daemon off; master_process off; pid nginx.pid; error_log stderr crit; events {{}}\n\
         http {{ access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; \
         uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n server {{ listen {server}; root .; location = /status {{ \
         stub_status; }} }} }}\n"
    );
    let file = directory.write("nginx.conf", &text);
    command.arg("-p").arg(directory.path()).args(["-e", "stderr", "-c"]).arg(file);
    let mut nginx = Process::start(command, &directory, server);
    let url = format!("http://{server}/status");
    let (watched, address) = agent(&["--nginx", &url, "--count-as", "static"], &directory);

    assert_eq!(counted(address), Active::default());
    let slow = [slow_client(server, "/large.bin"), slow_client(server, "/large.bin")];
    assert_eq!(counted(address), Active { static_content: 2, dynamic_content: 0 });
    drop(slow);

    assert_eq!(get(address, "/").0, 404);

    nginx.stop("QUIT");
    for _ in 0..3 {
        let (status, body) = get(address, "/weirgate/report");
        assert!(status == 502 && body.contains("refused"), "{status} {body}");
    }
    let said = watched.output();
    assert_eq!(said.matches("no counts").count(), 1, "once: {said}");
}

#[test]
fn apaches_requests_are_told_apart() {
    let Some(mut command) = program("apache2") else { return };
    let directory = Directory::new();
    large_file(directory.path(), "large.bin");
    let server = free_address();
    let root = directory.path().display();
    // Prefork: a worker stays with its reply to the last byte.
    let text = format!(
        "ServerRoot {root}\nServerName a.test\nPidFile apache.pid\nErrorLog /dev/stderr\nListen {server}\nLoadModule \
         mpm_prefork_module {MODULES}/mod_mpm_prefork.so\nLoadModule authz_core_module {MODULES}/mod_authz_core.so\n\
         LoadModule status_module {MODULES}/mod_status.so\nMutex pthread\nDocumentRoot {root}\n<Directory {root}>\n\
         Require all granted\n</Directory>\n<Location /server-status>\nSetHandler server-status\n</Location>\n"
    );
    large_file(directory.path(), "page.php");
    let file = directory.write("apache.conf", &text);
    command.args(["-D", "FOREGROUND", "-f"]).arg(file);
    let _apache = Process::start(command, &directory, server);
    let (_people, told_apart) = agent(&["--apache", &format!("http://{server}/server-status")], &directory);
    let (_programs, alike) = agent(&["--apache", &format!("http://{server}/server-status?auto")], &directory);
    let slow = ["/large.bin", "/page.php", "/page.php?a=b"].map(|path| slow_client(server, path));
    // The page for programs first: it has no paths, so it would also count a worker that still finishes an earlier
    // request for a page.
    assert_eq!(counted(alike), Active { static_content: 0, dynamic_content: 3 });
    assert_eq!(counted(told_apart), Active { static_content: 1, dynamic_content: 2 });
    drop(slow);
}

#[test]
fn a_server_without_a_page_is_counted_by_its_connections() {
    let directory = Directory::new();
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = server.local_addr().expect("it has one");
    let (_agent, asked) = agent(&["--port", &address.port().to_string(), "--count-as", "static"], &directory);
    assert_eq!(counted(asked), Active::default());
    let clients = [0, 1].map(|_| TcpStream::connect(address).expect("it accepts"));
    assert_eq!(counted(asked), Active { static_content: 2, dynamic_content: 0 });
    drop(clients);
}

#[test]
fn the_use_of_the_machine_is_counted() {
    let directory = Directory::new();
    let (_agent, asked) = agent(&["--port", "80", "--interface", "lo"], &directory);
    let before = report(asked).usage.expect("it counts");
    let after = report(asked).usage.expect("it counts");
    assert!(before.capacity[0].is_some_and(|cpus| cpus >= 1.0), "{before:?}");
    let grown = [0, 2].map(|at| after.used[at].expect("a counter") - before.used[at].expect("a counter"));
    assert!(grown[0] > 0.0 && grown[1] >= 100.0, "to answer takes time, and the first answer was sent: {grown:?}");
}

#[test]
fn what_cannot_work_is_refused_at_the_start() {
    for (args, code, words) in [
        (vec!["--nginx", "http://a/s", "--listen", "0.0.0.0:0"], 1, "`weirgate pki`"),
        (vec!["--nginx", "http://a/s", "--trust", "/nowhere"], 1, "`/nowhere` is no folder"),
        (vec!["--nginx", "http://a/s", "--dynamic", "*.php"], 1, "use --count-as"),
        (vec!["--apache", "http://a/s?auto", "--dynamic", "*.php"], 1, "leave out ?auto"),
        (vec!["--apache", "http://a/s", "--dynamic", "php"], 1, "fits no path"),
        (vec!["--port", "80", "--dynamic", "*.php"], 1, "use --count-as"),
        (vec!["--port", "80", "--usage-of", "no/such"], 1, "--usage-of no/such: "),
        (vec!["--port", "80", "--usage-of", "machine", "--usage-of", "a"], 1, "the machine contains all groups"),
        (vec!["--port", "80", "--interface", "eth77"], 1, "no interface \"eth77\""),
        (vec!["--apache", "https://a/s"], 2, "does not begin with http://"),
        (vec!["--apache", "http://a/s", "--nginx", "http://a/s"], 2, "cannot be used with"),
        (vec![], 2, "--apache"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
        let ended = command.arg("agent").args(&args).output().expect("it starts");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(code) && said.contains(words), "{args:?}: {said}");
    }
}
