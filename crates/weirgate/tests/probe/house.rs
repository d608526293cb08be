//! Two network namespaces with a link between them, and a control group for a server. The capacity of a
//! real server in each resource is then known, and all of it is removed when the test ends.
//!
//! CPU is limited by a quota, the disk by a throttle, the link by a token bucket. The server has so little
//! memory that its files are read from the disk again and again. All of this uses cgroup v1, as on
//! Weirgate's development machines.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::processes::{becomes_true, say};

/// The trees of cgroup v1 at their usual mount points.
const TREES: [&str; 4] = ["cpu", "cpuacct", "memory", "blkio"];

pub(crate) const CPUS: f64 = 0.5;

/// Bytes per second that the server may read from the disk.
pub(crate) const DISK: u64 = 20 << 20;

/// Bytes per second of the link: 40 Mbit.
pub(crate) const WIRE: u64 = 5_000_000;

/// Memory for the server's processes and a fifth of its album, in bytes.
const MEMORY: u64 = 64 << 20;

/// The server's address, in a network reserved for documentation (RFC 5737) that exists only on this link.
pub(crate) const SERVER: &str = "192.0.2.1";

/// The interface of the server.
pub(crate) const INTERFACE: &str = "wire";

/// The namespaces, the link and the control group.
pub(crate) struct House {
    name: String,
}

impl House {
    /// Builds the house, and moves this thread (with the threads and processes that it starts) to the
    /// clients' end of the link. The control group suits a server with its files in `directory`. If it
    /// cannot be built, prints so and returns `None`.
    pub(crate) fn build(directory: &Path) -> Option<House> {
        let house = House { name: format!("weirgate-probe-{}", std::process::id()) };
        match house.group(directory).and_then(|()| house.wire()) {
            Ok(()) => Some(house),
            Err(why) => {
                say(&format!("SKIPPED: no namespace and control group of v1 for a server: {why}"));
                None
            }
        }
    }

    /// Returns the group's name for `--usage-of`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn group(&self, directory: &Path) -> Result<(), String> {
        let disk = disk(directory)?;
        for tree in TREES {
            let group = self.tree(tree);
            fs::create_dir(&group).map_err(|error| format!("{}: {error}", group.display()))?;
        }
        for (tree, file, text) in [
            ("cpu", "cpu.cfs_period_us", "100000".to_owned()),
            ("cpu", "cpu.cfs_quota_us", format!("{:.0}", CPUS * 100_000.0)),
            ("memory", "memory.limit_in_bytes", MEMORY.to_string()),
            ("blkio", "blkio.throttle.read_bps_device", format!("{disk} {DISK}")),
        ] {
            let file = self.tree(tree).join(file);
            fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        Ok(())
    }

    fn wire(&self) -> Result<(), String> {
        let [server, clients] = self.ends();
        let bucket = ["root", "tbf", "rate", "40mbit", "burst", "32kb", "latency", "400ms"];
        for words in [
            vec!["ip", "netns", "add", &server],
            vec!["ip", "netns", "add", &clients],
            vec![
                "ip", "-n", &server, "link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns",
                &clients,
            ],
            vec!["ip", "-n", &server, "address", "add", &format!("{SERVER}/30"), "dev", INTERFACE],
            vec!["ip", "-n", &clients, "address", "add", "192.0.2.2/30", "dev", INTERFACE],
            vec!["ip", "-n", &server, "link", "set", INTERFACE, "up"],
            vec!["ip", "-n", &clients, "link", "set", INTERFACE, "up"],
            [vec!["tc", "-n", &server, "qdisc", "add", "dev", INTERFACE], bucket.to_vec()].concat(),
        ] {
            run(&words)?;
        }
        let place = format!("/run/netns/{clients}");
        let file = File::open(&place).map_err(|error| format!("{place}: {error}"))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).map_err(|error| error.to_string())
    }

    /// Returns a command at the server's end of the link, in its group if `confined`.
    pub(crate) fn at_server(&self, confined: bool, command: &Command) -> Command {
        let enter = if confined {
            TREES.map(|tree| format!("echo $$ > '{}/cgroup.procs'; ", self.tree(tree).display())).concat()
        } else {
            String::new()
        };
        let mut there = Command::new("nsenter");
        there.arg(format!("--net=/run/netns/{}", self.ends()[0])).args([
            "sh",
            "-c",
            &format!("{enter}exec \"$@\""),
            "sh",
        ]);
        there.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => there.env(name, value),
                None => there.env_remove(name),
            };
        }
        there
    }

    /// Returns the server's use by the kernel's own counters, not the agent's: CPU-seconds, bytes read,
    /// bytes sent.
    pub(crate) fn used(&self) -> [f64; 3] {
        let text = |tree: &str, file: &str| fs::read_to_string(self.tree(tree).join(file)).expect("the group is there");
        let nanos: f64 = text("cpuacct", "cpuacct.usage").trim().parse().expect("a number");
        let throttled = text("blkio", "blkio.throttle.io_service_bytes_recursive");
        let read = throttled.lines().find_map(|line| line.strip_prefix("Total ")).expect("a total");
        let shown = self.at_server(false, Command::new("ip").args(["-s", "link", "show", "dev", INTERFACE]));
        let sent = output(shown).expect("the wire is there");
        // The numbers of RX and of TX each stand in the second line after their heading.
        let after = sent.split("TX:").nth(1).and_then(|rest| rest.lines().nth(1)).unwrap_or_default();
        let sent: f64 = after.split_ascii_whitespace().next().and_then(|word| word.parse().ok()).expect("bytes");
        [nanos / 1e9, read.trim().parse().expect("a number"), sent]
    }

    fn tree(&self, tree: &str) -> PathBuf {
        Path::new("/sys/fs/cgroup").join(tree).join(&self.name)
    }

    fn ends(&self) -> [String; 2] {
        ["server", "clients"].map(|end| format!("{}-{end}", self.name))
    }
}

impl Drop for House {
    fn drop(&mut self) {
        for tree in TREES {
            let text = fs::read_to_string(self.tree(tree).join("cgroup.procs")).unwrap_or_default();
            for process in text.lines() {
                let _ = Command::new("kill").args(["-s", "KILL", process]).stderr(Stdio::null()).status();
            }
        }
        // A group can be removed once its processes are gone, which takes the kernel a moment.
        let gone = || TREES.iter().all(|tree| fs::remove_dir(self.tree(tree)).is_ok() || !self.tree(tree).exists());
        if !becomes_true(gone) {
            say(&format!("the control groups {} are still there", self.name));
        }
        for end in self.ends() {
            let _ = Command::new("ip").args(["netns", "del", &end]).stderr(Stdio::null()).status();
        }
    }
}

/// Returns the disk of a directory, as `MAJOR:MINOR`.
fn disk(directory: &Path) -> Result<String, String> {
    let device = fs::metadata(directory).map_err(|error| error.to_string())?.dev();
    // The kernel packs them in this way (makedev(3)), for numbers below 2^12 and 2^20.
    let (major, minor) = ((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xf_ff00));
    let place = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    if !place.exists() {
        return Err(format!("{} is on no disk; set TMPDIR to a directory that is", directory.display()));
    }
    // Limits apply to whole disks.
    let whole = if place.join("partition").exists() { place.join("../dev") } else { place.join("dev") };
    let text = fs::read_to_string(&whole).map_err(|error| format!("{}: {error}", whole.display()))?;
    Ok(text.trim().to_owned())
}

fn run(words: &[&str]) -> Result<(), String> {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    output(command).map(drop).map_err(|why| format!("{}: {why}", words.join(" ")))
}

fn output(mut command: Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
