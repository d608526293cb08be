//! Agents and a coordinator over real sockets: shares are distributed, and no agent can represent another node.

mod page;
mod stage;

use std::io::Write;

use stage::{Agent, ONE, Stage, TWO, Tokens, dial, line, shares};
use weirgate_wire::{FromCoordinator, NodeReport};

const NODES: &str = "  nodes: [n1, n2]\n";

/// Starts a coordinator of nodes with their own tokens.
fn guarded(tokens: &Tokens) -> Stage {
    let (one, two) = (tokens.path("one"), tokens.path("two"));
    Stage::two(&format!(
        "  nodes: [{{ name: n1, token_file: {one} }}, {{ name: n2, token_file: {two} }}]\n  every: off\n"
    ))
}

/// Connects both agents and waits for the first shares.
fn first_shares(stage: &Stage, secrets: [Option<&str>; 2]) -> [Agent; 2] {
    let agent = |node, secret| Agent::new(stage.address, node, secret).expect("it is let in");
    let mut agents = [agent("n1", secrets[0]), agent("n2", secrets[1])];
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
    let tokens = Tokens::new();
    let stage = guarded(&tokens);
    let [mut one, mut two] = first_shares(&stage, [Some(ONE), Some(TWO)]);
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
fn an_agent_without_its_own_token_is_refused() {
    let tokens = Tokens::new();
    let stage = guarded(&tokens);
    let refused = |node, secret| Agent::new(stage.address, node, secret).err().expect("it is not let in");
    assert!(refused("n1", Some(TWO)).contains("another token"));
    assert!(refused("n2", Some(ONE)).contains("another token"));
    assert!(refused("n1", None).contains("asks for a token"));
    assert!(refused("n3", Some(ONE)).contains("has no node \"n3\""));
    assert!(stage.hear("no node").starts_with("refused 127.0.0.1:"));

    // An agent that ignores the coordinator's proof is refused as well.
    for proof in
        ["{\"proof\":{\"mac\":\"\"}}\n".to_owned(), format!("{{\"proof\":{{\"mac\":\"{}\"}}}}\n", "0".repeat(64))]
    {
        let mut stream = dial(stage.address);
        let hello = "{\"hello\":{\"version\":1,\"node\":\"n1\",\"nonce\":\"00000000000000000000000000000000\"}}\n";
        stream.get_mut().write_all(hello.as_bytes()).expect("it takes the greeting");
        assert!(line(&mut stream).expect("a challenge").contains("challenge"));
        stream.get_mut().write_all(proof.as_bytes()).expect("it takes the proof");
        assert_eq!(line(&mut stream), None);
        stage.hear("as node \"n1\"");
    }
    assert_eq!((stage.state(0), stage.shared.view().refused), ("down".to_owned(), 6));
}

#[test]
fn a_repeated_line_ends_the_connection() {
    let tokens = Tokens::new();
    let stage = guarded(&tokens);
    let [mut one, mut two] = first_shares(&stage, [Some(ONE), Some(TWO)]);
    let report = NodeReport {
        run: 1,
        seconds: 0.25,
        allocation: vec![50.0; 2],
        usage: vec![50.0; 2],
        sink: vec![true; 2],
        ..NodeReport::default()
    };
    let sealed = one.link.seal(&weirgate_wire::FromAgent::Report(report));
    one.send(&sealed);
    one.send(&sealed);
    assert_eq!(one.hear(), None);
    assert!(stage.hear("repeated").contains("node n1"));
    assert_eq!(stage.state(0), "down");
    // The other agent stays, and has the whole cluster after its next measurement.
    two.report(1, &[50.0, 50.0], false);
    assert_eq!(shares([&mut two])[0].0, 2);
    assert_eq!(stage.shared.view().last_runs[0].cause, "left");
}

#[test]
fn what_is_too_long_or_makes_no_sense_ends_the_connection() {
    let stage = Stage::two(NODES);
    let mut stranger = dial(stage.address);
    // The coordinator may close the connection before it has read everything.
    let _ = stranger.get_mut().write_all(&vec![b'x'; weirgate_wire::MAX_LINE + 1]);
    stage.hear("longer than 262144 bytes");
    drop(stranger);

    let mut stranger = dial(stage.address);
    stranger.get_mut().write_all(b"GET / HTTP/1.1\r\n").expect("it takes it");
    assert!(line(&mut stranger).expect("a reason").contains("refused"));

    let [mut one, _two] = first_shares(&stage, [None, None]);
    one.report(1, &[50.0, 30.0, 20.0], false);
    assert_eq!(one.hear(), None);
    stage.hear("`allocation` has 3 figures, and the policy has 2 classes");
}

#[test]
fn a_silent_connection_is_closed() {
    let stage = Stage::two(NODES);
    let mut silent = dial(stage.address);
    let agents = first_shares(&stage, [None, None]);
    assert_eq!(line(&mut silent), None);
    stage.hear("has not named its node within 3 s");
    // Silent agents are soon down, and later disconnected as well.
    stage.hear("has sent nothing for 5 s");
    assert_eq!(agents.len(), 2);
}

#[test]
fn the_newer_of_two_agents_of_one_name_speaks() {
    let tokens = Tokens::new();
    let stage = guarded(&tokens);
    let [mut one, mut two] = first_shares(&stage, [Some(ONE), Some(TWO)]);
    let mut newer = Agent::new(stage.address, "n1", Some(ONE)).expect("it is let in");
    assert!(matches!(one.hear(), Some(FromCoordinator::Refused { why }) if why.contains("another connection")));
    assert_eq!(one.hear(), None);
    stage.hear("in place of an earlier connection");
    newer.report(1, &[50.0, 50.0], false);
    two.report(1, &[50.0, 50.0], false);
    assert_eq!(shares([&mut newer, &mut two]).map(|(run, _)| run), [2, 2]);
    assert_eq!(stage.shared.view().last_runs[0].cause, "joined");
}

#[test]
fn a_new_coordinator_carries_on() {
    let mut stage = Stage::two(NODES);
    let [mut one, mut two] = first_shares(&stage, [None, None]);
    stage.end().expect("it ends well");
    assert_eq!((one.hear(), two.hear()), (None, None));

    let stage = Stage::two(NODES);
    let agent = |node| Agent::new(stage.address, node, None).expect("it is let in");
    let (mut one, mut two) = (agent("n1"), agent("n2"));
    one.report(1, &[70.0, 30.0], false);
    two.report(1, &[30.0, 70.0], false);
    let [(run, here), (_, there)] = shares([&mut one, &mut two]);
    assert_eq!(run, 2);
    assert!(here[0] > 60.0 && there[0] < 40.0, "it starts from what is in force: {here:?} {there:?}");
}

#[test]
fn an_address_open_to_others_needs_tokens_and_a_taken_one_is_said() {
    let policy = |lines: &str| {
        let text = format!("reserves:\n{lines}  classes: [{{ name: a, share: 50%, cgroup: a }}]\n");
        weirgate_config::load("policy.yaml", &text, false).expect("it loads").site.reserves.expect("it has reserves")
    };
    let mut open = policy("  nodes: [n1]\n");
    open.listen = "0.0.0.0:0".parse().expect("an address");
    let error =
        weirgate_coordinator::CoordinatorServer::open(&open, |_| {}).expect_err("nobody has a token").to_string();
    assert!(error.contains("speak for node n1"), "{error}");

    let stage = Stage::two(NODES);
    let error = weirgate_coordinator::CoordinatorServer::open(
        &policy(&format!("  listen: {}\n  nodes: [n1]\n", stage.address)),
        |_| {},
    );
    let error = error.expect_err("it is taken").to_string();
    assert!(error.contains("change `reserves.listen`"), "{error}");

    let error = weirgate_coordinator::CoordinatorServer::open(
        &policy("  token_file: /nonexistent/token\n  nodes: [n1]\n"),
        |_| {},
    );
    assert!(error.expect_err("no file").to_string().contains("reserves token file /nonexistent/token"));
}
