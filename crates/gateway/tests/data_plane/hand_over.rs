//! The gateway's side of a hand-over, and sockets that another process has opened.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;

use weirgate_gateway::{Gateway, HandOverError, Phase, ReloadError, ReloadSource};

use crate::stage::{Client, Node, PLAIN, Stage, ok, policy, site, wait_until};

#[test]
fn a_hand_over_that_fails_changes_nothing() {
    let node = Node::answering(ok("x"));
    let text = policy(&[&node], PLAIN);
    let stage = Stage::open(&text);
    let mut client = stage.client();
    let hand_over = stage.gateway.begin_hand_over().expect("it serves");
    assert!(matches!(stage.gateway.begin_hand_over(), Err(HandOverError::UnderWay)));
    assert_eq!(stage.gateway.reload_site(site(&text), &text).err(), Some(ReloadError::HandingOver));
    let failed = hand_over.finish(|| Err(io::ErrorKind::BrokenPipe.into()));
    assert!(matches!(failed, Err(HandOverError::Failed(_))), "{failed:?}");
    stage.gateway.reload_site(site(&text), &text).expect("a good policy");
    for client in [&mut client, &mut stage.client()] {
        let answer = client.ask("/");
        assert_eq!((answer.status, answer.header("connection")), (200, None));
    }
    // A stop in the meantime has precedence.
    let hand_over = stage.gateway.begin_hand_over().expect("it serves");
    stage.gateway.drain();
    assert!(matches!(hand_over.finish(|| panic!("too late")), Err(HandOverError::NotServing)));
    assert!(matches!(stage.gateway.begin_hand_over(), Err(HandOverError::NotServing)));
}

#[test]
fn sockets_live_on_and_clients_are_served_to_their_end() {
    let (_node, stage) = Stage::of(Node::answering(ok("old")), PLAIN);
    let (mut kept, mut idle, address) = (stage.client(), stage.client(), stage.address());
    wait_until("both are accepted", || stage.gateway.counters().accepted.load(Ordering::Relaxed) == 2);
    let hand_over = stage.gateway.begin_hand_over().expect("it serves");
    let sockets = hand_over.sockets().expect("enough descriptors");
    assert_eq!(sockets.len(), 2, "one per thread");
    hand_over.finish(|| Ok(())).expect("it serves");
    assert_eq!((stage.gateway.phase(), stage.gateway.accepts()), (Phase::Draining, true));
    wait_until("the last answer is announced", || {
        let answer = kept.ask("/");
        assert_eq!(answer.text(), "old");
        answer.header("connection").as_deref() == Some("close")
    });
    assert!(kept.is_closed());
    // A client that connects now waits in the queue of a socket for the next process.
    let mut next = Client::connect(address);
    next.get("/");
    let other = Node::answering(ok("new"));
    let text = policy(&[&other], PLAIN);
    let mut sockets = sockets.into_iter().map(|(_, socket)| socket);
    let successor =
        Gateway::prepare(site(&text), &text, ReloadSource::Nowhere, Vec::new(), |_| sockets.by_ref().collect())
            .expect("a good policy");
    assert_eq!((successor.phase(), successor.addresses()), (Phase::Starting, vec![address]));
    successor.serve();
    assert_eq!(next.answer().text(), "new");
    // An idle client is closed after some seconds, and then the old gateway ends.
    assert!(idle.is_closed());
    stage.gateway.join();
    successor.cut();
    successor.join();
}

#[test]
fn a_connection_that_waits_for_room_outlives_the_hand_over() {
    let (node, stage) = Stage::of(Node::scripted(), &format!("{PLAIN}limits: {{ connections: 1 }}\n"));
    let mut first = stage.client();
    first.get("/first");
    let call = node.call();
    let mut second = stage.client();
    second.get("/second");
    let accepted = || stage.gateway.counters().accepted.load(Ordering::Relaxed);
    wait_until("both are accepted", || accepted() == 2);
    let hand_over = stage.gateway.begin_hand_over().expect("it serves");
    hand_over.finish(|| Ok(())).expect("it serves");
    call.ok("1");
    assert_eq!(first.answer().text(), "1");
    drop(first);
    node.call().ok("2");
    assert_eq!(second.answer().text(), "2");
    drop(second);
    stage.gateway.join();
}

#[test]
fn one_socket_serves_all_threads() {
    let node = Node::answering(ok("x"));
    let text = policy(&[&node], PLAIN).replacen("threads: 2", "threads: 3", 1);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let mut listener = Some(listener);
    let inherited = |_: &_| listener.take().map(Into::into).into_iter().collect();
    let gateway =
        Gateway::prepare(site(&text), &text, ReloadSource::Nowhere, Vec::new(), inherited).expect("a good policy");
    gateway.serve();
    let mut clients: Vec<_> = (0..12).map(|_| Client::connect(address)).collect();
    for client in &mut clients {
        assert_eq!(client.ask("/").text(), "x");
    }
    assert_eq!(gateway.counters().open.load(Ordering::Relaxed), 12);
    gateway.drain();
    assert!(clients.iter_mut().all(Client::is_closed));
    gateway.join();
    assert_eq!(gateway.counters().open.load(Ordering::Relaxed), 0);
    wait_until("nothing listens", || TcpStream::connect(address).is_err());
}
