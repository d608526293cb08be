//! Many requests in one turn of a thread.

use std::collections::BTreeSet;

use crate::stage::{Call, Node, PLAIN, Stage, policy, wait_until};

/// Number of clients: enough that many sockets are ready in one turn.
const CLIENTS: usize = 48;

/// Sizes of bodies: none, small ones, two about the size of a read, and one that the gateway reads in several pieces.
const SIZES: [usize; 6] = [0, 1, 1000, 16_000, 17_000, 100_000];

fn body(number: usize) -> String {
    char::from(b'a' + u8::try_from(number % 26).expect("it is small")).to_string().repeat(SIZES[number % SIZES.len()])
}

/// Opens a gateway with one thread, which all requests share.
fn open() -> (Node, Stage) {
    let node = Node::scripted();
    let policy = policy(&[&node], PLAIN).replace("threads: 2", "threads: 1");
    (node, Stage::open(&policy))
}

fn number_of(call: &Call) -> usize {
    call.line().split(['/', ' ']).nth(2).and_then(|path| path.parse().ok()).expect("a number")
}

#[test]
fn each_client_gets_its_own_response() {
    let (node, stage) = open();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| stage.client()).collect();
    for round in 0..3 {
        for (client, number) in clients.iter_mut().zip(0..) {
            client.get(&format!("/{number}"));
        }
        // All are in flight before one is answered, so that the answers meet in few turns.
        let calls: Vec<_> = clients.iter().map(|_| node.call()).collect();
        let refused = stage.exchange("GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n");
        assert_eq!(refused.status, 417);
        let mut numbers = BTreeSet::new();
        for call in calls {
            let number = number_of(&call);
            numbers.insert(number);
            call.ok(&body(number));
        }
        assert_eq!(numbers, (0..CLIENTS).collect(), "round {round}");
        for (client, number) in clients.iter_mut().zip(0..) {
            let answer = client.answer();
            assert!(answer.status == 200 && answer.text() == body(number), "round {round}, client {number}");
        }
    }
    assert!(stage.is_empty());
}

#[test]
fn clients_and_nodes_that_leave_in_a_turn_harm_no_other() {
    let (node, stage) = open();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| stage.client()).collect();
    for (client, number) in clients.iter_mut().zip(0..) {
        client.send(format!("POST /{number} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"));
    }
    let mut calls: Vec<_> = clients.iter().map(|_| node.call()).collect();
    calls.sort_by_key(number_of);
    let mut others = Vec::new();
    for (number, (client, call)) in clients.into_iter().zip(calls).enumerate() {
        match number % 3 {
            0 => client.reset(),
            // The node closes without a response.
            1 => others.push((client, 502)),
            _ => {
                call.ok("yes");
                others.push((client, 200));
            }
        }
    }
    for (mut client, status) in others {
        assert_eq!(client.answer().status, status);
    }
    wait_until("no request is left", || stage.is_empty());
}
