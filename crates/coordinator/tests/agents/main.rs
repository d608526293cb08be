//! Agents and a coordinator over real sockets: shares are distributed, and no agent can represent another node. A test
//! named after G and a number covers that row of the threat model.

mod page;
mod stage;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use stage::{Agent, Pki, Stage, ask, coordinator, hello, load, shares};
use weirgate_http_client::{Address, Request};
use weirgate_tls::{LiveTrust, Role};
use weirgate_wire::{Measured, NodeReport, Trigger, WIRE_VERSION};

const NODES: &str = "  nodes: [n1, n2]\n";

/// Nodes that have shares computed only when they ask.
const ASKING: &str = "  nodes: [n1, n2]\n  every: off\n";

/// Starts a coordinator over mutual TLS. Returns also the trust of the agents.
fn guarded(pki: &mut Pki) -> (Stage, [Arc<LiveTrust>; 2]) {
    let own = pki.trust(Role::Coordinator, "main");
    (Stage::two(ASKING, Some(own)), ["n1", "n2"].map(|node| pki.trust(Role::Agent, node)))
}

/// Connects both agents and waits for the first shares.
fn first_shares(stage: &Stage, trust: [Option<&Arc<LiveTrust>>; 2]) -> [Agent; 2] {
    let agent = |node, trust| Agent::new(stage.address, node, trust).expect("it is let in");
    let mut agents = [agent("n1", trust[0]), agent("n2", trust[1])];
    for agent in &mut agents {
        agent.report(0, &[50.0, 50.0], false);
    }
    for (run, shares) in shares(agents.each_mut()) {
        assert_eq!((run, shares.len()), (1, 2));
    }
    agents
}

#[test]
fn shares_follow_what_is_used() {
    let mut pki = Pki::new();
    let (stage, trust) = guarded(&mut pki);
    let [mut one, mut two] = first_shares(&stage, trust.each_ref().map(Some));
    // Class `a` uses half of its share on node 1, and receives the rest on node 2.
    one.report(1, &[50.0, 50.0], true);
    two.report(1, &[50.0, 50.0], false);
    let [(run, here), (_, there)] = shares([&mut one, &mut two]);
    assert_eq!(run, 2);
    assert!(there[0] > 70.0 && here[1] > 70.0, "{here:?} {there:?}");
    assert!([here, there].iter().all(|shares| (shares.iter().sum::<f64>() - 100.0).abs() < 1e-6));
    let view = stage.shared.view();
    assert_eq!((view.runs.done["sink_ended"], view.runs.asked, view.refused), (1, 1, 0));
    let last = &view.last_runs[0];
    assert_eq!((last.node.as_deref(), last.class.as_deref(), last.nodes), (Some("n1"), Some("a"), 2));
}

#[test]
fn g1_a_certificate_speaks_for_its_own_node_only() {
    let mut pki = Pki::new();
    let (stage, [one, two]) = guarded(&mut pki);
    let refused = |node, trust: &Arc<LiveTrust>| Agent::new(stage.address, node, Some(trust)).err().expect("refused");
    let said = refused("n2", &one);
    assert!(said.starts_with("403: ") && said.contains("agent n1, which may not speak for node n2"), "{said}");
    assert!(stage.hear("refused 127.0.0.1:").contains("which may not speak for node n2"));
    assert!(refused("n3", &one).contains("has no node"));

    // Not even in the session of the other node.
    let agent = Agent::new(stage.address, "n1", Some(&one)).expect("it is let in");
    let report = serde_json::to_vec(&NodeReport::default()).expect("JSON");
    let host = stage.address.to_string();
    let put =
        Request::put(&host, &format!("{}/reports/1", agent.path), report).field("content-type", "application/json");
    let stolen = ask(&coordinator(stage.address, Some(&two)), put).expect("an answer");
    assert_eq!(stolen.status, 403, "{}", stolen.text());
    let listened = Request::get(&host, &format!("{}/shares?after=0", agent.path));
    assert_eq!(ask(&coordinator(stage.address, Some(&two)), listened).expect("an answer").status, 403);

    // Other parties of the site are no agents.
    for role in [Role::Operator, Role::Gateway, Role::Coordinator] {
        let trust = pki.trust(role, "n1");
        let said = refused("n1", &trust);
        assert!(said.starts_with("403: ") && said.contains("it is for the roles agent"), "{said}");
    }
    assert_eq!(stage.state(1), "down");
    assert_eq!(stage.shared.view().refused, 7);
}

#[test]
fn g1_strangers_are_not_let_in() {
    let mut pki = Pki::new();
    let (stage, [one, two]) = guarded(&mut pki);
    // Another authority, on either side.
    let mut other = Pki::new();
    let foreign = other.trust(Role::Agent, "n1");
    let said = Agent::new(stage.address, "n1", Some(&foreign)).err().expect("refused");
    assert!(said.contains("its certificate is of another authority"), "{said}");
    // Without TLS, and without a certificate.
    let said = Agent::new(stage.address, "n1", None).err().expect("refused");
    assert!(said.starts_with("400: this port speaks mutual TLS"), "{said}");
    stage.hear("a request without TLS");
    // An agent is no coordinator.
    let false_one = Stage::two(NODES, Some(one));
    let said = Agent::new(false_one.address, "n2", Some(&two)).err().expect("refused");
    assert!(said.contains("this is agent n1, and a coordinator was expected"), "{said}");
    // Bytes that are nothing.
    let mut stream = TcpStream::connect(stage.address).expect("it accepts");
    stream.write_all(&[0x16; 100]).expect("it reads");
    let _ = stream.read_to_end(&mut Vec::new());
    stage.hear("refused 127.0.0.1:");
}

#[test]
fn g1_a_revoked_or_expired_certificate_is_of_no_use() {
    let mut pki = Pki::new();
    let lost = pki.trust(Role::Agent, "n1");
    pki.trust(Role::Coordinator, "main");
    pki.revoke(Role::Agent, "n1");
    let own = load(&pki.path().join("pki/issued/coordinator-main"), Role::Coordinator);
    let stage = Stage::two(NODES, Some(own));
    let said = Agent::new(stage.address, "n1", Some(&lost)).err().expect("refused");
    assert!(said.contains("this certificate is revoked") || said.contains("closed"), "{said}");
    stage.hear("its certificate is revoked");
    // The node has a new key.
    let new = pki.trust(Role::Agent, "n1");
    drop(Agent::new(stage.address, "n1", Some(&new)).expect("it is let in"));

    let mut past = Pki::at(weirgate_clock::calendar() - stage::DAY * 60);
    let old = past.trust(Role::Agent, "n1");
    let own = past.trust(Role::Coordinator, "main");
    let stage = Stage::two(NODES, Some(own));
    let said = Agent::new(stage.address, "n1", Some(&old)).err().expect("refused");
    assert!(said.contains("its certificate has expired"), "{said}");
}

#[test]
fn g2_a_late_or_repeated_report_changes_nothing() {
    let stage = Stage::two(ASKING, None);
    let [mut one, mut two] = first_shares(&stage, [None, None]);
    one.report(1, &[50.0, 50.0], false);
    two.report(1, &[50.0, 50.0], false);
    let asked = stage.shared.view().runs.asked;
    // Sent again, as after a connection that broke: it counts once.
    assert_eq!(one.repeat(0), Ok(()));
    // An earlier one, for example over a connection that hung.
    let mut idle = report();
    idle.measured.wants = Some(Trigger::SinkEnded { class: 0 });
    let said = one.send(1, &idle).expect_err("it is old");
    assert!(said.starts_with("409: ") && said.contains("report 1 comes after report"), "{said}");
    assert_eq!(stage.shared.view().runs.asked, asked);
    // A session of another coordinator.
    let path = std::mem::replace(&mut one.path, "/reserves/sessions/0-00".to_owned());
    assert!(one.send(100, &report()).expect_err("another session").starts_with("409: "));
    one.path = path.replace("/0-", "/7-");
    assert!(one.send(100, &report()).expect_err("no such node").starts_with("404: "));
}

fn report() -> NodeReport {
    let (half, full) = (vec![50.0; 2], vec![true; 2]);
    let measured = Measured { run: 1, seconds: 0.25, allocation: half.clone(), usage: half, sink: full, wants: None };
    NodeReport { measured, ..NodeReport::default() }
}

#[test]
fn g3_a_report_that_makes_no_sense_ends_the_session() {
    let stage = Stage::two(NODES, None);
    let [mut one, _two] = first_shares(&stage, [None, None]);
    let mut wrong = report();
    wrong.measured.allocation = vec![50.0, 30.0, 20.0];
    let said = one.send(9, &wrong).expect_err("three figures");
    assert!(said.starts_with("422: "), "{said}");
    stage.hear("`allocation` has 3 figures, and the policy has 2 classes");
    assert!(one.end().starts_with("409: "), "the session has ended");
    assert_eq!(stage.state(0), "down");
}

#[test]
fn g5_reports_are_limited_in_number_and_size() {
    let stage = Stage::two(ASKING, None);
    let mut one = Agent::new(stage.address, "n1", None).expect("it is let in");
    let sent: Vec<_> = (1..=200).map(|number| one.send(number, &report())).collect();
    let refused = sent.iter().filter(|sent| sent.as_ref().is_err_and(|why| why.starts_with("429: "))).count();
    assert!(refused > 0 && sent.iter().take(20).all(Result::is_ok), "{refused} of 200 were refused");
    let address = Address::Tcp(stage.address.to_string());
    let huge =
        Request::put(&stage.address.to_string(), &format!("{}/reports/999", one.path), vec![b' '; (64 << 10) + 1]);
    let answer = ask(&address, huge.field("content-type", "application/json")).expect("an answer");
    assert_eq!(answer.status, 413);
}

/// Connections without a handshake give their places up.
#[test]
fn g5_silent_strangers_make_room_for_an_agent() {
    let mut pki = Pki::new();
    let (stage, [trust, _]) = guarded(&mut pki);
    let silent: Vec<_> = (0..300).map(|_| TcpStream::connect(stage.address).expect("it accepts")).collect();
    let clock = weirgate_clock::Clock::start();
    let _one = Agent::new(stage.address, "n1", Some(&trust)).expect("it is let in");
    // After 5 s, handshakes that are not complete end in any case.
    assert!(clock.now() < Duration::from_secs(4), "{:?}", clock.now());
    drop(silent);
}

#[test]
fn what_is_no_request_of_an_agent_is_refused() {
    let stage = Stage::two(NODES, None);
    let (host, address) = (stage.address.to_string(), Address::Tcp(stage.address.to_string()));
    let status = |request| ask(&address, request).expect("an answer").status;
    assert_eq!(status(hello(&host, "n1", WIRE_VERSION - 1)), 400);
    assert_eq!(status(hello("evil.test", "n1", WIRE_VERSION)), 403);
    assert_eq!(status(Request::get(&host, "/")), 404);
    assert_eq!(status(Request::get(&host, "/reserves/sessions/0-0/shares?after=x")), 400);
    let text = Request::post(&host, "/reserves/sessions", "{}").field("content-type", "text/plain");
    assert_eq!(status(text), 415);
    assert_eq!(stage.state(0), "down");
}

#[test]
fn the_others_go_on_when_an_agent_leaves() {
    let stage = Stage::two(ASKING, None);
    let [one, mut two] = first_shares(&stage, [None, None]);
    drop(one);
    // The other agent stays, and has the whole cluster after its next measurement.
    two.report(1, &[50.0, 50.0], false);
    assert_eq!(shares([&mut two])[0].0, 2);
    assert_eq!(stage.shared.view().last_runs[0].cause, "left");
    // Usually at once, because it was waiting for shares.
    stage.hear("node n1: disconnected");
    assert_eq!(stage.state(0), "down");
}

#[test]
fn a_silent_session_ends() {
    let stage = Stage::two(NODES, None);
    let agents = first_shares(&stage, [None, None]);
    // Silent agents are soon down, and later their sessions end as well.
    stage.hear("has sent nothing for 5 s");
    assert_eq!(agents.len(), 2);
}

#[test]
fn the_newer_of_two_agents_of_one_name_speaks() {
    let mut pki = Pki::new();
    let (stage, [first, second]) = guarded(&mut pki);
    let [mut one, mut two] = first_shares(&stage, [Some(&first), Some(&second)]);
    let mut newer = Agent::new(stage.address, "n1", Some(&first)).expect("it is let in");
    assert!(one.end().contains("another session speaks for this node"));
    stage.hear("in place of an earlier session");
    newer.report(1, &[50.0, 50.0], false);
    two.report(1, &[50.0, 50.0], false);
    assert_eq!(shares([&mut newer, &mut two]).map(|(run, _)| run), [2, 2]);
    assert_eq!(stage.shared.view().last_runs[0].cause, "joined");
}

#[test]
fn a_new_coordinator_carries_on() {
    let mut stage = Stage::two(NODES, None);
    let [mut one, mut two] = first_shares(&stage, [None, None]);
    stage.end().expect("it ends well");
    assert!(!one.end().is_empty() && !two.end().is_empty());

    let stage = Stage::two(NODES, None);
    let agent = |node| Agent::new(stage.address, node, None).expect("it is let in");
    let (mut one, mut two) = (agent("n1"), agent("n2"));
    one.report(1, &[70.0, 30.0], false);
    two.report(1, &[30.0, 70.0], false);
    let [(run, here), (_, there)] = shares([&mut one, &mut two]);
    assert_eq!(run, 2);
    assert!(here[0] > 60.0 && there[0] < 40.0, "it starts from what is in force: {here:?} {there:?}");
}

#[test]
fn a1_an_address_open_to_others_needs_trust_and_a_taken_one_is_said() {
    let policy = |lines: &str| {
        let text = format!("reserves:\n{lines}  classes: [{{ name: a, share: 50%, cgroup: a }}]\n");
        weirgate_config::load("policy.yaml", &text).expect("it loads").site.reserves.expect("it has reserves")
    };
    let open = |reserves| weirgate_coordinator::CoordinatorServer::open(reserves, None, |_| {});
    let mut reserves = policy("  nodes: [n1]\n");
    reserves.listen = "0.0.0.0:0".parse().expect("an address");
    let error = open(&reserves).expect_err("there is no trust").to_string();
    assert!(error.contains("could use the coordinator: make certificates with `weirgate pki`"), "{error}");

    let stage = Stage::two(NODES, None);
    let error = open(&policy(&format!("  listen: {}\n  nodes: [n1]\n", stage.address)));
    let error = error.expect_err("it is taken").to_string();
    assert!(error.contains("already in use"), "{error}");
}
