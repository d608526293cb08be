//! `cargo xtask release --check`: the Debian package in a Debian of its own, which systemd boots.
//!
//! The package is installed, upgraded [`UPGRADES`] times while clients send requests, and purged. No request may fail.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::{Release, VERSION, packages};
use crate::exchange::{Client, Node};
use crate::steps::{becomes_true, read, show};

/// Number of upgrades under load.
const UPGRADES: u32 = 5;

/// Release of Debian that the package is tried on.
const DEBIAN: &str = "bookworm";

/// Its packages besides the smallest set that apt needs.
const INCLUDED: &str = "systemd,systemd-sysv,dbus,procps";

/// Addresses of the first policy: the gateway's, and its node's.
const GATEWAY: u16 = 8080;
const NODE: u16 = 8000;

/// Clients that send one request after another.
const CLIENTS: usize = 8;

/// Requests on a connection before a client opens another one, so that both ways of a request are tried.
const REQUESTS_PER_CONNECTION: u64 = 20;

/// Requests that are served between two upgrades.
const BETWEEN: u64 = 500;

/// Programs of the machine, for commands that come from outside.
const PATH: &str = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";

/// Tries `deb`.
pub(super) fn run(release: &Release, deb: &Path) -> Result<(), String> {
    if read(Command::new("id").arg("-u"))?.trim() != "0" {
        return Err("--check boots a system, which only root may do".to_owned());
    }
    for (program, package) in [("mmdebstrap", "mmdebstrap"), ("systemd-nspawn", "systemd-container")] {
        read(Command::new(program).arg("--version"))
            .map_err(|why| format!("--check: {why}: apt-get install {package}"))?;
    }
    // Kept, because it comes over the network.
    let base = crate::root().join(format!("target/dist/{DEBIAN}.tar"));
    if !base.exists() {
        let include = format!("--include={INCLUDED}");
        show(Command::new("mmdebstrap").args(["--quiet", "--variant=minbase", &include, DEBIAN]).arg(&base))?;
    }
    let root = release.work.join("root");
    super::empty(&root)?;
    show(Command::new("tar").arg("--extract").arg("--file").arg(&base).arg("--directory").arg(&root))?;
    let name = |file: &Path| file.file_name().map(PathBuf::from).unwrap_or_default();
    fs::copy(deb, root.join(name(deb))).map_err(|e| format!("{}: {e}", deb.display()))?;
    for nth in 1..=UPGRADES + 1 {
        packages::repack(release, &root, &format!("{VERSION}+{nth}"))?;
    }
    // The ports of the first policy may be in use here.
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    show(
        Command::new("unshare")
            .args(["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"])
            .arg(program)
            .args(["release", "--inside"])
            .arg(&release.work),
    )
}

/// The part that runs in a network of its own. `work` holds the root of the machine, with the packages.
pub(super) fn inside(work: &Path) -> Result<(), String> {
    let root = work.join("root");
    let machine = Machine::boot(&root, &work.join("console"))?;
    let packages = packages_in(&root)?;
    let [first, upgrades @ .., last] = &packages[..] else { return Err("no packages".to_owned()) };
    let install = |package: &String| machine.run(&["dpkg", "--install", &format!("/{package}")]);

    println!("   {}", install(first)?);
    machine.expect("active", &["systemctl", "is-active", "weirgate"])?;
    machine.expect("enabled", &["systemctl", "is-enabled", "weirgate"])?;
    machine.expect("640 root weirgate", &["stat", "--format=%a %U %G", "/etc/weirgate/policy.yaml"])?;
    let answers = |wanted: &str| becomes_true(|| status() == Ok(wanted.to_owned()));
    if !answers("503") {
        return Err(format!("the first policy answers {:?}, not 503", status()));
    }
    let node = Node::at(NODE)?;
    if !answers("200") {
        return Err(format!("with a node the first policy answers {:?}, not 200", status()));
    }
    println!("   installed: the first policy answers 503 without a node, and 200 with one");

    machine.run(&["sh", "-c", "echo '# edited' >> /etc/weirgate/policy.yaml"])?;
    machine.run(&["systemctl", "reload", "weirgate"])?;
    let load = Load::start();
    let mut process = machine.process()?;
    for package in upgrades {
        load.more(BETWEEN)?;
        let said = install(package)?;
        let now = machine.process()?;
        if now == process {
            return Err(format!("{package} has not taken over from process {process}: {said}"));
        }
        println!("   {package}: process {now} has taken over from {process}");
        process = now;
    }
    load.more(BETWEEN)?;
    machine.run(&["sh", "-c", "echo 'klasses: []' >> /etc/weirgate/policy.yaml"])?;
    let said = install(last)?;
    if !said.contains("the new version refuses /etc/weirgate/policy.yaml") || machine.process()? != process {
        return Err(format!("with a broken policy the old version does not serve on: {said}"));
    }
    load.more(BETWEEN)?;
    machine.run(&["sed", "-i", "/klasses/d", "/etc/weirgate/policy.yaml"])?;
    println!("   with a broken policy process {process} serves on. Corrected: {}", machine.run(&[HAND_OVER])?);
    load.more(BETWEEN)?;
    let (served, failed) = load.stop();
    println!("   {served} requests served, {} failed", failed.len());
    if !failed.is_empty() {
        return Err(format!("requests failed in upgrades: {:?}", &failed[..failed.len().min(5)]));
    }
    machine.run(&["grep", "--quiet", "# edited", "/etc/weirgate/policy.yaml"])?;
    drop(node);

    machine.run(&["dpkg", "--purge", "weirgate"])?;
    if Client::connect(GATEWAY).is_ok() {
        return Err("a purged gateway still serves".to_owned());
    }
    let left = machine.run(&[
        "sh",
        "-c",
        "ls -d /usr/*/weirgate* /usr/*/*/*/weirgate* /etc/weirgate /var/*/weirgate 2>&1 | grep -v 'No such' || true",
    ])?;
    if !left.trim().is_empty() {
        return Err(format!("a purged package leaves {left}"));
    }
    println!("   purged: nothing is left");
    Ok(())
}

const HAND_OVER: &str = "/usr/lib/weirgate/hand-over";

/// Names of the packages in `root`, the oldest version first.
fn packages_in(root: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(root).map_err(|e| format!("{}: {e}", root.display()))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".deb")).collect();
    // `0.1.0_amd64` sorts behind `0.1.0+1_amd64`.
    names.sort_by_key(|name| name.replace('_', "!"));
    Ok(names)
}

/// Status of one request to the gateway.
fn status() -> Result<String, String> {
    Client::connect(GATEWAY)?.ask("/", "")
}

/// A system that systemd has booted.
struct Machine {
    nspawn: Child,
    /// Its first process, as seen from here.
    leader: String,
}

impl Machine {
    fn boot(root: &Path, console: &Path) -> Result<Machine, String> {
        let log = File::create(console).map_err(|e| format!("{}: {e}", console.display()))?;
        let errors = log.try_clone().map_err(|e| e.to_string())?;
        let mut command = Command::new("systemd-nspawn");
        command.args(["--register=no", "--keep-unit", "--boot", "--console=pipe", "--machine=weirgate-trial", "-D"]);
        let child = command.arg(root).stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
        let nspawn = child.map_err(|e| format!("systemd-nspawn: {e}"))?;
        let children = format!("/proc/{0}/task/{0}/children", nspawn.id());
        let mut machine = Machine { nspawn, leader: String::new() };
        let first = || fs::read_to_string(&children).ok()?.split_whitespace().next().map(str::to_owned);
        becomes_true(|| {
            machine.leader = first().unwrap_or_default();
            // A unit that fails on this kernel is no obstacle.
            let state = machine.output(&["systemctl", "is-system-running"]).unwrap_or_default();
            ["running", "degraded"].contains(&state.trim())
        });
        match machine.run(&["systemctl", "is-system-running"]) {
            Err(why) if !why.contains("degraded") => {
                Err(format!("the machine does not boot: {why}: {}", console.display()))
            }
            _ => Ok(machine),
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.leader, "--mount", "--uts", "--ipc", "--pid", "--", "env", "-i", PATH]);
        command.arg("DEBIAN_FRONTEND=noninteractive").args(words).stdin(Stdio::null());
        command
    }

    /// Both outputs of a command, even if it fails.
    fn output(&self, words: &[&str]) -> Result<String, String> {
        let output = self.command(words).output().map_err(|e| format!("nsenter: {e}"))?;
        Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned())
    }

    /// Runs a command to its end, and returns both outputs.
    fn run(&self, words: &[&str]) -> Result<String, String> {
        let output = self.command(words).output().map_err(|e| format!("nsenter: {e}"))?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned();
        if output.status.success() {
            Ok(said)
        } else {
            Err(format!("`{}`: {}: {said}", words.join(" "), output.status))
        }
    }

    fn expect(&self, wanted: &str, words: &[&str]) -> Result<(), String> {
        let said = self.output(words)?;
        if said == wanted { Ok(()) } else { Err(format!("`{}`: {said}, not {wanted}", words.join(" "))) }
    }

    /// The process in charge.
    fn process(&self) -> Result<String, String> {
        self.run(&["systemctl", "show", "--property=MainPID", "--value", "weirgate"])
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.output(&["systemctl", "poweroff"]);
        becomes_true(|| !matches!(self.nspawn.try_wait(), Ok(None)));
        let _ = self.nspawn.kill();
        let _ = self.nspawn.wait();
    }
}

/// Clients that send requests all the time.
struct Load {
    state: Arc<LoadState>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct LoadState {
    ended: AtomicBool,
    served: AtomicU64,
    failed: Mutex<Vec<String>>,
}

impl Load {
    fn start() -> Load {
        let state: Arc<LoadState> = Arc::default();
        let threads = (0..CLIENTS).map(|_| {
            let state = Arc::clone(&state);
            std::thread::spawn(move || {
                while !state.ended.load(Ordering::Relaxed) {
                    if let Err(why) = state.connection() {
                        state.failed.lock().unwrap_or_else(PoisonError::into_inner).push(why);
                    }
                }
            })
        });
        Load { threads: threads.collect(), state }
    }

    /// Waits until `number` more requests are served.
    fn more(&self, number: u64) -> Result<(), String> {
        let wanted = self.state.served.load(Ordering::Relaxed) + number;
        match becomes_true(|| self.state.served.load(Ordering::Relaxed) >= wanted) {
            true => Ok(()),
            false => Err("requests are no longer served".to_owned()),
        }
    }

    /// Returns the number of requests that were served, and why others were not.
    fn stop(self) -> (u64, Vec<String>) {
        self.state.ended.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let _ = thread.join();
        }
        let failed = std::mem::take(&mut *self.state.failed.lock().unwrap_or_else(PoisonError::into_inner));
        (self.state.served.load(Ordering::Relaxed), failed)
    }
}

impl LoadState {
    /// The requests of one connection.
    fn connection(&self) -> Result<(), String> {
        let mut client = Client::connect(GATEWAY)?;
        for _ in 0..REQUESTS_PER_CONNECTION {
            match client.ask("/", "")?.as_str() {
                "200" => self.served.fetch_add(1, Ordering::Relaxed),
                status => return Err(format!("status {status}")),
            };
        }
        Ok(())
    }
}
