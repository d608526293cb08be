//! Transparent interception, in network namespaces: a client, the gateway on the way, and a node with two addresses.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use weirgate_gateway::Ending;

use crate::stage::{Client, Stage, ok};

/// The parts of the network, in the order of its namespaces.
const CLIENT: usize = 0;
const GATEWAY: usize = 1;
const NODE: usize = 2;

/// Three namespaces. Dropping them removes them.
struct Network {
    names: [String; 3],
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "delete", name]).status();
        }
    }
}

/// Runs a command. Spaces separate its words.
fn run(line: &str) -> Result<(), String> {
    let mut words = line.split(' ');
    let output = Command::new(words.next().unwrap_or_default()).args(words).output();
    match output.map_err(|error| format!("{line}: {error}"))? {
        done if done.status.success() => Ok(()),
        done => Err(format!("{line}: {}", String::from_utf8_lossy(&done.stderr).trim())),
    }
}

impl Network {
    /// Makes the network, with a node that answers each request with the addresses of its connection.
    fn new(test: &str) -> Result<Network, String> {
        let names = ["c", "g", "n"].map(|part| format!("weirgate-{test}-{part}-{}", std::process::id()));
        let network = Network { names };
        let [c, g, n] = &network.names;
        for name in &network.names {
            run(&format!("ip netns add {name}"))?;
            run(&format!("ip -n {name} link set lo up"))?;
        }
        let route = || {
            for file in ["ip_forward", "conf/all/rp_filter", "conf/default/rp_filter"] {
                std::fs::write(format!("/proc/sys/net/ipv4/{file}"), if file == "ip_forward" { "1" } else { "0" })?;
            }
            Ok::<_, io::Error>(())
        };
        network.within(GATEWAY, route).map_err(|error| error.to_string())?;
        for (name, link, net) in [(c, "c0", 1), (n, "n0", 2)] {
            run(&format!("ip -n {g} link add {link} type veth peer name e0 netns {name}"))?;
            run(&format!("ip -n {g} address add 10.77.{net}.1/24 dev {link}"))?;
            run(&format!("ip -n {g} link set {link} up"))?;
            run(&format!("ip -n {name} address add 10.77.{net}.2/24 dev e0"))?;
            run(&format!("ip -n {name} link set e0 up"))?;
            run(&format!("ip -n {name} route add default via 10.77.{net}.1"))?;
        }
        run(&format!("ip -n {n} address add 10.77.2.3/24 dev e0"))?;
        // Packets with this mark are for this machine, whatever their address.
        run(&format!("ip -n {g} rule add fwmark 1 lookup 100"))?;
        run(&format!("ip -n {g} route add local default dev lo table 100"))?;
        let listener = network.within(NODE, || TcpListener::bind("0.0.0.0:80")).map_err(|error| error.to_string())?;
        std::thread::spawn(move || listener.incoming().map_while(Result::ok).for_each(answer));
        Ok(network)
    }

    /// Runs `act` in a thread of one of the namespaces. Sockets belong to the namespace in which they were made.
    fn within<T: Send>(&self, part: usize, act: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/run/netns/{}", self.names[part])).expect("the namespace is there");
        std::thread::scope(|threads| {
            let thread = threads.spawn(move || {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may do so");
                act()
            });
            thread.join().expect("no panic")
        })
    }

    /// Adds a rule to a table of netfilter in the gateway's namespace.
    fn rule(&self, rule: &str) -> Result<(), String> {
        run(&format!("ip netns exec {} iptables {rule}", self.names[GATEWAY]))
    }

    fn connect(&self, address: &str) -> Client {
        self.within(CLIENT, || Client::connect(address.parse().expect("an address")))
    }

    fn open(&self, how: &str, upstream: &str) -> Stage {
        let text = format!(
            "listen: {{ address: 0.0.0.0:8080, transparent: {how} }}\nadmin: off\nthreads: 2\n\
             upstreams: {{ site: {{ {upstream} }} }}\ndiscipline: none\nclasses: [{{ name: all }}]\n"
        );
        self.within(GATEWAY, || Stage::open(&text))
    }
}

/// Answers the requests of a connection with the address of its client and its own address.
fn answer(mut stream: std::net::TcpStream) {
    let (Ok(from), Ok(to)) = (stream.peer_addr(), stream.local_addr()) else { return };
    let body = format!("{} {to}", from.ip());
    std::thread::spawn(move || {
        let mut request = [0; 4096];
        while stream.read(&mut request).is_ok_and(|read| read > 0) && stream.write_all(&ok(&body)).is_ok() {}
    });
}

/// Reports that a test cannot run here.
fn skipped(why: &str) {
    let _ = writeln!(io::stderr(), "SKIPPED: transparent interception: {why}");
}

/// Makes a network with this rule, or reports that the test cannot run.
fn with_rule(test: &str, rule: &str) -> Option<Network> {
    let made = Network::new(test).and_then(|network| network.rule(rule).map(|()| network));
    made.map_err(|why| skipped(&why)).ok()
}

const TPROXY: &str = "-t mangle -A PREROUTING -i c0 -p tcp --dport 80 -j TPROXY --on-port 8080 --tproxy-mark 1";
const REDIRECT: &str = "-t nat -A PREROUTING -i c0 -p tcp --dport 80 -j REDIRECT --to-ports 8080";

fn clients_reach_the_addresses_that_they_want(network: &Network, how: &str) {
    let stage = network.open(how, "nodes: original");
    let mut clients = ["10.77.2.2:80", "10.77.2.3:80"].map(|address| (address, network.connect(address)));
    for _ in 0..2 {
        for (address, client) in &mut clients {
            assert_eq!(client.ask("/").text(), format!("10.77.2.1 {address}"), "{how}");
            let record = stage.record();
            assert_eq!((record.client.as_str(), record.node.as_deref()), ("10.77.1.2", Some("original")));
        }
    }
    // A connection to the gateway itself would come back without end.
    let mut client = network.connect("10.77.1.1:8080");
    client.get("/");
    assert_eq!((client.answer().status, stage.record().ending), (502, Ending::Failed("destination_unavailable")));
}

#[test]
fn tproxy_brings_clients_to_the_addresses_that_they_want() {
    if let Some(network) = with_rule("tproxy", TPROXY) {
        clients_reach_the_addresses_that_they_want(&network, "tproxy");
    }
}

#[test]
fn redirect_brings_clients_to_the_addresses_that_they_want() {
    if let Some(network) = with_rule("redirect", REDIRECT) {
        clients_reach_the_addresses_that_they_want(&network, "redirect");
    }
}

#[test]
fn nodes_see_the_addresses_of_clients() {
    let Some(network) = with_rule("from", TPROXY) else { return };
    // Answers of nodes are for this machine, although they go to addresses of clients.
    if let Err(why) = network.rule("-t mangle -A PREROUTING -i n0 -p tcp --sport 80 -j MARK --set-mark 1") {
        return skipped(&why);
    }
    for upstream in ["nodes: original, from_client: true", "nodes: 10.77.2.3:80, from_client: true"] {
        let stage = network.open("tproxy", upstream);
        let mut client = network.connect("10.77.2.3:80");
        for _ in 0..2 {
            assert_eq!(client.ask("/").text(), "10.77.1.2 10.77.2.3:80");
            assert_eq!(stage.record().status, 200);
        }
    }
}
