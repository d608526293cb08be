//! `weirgate agent POLICY` as a process: with real cgroups and busy processes in them, and with coordinators
//! that come and go.

// Other tests use more of it.
#[allow(dead_code)]
#[path = "../processes/mod.rs"]
mod processes;

mod groups;
#[path = "../processes/head.rs"]
mod head;
mod scripted;
mod trusted;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use groups::Groups;
use processes::{Directory, Process, free_address, say};
use scripted::Coordinator;

/// Writes a policy with three classes of a node and its coordinator at `coordinator`.
fn policy(directory: &Directory, coordinator: SocketAddr) -> PathBuf {
    let text = format!(
        "reserves:\n  listen: {coordinator}\n  nodes: [n1]\n  classes:\n\
         \x20   - {{ name: gold, share: 79%, cgroup: gold }}\n\
         \x20   - {{ name: rest, share: 20%, cgroup: rest }}\n\
         \x20   - {{ name: made, share: 1%, cgroup: made, create: true }}\n"
    );
    directory.write("policy.yaml", &text)
}

/// Starts an agent of node n1 with its state in the directory. It also serves a collector's reports.
fn agent(directory: &Directory, policy: &Path, root: &str, more: &[&str]) -> Process {
    let listen = free_address();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
    command.arg("agent").arg(policy).args(["--node", "n1", "--cgroup-root", root, "--cpus", "1"]);
    command.arg("--state").arg(directory.path().join("state")).args(more);
    command.args(["--port", &listen.port().to_string(), "--listen", &listen.to_string()]);
    Process::start(command, directory, listen)
}

#[test]
fn cpu_time_follows_the_shares_and_all_is_as_it_was_in_the_end() {
    let Some(mut groups) = Groups::make("follows", &["gold", "rest"]) else { return };
    let (directory, address) = (Directory::new(), free_address());
    let policy = policy(&directory, address);
    ["gold", "rest"].iter().for_each(|group| groups.work(group));
    let mut coordinator = Coordinator::start(address);
    let mut first = agent(&directory, &policy, groups.root(), &[]);
    assert_eq!(coordinator.session().node, "n1");
    let report = coordinator.report();
    assert_eq!(
        (report.measured.run, report.measured.usage.len(), report.node.memory_total > 0),
        (0, 3, true),
        "{report:?}"
    );
    assert!((report.measured.allocation[0] - 100.0 / 3.0).abs() < 0.1, "what is in force is adopted: {report:?}");
    // Connections are counted independently of the windows, so the first count may follow the first report.
    let mut reports = std::iter::repeat_with(|| coordinator.report()).take(20);
    let counted = reports.find(|report| report.node.active_static.is_some()).expect("a count within five seconds");
    assert!(counted.node.active_static == Some(0) && counted.node.active_dynamic.is_some(), "{counted:?}");

    // 80 to 20 for the two busy classes.
    coordinator.shares(1, &[79.2, 19.8, 1.0]);
    coordinator.report_of(1);
    let used = |groups: &Groups| ["gold", "rest"].map(|group| groups.used(group));
    let before = used(&groups);
    let reports: Vec<_> = (0..8).map(|_| coordinator.report().measured).collect();
    let after = used(&groups);
    let [gold, rest] = [0, 1].map(|class| (after[class] - before[class]) as f64);
    let share = 100.0 * gold / (gold + rest);
    say(&format!(
        "gold was promised 80 % of what two workers use and used {share:.2} % ({:.2} s in all)",
        (gold + rest) / 1e9
    ));
    assert!((share - 80.0).abs() < 3.0, "{share} %");
    assert!(reports.iter().all(|report| report.run == 1 && report.allocation == [79.2, 19.8, 1.0]), "{reports:?}");
    assert!(reports.iter().all(|report| report.seconds >= 0.25), "{reports:?}");

    first.stop("KILL");
    let in_force = ["gold", "rest", "made"].map(|group| groups.share(group));
    assert_eq!(in_force, [Some(207_618), Some(51_905), Some(2621)], "a killed agent leaves its shares");
    let mut second = agent(&directory, &policy, groups.root(), &[]);
    coordinator.session();
    let report = coordinator.report().measured;
    assert!((report.allocation[0] - 79.2).abs() < 0.01 && report.run == 0, "the next adopts them: {report:?}");
    assert_eq!(second.stop("TERM").code(), Some(0), "{}", second.output());
    assert_eq!(["gold", "rest", "made"].map(|group| groups.share(group)), [Some(1024), Some(1024), None]);
    let left: Vec<_> = fs::read_dir(directory.path().join("state")).expect("it was made").flatten().collect();
    assert!(left.iter().all(|file| file.file_name() == "agent-n1.lock"), "{left:?}");
}

/// Creates a directory that looks like the root of a cgroup v2 with groups `gold`, `rest` and `made`.
fn tree(directory: &Directory) -> PathBuf {
    let root = directory.path().join("cgroup");
    for group in ["", "gold", "rest", "made"] {
        fs::create_dir_all(root.join(group)).expect("a directory");
        for (file, text) in [
            ("cgroup.controllers", "cpu\n"),
            ("cgroup.events", "populated 1\n"),
            ("cpu.stat", "usage_usec 5\n"),
            ("cpu.weight", "100\n"),
        ] {
            fs::write(root.join(group).join(file), text).expect("a file");
        }
    }
    root
}

fn weights(root: &Path) -> [String; 2] {
    ["gold", "rest"].map(|group| fs::read_to_string(root.join(group).join("cpu.weight")).expect("it is there"))
}

#[test]
fn coordinators_may_come_and_go() {
    let (directory, address) = (Directory::new(), free_address());
    let policy = policy(&directory, address);
    let root = tree(&directory);
    let mut agent = agent(&directory, &policy, root.to_str().expect("UTF-8"), &["--keep"]);
    // The agent started before the coordinator.
    let mut coordinator = Coordinator::start(address);
    coordinator.session();
    coordinator.shares(5, &[70.0, 29.0, 1.0]);
    coordinator.report_of(5);
    assert_eq!(weights(&root), ["7000", "2900"]);
    // Shares of another policy change nothing, and end the session.
    coordinator.shares(6, &[50.0, 50.0]);
    coordinator.session();
    let report = coordinator.report().measured;
    assert_eq!((report.run, report.allocation), (5, vec![70.0, 29.0, 1.0]), "a new coordinator can carry on");
    assert_eq!(weights(&root), ["7000", "2900"]);
    drop(coordinator);
    let mut coordinator = Coordinator::start(address);
    coordinator.session();
    coordinator.shares(9, &[10.0, 89.0, 1.0]);
    coordinator.report_of(9);
    assert_eq!(weights(&root), ["1000", "8900"]);
    assert_eq!(agent.stop("INT").code(), Some(0));
    assert_eq!(weights(&root), ["1000", "8900"], "--keep leaves them");
    let said = agent.output();
    for words in [
        "cannot be reached",
        "the last shares stay in force",
        "give both sides the same policy",
        "the shares stay in force",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn what_cannot_work_is_refused_at_the_start() {
    let directory = Directory::new();
    let root = tree(&directory);
    let sound = policy(&directory, "127.0.0.1:9".parse().expect("an address"));
    let open = directory.write(
        "open.yaml",
        "reserves: {coordinator: 'm.test:9', nodes: [n1], classes: [{name: a, share: 9%, cgroup: a}]}",
    );
    let plain = directory.write(
        "plain.yaml",
        "listen: 127.0.0.1:0\nupstreams: {a: {nodes: '127.0.0.1:9'}}\nclasses: [{name: a, upstream: a}]",
    );
    let state = directory.path().join("state");
    let (file, gone) = (directory.write("file", ""), directory.path().join("gone"));
    let [sound, open, plain, root, state, file, gone] =
        [&sound, &open, &plain, &root, &state, &file, &gone].map(|path| path.to_str().expect("UTF-8"));
    for (args, code, words) in [
        (vec![sound], 2, "--node"),
        (vec![sound, "--node", "n7"], 1, "no node \"n7\"; it has n1"),
        (vec![gone, "--node", "n1"], 1, "cannot be read"),
        (vec![plain, "--node", "n1"], 1, "has no `reserves`"),
        (vec![open, "--node", "n1", "--cgroup-root", root], 1, "`weirgate pki`"),
        (vec![sound, "--node", "n1", "--cgroup-root", gone], 1, "is no cgroup root"),
        (vec![sound, "--node", "n1", "--cgroup-root", root, "--state", file], 1, "--state"),
        (vec![sound, "--node", "n1", "--cpus", "0"], 2, "--cpus"),
        (vec!["--node", "n1"], 2, "POLICY"),
        (vec!["--keep", "--port", "80"], 2, "POLICY"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
        let ended = command
            .arg("agent")
            .args(["--state", state].iter().filter(|_| !args.contains(&"--state")))
            .args(&args)
            .output();
        let ended = ended.expect("it starts");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(code) && said.contains(words), "{args:?}: {said}");
    }
}
