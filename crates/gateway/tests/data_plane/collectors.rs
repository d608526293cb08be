//! Collectors: the nodes' own reports, and the handling of collectors that are dead or report nonsense.

use std::io::{Read, Write};

use weirgate_emulator::{Cluster, Health, NodeSpec};
use weirgate_wire::Active;
use weirgate_wire::admin::Collector;

use crate::stage::{Client, Node, PLAIN, Stage, ok, site, wait_until};

/// Builds a policy with nodes that have collectors, which are asked every 20 ms.
fn policy(nodes: &str, collector: &str) -> String {
    format!(
        "listen: 127.0.0.1:0\nadmin: off\nthreads: 1\nupstreams: {{ web: {{ nodes: [{nodes}], collector: {{ port: \
         node, every: 20ms, timeout: 20ms{collector} }} }} }}\n{PLAIN}"
    )
}

fn open(nodes: &str) -> Stage {
    Stage::open(&policy(nodes, ""))
}

/// Returns the state of the collector of the node at `address`.
fn said(stage: &Stage, address: impl ToString) -> Collector {
    *stage.gateway.collectors().get(&("web".to_owned(), address.to_string())).expect("it is asked")
}

fn report(static_content: u32, dynamic_content: u32) -> Vec<u8> {
    let active = Active { static_content, dynamic_content };
    ok(&weirgate_wire::Report { active, ..Default::default() }.to_json())
}

#[test]
fn an_emulated_nodes_counts_arrive_and_grow_old_when_it_is_gone() {
    let cluster = Cluster::start(vec![NodeSpec::new("n1", 1)], 1).expect("a node");
    let node = cluster.addresses()[0];
    let stage = open(&node.to_string());
    wait_until("it says that it is idle", || said(&stage, node).active == Some(Active::default()));

    // The node makes no progress, so all of these requests stay in flight.
    let mut clients: Vec<Client> = (0..5).map(|_| stage.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.get(if number < 2 { "/?content=static&demand=10s" } else { "/?demand=10s" });
    }
    let busy = Active { static_content: 2, dynamic_content: 3 };
    wait_until("it reports the number in flight", || said(&stage, node).active == Some(busy));
    drop(clients);

    cluster.set_health(0, Health { crashed: true, ..Health::WELL }).expect("it crashes");
    wait_until("its report is stale", || said(&stage, node).stale);
    let stale = said(&stage, node);
    assert!(stale.active.is_some() && stale.failures >= 3, "the last report stays: {stale:?}");
    wait_until("it grows older", || said(&stage, node).age_seconds > stale.age_seconds);

    cluster.set_health(0, Health::WELL).expect("it comes back");
    wait_until("it reports again", || {
        let said = said(&stage, node);
        said.active == Some(Active::default()) && !said.stale
    });
}

#[test]
fn a_stalled_node_misses_its_reports() {
    let cluster = Cluster::start(vec![NodeSpec::new("n1", 1)], 1).expect("a node");
    let node = cluster.addresses()[0];
    cluster.set_health(0, Health { stalled: true, ..Health::WELL }).expect("it stalls");
    let stage = open(&node.to_string());
    wait_until("its report is missed", || said(&stage, node).stale);
    assert_eq!((said(&stage, node).active, said(&stage, node).age_seconds), (None, None));
    cluster.set_health(0, Health::WELL).expect("it goes on");
    wait_until("it reports", || said(&stage, node).active.is_some());
}

#[test]
fn liars_are_missed_reports_and_nothing_else() {
    let huge = ok(&" ".repeat(100_000));
    let nodes = [
        Node::absent(),
        Node::answering(huge),
        Node::answering(ok("{\"version\":1,\"active\":{\"static\":-1,\"dynamic\":0}}")),
        Node::answering("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"),
        // Never ends, with and without a declared length.
        Node::answering("HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n{"),
        Node::raw(|_, mut stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
            loop {
                stream.write_all(&[b' '; 1024])?;
            }
        }),
        Node::raw(|_, mut stream| stream.read_to_end(&mut Vec::new()).map(drop)),
    ];
    let honest = Node::answering(report(1, 2));
    let addresses: Vec<String> = nodes.iter().chain([&honest]).map(|node| node.address.to_string()).collect();
    let stage = open(&addresses.join(", "));
    for node in &nodes {
        wait_until("it is stale", || said(&stage, node.address).stale);
        assert_eq!(said(&stage, node.address).active, None);
    }
    let told = Active { static_content: 1, dynamic_content: 2 };
    wait_until("the honest one is heard", || {
        let said = said(&stage, honest.address);
        said.active == Some(told) && !said.stale
    });
}

#[test]
fn the_question_has_its_path_and_follows_a_reload() {
    let node = Node::replying(move |head, _| {
        assert!(head.starts_with("GET /mine HTTP/1.0\r\n"), "{head}");
        report(5, 0)
    });
    let address = node.address.to_string();
    let stage = Stage::open(&policy(&address, ", path: /mine"));
    wait_until("it is heard", || said(&stage, &address).active.is_some_and(|active| active.static_content == 5));
    let text = policy(&address, "").replace("collector", "idle_timeout: 4s } }\n# collector");
    stage.gateway.reload_site(site(&text), &text).expect("a good policy");
    wait_until("it is not asked any more", || stage.gateway.collectors().is_empty());
}
