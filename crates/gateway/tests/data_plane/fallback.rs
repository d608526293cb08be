//! Degraded service: shed requests are served by another upstream, or get a body instead of a refusal.

use weirgate_engine::ShedReason;
use weirgate_gateway::Ending;

use crate::stage::{Call, Client, Node, Stage, wait_until};

/// Starts a gateway with room for one request in flight and one waiting at the site, and the same at a copy.
fn stage(site: &Node, copy: &Node, fallback: &str) -> Stage {
    Stage::open(&format!(
        "listen: 127.0.0.1:0\nadmin: off\nthreads: 1\n\
         upstreams: {{ site: {{ nodes: [{{ address: \"{}\", capacity: 1 }}] }}, copy: {{ nodes: [{{ address: \"{}\", capacity: 1 }}] }} }}\n\
         classes: [{{ name: all, upstream: site, queue: {{ max_waiting: 1 }}, fallback: {fallback} }}]\n\
         discipline: {{ custom: {{ admit: none, load_control: {{ slots: {{ per_cpu: 1 }} }}, precedence: fifo }} }}\n",
        site.address, copy.address
    ))
}

/// Fills the site: of five clients the first has its request in flight there, and the second one waits.
fn full(stage: &Stage, site: &Node) -> (Vec<Client>, Call) {
    let mut clients: Vec<Client> = (0..5).map(|_| stage.client()).collect();
    clients[0].get("/in-flight");
    let in_flight = site.call();
    clients[1].get("/waits");
    wait_until("one waits", || stage.waiting() == 1);
    (clients, in_flight)
}

#[test]
fn what_is_turned_away_is_served_elsewhere_and_then_gets_a_body() {
    let (site, copy) = (Node::scripted(), Node::scripted());
    let stage = stage(&site, &copy, "{ upstream: copy, body: \"a light page\", content_type: text/plain }");
    let (mut clients, in_flight) = full(&stage, &site);

    // The third request has a body, which the other upstream receives completely.
    clients[2].send("POST /copied HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    let copied = copy.call();
    assert_eq!((copied.line(), copied.body.as_slice()), ("POST /copied HTTP/1.1", &b"hello"[..]));
    clients[3].get("/waits-there");
    wait_until("two wait", || stage.waiting() == 2);

    // Both upstreams are full.
    let answer = clients[4].ask("/light");
    assert_eq!((answer.status, answer.text().as_str()), (200, "a light page"));
    assert_eq!(answer.header("content-type").as_deref(), Some("text/plain"));
    let record = stage.record();
    assert_eq!((record.ending, record.path.as_str()), (Ending::Shed(ShedReason::QueueFull), "/light"));

    copied.ok("from the copy");
    assert_eq!(clients[2].answer().text(), "from the copy");
    let record = stage.record();
    assert_eq!((record.class.as_str(), record.ending, record.status), ("all/fallback", Ending::Served, 200));
    copy.call().ok("from the copy, later");
    assert_eq!(clients[3].answer().text(), "from the copy, later");
    in_flight.ok("from the site");
    site.call().ok("from the site, later");
    assert_eq!(
        (clients[0].answer().text(), clients[1].answer().text()),
        ("from the site".into(), "from the site, later".into())
    );
    assert!(site.has_no_call() && copy.has_no_call());
    wait_until("all slots are free", || stage.is_empty());
}

#[test]
fn where_the_other_upstream_has_no_room_the_first_refusal_stands() {
    let (site, copy) = (Node::scripted(), Node::scripted());
    let stage = stage(&site, &copy, "{ upstream: copy }");
    let (mut clients, in_flight) = full(&stage, &site);
    clients[2].get("/");
    let copied = copy.call();
    clients[3].get("/");
    wait_until("two wait", || stage.waiting() == 2);
    let answer = clients[4].ask("/");
    assert_eq!(answer.status, 503);
    assert!(answer.header("proxy-status").is_some_and(|status| status.contains("queue_full")));
    assert_eq!(stage.record().class, "all");
    for call in [in_flight, copied] {
        call.ok("");
    }
    site.call().ok("");
    copy.call().ok("");
    assert!(clients[..4].iter_mut().all(|client| client.answer().status == 200));
}

#[test]
fn a_client_that_leaves_the_other_upstream_frees_its_slot() {
    let (site, copy) = (Node::scripted(), Node::scripted());
    let stage = stage(&site, &copy, "{ upstream: copy }");
    let (_clients, in_flight) = full(&stage, &site);
    let mut leaves = stage.client();
    leaves.get("/copied");
    let copied = copy.call();
    drop(leaves);
    let record = stage.record();
    assert_eq!((record.class.as_str(), record.ending), ("all/fallback", Ending::Left));
    wait_until("only the site's are there", || stage.gateway.control().snapshot().outstanding == 1);
    drop(copied);
    in_flight.ok("");
    site.call().ok("");
    wait_until("all slots are free", || stage.is_empty());
}
