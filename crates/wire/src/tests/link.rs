//! Tests of sealed lines: which connections are accepted, and which lines count as the other side's.

use super::*;
use crate::reserves_wire::NodeReport;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba9876543210fedcba9876543210";

fn token(text: &str) -> Token {
    Token::find("reserves", None, Some(("X", text.to_owned()))).unwrap().unwrap()
}

/// Returns a line as the other side reads it.
fn cut(line: &str) -> &[u8] {
    line.strip_suffix('\n').expect("a line has an end").as_bytes()
}

/// Returns the links of both sides, or the error of the side that finds one.
fn connect(agent: Option<&str>, coordinator: Option<&str>) -> Result<(AgentLink, CoordinatorLink), LinkError> {
    let (agent, coordinator) = (agent.map(token), coordinator.map(token));
    let (greeted, hello) = AgentLink::agent(agent.as_ref(), "n1", [1; 16]);
    let greeting = CoordinatorLink::greeting(cut(&hello))?;
    assert_eq!(greeting.node, "n1");
    let (challenged, challenge) = CoordinatorLink::coordinator(coordinator.as_ref(), &greeting, [2; 16]);
    let (link, proof) = greeted.challenged(cut(&challenge))?;
    Ok((link, challenged.proven(cut(&proof))?))
}

fn report(run: u64) -> FromAgent {
    FromAgent::Report(NodeReport { run, seconds: 0.25, ..NodeReport::default() })
}

#[test]
fn two_that_have_the_token_understand_each_other() {
    for token in [None, Some(TOKEN)] {
        let (mut agent, mut coordinator) = connect(token, token).unwrap();
        for run in 1..4 {
            assert_eq!(coordinator.open(cut(&agent.seal(&report(run)))), Ok(report(run)));
            let shares = FromCoordinator::Shares { run, shares: vec![100.0] };
            assert_eq!(agent.open(cut(&coordinator.seal(&shares))), Ok(shares));
        }
    }
}

#[test]
fn each_side_says_what_the_other_lacks() {
    let error = |agent, coordinator| connect(agent, coordinator).unwrap_err().to_string();
    assert!(error(Some(TOKEN), Some(OTHER)).contains("another token"));
    assert!(error(None, Some(TOKEN)).contains("asks for a token"));
    assert!(error(Some(TOKEN), None).contains("has no token"));
}

#[test]
fn an_agent_proves_its_own_name_to_this_challenge() {
    let token = token(TOKEN);
    let (greeted, hello) = AgentLink::agent(Some(&token), "n1", [1; 16]);
    let greeting = CoordinatorLink::greeting(cut(&hello)).unwrap();
    let (_, challenge) = CoordinatorLink::coordinator(Some(&token), &greeting, [2; 16]);
    let (_, proof) = greeted.challenged(cut(&challenge)).unwrap();
    let other_nonce = CoordinatorLink::coordinator(Some(&token), &greeting, [3; 16]).0;
    assert!(matches!(other_nonce.proven(cut(&proof)), Err(LinkError::Unproven(_))));
    let other_node = Greeting { node: "n2".to_owned(), ..greeting.clone() };
    let other_node = CoordinatorLink::coordinator(Some(&token), &other_node, [2; 16]).0;
    assert!(matches!(other_node.proven(cut(&proof)), Err(LinkError::Unproven(_))));
    // A coordinator's own proof does not serve as an agent's.
    let (challenged, challenge) = CoordinatorLink::coordinator(Some(&token), &greeting, [2; 16]);
    let FromCoordinator::Challenge { mac, .. } = serde_json::from_str(&challenge).unwrap() else {
        panic!("no challenge")
    };
    let reflected = plain(&FromAgent::Proof { mac });
    assert!(matches!(challenged.proven(cut(&reflected)), Err(LinkError::Unproven(_))));
}

#[test]
fn no_line_is_changed_repeated_left_out_or_sent_back() {
    let links = || connect(Some(TOKEN), Some(TOKEN)).unwrap();
    let unproven = |opened: Result<FromAgent, LinkError>| assert!(matches!(opened, Err(LinkError::Unproven(_))));

    let (mut agent, mut coordinator) = links();
    let first = agent.seal(&report(1));
    let second = agent.seal(&report(2));
    unproven(coordinator.open(cut(&second)));
    assert_eq!(coordinator.open(cut(&first)), Ok(report(1)));
    unproven(coordinator.open(cut(&first)));
    assert_eq!(coordinator.open(cut(&second)), Ok(report(2)));

    let (mut agent, mut coordinator) = links();
    let line = agent.seal(&report(1));
    unproven(coordinator.open(cut(&line.replace("\"run\":1", "\"run\":9"))));
    unproven(coordinator.open(&cut(&line)[65..]));
    unproven(coordinator.open(b""));
    unproven(coordinator.open(&[b'a'; 300]));

    // A line that the coordinator sealed first is not accepted as the agent's first line.
    let (_, mut coordinator) = links();
    let back = coordinator.seal(&FromCoordinator::Refused { why: "x".to_owned() });
    unproven(coordinator.open(cut(&back)));
}

#[test]
fn another_connections_lines_are_worth_nothing() {
    let token = token(TOKEN);
    let established = |nonce| {
        let (greeted, hello) = AgentLink::agent(Some(&token), "n1", nonce);
        let greeting = CoordinatorLink::greeting(cut(&hello)).unwrap();
        let (challenged, challenge) = CoordinatorLink::coordinator(Some(&token), &greeting, [2; 16]);
        let (agent, proof) = greeted.challenged(cut(&challenge)).unwrap();
        (agent, challenged.proven(cut(&proof)).unwrap())
    };
    let (mut earlier, _) = established([1; 16]);
    let (_, mut coordinator) = established([7; 16]);
    assert!(matches!(coordinator.open(cut(&earlier.seal(&report(1)))), Err(LinkError::Unproven(_))));
}

#[test]
fn what_does_not_belong_is_refused_with_a_reason() {
    let greeting = |line: &[u8]| CoordinatorLink::greeting(line).unwrap_err().to_string();
    assert!(greeting(b"GET / HTTP/1.1\r").contains("no message"));
    assert!(greeting(br#"{"proof":{"mac":""}}"#).contains("no greeting"));
    assert!(greeting(br#"{"hello":{"version":1,"node":"n1","nonce":"00"}}"#).contains("not 16 bytes"));
    assert!(greeting(br#"{"hello":{"version":2,"node":"n1","nonce":""}}"#).contains("speaks version 2, this one 1"));

    let answered = |line: &str| AgentLink::agent(None, "n1", [1; 16]).0.challenged(cut(line)).unwrap_err().to_string();
    assert!(answered("{\"shares\":{\"run\":1,\"shares\":[]}}\n").contains("before a challenge"));
    let refused = answered(&CoordinatorLink::refusal("there is no node \u{1b}[2J"));
    assert_eq!(refused, "the coordinator refuses: there is no node \\u{1b}[2J");

    let (mut agent, _) = connect(None, None).unwrap();
    let long = format!("\"{}\"", "x".repeat(10_000));
    let error = agent.open(long.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("no message") && error.len() < 300, "{error}");
}

#[test]
fn streams_are_cut_into_lines_wherever_the_reads_end() {
    let text = b"one\n\ntwo and more\nrest";
    for size in 1..text.len() {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for part in text.chunks(size) {
            lines.push(part);
            while let Some(line) = lines.next_line().unwrap() {
                found.push(String::from_utf8(line.to_vec()).unwrap());
            }
        }
        assert_eq!(found, ["one", "", "two and more"], "reads of {size}");
        assert!(lines.bytes.len() < text.len());
    }
}

#[test]
fn a_line_that_does_not_end_is_too_long() {
    let mut lines = Lines::default();
    let mut fits = vec![b'x'; MAX_LINE - 1];
    fits.push(b'\n');
    lines.push(&fits);
    assert_eq!(lines.next_line().unwrap().map(<[u8]>::len), Some(MAX_LINE - 1));
    lines.push(&[b'x'; MAX_LINE]);
    assert_eq!(lines.next_line().unwrap(), None);
    lines.push(b"x");
    assert_eq!(lines.next_line().unwrap_err(), LinkError::TooLong);
}
