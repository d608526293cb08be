//! Every peer as a real process on real sockets: forwarding, removal of nodes, and limits.
//!
//! A peer that is not installed is skipped, and the test prints a note.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use weirgate_emulator::{Cluster, NodeSpec, clock};
use weirgate_experiment::{Arrivals, Experiment, Fate, Profile, Record, Source, load_experiment};
use weirgate_lab::gateways::{Approach, Gateway, Setting};
use weirgate_lab::load::{self, Plan, Sent, Template};

/// Maximum time for an answer of a peer, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns a directory that is removed when dropped. Its path contains a space, as a user's may. Processes of other
/// users may enter it.
fn directory() -> TempDir {
    let open = Permissions::from_mode(0o755);
    tempfile::Builder::new().prefix("weirgate lab ").permissions(open).tempdir().expect("a directory")
}

/// Two classes on two nodes, and a third class on a separate node.
fn experiment(a: &str, b: &str) -> Experiment {
    let text = format!(
        "
policy:
  upstreams:
    shared: {{ nodes: [{{ address: n1:80, capacity: 1 }}, {{ address: n2:80, capacity: 1 }}] }}
    other: {{ nodes: [{{ address: n3:80, capacity: 1 }}] }}
  classes:
    - name: A.1
      upstream: shared
      service_time: 10ms
      guarantee: {{ throughput: {a}/s, response_time: {{ p95: 300ms }} }}
    - name: B-2
      upstream: shared
      service_time: 10ms
      guarantee: {{ throughput: {b}/s, response_time: {{ p95: 500ms }} }}
    - {{ name: rest, upstream: other }}
machines: {{ cpus: 1, concurrency: 50 }}
traffic:
  - {{ class: A.1, rate: 1/s, demand: 10ms }}
  - {{ class: B-2, rate: 1/s, demand: 10ms }}
  - {{ class: rest, rate: 1/s, demand: 10ms }}
phases: [{{ name: all, until: 10s }}]
"
    );
    load_experiment("gateways-test.yaml", &text, Path::new(""), &[]).unwrap_or_else(|e| panic!("{e}")).experiment
}

/// Returns those of these approaches that are installed. Names the others past the output capture of the test runner.
fn installed<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Approach> {
    let parsed = names.into_iter().map(|name| Approach::parse(name).expect("it is sound"));
    parsed
        .filter(|approach| {
            // A test goes on if the line cannot be printed.
            let missing = approach.kind().installed().map_err(|why| {
                let _ = writeln!(std::io::stderr(), "SKIPPED: {approach}: {why}");
            });
            missing.is_ok()
        })
        .collect()
}

/// Returns all installed approaches. Weirgate's own need its program, which this crate does not have. The tests of the
/// command play them.
fn available() -> Vec<Approach> {
    installed(Approach::all().iter().filter(|kind| !kind.is_ours()).map(|kind| kind.name))
}

/// Returns the setting of a peer: no policy file of Weirgate, any CPU.
fn setting<'a>(experiment: &'a Experiment, addresses: &'a [SocketAddr], directory: &'a Path) -> Setting<'a> {
    Setting { experiment, addresses, directory, source: None, cpu: None }
}

fn start(approach: &Approach, experiment: &Experiment, addresses: &[SocketAddr], directory: &Path) -> Gateway {
    approach.start(&setting(experiment, addresses, directory)).unwrap_or_else(|why| panic!("{why}"))
}

/// A node that records the heads of requests with an id. Health checks have no id.
struct Recorder {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    /// Starts the node. Its threads end with their connections, and the last one with the test.
    fn start() -> Recorder {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let heads = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || serve(&stream, &kept));
            }
        });
        Recorder { address, heads }
    }

    /// Returns the heads recorded since the last call.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.heads.lock().expect("nobody panics with it"))
    }
}

/// Starts a peer in front of three nodes. Its directory goes with the test.
fn before_three(approach: &Approach, experiment: &Experiment) -> ([Recorder; 3], TempDir, Gateway) {
    let nodes = [Recorder::start(), Recorder::start(), Recorder::start()];
    let directory = directory();
    let gateway = start(approach, experiment, &nodes.each_ref().map(|node| node.address), directory.path());
    (nodes, directory, gateway)
}

/// Returns the next message head of a connection, or `None` at its end.
fn head(reader: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

fn serve(stream: &TcpStream, heads: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    while let Some(head) = head(&mut reader) {
        if field(&head, "x-request-id").is_some() {
            heads.lock().expect("nobody panics with it").push(head);
        }
        if writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
            return;
        }
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// Sends one request on a new connection and returns the status of the reply.
fn get(address: SocketAddr, class: &str, id: &str) -> u16 {
    get_with(address, class, id, "")
}

/// As [`get`], with further header lines.
fn get_with(address: SocketAddr, class: &str, id: &str, lines: &str) -> u16 {
    let mut stream = TcpStream::connect(address).expect("it accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let request =
        format!("GET /p?q={id} HTTP/1.1\r\nHost: site.test\r\nx-class: {class}\r\nX-Request-Id: {id}\r\n{lines}\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let head = head(&mut BufReader::new(&stream)).expect("it answers");
    head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status line")
}

#[test]
fn requests_arrive_unchanged_at_the_nodes_of_their_pool() {
    let experiment = experiment("50", "50");
    for approach in available() {
        let (nodes, _directory, gateway) = before_three(&approach, &experiment);
        assert!(gateway.version().split(' ').nth(1).is_some_and(|v| v.starts_with(|c: char| c.is_ascii_digit())));
        for (class, places) in [("A.1", 0..2), ("B-2", 0..2), ("rest", 2..3), ("unheard-of", 2..3)] {
            for turn in 0..10 {
                let id = format!("{class}/{turn}");
                assert_eq!(get(gateway.address(), class, &id), 200, "{approach}: {id}");
                let of_node = |(node, of): (usize, &Recorder)| of.take().into_iter().map(move |head| (node, head));
                let arrived: Vec<(usize, String)> = nodes.iter().enumerate().flat_map(of_node).collect();
                let [(node, head)] = arrived.as_slice() else { panic!("{approach}: {id}: {arrived:?}") };
                assert!(places.contains(node), "{approach}: {id} went to node {node}");
                assert!(head.starts_with(&format!("GET /p?q={id} HTTP/1.1\r\n")), "{approach}: {head}");
                assert_eq!(field(head, "x-class"), Some(class), "{approach}");
                assert_eq!(field(head, "x-request-id"), Some(id.as_str()), "{approach}");
                assert_eq!(field(head, "host"), Some("site.test"), "{approach}");
            }
        }
    }
}

#[test]
fn a_node_that_is_out_gets_nothing_until_it_is_back() {
    let experiment = experiment("50", "50");
    for approach in available() {
        let (nodes, _directory, mut gateway) = before_three(&approach, &experiment);
        let send = |gateway: &Gateway| -> Vec<u16> {
            let class = |turn| if turn % 2 == 0 { "A.1" } else { "B-2" };
            (0..40).map(|turn| get(gateway.address(), class(turn), &turn.to_string())).collect()
        };
        gateway.set_out(0, true).unwrap_or_else(|why| panic!("{approach}: {why}"));
        let statuses = send(&gateway);
        assert_eq!(nodes[0].take(), Vec::<String>::new(), "{approach}");
        let reached = nodes[1].take().len();
        if approach.kind().name == "partition" {
            // Half of the requests have no node left.
            assert_eq!((reached, statuses.iter().filter(|status| **status == 503).count()), (20, 20), "{statuses:?}");
        } else {
            assert_eq!((reached, statuses), (40, vec![200; 40]), "{approach}");
        }
        gateway.set_out(0, false).unwrap_or_else(|why| panic!("{approach}: {why}"));
        assert_eq!(send(&gateway), [200; 40], "{approach}");
        assert!(!nodes[0].take().is_empty(), "{approach}: the node does not come back");
        match (approach.kind().name, gateway.reload()) {
            ("nginx", done) => assert_eq!((done, send(&gateway)), (Ok(()), vec![200; 40])),
            (_, refused) => assert!(refused.is_err_and(|why| why.contains("new process")), "{approach}"),
        }
        assert!(gateway.set_out(9, true).is_err_and(|why| why.contains("no node 9")));
        assert_eq!(gateway.ended(), None);
        assert!(gateway.cpu_time() > Duration::ZERO, "{approach}");
    }
}

/// Attempts of one class, from the first second on.
#[derive(Debug, Default)]
struct Tally {
    arrivals: u64,
    served: u64,
    shed: u64,
    /// 95th percentile of the response times of served attempts, in ms.
    p95: f64,
}

impl Tally {
    fn of(sent: &Sent, traffic: u32) -> Tally {
        let after = |record: &&Record| record.traffic == traffic && record.arrived >= clock::SECOND;
        let records: Vec<&Record> = sent.records.iter().filter(after).collect();
        let count = |fate: Fate| records.iter().filter(|record| record.fate == fate).count() as u64;
        let served = records.iter().filter(|record| record.fate == Fate::Served);
        let mut times: Vec<u64> = served.map(|record| record.ended - record.arrived).collect();
        times.sort_unstable();
        let p95 = times.get(times.len() * 95 / 100).map_or(f64::NAN, |nanos| *nanos as f64 / 1e6);
        Tally { arrivals: records.len() as u64, served: count(Fate::Served), shed: count(Fate::Shed), p95 }
    }
}

/// Returns the outcomes of 60/s of A and 400/s of B, each guaranteed 80/s, on nodes that serve 200/s together.
fn overload(approach: &Approach) -> (Tally, Tally) {
    let mut experiment = experiment("80", "80");
    let source = |rate| Source::Open { arrivals: Arrivals::Poisson, rate: Profile::constant(rate) };
    (experiment.traffic[0].source, experiment.traffic[1].source) = (source(60.0), source(400.0));
    experiment.traffic.truncate(2);
    experiment.phases[0].until = Duration::from_secs(5);
    let spec = |name: &str| NodeSpec { concurrency: Some(50), ..NodeSpec::new(name, 1) };
    let cluster = Cluster::start(vec![spec("n1"), spec("n2"), spec("n3")], 1).expect("nodes start");
    let directory = directory();
    let mut gateway = start(approach, &experiment, cluster.addresses(), directory.path());
    let plan = Plan {
        experiment: &experiment,
        seed: 1,
        target: gateway.address(),
        templates: &[Template::emulated(&experiment, 0), Template::emulated(&experiment, 1)],
        start: clock::now() + clock::SECOND / 50,
        cpu: None,
        connections: 1000,
        max_requests: 1_000_000,
    };
    let sent = load::start(&plan).expect("it starts").join().expect("it ends");
    let begun = clock::now();
    while let Some(state) = gateway.state() {
        // Each of the three nodes has a bounded number of slots. Requests that the end of the load cut off leave
        // the gateway soon.
        assert!(state.window.is_some_and(|window| window >= 3), "{approach}: {state:?}");
        if state.outstanding == 0 {
            break;
        }
        assert!(clock::now() - begun < clock::nanos(PATIENCE), "{approach}: {state:?}");
        clock::pause(Duration::from_millis(10));
    }
    (Tally::of(&sent, 0), Tally::of(&sent, 1))
}

#[test]
fn an_overloaded_class_is_limited_where_the_peer_claims_to() {
    for approach in available() {
        let (a, b) = overload(&approach);
        let served = |tally: &Tally| tally.served as f64 / tally.arrivals as f64;
        let p95 = |tally: &Tally| tally.p95;
        let figures = format!("{approach}: A {a:?}, B {b:?}");
        println!("{figures}");
        match approach.kind().name {
            // It has no limit per class, so A waits behind B's requests.
            "haproxy-leastconn" => assert!(p95(&a) > 300.0, "{figures}"),
            "haproxy-tuned" => {
                assert!(served(&a) > 0.98 && p95(&a) < 300.0, "{figures}");
                assert!(b.shed > 0 && p95(&b) < 500.0, "{figures}");
            }
            "partition" | "haproxy-classes" | "nginx" => {
                assert!(served(&a) > 0.98 && p95(&a) < 300.0 && served(&b) < 0.8, "{figures}")
            }
            // It has a minimum limit for each class, and no queue in which a burst of A could wait.
            "envoy-adaptive" => assert!(b.shed > 0 && served(&a) > 1.5 * served(&b), "{figures}"),
            // Slots and queue belong to the class. While it measures, a burst of A has only these slots.
            "envoy-classes" => assert!(b.shed > 0 && served(&a) > 0.9 && served(&b) < 0.8, "{figures}"),
            // It rejects any class that misses its deadline, whatever its guarantee.
            "envoy-admission" => assert!(b.shed > 0 && p95(&b) < 500.0, "{figures}"),
            other => panic!("nothing is known of {other}"),
        }
    }
}

#[test]
fn nothing_is_left_of_a_peer_that_is_dropped_also_in_a_panic() {
    let experiment = experiment("50", "50");
    for approach in available() {
        let (_nodes, _directory, gateway) = before_three(&approach, &experiment);
        let address = gateway.address();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _gateway = gateway;
            panic!("this is meant");
        }));
        assert!(panicked.is_err());
        // Any of its processes would keep the listener open.
        assert!(TcpStream::connect(address).is_err(), "{approach} still accepts at {address}");
    }
}

#[test]
fn what_a_peer_says_of_its_configuration_is_passed_on() {
    let mut experiment = experiment("50", "50");
    // HAProxy counts milliseconds in 31 bits, which is 24 days.
    experiment.site.classes[0].timeouts.first_byte = Duration::from_secs(3_000_000);
    let addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 1)); 3];
    let directory = directory();
    let setting = setting(&experiment, &addresses, directory.path());
    for approach in available().into_iter().filter(|approach| approach.kind().name == "haproxy-tuned") {
        let error = approach.start(&setting).expect_err("no time is that long");
        assert!(error.contains("refuses its configuration") && error.contains("timer overflow"), "{error}");
    }
}

#[test]
fn what_cannot_be_told_is_said_before_anything_starts() {
    let mut experiment = experiment("50", "50");
    experiment.site.policy.nodes.iter_mut().for_each(|node| node.capacity = None);
    experiment.site.policy.classes[0].service_time = None;
    let addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 1)); 3];
    let directory = directory();
    let setting = setting(&experiment, &addresses, directory.path());
    for approach in available() {
        let words = match approach.kind().name {
            "haproxy-tuned" => "haproxy-tuned: pool shared: maxconn: a multiple needs `service_time`",
            "partition" => "partition: class A.1 has no `service_time`",
            "haproxy-classes" => "haproxy-classes: class A.1: maxconn: a multiple needs `service_time`",
            "nginx" => "nginx: class A.1: conn: a multiple needs",
            "envoy-classes" => "envoy-classes: class A.1: requests: a multiple needs `service_time`",
            _ => continue,
        };
        let error = approach.start(&setting).err().unwrap_or_else(|| panic!("{approach} has been told"));
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn without_service_times_a_peer_can_be_told_the_workers() {
    let mut experiment = experiment("50", "50");
    experiment.site.policy.nodes.iter_mut().for_each(|node| node.capacity = None);
    experiment.site.policy.classes.iter_mut().for_each(|class| class.service_time = None);
    for approach in installed([
        "haproxy-tuned:maxconn=workers",
        "haproxy-classes:maxconn=workers",
        "nginx:conn=workers,rest=4,max_conns=workers",
        "envoy-classes:requests=workers",
    ]) {
        let (_nodes, _directory, gateway) = before_three(&approach, &experiment);
        assert_eq!(get(gateway.address(), "A.1", "1"), 200, "{approach}");
    }
}

#[test]
fn one_client_address_is_limited_where_the_peer_is_told_so() {
    let names = ["haproxy-leastconn:source=1", "haproxy-tuned:source=1", "nginx:source=1", "envoy-classes:source=1"];
    for approach in installed(names) {
        let (_nodes, _directory, gateway) = before_three(&approach, &experiment("50", "50"));
        let ask = |source: &str, number: u32| {
            let line = format!("X-Forwarded-For: {source}\r\n");
            get_with(gateway.address(), "A.1", &format!("{source}-{number}"), &line)
        };
        // Ten seconds' worth may come at once: a few more than that, for the seconds that this takes.
        let greedy: Vec<u16> = (0..60).map(|number| ask("10.0.0.1", number)).collect();
        assert!(greedy[..10].iter().all(|status| *status == 200), "{approach}: {greedy:?}");
        assert!(greedy.iter().filter(|status| **status == 429).count() >= 20, "{approach}: {greedy:?}");
        assert_eq!(ask("10.0.0.2", 0), 200, "{approach}: another address");
    }
}
