//! Agent, coordinator and gateway as processes of one site: their messages to one another over mutual TLS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use weirgate_http_client::{Address, Limits, Request, blocking};
use weirgate_tls::{LiveTrust, Role, Wanted};

use crate::processes::{Directory, Process, becomes_true, free_address, weirgate};
use crate::tree;

/// Runs the command to its end. Returns its exit code and its output.
fn run(words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_weirgate")).args(words).output().expect("it starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Makes an authority with these parties. Returns the folder with their trust folders.
fn site(directory: &Directory, parties: &[&str]) -> PathBuf {
    let pki = directory.path().join("pki");
    let shown = pki.to_str().expect("UTF-8");
    let make = |words: &[&str]| {
        let (code, said) = run(&[&["pki", "--folder", shown], words].concat());
        assert_eq!(code, Some(0), "{said}");
    };
    make(&["init", "--site", "test"]);
    for party in parties {
        let (role, name) = party.split_once('-').expect("a role and a name");
        make(&["issue", role, name]);
    }
    pki.join("issued")
}

fn reserves(directory: &Directory, issued: &Path, party: &str, listen: SocketAddr, page: SocketAddr) -> PathBuf {
    let text = format!(
        "trust: {}\nreserves:\n  listen: {listen}\n  admin: {page}\n  nodes: [n1, n2]\n  classes:\n\
         \x20   - {{ name: gold, share: 70%, cgroup: gold }}\n    - {{ name: rest, share: 20%, cgroup: rest }}\n",
        issued.join(party).display()
    );
    directory.write(&format!("{party}.yaml"), &text)
}

/// Asks a party for a page, as the party with the trust folder `own`.
fn get(own: &Arc<LiveTrust>, address: SocketAddr, role: Role, path: &str) -> Result<String, String> {
    let address = Address::Trusted(address.to_string(), Arc::clone(own), Wanted { role, name: None });
    let limits = Limits::new(Duration::from_secs(20), 1 << 20);
    let answer = blocking::exchange(&address, Request::get("localhost", path), &limits);
    answer.and_then(weirgate_http_client::Answer::ok).map(|answer| answer.text()).map_err(|error| error.to_string())
}

#[test]
fn agent_coordinator_and_gateway_of_a_site_trust_one_another() {
    let (directory, root) = (Directory::new(), Directory::new());
    let issued = site(&directory, &["gateway-gw", "coordinator-main", "agent-n1", "agent-n2", "monitor-prom"]);
    let root = tree(&root);
    let [listen, page, front, admin, report, server] = [(); 6].map(|()| free_address());

    let policy = reserves(&directory, &issued, "coordinator-main", listen, page);
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
    command.arg("coordinator").arg(&policy);
    let mut coordinator = Process::start(command, &directory, listen);
    let agent_of = |coordinator| {
        let policy = reserves(&directory, &issued, "agent-n1", coordinator, page);
        let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
        command.arg("agent").arg(&policy).args(["--node", "n1", "--cpus", "1", "--cgroup-root"]).arg(&root);
        command.arg("--state").arg(directory.path().join("state"));
        command.args(["--port", &server.port().to_string(), "--listen", &report.to_string()]);
        Process::start(command, &directory, report)
    };
    let mut agent = agent_of(listen);
    let text = format!(
        "listen: {front}\nadmin: {admin}\ntrust: {}\nupstreams:\n  web:\n    nodes: [{{ address: '{server}', name: n1 }}]\n\
         \x20   collector: {{ port: {}, every: 1s }}\nclasses: [{{ name: all }}]\n",
        issued.join("gateway-gw").display(),
        report.port()
    );
    let policy = directory.write("gateway.yaml", &text);
    let mut gateway = Process::start(weirgate(&policy), &directory, admin);

    let monitor = Arc::new(LiveTrust::load(&issued.join("monitor-prom"), &[Role::Monitor], None).expect("a folder"));
    let page_of = |path: &str| get(&monitor, page, Role::Coordinator, path);
    let up = |count: usize| page_of("/reserves").is_ok_and(|all| all.matches("\"state\":\"up\"").count() == count);
    assert!(becomes_true(|| up(1)), "{}{}", coordinator.output(), agent.output());
    let reported =
        || get(&monitor, admin, Role::Gateway, "/nodes").is_ok_and(|nodes| nodes.contains("\"active\":{\"static\":0"));
    assert!(becomes_true(reported), "{}{}", gateway.output(), agent.output());
    assert!(get(&monitor, report, Role::Agent, "/weirgate/report").is_ok_and(|report| report.contains("\"cpu\"")));

    // The agent of another node, in the place of this one: it is not believed.
    agent.stop("TERM");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
    command.args(["agent", "--port", &server.port().to_string(), "--listen", &report.to_string(), "--trust"]);
    command.arg(issued.join("agent-n2"));
    let mut other = Process::start(command, &directory, report);
    let why = "this is agent n2, and agent n1 was expected";
    assert!(becomes_true(|| gateway.output().contains(why)), "{}", gateway.output());
    assert!(becomes_true(|| up(0)));
    other.stop("TERM");
    // A gateway in the place of the coordinator: the agent takes no shares from it.
    let mut misled = agent_of(admin);
    let why = "this is gateway gw, and a coordinator was expected";
    assert!(becomes_true(|| misled.output().contains(why)), "{}", misled.output());
    misled.stop("TERM");
    // Clients without a certificate learn nothing, and orchestrators learn whether the process is ready.
    for address in [listen, page, admin] {
        let limits = Limits::new(Duration::from_secs(20), 1 << 20);
        let plain = Address::Tcp(address.to_string());
        let answer = blocking::exchange(&plain, Request::get("localhost", "/"), &limits).expect("an answer");
        assert!(answer.status == 400 && answer.text().contains("mutual TLS"), "{}", answer.text());
    }
    assert_eq!(gateway.stop("TERM").code(), Some(0));
    assert_eq!(coordinator.stop("TERM").code(), Some(0));
}

#[test]
fn a_process_with_the_certificate_of_another_party_does_not_start() {
    let directory = Directory::new();
    let issued = site(&directory, &["gateway-gw", "agent-n2"]);
    let [listen, page] = [(); 2].map(|()| free_address());
    let [as_gateway, as_agent] =
        ["gateway-gw", "agent-n2"].map(|party| reserves(&directory, &issued, party, listen, page));
    let front = directory.write(
        "front.yaml",
        &format!(
            "listen: 127.0.0.1:0\ntrust: {}\nupstreams: {{ a: {{ nodes: '127.0.0.1:9' }} }}\nclasses: [{{ name: a }}]\n",
            issued.join("agent-n2").display()
        ),
    );
    let open = directory.write(
        "open.yaml",
        "listen: 127.0.0.1:0\nadmin: 0.0.0.0:0\nupstreams: { a: { nodes: '127.0.0.1:9' } }\nclasses: [{ name: a }]\n",
    );
    let gateway = issued.join("gateway-gw");
    let [as_gateway, as_agent, front, open, gateway] =
        [&as_gateway, &as_agent, &front, &open, &gateway].map(|path| path.to_str().expect("UTF-8"));
    for (words, said) in [
        (vec!["coordinator", as_gateway], "is for gateway gw, and this process is coordinator NAME"),
        (vec!["agent", as_agent, "--node", "n1"], "is for agent n2, and this process is agent n1; issue one with"),
        (vec!["agent", "--port", "80", "--trust", gateway], "is for gateway gw, and this process is agent NAME"),
        (vec!["agent", "--port", "80", "--trust", "/nowhere"], "`/nowhere` is no folder; make one with `weirgate pki"),
        (
            vec!["agent", "--port", "80", "--listen", "0.0.0.0:0"],
            "could use the agent's report: make certificates with",
        ),
        (vec!["run", front], "is for agent n2, and this process is gateway NAME"),
        (vec!["run", open], "lets others reach the admin listener without a certificate; make certificates with"),
    ] {
        let (code, all) = run(&words);
        assert!(code == Some(1) && all.contains(said), "{words:?}: {all}");
    }
}
