//! Threats: spellings that evade rules, clients that leave, clients that flood, exhausted file descriptors.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::stage::{Client, Node, PLAIN, Stage, ok, policy, site, wait_until, windowed};

#[test]
fn d2_no_spelling_dodges_a_rule() {
    let node = Node::replying(|head, _| ok(head.split(' ').nth(1).unwrap_or_default()));
    let rest =
        "discipline: none\nclasses:\n  - { name: admin, match: { path_prefix: /admin } }\n  - { name: others }\n";
    let stage = Stage::open(&policy(&[&node], rest));
    for path in
        ["/admin", "/admin/x", "//admin", "/./admin", "/x/../admin", "/%61dmin", "/x/%2e%2e/admin/", "/admin//x"]
    {
        let answer = stage.ask(path);
        // The node receives the path as it was sent.
        assert_eq!(answer.text(), path);
        assert_eq!(stage.record().class, "admin", "{path}");
    }
    // Some nodes read these paths as below /admin, and others do not. `admin` is the first class, so that it decides
    // only if the promises are compared: see the test of the classifier.
    for path in ["/x/..%2fadmin", "/admin%2fx", "/x\\..\\admin"] {
        assert_eq!(stage.ask(path).text(), path);
    }
    for path in ["/x/..;/admin", "/..%5cadmin", "/%00/admin", "/admin/..%2f..%2f"] {
        assert_eq!(stage.ask(path).status, 400, "{path}");
    }
}

#[test]
fn d7_ten_thousand_clients_that_leave_lose_no_slot() {
    let rest = format!("{}timeouts: {{ header: 1s }}\n", windowed(3));
    let (_node, stage) = Stage::of(Node::answering(ok("x")), &rest);
    // Requests truncated at every position, and complete ones with clients that leave at once, in a
    // deterministic mix.
    let request = "POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello";
    let mut state = 0x9e37_79b9_u64;
    for _ in 0..10_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let cut = (state >> 33) as usize % (request.len() + 20);
        let mut client = stage.client();
        client.send(&request[..cut.min(request.len())]);
        if state >> 63 == 0 {
            client.reset();
        }
    }
    wait_until("all slots are free", || stage.is_empty());
    // All three slots still work, and there is no fourth.
    let mut clients: Vec<_> = (0..20).map(|_| stage.client()).collect();
    for client in &mut clients {
        client.get("/");
    }
    for client in &mut clients {
        assert_eq!(client.answer().status, 200);
    }
    wait_until("all slots are free again", || stage.is_empty());
}

#[test]
fn d8_a_hog_does_not_keep_others_out() {
    let rest = "trusted_proxies: [127.0.0.1]\n\
                classes: [{ name: all, queue: { max_waiting: 100, max_waiting_per_source: 10 } }]\n\
                discipline: { custom: { admit: none, load_control: { fixed: 1 }, precedence: fifo } }\n";
    let (node, stage) = Stage::of(Node::scripted(), rest);
    let from = |address: &str| {
        let mut client = stage.client();
        client.send(format!("GET /{address} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {address}\r\n\r\n"));
        client
    };
    let mut in_flight = from("192.0.2.1");
    let call = node.call();
    // All addresses of one /64 are one source.
    let mut hogs: Vec<_> = (0..50).map(|i| from(&format!("2001:db8::{i:x}"))).collect();
    wait_until("the hog has its share of the queue", || {
        let all = stage.gateway.control().classes(weirgate_engine::ClassId(0), 1);
        all[0].waiting == 10 && all[0].shed.iter().sum::<u64>() == 40
    });
    let mut polite = from("192.0.2.2");
    wait_until("the polite one waits too", || stage.waiting() == 11);
    call.ok("");
    for _ in 0..11 {
        node.call().ok("");
    }
    assert_eq!((in_flight.answer().status, polite.answer().status), (200, 200));
    let statuses: Vec<_> = hogs.iter_mut().map(|c| c.answer().status).collect();
    assert_eq!(statuses.iter().filter(|s| **s == 200).count(), 10);
    assert_eq!(statuses.iter().filter(|s| **s == 503).count(), 40);
}

#[test]
fn d8_all_connections_are_bounded_and_the_rest_waits_unread() {
    let node = Node::scripted();
    let stage =
        Stage::open(&policy(&[&node], "discipline: none\nclasses: [{ name: all }]\nlimits: { connections: 4 }\n"));
    let mut first: Vec<_> = (0..4).map(|_| stage.client()).collect();
    for client in &mut first {
        client.get("/");
    }
    let mut calls: Vec<_> = (0..4).map(|_| node.call()).collect();
    let mut fifth = stage.client();
    fifth.get("/fifth");
    wait_until("it is accepted or waits in the kernel", || {
        stage.gateway.counters().open.load(std::sync::atomic::Ordering::Relaxed) == 4
    });
    assert!(node.has_no_call());
    // An idle connection is closed to make room.
    calls.pop().expect("four").ok("");
    let call = node.call();
    assert_eq!(call.line(), "GET /fifth HTTP/1.1");
    call.ok("");
    assert_eq!(fifth.answer().status, 200);
    for call in calls {
        call.ok("");
    }
    for client in &mut first {
        assert_eq!(client.answer().status, 200);
    }
}

#[test]
fn silent_connections_make_room_for_a_client_that_speaks() {
    let (_node, stage) = Stage::of(Node::answering(ok("x")), &format!("{PLAIN}limits: {{ connections: 8 }}\n"));
    let silent: Vec<_> = (0..60).map(|_| stage.client()).collect();
    // The kernel keeps them back for a second.
    wait_until("they are at the limit", || {
        stage.gateway.counters().open.load(std::sync::atomic::Ordering::Relaxed) == 8
    });
    for _ in 0..3 {
        assert_eq!(stage.ask("/").status, 200);
    }
    assert!(stage.gateway.counters().spared_connections.load(std::sync::atomic::Ordering::Relaxed) >= 3);
    drop(silent);
}

/// A peer with many idle connections makes room with those, and not with the one of a client that may use it again.
#[test]
fn idle_connections_of_a_greedy_peer_make_room() {
    let node = Node::answering(ok("x"));
    let policy =
        policy(&[&node], &format!("{PLAIN}limits: {{ connections: 8 }}\n")).replace("threads: 2", "threads: 1");
    let stage = Stage::open(&policy);
    let ask = |client: &mut Client| client.ask("/").status;
    let mut polite = stage.client();
    assert_eq!(ask(&mut polite), 200);
    // Each one after the seventh takes the place of an idle connection, and none is idle for longer than the first.
    let mut greedy = Vec::new();
    for _ in 0..20 {
        let mut client = Client::from_address([127, 0, 0, 2], stage.address());
        assert_eq!(ask(&mut client), 200);
        greedy.push(client);
    }
    assert_eq!(ask(&mut polite), 200);
}

/// A client that has just been answered may be sending its next request, so even one that has only just connected makes
/// room before it.
#[test]
fn silent_connections_make_room_before_a_client_that_has_just_been_answered() {
    let node = Node::answering(ok("x"));
    let policy =
        policy(&[&node], &format!("{PLAIN}limits: {{ connections: 4 }}\n")).replace("threads: 2", "threads: 1");
    let stage = Stage::open(&policy);
    let mut polite = stage.client();
    assert_eq!(polite.ask("/").status, 200);
    let silent: Vec<_> = (0..3).map(|_| Client::from_address([127, 0, 0, 2], stage.address())).collect();
    // The kernel keeps them back for a second.
    wait_until("they are at the limit", || {
        stage.gateway.counters().open.load(std::sync::atomic::Ordering::Relaxed) == 4
    });
    for _ in 0..3 {
        assert_eq!(polite.ask("/").status, 200);
        assert_eq!(Client::from_address([127, 0, 0, 3], stage.address()).ask("/").status, 200);
    }
    assert_eq!(polite.ask("/").status, 200);
    drop(silent);
}

/// At the limit, the answers to a peer with more than its part say that its connections end. A client whose idle
/// connection is closed instead may just be sending its next request.
#[test]
fn at_the_limit_answers_end_connections_of_a_greedy_peer() {
    let (_node, stage) = Stage::of(Node::answering(ok("x")), &format!("{PLAIN}limits: {{ connections: 4 }}\n"));
    let mut greedy: Vec<_> = (0..3).map(|_| Client::from_address([127, 0, 0, 2], stage.address())).collect();
    for client in &mut greedy {
        assert_eq!(client.ask("/").header("connection"), None);
    }
    let mut polite = stage.client();
    assert_eq!(polite.ask("/").header("connection"), None);
    // The limit is reached. Two connections are the part of each of the two peers.
    assert_eq!(greedy[0].ask("/").header("connection").as_deref(), Some("close"));
    wait_until("it is closed", || stage.gateway.counters().open.load(std::sync::atomic::Ordering::Relaxed) == 3);
    for client in greedy[1..].iter_mut().chain([&mut polite]) {
        assert_eq!(client.ask("/").header("connection"), None);
    }
}

/// At the limit with no idle connection, a request that waits gives way: not one of a class with a guarantee.
#[test]
fn waiting_requests_make_room_for_a_class_within_its_guarantee() {
    let rest = "discipline: { custom: { admit: none, load_control: { fixed: 1 }, precedence: tokens } }\n\
        classes:\n  - { name: gold, match: { path_prefix: /gold }, guarantee: { throughput: 10/s } }\n  - { name: all }\n\
        limits: { connections: 4 }\n";
    let node = Node::scripted();
    let stage = Stage::open(&policy(&[&node], rest).replace("threads: 2", "threads: 1"));
    let mut first = stage.client();
    first.get("/");
    let call = node.call();
    let mut gold = stage.client();
    gold.get("/gold/1");
    wait_until("it waits", || stage.waiting() == 1);
    let mut waiting: Vec<_> = (0..2).map(|_| stage.client()).collect();
    waiting.iter_mut().for_each(|client| client.get("/"));
    wait_until("all wait", || stage.waiting() == 3);
    // The connection that came last gives way to this one.
    let mut another = stage.client();
    another.get("/gold/2");
    let refused = waiting.pop().expect("two").answer();
    assert_eq!((refused.status, refused.header("connection").as_deref()), (503, Some("close")));
    wait_until("the other one waits in its place", || stage.waiting() == 3);
    call.ok("");
    let (mut paths, mut clients) = (Vec::new(), vec![first, gold, another]);
    for _ in 0..3 {
        let call = node.call();
        paths.push(call.line().to_owned());
        call.ok("");
    }
    assert_eq!(paths.iter().filter(|path| path.starts_with("GET /gold/")).count(), 2);
    clients.append(&mut waiting);
    for client in &mut clients {
        assert_eq!(client.answer().status, 200);
    }
}

/// A peer with many connections makes room with a request that waits, before one with few loses an idle connection,
/// which may meet its next request.
#[test]
fn waiting_requests_of_a_greedy_peer_make_room_before_others_idle_connections() {
    let node = Node::scripted();
    let policy = policy(&[&node], &format!("{}limits: {{ connections: 6 }}\n", windowed(1)));
    let stage = Stage::open(&policy.replace("threads: 2", "threads: 1"));
    let ask = |client: &mut Client| {
        client.get("/");
        node.call().ok("");
        client.answer().status
    };
    let mut polite = stage.client();
    assert_eq!(ask(&mut polite), 200);
    let mut greedy: Vec<_> = (0..5).map(|_| Client::from_address([127, 0, 0, 2], stage.address())).collect();
    greedy.iter_mut().for_each(|client| client.get("/"));
    let call = node.call();
    wait_until("the others wait", || stage.waiting() == 4);
    let mut another = Client::from_address([127, 0, 0, 3], stage.address());
    another.get("/another");
    // The one that came last gives way.
    assert_eq!(greedy.pop().expect("five").answer().status, 503);
    call.ok("");
    for _ in 0..4 {
        node.call().ok("");
    }
    greedy.push(another);
    assert!(greedy.iter_mut().all(|client| client.answer().status == 200));
    assert_eq!(ask(&mut polite), 200);
}

#[test]
fn p2_a_gateway_short_of_memory_turns_requests_away_and_recovers() {
    let (node, stage) = Stage::of(Node::answering(ok("x")), PLAIN);
    let mut client = stage.client();
    assert_eq!(client.ask("/").status, 200);
    // No process has so little memory.
    let tiny = policy(&[&node], &format!("{PLAIN}limits: {{ memory: 64KiB }}\n"));
    stage.gateway.reload_site(site(&tiny), &tiny).expect("a good policy");
    let refused = client.ask("/");
    assert_eq!(refused.status, 503);
    assert!(refused.header("retry-after").is_some() && refused.header("proxy-status").is_some());
    // A new connection waits, and is served once memory is available.
    let mut late = stage.client();
    late.get("/late");
    let plain = policy(&[&node], PLAIN);
    stage.gateway.reload_site(site(&plain), &plain).expect("a good policy");
    assert_eq!(late.answer().status, 200);
    // The first connection was idle meanwhile and may have been closed for the waiting one. New connections
    // are served.
    assert_eq!(stage.ask("/").status, 200);
}

/// Environment variable with the node's address for the child process of the next test.
const NODE: &str = "WEIRGATE_TEST_NODE";

#[test]
fn p2_a_gateway_without_file_descriptors_recovers() {
    let node = Node::answering(ok("x"));
    let me = std::env::current_exe().expect("this program");
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -n 64; exec \"$0\" --exact threats::p2_child --ignored --nocapture"])
        .arg(me)
        .env(NODE, node.address.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines().map_while(Result::ok);
    let address = lines.find_map(|l| l.strip_prefix("listening on ").map(str::to_owned)).expect("it serves");
    let address = address.parse().expect("an address");
    // More connections than the gateway has descriptors for. The kernel accepts all of them. Each is served
    // although the clients close none: the gateway closes idle ones, and one descriptor is always left for a
    // node.
    let connect = |_| {
        let mut client = Client::connect(address);
        client.get("/");
        client
    };
    let mut clients: Vec<_> = (0..150).map(connect).collect();
    for client in &mut clients {
        assert_eq!(client.answer().status, 200);
    }
    drop(child.stdin.take());
    assert!(child.wait().expect("its end").success());
}

#[test]
#[ignore = "the child of another test"]
fn p2_child() {
    let Ok(node) = std::env::var(NODE) else { return };
    let text =
        format!("listen: 127.0.0.1:0\nadmin: off\nthreads: 2\nupstreams: {{ web: {{ nodes: [{node}] }} }}\n{PLAIN}");
    let stage = Stage::open(&text);
    println!("listening on {}", stage.address());
    assert_eq!(stage.gateway.connection_limit(), 10);
    let mut end = Vec::new();
    std::io::stdin().read_to_end(&mut end).expect("its input");
}
