//! Tests of which idle connection the next request takes.

use crate::stage::{Node, PLAIN, Stage, ok, policy};

/// Sends two requests at once and answers the later one first, so after a shorter time. `answers` are in that order.
/// Returns the two connections in the same order, and the connection of the next request.
fn reused(answers: [&[u8]; 2]) -> ([usize; 2], usize) {
    let node = Node::scripted();
    // Each thread has connections of its own.
    let stage = Stage::open(&policy(&[&node], PLAIN).replace("threads: 2", "threads: 1"));
    let asked = ["/one", "/two"].map(|path| {
        let mut client = stage.client();
        client.get(path);
        (client, node.call())
    });
    let mut connections = Vec::new();
    for ((mut client, call), answer) in asked.into_iter().rev().zip(answers) {
        connections.push(call.connection);
        call.reply(answer);
        client.answer();
    }
    let mut client = stage.client();
    client.get("/next");
    ([connections[0], connections[1]], node.call().connection)
}

#[test]
fn the_next_request_takes_the_connection_that_was_answered_soonest() {
    let ok = ok("done");
    let ([sooner, later], next) = reused([&ok, &ok]);
    assert!(next == sooner && next != later);
}

#[test]
fn a_fast_failure_does_not_attract_the_next_request() {
    let failure = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
    let ([failed, later], next) = reused([failure, &ok("done")]);
    assert!(next == later && next != failed);
}
