//! Tests of which requests are retried and which are not.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weirgate_gateway::Ending;

use crate::stage::{Node, PLAIN, Stage, ok, policy, wait_until};

/// Every request adds the token for its own retry.
const GENEROUS: &str = "discipline: none\nclasses: [{ name: all, retry: { ratio: 100% } }]\n";

/// Starts a node that reads a head and closes without a response. Counts the attempts.
fn closing(count: &Arc<AtomicUsize>) -> Node {
    let count = Arc::clone(count);
    Node::raw(move |_, mut stream| {
        let mut buffer = [0; 4096];
        let _ = stream.read(&mut buffer)?;
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

#[test]
fn an_idempotent_request_is_tried_at_another_node_once() {
    let tries = Arc::new(AtomicUsize::new(0));
    let (bad, good) = (closing(&tries), Node::answering(ok("good")));
    let stage = Stage::open(&policy(&[&bad, &good], GENEROUS));
    let mut client = stage.client();
    let mut retried = 0;
    for i in 0..4 {
        assert_eq!(
            client.exchange(format!("PUT /{i} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody")).text(),
            "good"
        );
        let call = good.call();
        assert_eq!((call.line(), call.body.as_slice()), (format!("PUT /{i} HTTP/1.1").as_str(), b"body".as_slice()));
        let record = stage.record();
        assert_eq!((record.ending, record.node), (Ending::Served, Some(good.address.to_string())));
        retried += usize::from(record.retries);
    }
    assert!(retried >= 1);
    assert_eq!(tries.load(Ordering::Relaxed), retried);
    assert!(stage.is_empty());
}

#[test]
fn a_post_is_never_tried_again() {
    let tries = Arc::new(AtomicUsize::new(0));
    let (one, two) = (closing(&tries), closing(&tries));
    let stage = Stage::open(&policy(&[&one, &two], GENEROUS));
    let answer = stage.exchange("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(answer.status, 502);
    assert_eq!(answer.header("proxy-status").as_deref(), Some("weirgate; error=connection_terminated"));
    assert_eq!(tries.load(Ordering::Relaxed), 1);
    assert_eq!(stage.record().retries, 0);
}

#[test]
fn the_node_that_failed_is_not_tried_again() {
    let tries = Arc::new(AtomicUsize::new(0));
    let only = closing(&tries);
    let stage = Stage::open(&policy(&[&only], GENEROUS));
    assert_eq!(stage.ask("/").status, 502);
    assert_eq!((tries.load(Ordering::Relaxed), stage.record().retries), (1, 0));

    // A timeout: the node may still be working on the first copy.
    let silent = Node::scripted();
    let rest = "discipline: none\nclasses: [{ name: all, retry: { ratio: 100% }, timeouts: { first_byte: 100ms } }]\n";
    let stage = Stage::open(&policy(&[&silent], rest));
    assert_eq!(stage.ask("/").status, 504);
    assert_eq!((silent.calls().len(), stage.record().retries), (1, 0));
    assert!(stage.is_empty());
}

#[test]
fn no_more_retries_than_the_class_allows() {
    let tries = Arc::new(AtomicUsize::new(0));
    let nodes: Vec<_> = (0..4).map(|_| closing(&tries)).collect();
    let stage = Stage::open(&policy(&nodes.iter().collect::<Vec<_>>(), GENEROUS));
    assert_eq!(stage.ask("/").status, 502);
    // Linkerd's default is one retry.
    assert_eq!(tries.load(Ordering::Relaxed), 2);
    assert_eq!(stage.record().retries, 1);
    assert!(stage.is_empty());
}

#[test]
fn nothing_is_tried_again_once_a_byte_went_downstream() {
    let tries = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tries);
    let half = Node::raw(move |_, mut stream| {
        let mut buffer = [0; 4096];
        let _ = stream.read(&mut buffer)?;
        count.fetch_add(1, Ordering::Relaxed);
        stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n{}", "x".repeat(100_000)).as_bytes())
    });
    let stage = Stage::open(&policy(&[&half], PLAIN));
    let mut client = stage.client();
    client.get("/");
    let all = client.rest();
    assert!(all.starts_with(b"HTTP/1.1 200"));
    assert!(all.len() < 150_000);
    assert_eq!(tries.load(Ordering::Relaxed), 1);
    assert_eq!(stage.record().ending, Ending::Failed("http_response_incomplete"));
    wait_until("the slot is free", || stage.is_empty());
}

#[test]
fn a_closed_idle_connection_counts_as_no_failure() {
    // Answers the first request of a connection, reads the next one, and closes.
    let node = Node::raw(|_, mut stream| {
        let mut buffer = [0; 4096];
        let _ = stream.read(&mut buffer)?;
        stream.write_all(&ok("x"))?;
        let _ = stream.read(&mut buffer)?;
        Ok(())
    });
    let stage = Stage::open(&policy(&[&node], "discipline: none\nclasses: [{ name: all, retry: off }]\n"));
    let mut client = stage.client();
    for _ in 0..6 {
        assert_eq!(client.ask("/").status, 200);
        let record = stage.record();
        assert_eq!((record.ending, record.retries), (Ending::Served, 0));
    }
    let snapshot = stage.gateway.control().snapshot();
    assert_eq!((snapshot.nodes[0].served, snapshot.nodes[0].failed), (6, 0));
}

#[test]
fn a_node_that_breaks_off_early_enough_is_replaced() {
    let broken = Node::answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel\r\n\r\n\r\n");
    let good = Node::answering(ok("good"));
    let stage = Stage::open(&policy(&[&broken, &good], GENEROUS));
    let mut client = stage.client();
    for _ in 0..3 {
        assert_eq!(client.ask("/").text(), "good");
    }
}
