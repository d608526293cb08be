//! Gateways of one site as processes, a node for them, load, and a witness who looks at all shares.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;
use weirgate_clock::{Clock, becomes_true, pause};
use weirgate_emulator::{Cluster, NodeSpec};
use weirgate_http_client::blocking::exchange;
use weirgate_http_client::{Address, Limits, Request};
use weirgate_tls::{LiveTrust, Role, Wanted};
use weirgate_wire::admin::{SiteStage, SiteStatus};

use crate::etcd::Etcd;
use crate::load::{LIMIT, Load, PATIENT, Stream};
use crate::net::Net;

/// Time limit of everything that is waited for, ten times the time that a loaded machine needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Throughput that the gateways guarantee together, in requests a second.
pub(crate) const FLOOR: f64 = 100.0;

/// Ports of gateways with the same policy, each in a namespace of its own.
const SHARED_PORT: u16 = 8080;
const ADMIN_PORT: u16 = 9900;

/// CPUs of the node.
pub(crate) const CPUS: u32 = 8;

/// A port that was free a moment ago, and is none of those from 32768 on, which the system gives to outgoing
/// connections.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let of_process = u64::from(std::process::id()) * 97;
    let port = || (10_000 + (of_process + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000) as u16;
    std::iter::repeat_with(port).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}

/// Sends a signal to a process of the test.
pub(crate) fn kill(signal: &str, process: u32) {
    let sent = Command::new("kill").args(["-s", signal, &process.to_string()]).stderr(Stdio::null()).status();
    assert!(sent.is_ok());
}

/// One gateway.
pub(crate) struct Gateway {
    pub(crate) name: String,
    policy: PathBuf,
    listen: SocketAddr,
    /// Its admin API.
    pub(crate) admin: Address,
    process: Option<Child>,
    said: Arc<Mutex<Vec<String>>>,
    /// Clients of the guaranteed class, and of the other one.
    pub(crate) gold: Arc<Stream>,
    pub(crate) rest: Arc<Stream>,
}

impl Gateway {
    /// Starts it, with the policy that it has.
    pub(crate) fn begin(&mut self, net: &Net) {
        let mut command = net.command(&self.name, env!("CARGO_BIN_EXE_weirgate"));
        command.arg("run").arg(&self.policy).env_remove("WEIRGATE_ADMIN_TOKEN").env_remove("NOTIFY_SOCKET");
        let mut process = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let stream = BufReader::new(process.stderr.take().expect("a pipe"));
        let said = Arc::clone(&self.said);
        std::thread::spawn(move || {
            stream.lines().map_while(Result::ok).for_each(|line| said.lock().expect("no panic").push(line));
        });
        self.process = Some(process);
    }

    pub(crate) fn signal(&self, signal: &str) {
        if let Some(process) = &self.process {
            kill(signal, process.id());
        }
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        self.end("KILL");
    }

    /// Ends it, and waits until it has ended.
    pub(crate) fn end(&mut self, signal: &str) {
        self.signal(signal);
        if let Some(mut process) = self.process.take() {
            let _ = process.wait();
        }
    }

    /// The site as it knows it. `None` if it does not answer in time.
    pub(crate) fn site(&self) -> Option<SiteStatus> {
        site(&self.admin)
    }

    /// Lines that it has written with this text.
    pub(crate) fn said(&self, text: &str) -> usize {
        self.said.lock().expect("no panic").iter().filter(|line| line.contains(text)).count()
    }

    /// Its policy file.
    pub(crate) fn policy(&self) -> String {
        std::fs::read_to_string(&self.policy).expect("its policy")
    }

    /// Puts another policy in force.
    pub(crate) fn reload(&self, change: impl FnOnce(String) -> String) {
        std::fs::write(&self.policy, change(self.policy())).expect("the folder is writable");
        self.signal("HUP");
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.signal("CONT");
        self.kill();
    }
}

/// Returns the answer of an admin API.
pub(crate) fn get(admin: &Address, path: &str) -> Option<(u16, Vec<u8>)> {
    let limits = Limits::new(Duration::from_secs(5), 4 << 20);
    let answer = exchange(admin, Request::get("localhost", path), &limits).ok()?;
    Some((answer.status, answer.body.to_vec()))
}

fn site(admin: &Address) -> Option<SiteStatus> {
    let (_, body) = get(admin, "/snapshot")?;
    let page: serde_json::Value = serde_json::from_slice(&body).ok()?;
    serde_json::from_value(page.get("site")?.clone()).ok()
}

/// A site under test.
pub(crate) struct Site {
    pub(crate) etcd: Etcd,
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) net: Net,
    witness: Option<(Arc<AtomicBool>, JoinHandle<f64>)>,
    pub(crate) load: Load,
    node: Cluster,
    folder: TempDir,
}

/// The site to start.
pub(crate) struct Plan<'a> {
    /// Number of gateways. A single one keeps its guarantee alone.
    pub(crate) gateways: usize,
    /// Throughput that they guarantee together, in requests a second.
    pub(crate) floor: f64,
    /// CPU time of a request on the node.
    pub(crate) demand: Duration,
    /// Further lines of the block `site:`.
    pub(crate) more: &'a str,
    /// Whether each process has a network namespace of its own.
    pub(crate) is_apart: bool,
    /// Whether all gateways have the same policy. Then each process has a namespace, too.
    pub(crate) is_shared: bool,
    /// Whether the gateways are no site, and each follows the next one: an active one and standbys.
    pub(crate) follows: bool,
}

impl Plan<'_> {
    /// Gateways on the loopback, whose requests cost nothing.
    pub(crate) fn new(gateways: usize, more: &str) -> Plan<'_> {
        Plan { gateways, floor: FLOOR, demand: Duration::ZERO, more, is_apart: false, is_shared: false, follows: false }
    }

    /// Requests a second that the node can answer.
    pub(crate) fn capacity(&self) -> f64 {
        f64::from(CPUS) / self.demand.as_secs_f64()
    }
}

/// Names of the members of etcd.
const ETCD: [&str; 3] = ["m0", "m1", "m2"];

impl Site {
    /// Starts so many gateways with three members of etcd. `more` is added to the block `site:`. `None` without etcd.
    pub(crate) fn start(count: usize, more: &str) -> Option<Site> {
        Site::of(&Plan::new(count, more))
    }

    /// Starts the gateways of a plan, with three members of etcd. `None` without etcd, or without namespaces.
    pub(crate) fn of(plan: &Plan) -> Option<Site> {
        let names: Vec<String> = (1..=plan.gateways).map(|index| format!("gw{index}")).collect();
        let is_alone = plan.gateways == 1 || plan.follows;
        let members: &[&str] = if is_alone { &[] } else { &ETCD };
        let is_apart = plan.is_apart || plan.is_shared;
        let net = if is_apart {
            let all: Vec<String> = names.iter().cloned().chain(members.iter().map(|name| (*name).to_owned())).collect();
            Net::namespaces(&all)?
        } else {
            Net::Loopback
        };
        let etcd = Etcd::start(members, &net)?;
        let folder = tempfile::tempdir().expect("a folder");
        let node = NodeSpec {
            addresses: vec![SocketAddr::new(net.data(None).parse().expect("an address"), 0)],
            reply_bytes: 2,
            ..NodeSpec::new("node", CPUS)
        };
        let node = Cluster::start(vec![node], 1).expect("a node");
        let address = |name: &String| format!("{name}: \"{}:{}\"", net.control(name), free_port());
        let addresses: Vec<String> = names.iter().map(address).collect();
        if is_apart {
            pki(folder.path(), &["init", "--site", "test"]);
            pki(folder.path(), &["issue", "operator", "test"]);
            names.iter().for_each(|name| pki(folder.path(), &["issue", "gateway", name]));
        }
        let gateway = |name: &String| {
            let port = if plan.is_shared { SHARED_PORT } else { free_port() };
            let listen = SocketAddr::new(net.data(Some(name)).parse().expect("an address"), port);
            let own = folder.path().join(name);
            std::fs::create_dir(&own).expect("the folder is writable");
            let socket = own.join("admin.sock");
            let (host, said, admin) = if plan.is_shared {
                let trust = folder.path().join("issued/operator-test");
                let trust = LiveTrust::load(&trust, &[Role::Operator], None).expect("it was issued");
                let wanted = Wanted { role: Role::Gateway, name: Some(name.clone()) };
                let address = format!("{}:{ADMIN_PORT}", listen.ip());
                let admin = Address::Trusted(address, Arc::new(trust), wanted);
                ("0.0.0.0".to_owned(), format!("0.0.0.0:{ADMIN_PORT}"), admin)
            } else {
                (listen.ip().to_string(), format!("unix:{}", socket.display()), Address::Unix(socket))
            };
            let mut text = format!(
                "listen: {host}:{port}\nadmin: {said}\nthreads: 1\nupstreams: {{ web: {{ nodes: [{}] }} }}\n\
                 classes:\n  - {{ name: gold, match: {{ path_prefix: /gold }}, guarantee: {{ throughput: {}/s, response_time: {{ p95: 300ms }} }} }}\n  \
                 - name: rest\n",
                node.addresses()[0],
                plan.floor
            );
            if is_apart {
                let issued = folder.path().join("issued").join(format!("gateway-{name}"));
                std::os::unix::fs::symlink(issued, own.join("trust")).expect("the folder is writable");
                text += "trust: trust\n";
            }
            if plan.follows {
                let next = names.iter().cycle().skip_while(|other| *other != name).nth(1).expect("another one");
                let socket = folder.path().join(next).join("admin.sock");
                text += &format!("learned_state: {{ follow: \"unix:{}\" }}\n", socket.display());
            }
            if !is_alone {
                text += &format!(
                    "site:\n{}  members: {{ {} }}\n  etcd: {{ endpoints: [{}], insecure: true }}\n{}",
                    if is_apart { String::new() } else { format!("  name: {name}\n") },
                    addresses.join(", "),
                    etcd.endpoints(),
                    plan.more
                );
            }
            let policy = own.join("policy.yaml");
            std::fs::write(&policy, text).expect("the folder is writable");
            let of = |class: &str, limit| {
                Stream::new(listen, format!("/{class}?demand={}us", plan.demand.as_micros()), limit)
            };
            let (gold, rest) = (of("gold", LIMIT), of("rest", PATIENT));
            let (process, said) = (None, Arc::default());
            let mut gateway = Gateway { name: name.clone(), policy, listen, admin, process, said, gold, rest };
            gateway.begin(&net);
            gateway
        };
        let gateways: Vec<Gateway> = names.iter().map(gateway).collect();
        let streams = gateways.iter().flat_map(|gateway| [Arc::clone(&gateway.gold), Arc::clone(&gateway.rest)]);
        let load = Load::start(streams.collect());
        let mut site = Site { etcd, gateways, net, witness: None, load, node, folder };
        site.witness = (!is_alone).then(|| site.watch());
        Some(site)
    }

    /// The address of its node.
    pub(crate) fn node(&self) -> String {
        self.node.addresses()[0].to_string()
    }

    /// The folder of its files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Waits until `condition` holds of the site.
    pub(crate) fn wait(&self, what: &str, mut condition: impl FnMut(&Site) -> bool) {
        let held = becomes_true(PATIENCE, || {
            pause(Duration::from_millis(50));
            condition(self)
        });
        let seen: Vec<_> = self.gateways.iter().map(|gateway| (gateway.listen, gateway.site())).collect();
        assert!(held, "{what}: {seen:#?} {:#?}", self.lines());
    }

    /// Everything that the gateways have written.
    pub(crate) fn lines(&self) -> Vec<Vec<String>> {
        self.gateways.iter().map(|gateway| gateway.said.lock().expect("no panic").clone()).collect()
    }

    /// Sends so many requests a second to each gateway, and waits until their shares cover them.
    pub(crate) fn follows(&self, loads: &[f64]) {
        self.gateways.iter().zip(loads).for_each(|(gateway, load)| gateway.gold.load(*load));
        self.wait(&format!("shares follow {loads:?}"), |site| {
            site.gateways
                .iter()
                .zip(loads)
                .all(|(gateway, load)| gateway.process.is_none() || gateway.holds(0.9 * load))
        });
    }

    /// Index of the gateway that all running ones follow, once there is one.
    pub(crate) fn elected(&self) -> usize {
        let mut found = 0;
        self.wait("one gateway is elected, and grants", |site| {
            let running = site.gateways.iter().filter(|gateway| gateway.process.is_some());
            let seen: Vec<_> = running.map(Gateway::site).collect();
            let Some(Some(name)) = seen.first().map(|one| one.as_ref().and_then(|one| one.coordinator.clone())) else {
                return false;
            };
            let agree = seen.iter().all(|one| {
                one.as_ref()
                    .is_some_and(|one| one.coordinator.as_ref() == Some(&name) && one.stage == SiteStage::Granted)
            });
            found = site.gateways.iter().position(|gateway| gateway.name == name).unwrap_or(0);
            agree && site.gateways[found].process.is_some()
        });
        found
    }

    /// Looks at all shares all the time. Its result is the largest sum that was surely held at one instant.
    fn watch(&self) -> (Arc<AtomicBool>, JoinHandle<f64>) {
        let stop = Arc::new(AtomicBool::new(false));
        let clock = Clock::start();
        let looks: Vec<JoinHandle<Vec<Look>>> = self
            .gateways
            .iter()
            .map(|gateway| {
                let (admin, ends) = (gateway.admin.clone(), Arc::clone(&stop));
                std::thread::spawn(move || {
                    let mut looks = Vec::new();
                    while !ends.load(Ordering::Relaxed) {
                        let from = clock.now();
                        let seen = site(&admin);
                        let share = seen.as_ref().and_then(|site| Some(site.classes.first()?.share_per_second));
                        let changes = seen.map(|site| (site.revision, site.changes));
                        looks.push(Look { from, to: clock.now(), share: share.unwrap_or(0.0), changes });
                        pause(Duration::from_millis(20));
                    }
                    looks
                })
            })
            .collect();
        let sum = std::thread::spawn(move || {
            let looks: Vec<Vec<Look>> = looks.into_iter().map(|looks| looks.join().expect("no panic")).collect();
            largest_sum(&looks)
        });
        (stop, sum)
    }

    /// Ends the looks, and returns the largest sum of all shares, in requests a second.
    pub(crate) fn largest_sum(&mut self) -> f64 {
        let (stop, sum) = self.witness.take().expect("it is called once");
        stop.store(true, Ordering::Relaxed);
        sum.join().expect("no panic")
    }
}

fn pki(folder: &Path, words: &[&str]) {
    let done = Command::new(env!("CARGO_BIN_EXE_weirgate")).arg("pki").args(words).arg("--folder").arg(folder).output();
    let done = done.expect("the binary starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

impl Gateway {
    /// Whether it has at least this share.
    pub(crate) fn holds(&self, per_second: f64) -> bool {
        self.site().is_some_and(|site| site.classes[0].share_per_second >= per_second)
    }
}

/// A share, as seen at some instant between two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    from: Duration,
    to: Duration,
    share: f64,
    /// The elected gateway, and the number of changes. `None` without an answer.
    changes: Option<(u64, u64)>,
}

/// Longest time between two looks with the same number of changes in which no lease can have ended and begun again.
const LEASE: Duration = Duration::from_secs(2);

/// Between two looks that found the same number of changes the share was held all the time. So the sum over all
/// gateways of such shares was held at each instant. Gateways of which that is not known count as nothing.
fn largest_sum(looks: &[Vec<Look>]) -> f64 {
    let mut instants: Vec<Duration> = looks.iter().flatten().map(|look| look.to).collect();
    instants.sort();
    let mut next = vec![0; looks.len()];
    let mut largest = 0.0f64;
    for instant in instants {
        let mut sum = 0.0;
        for (looks, at) in looks.iter().zip(&mut next) {
            while *at + 1 < looks.len() && looks[*at + 1].from <= instant {
                *at += 1;
            }
            // The last look that was over, and the next one that begins later.
            let before = looks[..=*at].iter().rev().find(|look| look.to <= instant);
            let after = looks.get(*at + 1);
            let known = before.zip(after).filter(|(before, after)| {
                after.changes.is_some() && before.changes == after.changes && after.to - before.from < LEASE
            });
            sum += known.map_or(0.0, |(before, after)| before.share.min(after.share));
        }
        largest = largest.max(sum);
    }
    largest
}
