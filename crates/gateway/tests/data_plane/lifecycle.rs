//! Reloads lose no request, drains finish the requests in flight, and health checks select the nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weirgate_engine::NodeState;
use weirgate_gateway::{Phase, ReloadError};

use crate::stage::{Client, Node, PLAIN, Stage, ok, policy, site, wait_until, windowed};

#[test]
fn a_reload_under_load_loses_nothing() {
    let node = Node::replying(|head, _| ok(head.split(' ').nth(1).unwrap_or_default()));
    let texts = [windowed(2), windowed(5), PLAIN.to_owned()].map(|rest| policy(&[&node], &rest));
    let stage = Stage::open(&texts[0]);
    let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..16)
        .map(|c| {
            let (stop, served, address) = (Arc::clone(&stop), Arc::clone(&served), stage.address());
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    let path = format!("/{c}/{n}");
                    assert_eq!(client.ask(&path).text(), path);
                    served.fetch_add(1, Ordering::Relaxed);
                    n += 1;
                }
            })
        })
        .collect();
    for round in 0..30 {
        let before = served.load(Ordering::Relaxed);
        let text = &texts[round % texts.len()];
        stage.gateway.reload_site(site(text), text).expect("a good policy");
        wait_until("requests are served under it", || served.load(Ordering::Relaxed) >= before + 20);
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("every request got its answer");
    }
    assert_eq!(stage.gateway.active_config().version, 31);
    wait_until("all slots are free", || stage.is_empty());
}

#[test]
fn waiting_requests_survive_a_reload() {
    let (node, stage) = Stage::of(Node::scripted(), &windowed(1));
    let (mut in_flight, mut waiting) = (stage.client(), stage.client());
    in_flight.get("/in-flight");
    let call = node.call();
    waiting.get("/waiting");
    wait_until("it waits", || stage.waiting() == 1);
    let text = policy(&[&node], &windowed(2));
    let active_config = stage.gateway.reload_site(site(&text), &text).expect("a good policy");
    assert_eq!(active_config.version, 2);
    // With the larger window it is released at once.
    let second = node.call();
    assert_eq!(second.line(), "GET /waiting HTTP/1.1");
    second.ok("2");
    call.ok("1");
    assert_eq!((in_flight.answer().text(), waiting.answer().text()), ("1".into(), "2".into()));
}

#[test]
fn listeners_come_and_go_with_the_policy() {
    let node = Node::answering(ok("x"));
    let free = || Node::absent().address;
    let (kept, gone, new) = (free(), free(), free());
    let text = |listen: &str| policy(&[&node], PLAIN).replacen("127.0.0.1:0", listen, 1);
    let stage = Stage::open(&text(&format!("[\"{kept}\", \"{gone}\"]")));
    let (mut stays, mut leaves) = (Client::connect(kept), Client::connect(gone));
    for client in [&mut stays, &mut leaves] {
        assert_eq!(client.ask("/").status, 200);
    }
    let next = text(&format!("[\"{kept}\", \"{new}\"]"));
    stage.gateway.reload_site(site(&next), &next).expect("a good policy");
    assert!(leaves.is_closed());
    let mut fresh = Client::connect(new);
    for client in [&mut stays, &mut fresh] {
        assert_eq!(client.ask("/").status, 200);
    }
    wait_until("nobody listens there", || std::net::TcpStream::connect(gone).is_err());
    // An address in use by another process makes the reload fail and changes nothing.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = text(&format!("\"{}\"", taken.local_addr().expect("an address")));
    let failed = stage.gateway.reload_site(site(&taken), &taken);
    assert!(matches!(failed, Err(ReloadError::Listen(_))), "{failed:?}");
    assert_eq!(stage.gateway.active_config().version, 2);
    assert_eq!(stays.ask("/").status, 200);
}

#[test]
fn a_drain_finishes_what_is_inside_and_takes_nothing_new() {
    let (node, stage) = Stage::of(Node::scripted(), &windowed(1));
    let address = stage.address();
    let (mut in_flight, mut waiting, mut idle) = (stage.client(), stage.client(), stage.client());
    idle.get("/idle");
    node.call().ok("");
    assert_eq!(idle.answer().status, 200);
    in_flight.get("/in-flight");
    let call = node.call();
    waiting.get("/waiting");
    wait_until("it waits", || stage.waiting() == 1);
    stage.gateway.drain();
    assert_eq!(stage.gateway.phase(), Phase::Draining);
    assert!(idle.is_closed());
    wait_until("nobody listens", || std::net::TcpStream::connect(address).is_err());
    call.ok("1");
    node.call().ok("2");
    for (client, text) in [(&mut in_flight, "1"), (&mut waiting, "2")] {
        let answer = client.answer();
        assert_eq!((answer.text().as_str(), answer.header("connection").as_deref()), (text, Some("close")));
        assert!(client.is_closed());
    }
    stage.gateway.join();
    assert_eq!(stage.gateway.phase(), Phase::Stopped);
    let text = policy(&[&node], PLAIN);
    assert_eq!(stage.gateway.reload_site(site(&text), &text).err(), Some(ReloadError::Draining));
}

#[test]
fn a_drain_has_an_end() {
    let (node, stage) = Stage::of(Node::scripted(), &format!("{PLAIN}drain_deadline: 100ms\n"));
    let mut client = stage.client();
    client.get("/");
    let _call = node.call();
    stage.gateway.drain();
    stage.gateway.join();
    assert!(client.is_closed());
    assert!(stage.is_empty());
}

#[test]
fn nodes_that_fail_their_checks_are_not_asked() {
    let healthy = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&healthy);
    let sick = Node::replying(move |head, _| {
        if head.starts_with("GET /health ") && !state.load(Ordering::Relaxed) {
            return b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_vec();
        }
        ok("sick")
    });
    let well = Node::replying(|_, _| ok("well"));
    let text = format!(
        "listen: 127.0.0.1:0\nadmin: off\nupstreams: {{ web: {{ nodes: [{}, {}], health_check: {{ path: /health, interval: 100ms, \
         timeout: 100ms, fall: 2, rise: 2 }} }} }}\n{PLAIN}",
        sick.address, well.address
    );
    let stage = Stage::open(&text);
    let state_of = |node: usize| stage.gateway.control().snapshot().nodes[node].state;
    healthy.store(false, Ordering::Relaxed);
    wait_until("it is out", || state_of(0) == NodeState::Down);
    let mut client = stage.client();
    // On a busy machine the other one may be late with its checks as well, and is not asked for a moment.
    for _ in 0..10 {
        assert_ne!(client.ask("/").text(), "sick");
    }
    wait_until("the other one is asked", || client.ask("/").text() == "well");
    healthy.store(true, Ordering::Relaxed);
    wait_until("it is back", || state_of(0) == NodeState::Up);
    wait_until("it is asked again", || client.ask("/").text() == "sick");
}
