//! Upgrades without a refused connection: hand-over to a new process, and sockets from systemd. The tests run the built
//! binary.

#[path = "../processes/head.rs"]
mod head;
mod learned;
mod load;
mod node;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../processes/spoken.rs"]
mod process;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{Command, Stdio};

use tempfile::{TempDir, tempdir};
use weirgate_http_client::blocking::exchange;
use weirgate_http_client::{Address, Limits, Request};

use load::{Load, ask};
use node::Node;
use process::Process;

/// Writes a policy, and returns its path as text.
fn write(directory: &TempDir, text: &str) -> String {
    let path = directory.path().join("policy.yaml");
    std::fs::write(&path, text).expect("the directory is writable");
    path.to_str().expect("UTF-8").to_owned()
}

fn policy(node: &Node, listen: &str, admin: &str) -> String {
    format!(
        "listen: {listen}\nadmin: {admin}\nthreads: 2\nupstreams: {{ web: {{ nodes: [{}] }} }}\n\
         classes: [{{ name: other }}]\ndrain_deadline: 50s\n",
        node.address
    )
}

/// Returns the status and body of an answer of the admin API.
fn admin(address: &Address, path: &str) -> (u16, String) {
    let limits = Limits::new(std::time::Duration::from_secs(20), 1 << 20);
    let answer = exchange(address, Request::get("localhost", path), &limits).expect("it answers");
    (answer.status, answer.text())
}

#[test]
fn ten_hand_overs_under_load_lose_nothing() {
    let (node, directory) = (Node::start(), tempdir().expect("a directory"));
    let mut process = Process::serving(&write(&directory, &policy(&node, "127.0.0.1:0", "127.0.0.1:0")));
    let (listen, api) = (process.address("listening on", 1), process.address("admin API on", 1));
    let load = Load::start(listen);
    for round in 2..12 {
        load.wait_for(50);
        process.hand_over();
        // Port 0 stands for the same port as before, because the socket is the same.
        assert_eq!((process.address("listening on", round), process.address("admin API on", round)), (listen, api));
        assert_eq!(admin(&Address::Tcp(api.to_string()), "/ready").0, 200);
    }
    load.wait_for(50);
    load.stop();
    let lines = process.stop();
    assert_eq!(lines.iter().filter(|line| *line == "weirgate: stopped").count(), 11, "{lines:#?}");
}

#[test]
fn a_process_that_does_not_start_leaves_the_old_one_serving() {
    let (node, directory) = (Node::start(), tempdir().expect("a directory"));
    let sound = policy(&node, "127.0.0.1:0", "off");
    let file = write(&directory, &sound);
    let mut process = Process::serving(&file);
    let listen = process.address("listening on", 1);
    let load = Load::start(listen);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("an address");
    let taken = TcpListener::bind(taken).expect("still free");
    let elsewhere = policy(&node, &format!("[127.0.0.1:0, {}]", taken.local_addr().expect("an address")), "off");
    for (nth, (broken, why)) in
        [(sound.replace("classes", "klasses"), "klasses"), (elsewhere, "cannot listen on")].into_iter().enumerate()
    {
        write(&directory, &broken);
        process.signal("USR2", process.current);
        assert!(process.line("not handed over", nth + 1).ends_with("(exit status: 1). This process serves on"));
        process.line(why, 1);
        load.wait_for(50);
    }
    write(&directory, &sound);
    process.hand_over();
    load.wait_for(50);
    load.stop();
    process.stop();
}

/// Sends requests until an answer announces the end of the connection, which follows.
fn last_answer(connection: &mut TcpStream) {
    while load::answer_to(connection, "/").expect("an answer").0 {}
    assert_eq!(connection.read(&mut [0]).expect("an orderly end"), 0);
}

#[test]
fn requests_and_web_sockets_go_on_in_the_old_process() {
    let (node, directory) = (Node::start(), tempdir().expect("a directory"));
    let mut process = Process::serving(&write(&directory, &policy(&node, "127.0.0.1:0", "off")));
    let listen = process.address("listening on", 1);
    let mut echo = TcpStream::connect(listen).expect("it accepts");
    let upgrade = "GET /echo HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    echo.write_all(upgrade.as_bytes()).expect("it reads");
    assert!(head::head(&mut echo).expect("an answer").starts_with("HTTP/1.1 101 "));
    let mut echoes = |text: &str| {
        echo.write_all(text.as_bytes()).expect("it reads");
        let mut back = vec![0; text.len()];
        echo.read_exact(&mut back).expect("an echo");
        assert_eq!(back, text.as_bytes());
    };
    echoes("before");
    let mut slow = TcpStream::connect(listen).expect("it accepts");
    slow.write_all(b"GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("it reads");
    node.slow_request();
    let mut silent = TcpStream::connect(listen).expect("it accepts");
    silent.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("it reads");
    assert!(load::answer(&mut silent).expect("an answer").0);
    let old = process.hand_over();
    assert_eq!(process.current, process.current.max(1));
    echoes("after");
    node.let_slow_request_go();
    let (stays, text) = load::answer(&mut slow).expect("an answer");
    assert_eq!(text, "ok");
    // Kept connections are served until an answer announces their end. A thread may learn of the drain after the test.
    last_answer(&mut silent);
    if stays {
        last_answer(&mut slow);
    }
    ask(listen).expect("the new process answers");
    echoes("still");
    process.signal("USR2", old);
    assert!(process.line("not handed over", 1).ends_with("this process accepts no connections any more"));
    // A stop of the old process is not its second: it does not cut the tunnel.
    process.signal("TERM", old);
    process.line("told to stop", 1);
    echoes("to the end");
    drop(echo);
    process.line("weirgate: stopped", 1);
    process.stop();
}

#[test]
fn a_unix_socket_of_the_admin_api_is_handed_over() {
    let (node, directory) = (Node::start(), tempdir().expect("a directory"));
    let path = directory.path().join("admin.sock");
    let text = policy(&node, "127.0.0.1:0", &format!("unix:{}", path.display()));
    let mut process = Process::serving(&write(&directory, &text));
    for _ in 0..3 {
        process.hand_over();
        assert_eq!(admin(&Address::Unix(path.clone()), "/ready").0, 200);
    }
    process.stop();
}

/// Returns the answer to a request over a Unix socket.
fn ask_unix(path: &std::path::Path) -> String {
    let mut stream = UnixStream::connect(path).expect("it accepts");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn a_listener_on_a_unix_socket_is_handed_over_and_removed_at_the_end() {
    let (node, directory) = (Node::start(), tempdir().expect("a directory"));
    let [path, api] = ["http.sock", "admin.sock"].map(|name| directory.path().join(name));
    let text = policy(&node, &format!("\"unix:{}\"", path.display()), &format!("\"unix:{}\"", api.display()));
    let file = write(&directory, &text);
    let mut process = Process::serving(&file);
    let broken = text.replace("classes", "klasses");
    for round in 1..4 {
        assert!(ask_unix(&path).ends_with("ok"));
        write(&directory, &broken);
        process.signal("USR2", process.current);
        process.line("not handed over", round);
        // The process that did not start leaves the file.
        assert!(ask_unix(&path).ends_with("ok"));
        write(&directory, &text);
        process.hand_over();
        process.line("weirgate: stopped", round);
        // So does the one that has ended.
        assert!(ask_unix(&path).ends_with("ok"));
        assert_eq!(admin(&Address::Unix(api.clone()), "/ready").0, 200);
    }
    process.stop();
    assert!(!path.exists() && !api.exists(), "the last process owns them");
}

#[test]
fn a_unix_socket_of_systemd_keeps_its_file() {
    let (node, directory) = (Node::start(), tempdir().expect("a directory"));
    let paths = ["http.sock", "admin.sock"].map(|name| directory.path().join(name));
    let [one, two] = paths.each_ref().map(|path| UnixListener::bind(path).expect("a socket"));
    let [listen, api] = paths.each_ref().map(|path| format!("\"unix:{}\"", path.display()));
    let file = write(&directory, &policy(&node, &listen, &api));
    let mut process = Process::start(activated(&file, one.into(), two.into()));
    process.line("ready", 1);
    assert!(ask_unix(&paths[0]).ends_with("ok"));
    process.hand_over();
    assert!(ask_unix(&paths[0]).ends_with("ok"));
    process.stop();
    assert!(paths.iter().all(|path| path.exists()), "they are the service manager's");
}

/// Runs the gateway as systemd does, with two sockets, as descriptors 3 and 4.
fn activated(file: &str, first: OwnedFd, second: OwnedFd) -> Command {
    let mut command = Command::new("sh");
    let script = "exec 3<&0 4<&1 0</dev/null 1>&2; LISTEN_FDS=2 LISTEN_PID=$$ exec \"$0\" run \"$1\"";
    command.args(["-c", script, env!("CARGO_BIN_EXE_weirgate"), file]).env_remove("NOTIFY_SOCKET");
    command.env("LISTEN_FDNAMES", "first:second").stdin(first).stdout(second);
    command
}

fn bound() -> (SocketAddr, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    (listener.local_addr().expect("an address"), listener.into())
}

#[test]
fn sockets_of_systemd_serve_both_listeners_across_restarts_and_hand_overs() {
    let (node, directory) = (Node::start(), tempdir().expect("a directory"));
    let ((first, one), (second, two)) = (bound(), bound());
    let file = write(&directory, &policy(&node, &format!("[{first}, {second}]"), "off"));
    let copies = (one.try_clone().expect("a copy"), two.try_clone().expect("a copy"));
    let mut process = Process::start(activated(&file, copies.0, copies.1));
    process.line("ready", 1);
    let loads = [Load::start(first), Load::start(second)];
    loads.iter().for_each(|load| load.wait_for(50));
    process.hand_over();
    loads.iter().for_each(|load| load.wait_for(50));
    loads.into_iter().for_each(Load::stop);
    process.stop();
    // Between two processes nothing accepts, and a client waits instead of being refused.
    let mut early = TcpStream::connect(first).expect("systemd holds the socket");
    early.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("the kernel has room");
    let process = Process::start(activated(&file, one, two));
    assert_eq!(load::answer(&mut early).expect("an answer").1, "ok");
    drop(early);
    process.stop();
}

#[test]
fn a_socket_that_the_policy_does_not_name_is_an_error() {
    let (node, directory) = (Node::start(), tempdir().expect("a directory"));
    let ((first, one), (second, two)) = (bound(), bound());
    let file = write(&directory, &policy(&node, &first.to_string(), "off"));
    let process = Process::start(activated(&file, one, two));
    let line = process.line("not started", 1);
    assert!(line.contains(&format!("a socket on {second}, which {file} does not name")), "{line}");
    assert!(line.contains(&format!("`listen` names {first}.")), "{line}");
    let (_, one) = bound();
    let datagram = UnixDatagram::unbound().expect("a socket");
    let process = Process::start(activated(&file, one, datagram.into()));
    process.line("socket 1 (second) of the service manager is not a listening TCP or Unix stream socket", 1);
}

#[test]
fn the_service_manager_learns_of_every_change() {
    let (node, directory) = (Node::start(), tempdir().expect("a directory"));
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(std::time::Duration::from_secs(60))).expect("a socket");
    let told = || {
        let mut bytes = [0; 256];
        let read = manager.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(bytes.get(..read).unwrap_or_default()).into_owned()
    };
    let file = write(&directory, &policy(&node, "127.0.0.1:0", "off"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
    command.args(["run", &file]).env("NOTIFY_SOCKET", &path).stdin(Stdio::null());
    let mut process = Process::start(command);
    let first = process.current;
    assert_eq!(told(), format!("MAINPID={first}\nREADY=1"));
    process.signal("HUP", first);
    assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(told(), "READY=1");
    process.hand_over();
    assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(told(), format!("MAINPID={}\nREADY=1", process.current));
    process.line("weirgate: stopped", 1);
    process.signal("HUP", process.current);
    assert!(told().starts_with("RELOADING=1\n"));
    assert_eq!(told(), "READY=1");
    process.stop();
    assert_eq!(told(), "STOPPING=1");
}
