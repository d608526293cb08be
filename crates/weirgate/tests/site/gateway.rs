//! Gateways of one site as processes, a node for them, load, and a witness who looks at all shares.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;
use weirgate_clock::{Clock, becomes_true, pause};
use weirgate_http_client::blocking::exchange;
use weirgate_http_client::{Address, Limits, Request};
use weirgate_wire::admin::{SiteStage, SiteStatus};

use crate::etcd::Etcd;

/// Time limit of everything that is waited for, ten times the time that a loaded machine needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Throughput that the gateways guarantee together, in requests a second.
pub(crate) const FLOOR: f64 = 100.0;

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
    policy: std::path::PathBuf,
    listen: SocketAddr,
    pub(crate) admin: String,
    process: Option<Child>,
    said: Arc<Mutex<Vec<String>>>,
    load: Load,
}

impl Gateway {
    /// Starts it, with the policy that it has.
    pub(crate) fn begin(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
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

    /// Requests a second that reach it from now on.
    pub(crate) fn load(&self, per_second: f64) {
        self.load.per_second.store(per_second.to_bits(), Ordering::Relaxed);
    }

    /// Number of requests sent to it so far.
    pub(crate) fn sent(&self) -> u64 {
        self.load.sent.load(Ordering::Relaxed)
    }

    /// The site as it knows it. `None` if it does not answer in time.
    pub(crate) fn site(&self) -> Option<SiteStatus> {
        site(&self.admin)
    }

    /// Lines that it has written with this text.
    pub(crate) fn said(&self, text: &str) -> usize {
        self.said.lock().expect("no panic").iter().filter(|line| line.contains(text)).count()
    }

    /// Puts another policy in force.
    pub(crate) fn reload(&self, change: impl FnOnce(String) -> String) {
        let text = std::fs::read_to_string(&self.policy).expect("its policy");
        std::fs::write(&self.policy, change(text)).expect("the folder is writable");
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
pub(crate) fn get(admin: &str, path: &str) -> Option<(u16, Vec<u8>)> {
    let limits = Limits::new(Duration::from_secs(5), 4 << 20);
    let answer = exchange(&Address::Tcp(admin.to_owned()), Request::get("localhost", path), &limits).ok()?;
    Some((answer.status, answer.body.to_vec()))
}

fn site(admin: &str) -> Option<SiteStatus> {
    let (_, body) = get(admin, "/snapshot")?;
    let page: serde_json::Value = serde_json::from_slice(&body).ok()?;
    serde_json::from_value(page.get("site")?.clone()).ok()
}

/// Clients of a gateway. One alone would wait for each answer before its next request.
const CLIENTS: u32 = 3;

/// Requests to one gateway, evenly spread in time. Failures do not stop them.
struct Load {
    per_second: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(address: SocketAddr) -> Load {
        let (per_second, sent, stop) = (Arc::default(), Arc::default(), Arc::default());
        let client = |_| {
            let (rate, sent, stop) = (Arc::clone(&per_second), Arc::clone(&sent), Arc::clone(&stop));
            std::thread::spawn(move || send(address, &rate, &sent, &stop))
        };
        let clients = (0..CLIENTS).map(client).collect();
        Load { per_second, sent, stop, clients }
    }
}

/// Sends requests to `address` at a part of this rate, until `stop`.
fn send(address: SocketAddr, rate: &AtomicU64, sent: &AtomicU64, stop: &AtomicBool) {
    let (clock, mut due, mut connection) = (Clock::start(), Duration::ZERO, None);
    while !stop.load(Ordering::Relaxed) {
        let now = clock.now();
        let per_second = f64::from_bits(rate.load(Ordering::Relaxed)) / f64::from(CLIENTS);
        if per_second <= 0.0 || now < due {
            due = due.max(now.min(due + Duration::from_millis(100)));
            pause(Duration::from_millis(1));
            continue;
        }
        // Requests that are late by more than a second are left out.
        due = due.max(now.saturating_sub(Duration::from_secs(1))) + Duration::from_secs_f64(1.0 / per_second);
        connection = connection.or_else(|| connect(address));
        sent.fetch_add(u64::from(connection.is_some()), Ordering::Relaxed);
        connection = connection.and_then(ask);
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.drain(..).for_each(|client| drop(client.join()));
    }
}

fn connect(address: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, Duration::from_millis(500)).ok()?;
    // A gateway that is stopped must not stop the load of the others.
    stream.set_read_timeout(Some(Duration::from_millis(500))).ok()?;
    Some(stream)
}

fn ask(mut stream: TcpStream) -> Option<TcpStream> {
    stream.write_all(b"GET /gold HTTP/1.1\r\nHost: a.test\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nok") {
        let mut piece = [0; 512];
        match stream.read(&mut piece) {
            Ok(length) if length > 0 && answer.len() < 4096 => answer.extend_from_slice(&piece[..length]),
            _ => return None,
        }
    }
    Some(stream)
}

/// A node that answers `ok` to everything.
fn node() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().expect("a descriptor"));
                let mut line = String::new();
                while lines.read_line(&mut line).is_ok_and(|length| length > 0) {
                    if line == "\r\n" && stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                        return;
                    }
                    line.clear();
                }
            });
        }
    });
    address
}

/// A site under test.
pub(crate) struct Site {
    pub(crate) etcd: Etcd,
    pub(crate) gateways: Vec<Gateway>,
    witness: Option<(Arc<AtomicBool>, JoinHandle<f64>)>,
    _folder: TempDir,
}

impl Site {
    /// Starts so many gateways with three members of etcd. `more` is added to the block `site:`. `None` without etcd.
    pub(crate) fn start(count: usize, more: &str) -> Option<Site> {
        let etcd = Etcd::start(3)?;
        let folder = tempfile::tempdir().expect("a folder");
        let node = node();
        let members: Vec<String> =
            (1..=count).map(|index| format!("gw{index}: \"127.0.0.1:{}\"", free_port())).collect();
        let gateway = |index: usize| {
            let name = format!("gw{index}");
            let (listen, admin) = (free_port(), format!("127.0.0.1:{}", free_port()));
            let policy = folder.path().join(format!("{name}.yaml"));
            let text = format!(
                "listen: 127.0.0.1:{listen}\nadmin: {admin}\nthreads: 1\nupstreams: {{ web: {{ nodes: [{node}] }} }}\n\
                 classes:\n  - {{ name: gold, match: {{ path_prefix: /gold }}, guarantee: {{ throughput: {FLOOR}/s }} }}\n  \
                 - name: rest\nsite:\n  name: {name}\n  members: {{ {} }}\n  etcd: {{ endpoints: [{}] }}\n{more}",
                members.join(", "),
                etcd.endpoints()
            );
            std::fs::write(&policy, text).expect("the folder is writable");
            let listen = SocketAddr::from(([127, 0, 0, 1], listen));
            let mut gateway =
                Gateway { name, policy, listen, admin, process: None, said: Arc::default(), load: Load::start(listen) };
            gateway.begin();
            gateway
        };
        let gateways: Vec<Gateway> = (1..=count).map(gateway).collect();
        let mut site = Site { etcd, gateways, witness: None, _folder: folder };
        site.witness = Some(site.watch());
        Some(site)
    }

    /// Waits until `condition` holds of the site.
    pub(crate) fn wait(&self, what: &str, mut condition: impl FnMut(&Site) -> bool) {
        let held = becomes_true(PATIENCE, || {
            pause(Duration::from_millis(50));
            condition(self)
        });
        let seen: Vec<_> = self.gateways.iter().map(|gateway| (gateway.listen, gateway.site())).collect();
        let said: Vec<_> = self.gateways.iter().map(|gateway| gateway.said.lock().expect("no panic").clone()).collect();
        assert!(held, "{what}: {seen:#?} {said:#?}");
    }

    /// Sends so many requests a second to each gateway, and waits until their shares cover them.
    pub(crate) fn follows(&self, loads: &[f64]) {
        self.gateways.iter().zip(loads).for_each(|(gateway, load)| gateway.load(*load));
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
                        let share = site(&admin).and_then(|site| Some(site.classes.first()?.share_per_second));
                        looks.push(Look { from, to: clock.now(), share: share.unwrap_or(0.0) });
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
}

/// Between two looks that found the same share, or a larger and a smaller one, the smaller one was held all the time,
/// because a share that falls and rises again in between takes two messages. So the sum over all gateways of the
/// smaller ones was held at each instant that is between two looks of every gateway.
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
            sum += before.zip(after).map_or(0.0, |(before, after)| before.share.min(after.share));
        }
        largest = largest.max(sum);
    }
    largest
}
