//! Classes that are observed: all of their requests are served, and records tell what would have happened.

use weirgate_engine::{ClassId, ShedReason, Would};
use weirgate_gateway::Ending;

use crate::stage::{Client, Node, Stage, policy, site, wait_until};

/// One class with room for one request in flight and one waiting, in this mode.
fn text(node: &Node, mode: &str) -> String {
    let rest = "classes: [{ name: all, service_time: 1h, queue: { max_waiting: 1 } }]\n\
                discipline: { custom: { admit: none, load_control: { fixed: 1 }, precedence: fifo } }\n";
    policy(&[node], &format!("mode: {mode}\n{rest}"))
}

fn would_shed(stage: &Stage) -> u64 {
    stage.gateway.control().classes(ClassId(0), 1)[0].would_shed.iter().sum()
}

#[test]
fn observed_requests_pass_and_records_tell_what_would_have_happened() {
    let node = Node::scripted();
    let stage = Stage::open(&text(&node, "observe"));
    let mut clients: Vec<Client> = Vec::new();
    let mut calls = Vec::new();
    for number in 0..4 {
        let mut client = stage.client();
        client.get(&format!("/{number}"));
        clients.push(client);
        // One after the other, so that their order is known.
        calls.push(node.call());
    }
    assert_eq!((stage.waiting(), would_shed(&stage)), (0, 2));
    for (number, would) in [
        (3, Would::Shed(ShedReason::QueueFull)),
        (2, Would::Shed(ShedReason::QueueFull)),
        (1, Would::Wait),
        (0, Would::Release),
    ] {
        calls.pop().expect("a call").ok("served");
        assert_eq!(clients[number].answer().status, 200);
        let record = stage.record();
        assert_eq!((record.path, record.ending), (format!("/{number}"), Ending::Served));
        assert_eq!(record.would, Some(would), "request {number}");
    }
    assert!(stage.is_empty());
}

/// A client that leaves is told from others in the record as well.
#[test]
fn clients_that_leave_are_told_what_would_have_happened() {
    let node = Node::scripted();
    let stage = Stage::open(&text(&node, "observe"));
    let mut clients: Vec<Client> = (0..3).map(|_| stage.client()).collect();
    let mut calls = Vec::new();
    for client in &mut clients {
        client.get("/");
        calls.push(node.call());
    }
    drop(clients.pop());
    let record = stage.record();
    assert_eq!((record.ending, record.would), (Ending::Left, Some(Would::Shed(ShedReason::QueueFull))));
}

#[test]
fn a_reload_switches_the_mode_without_losing_requests() {
    let node = Node::scripted();
    let stage = Stage::open(&text(&node, "enforce"));
    let (mut first, mut second, mut third) = (stage.client(), stage.client(), stage.client());
    first.get("/first");
    let first_call = node.call();
    second.get("/second");
    wait_until("one waits", || stage.waiting() == 1);
    assert_eq!(third.ask("/third").status, 503);
    assert_eq!(stage.record().would, None);
    let observe = text(&node, "observe");
    stage.gateway.reload_site(site(&observe), &observe).expect("a good policy");
    // What waited passes, and so does another one.
    let second_call = node.call();
    assert_eq!(second_call.line(), "GET /second HTTP/1.1");
    third.get("/third");
    let third_call = node.call();
    let enforce = text(&node, "enforce");
    stage.gateway.reload_site(site(&enforce), &enforce).expect("a good policy");
    let mut fourth = stage.client();
    fourth.get("/fourth");
    wait_until("it waits behind the first", || stage.waiting() == 1);
    third_call.ok("third");
    second_call.ok("second");
    assert_eq!((second.answer().text(), third.answer().text()), ("second".to_owned(), "third".to_owned()));
    assert_eq!(stage.waiting(), 1, "those that passed held no slot");
    first_call.ok("first");
    node.call().ok("fourth");
    assert_eq!((first.answer().text(), fourth.answer().text()), ("first".to_owned(), "fourth".to_owned()));
}

/// A client is always on the same side, also in another process with another key.
#[test]
fn a_share_of_the_clients_is_enforced() {
    let node = Node::answering(crate::stage::ok("served"));
    let rest = "discipline: none\nclasses: [{ name: all, limit_per_source: 0.01/s, mode: { enforce: 50% } }]\n";
    let sides = || -> Vec<bool> {
        let stage = Stage::open(&policy(&[&node], rest));
        let refused = |last: u8| {
            let mut client = Client::from_address([127, 0, 1, last], stage.address());
            assert_eq!(client.ask("/").status, 200);
            client.ask("/").status == 429
        };
        (1..=24).map(refused).collect()
    };
    let first = sides();
    assert_eq!(first, sides());
    let enforced = first.iter().filter(|refused| **refused).count();
    assert!((4..=20).contains(&enforced), "{first:?}");
}
