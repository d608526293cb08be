//! Tests of the classes on a v2 tree of plain files, and on this machine's cgroup v1 if it has one.

use std::fs;

use tempfile::{TempDir, tempdir};
use weirgate_reserves::{Cluster, ClusterClass};

use super::*;
use weirgate_cgroup::{V1, V2};

/// Memory of the emulated node: 1 GiB, so that 1 % is a little more than 10 MiB.
const MEMORY: u64 = 1 << 30;

/// Builds a policy with one node and these classes, given by name and cgroup. A name with `+` creates the
/// cgroup.
fn policy(classes: &[(&str, &str)]) -> Cluster {
    let class = |(name, cgroup): &(&str, &str)| ClusterClass {
        name: name.trim_end_matches('+').to_owned(),
        share: 10.0,
        cgroup: (*cgroup).to_owned(),
        create: name.ends_with('+'),
        nodes: None,
    };
    let text = "reserves: {nodes: [n1, n2], classes: [{name: x, share: 1%, cgroup: x}]}";
    let site = weirgate_config::load("policy.yaml", text).expect("sound").site;
    Cluster { classes: classes.iter().map(class).collect(), ..site.reserves.expect("it has them").cluster }
}

/// A tree of plain files with groups that look like those of cgroup v2.
struct Fake {
    tree: TempDir,
    state: TempDir,
}

impl Fake {
    fn new(groups: &[&str]) -> Fake {
        let fake = Fake { tree: tempdir().expect("a directory"), state: tempdir().expect("a directory") };
        fake.write("cgroup.controllers", "cpu io memory\n");
        groups.iter().for_each(|group| fake.group(group, "100"));
        fake
    }

    fn group(&self, name: &str, weight: &str) {
        fs::create_dir_all(self.tree.path().join(name)).expect("a directory");
        for (file, text) in [
            ("cpu.weight", weight),
            ("cpu.stat", "usage_usec 1000\nuser_usec 0\n"),
            ("cgroup.events", "populated 1\nfrozen 0\n"),
            ("cgroup.controllers", "cpu io memory\n"),
        ] {
            self.write(&format!("{name}/{file}"), text);
        }
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.tree.path().join(file), text).expect("a file");
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.tree.path().join(file)).expect(file)
    }

    fn weights(&self, groups: &[&str]) -> Vec<String> {
        groups.iter().map(|group| self.read(&format!("{group}/cpu.weight"))).collect()
    }

    /// Returns the classes as found by an agent that starts.
    fn classes(&self, policy: &Cluster) -> (Classes, Vec<String>) {
        let record = Record::open(self.state.path(), "n1").expect("nobody else has it");
        Classes::new(policy, 0, Box::new(V2::new(self.tree.path())), record, MEMORY).expect("sound")
    }
}

#[test]
fn shares_are_set_in_proportion_and_put_back() {
    let fake = Fake::new(&["gold", "rest"]);
    fake.write("rest/cpu.weight", "37\n");
    let (mut classes, problems) = fake.classes(&policy(&[("gold", "gold"), ("rest", "rest")]));
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(fake.weights(&["gold", "rest"]), ["100", "37\n"], "nothing is set before somebody says what");
    assert_eq!(classes.set(&[80.0, 20.0]), Vec::<String>::new());
    assert_eq!(fake.weights(&["gold", "rest"]), ["8000", "2000"]);
    assert!(classes.is_as_told());
    assert_eq!(classes.in_force(), [80.0, 20.0]);
    assert_eq!(classes.restore(), Vec::<String>::new());
    assert_eq!(fake.weights(&["gold", "rest"]), ["100", "37"]);
    assert!(!fake.state.path().join("agent-n1.json").exists());
}

#[test]
fn what_is_in_force_is_adopted() {
    let fake = Fake::new(&["gold"]);
    fake.group("rest", "300");
    let (classes, _) = fake.classes(&policy(&[("gold", "gold"), ("rest", "rest"), ("none", "none")]));
    assert_eq!(classes.in_force(), [25.0, 75.0, 0.0]);
}

#[test]
fn a_killed_agent_leaves_its_shares_and_the_next_knows_what_was_before() {
    let fake = Fake::new(&["gold", "rest"]);
    let policy = policy(&[("gold", "gold"), ("rest", "rest"), ("made+", "weirgate/made")]);
    let (mut killed, _) = fake.classes(&policy);
    fake.group("weirgate/made", "100");
    killed.look();
    killed.set(&[70.0, 20.0, 10.0]);
    drop(killed);
    assert_eq!(fake.weights(&["gold", "rest", "weirgate/made"]), ["7000", "2000", "1000"]);
    let (mut next, _) = fake.classes(&policy);
    assert_eq!(next.in_force(), [70.0, 20.0, 10.0]);
    // This also applies to groups that appear only now.
    fake.group("rest", "100");
    next.look();
    assert_eq!(fake.weights(&["rest"]), ["2000"]);
    next.set(&[1.0, 98.0, 1.0]);
    // Remaining plain files would keep the directory from being removed. The kernel's files do not.
    fs::read_dir(fake.tree.path().join("weirgate/made")).expect("a list").for_each(|file| {
        let file = file.expect("a file").path();
        if !file.ends_with("cpu.weight") {
            fs::remove_file(file).expect("it goes");
        }
    });
    let problems = next.restore();
    assert_eq!(fake.weights(&["gold", "rest"]), ["100", "100"]);
    assert_eq!(fake.read("weirgate/made/cpu.weight"), "100");
    assert_eq!(problems.len(), 2, "the made directories are tried, the inner one first: {problems:?}");
    assert!(problems[0].contains("weirgate/made "), "{problems:?}");
}

#[test]
fn two_agents_of_a_node_are_one_too_many() {
    let fake = Fake::new(&[]);
    let _first = Record::open(fake.state.path(), "n1").expect("nobody else has it");
    let error = Record::open(fake.state.path(), "n1").expect_err("it is taken");
    assert!(error.contains("another agent of node n1") && error.contains("--state"), "{error}");
    assert!(Record::open(fake.state.path(), "n2").is_ok());
    fs::write(fake.state.path().join("agent-n3.json"), "{").expect("a file");
    let error = Record::open(fake.state.path(), "n3").expect_err("it is damaged");
    assert!(error.contains("agent-n3.json") && error.contains("remove the file"), "{error}");
}

#[test]
fn a_record_reaches_nothing_but_shares_of_this_root() {
    let fake = Fake::new(&["gold"]);
    let outside = fake.state.path().join("cpu.weight");
    fs::write(&outside, "mine").expect("a file");
    let state = fake.state.path().file_name().expect("it has a name");
    let climbing = fake.tree.path().join("gold/../..").join(state).join("cpu.weight");
    let procs = fake.tree.path().join("gold/cgroup.procs");
    fake.write("gold/cgroup.procs", "");
    let before = BTreeMap::from([(&outside, "1"), (&climbing, "1"), (&procs, "1")]);
    let made = [fake.state.path()];
    let text = serde_json::json!({ "version": 1, "before": before, "made": made }).to_string();
    fs::write(fake.state.path().join("agent-n1.json"), text).expect("a file");
    let (classes, _) = fake.classes(&policy(&[("gold", "gold")]));
    let problems = classes.restore();
    assert_eq!(problems.len(), 4, "{problems:?}");
    assert!(problems.iter().all(|line| line.contains("--cgroup-root")), "{problems:?}");
    assert_eq!(fs::read_to_string(outside).expect("it is there"), "mine");
}

#[test]
fn a_share_is_divided_among_groups_with_processes_and_use_is_summed() {
    let fake = Fake::new(&["docker/a-web", "docker/b-web", "docker/c-web", "docker/db"]);
    fake.write("docker/c-web/cgroup.events", "populated 0\n");
    let (mut classes, _) = fake.classes(&policy(&[("web", "docker/*-web"), ("db", "docker/db")]));
    assert_eq!(classes.counters(), [0, 0], "what was used before is nobody's");
    classes.set(&[60.0, 40.0]);
    assert_eq!(fake.weights(&["docker/a-web", "docker/b-web", "docker/db"]), ["3000", "3000", "4000"]);
    assert_eq!(classes.in_force(), [60.0, 40.0]);
    fake.write("docker/a-web/cpu.stat", "usage_usec 1500\n");
    fake.write("docker/b-web/cpu.stat", "usage_usec 1250\n");
    assert_eq!(classes.counters(), [750_000, 0]);
    // One group was recreated and has used 100 µs since, one was removed, and one was added.
    fake.write("docker/a-web/cpu.stat", "usage_usec 100\n");
    fs::remove_dir_all(fake.tree.path().join("docker/b-web")).expect("it goes");
    fake.group("docker/d-web", "100");
    assert_eq!(classes.counters(), [850_000, 0]);
    assert_eq!(classes.look(), Vec::<String>::new());
    assert_eq!(fake.weights(&["docker/a-web", "docker/d-web"]), ["3000", "3000"]);
    fake.write("docker/c-web/cgroup.events", "populated 1\n");
    classes.look();
    assert_eq!(fake.weights(&["docker/a-web", "docker/c-web", "docker/d-web"]), ["2000", "2000", "2000"]);
    assert_eq!(classes.counters(), [850_000, 0]);
}

#[test]
fn a_foreign_write_into_a_group_is_overwritten_within_a_look() {
    let fake = Fake::new(&["gold"]);
    let (mut classes, _) = fake.classes(&policy(&[("gold", "gold")]));
    classes.set(&[50.0]);
    fake.write("gold/cpu.weight", "100\n");
    classes.look();
    assert_eq!(fake.weights(&["gold"]), ["5000"]);
    classes.restore();
    assert_eq!(fake.weights(&["gold"]), ["100"], "what was there first");
}

#[test]
fn disks_and_memory_follow_where_they_can() {
    let fake = Fake::new(&["gold", "own"]);
    for group in ["gold", "own"] {
        fake.write(&format!("{group}/io.weight"), "default 100\n8:0 50\n");
    }
    fake.write("gold/memory.low", "0\n");
    fake.write("own/memory.low", "4096\n");
    let (mut classes, _) = fake.classes(&policy(&[("gold", "gold"), ("own", "own")]));
    classes.set(&[75.0, 25.0]);
    assert_eq!(fake.read("gold/io.weight"), "default 7500");
    assert_eq!(fake.read("gold/memory.low"), (MEMORY / 4 * 3).to_string());
    assert_eq!(fake.read("own/memory.low"), "4096\n", "somebody has said how much");
    classes.set(&[50.0, 50.0]);
    assert_eq!(fake.read("gold/memory.low"), (MEMORY / 2).to_string());
    classes.restore();
    assert_eq!((fake.read("gold/io.weight"), fake.read("gold/memory.low")), ("default 100".into(), "0".into()));
}

#[test]
fn what_is_not_as_it_should_be_is_said() {
    let fake = Fake::new(&["a/gold", "b/rest"]);
    let pairs = [("gold", "a/gold"), ("rest", "b/rest"), ("late", "a/late"), ("too", "a/*"), ("bare", "a/bare")];
    fs::create_dir(fake.tree.path().join("a/bare")).expect("a directory");
    let (mut classes, problems) = fake.classes(&policy(&pairs));
    let said = problems.join("\n");
    for words in [
        "class late: no group a/late in",
        "class too: a/gold belongs to class gold already",
        "2 different parents, among them a (gold, too), b (rest)",
        "class too: its CPU time is not known",
        "has no cpu.weight: the cpu controller is not enabled for the groups in",
        "class bare: a/bare belongs to class too already",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(said.contains("echo +cpu > "), "{said}");
    fake.group("a/late", "100");
    assert!(!classes.look().join("\n").contains("no group a/late"));
    classes.set(&[20.0; 5]);
    assert!(!classes.is_as_told(), "a/bare has no share");
    let unreachable = Fake::new(&["gold"]);
    fs::write(unreachable.tree.path().join("cgroup.controllers"), "io\n").expect("a file");
    fs::remove_file(unreachable.tree.path().join("gold/cpu.weight")).expect("it goes");
    let (_, problems) = unreachable.classes(&policy(&[("gold", "gold")]));
    assert!(problems[0].contains("name another with --cgroup-root"), "{problems:?}");
}

#[test]
fn shares_that_cannot_be_set_are_said_and_not_in_force() {
    let fake = Fake::new(&["gold", "rest"]);
    let file = fake.tree.path().join("rest/cpu.weight");
    fs::remove_file(&file).expect("it goes");
    // A file that can be opened and rejects every write.
    std::os::unix::fs::symlink("/dev/full", &file).expect("a link");
    let (mut classes, _) = fake.classes(&policy(&[("gold", "gold"), ("rest", "rest")]));
    let problems = classes.set(&[60.0, 40.0]);
    assert!(problems.len() == 1 && problems[0].contains("class rest: ") && problems[0].contains("cannot be set"));
    assert_eq!((classes.is_as_told(), fake.weights(&["gold"])), (false, vec!["6000".into()]));
    assert_eq!(classes.look(), problems, "as long as it is so");
}

#[test]
fn many_groups_in_trouble_are_few_lines() {
    let fake = Fake::new(&[]);
    (0..50).for_each(|group| fs::create_dir_all(fake.tree.path().join(format!("c/{group}"))).expect("a directory"));
    let (_, problems) = fake.classes(&policy(&[("many", "c/*")]));
    assert_eq!(problems.len(), MAX_NAMED + 1, "{problems:?}");
    assert_eq!(problems[MAX_NAMED], "class many: more problems of this kind");
}

#[test]
fn a_class_that_is_not_there_at_a_restart_is_not_starved() {
    let fake = Fake::new(&["gold"]);
    let policy = policy(&[("gold", "gold"), ("late", "late")]);
    let (mut killed, _) = fake.classes(&policy);
    killed.set(&[60.0, 40.0]);
    drop(killed);
    let (mut next, _) = fake.classes(&policy);
    fake.group("late", "100");
    next.look();
    assert_eq!(fake.weights(&["late"]), ["100"], "nobody has said what it gets");
}

#[test]
fn a_class_of_other_nodes_has_no_groups_here() {
    let fake = Fake::new(&["gold", "rest"]);
    let mut policy = policy(&[("gold", "gold"), ("rest", "rest")]);
    policy.classes[1].nodes = Some(vec![1]);
    let (mut classes, problems) = fake.classes(&policy);
    classes.set(&[90.0, 10.0]);
    assert_eq!((fake.weights(&["gold", "rest"]), problems.len()), (vec!["9000".into(), "100".into()], 0));
    assert!(classes.summary()[1].contains("not on this node"));
}

#[test]
fn groups_that_are_made_hand_their_controllers_down() {
    let fake = Fake::new(&[]);
    fs::create_dir(fake.tree.path().join("weirgate")).expect("a directory");
    fs::write(fake.tree.path().join("weirgate/cgroup.subtree_control"), "").expect("a file");
    let cgroups = V2::new(fake.tree.path());
    cgroup::create(&cgroups, &fake.tree.path().join("weirgate")).expect("it is there already");
    assert_eq!(fake.read("weirgate/cgroup.subtree_control"), "+memory", "each in its turn");
    let missing = cgroup::missing(&cgroups, "weirgate/a/b");
    let made: Vec<_> = missing.iter().filter_map(|path| path.strip_prefix(fake.tree.path()).ok()).collect();
    assert_eq!(made, [Path::new("weirgate/a"), Path::new("weirgate/a/b")]);
}

/// A group in this machine's cgroup v1, removed with all its contents at the end of the test. `None`, with a
/// message, if there is no cgroup v1 or it may not be changed.
struct Live {
    name: String,
    cgroups: V1,
}

impl Live {
    fn new(test: &str) -> Option<Live> {
        let trees = ["cpu", "cpuacct"].map(|controller| Path::new("/sys/fs/cgroup").join(controller));
        let cgroups = V1::new(&trees[0], &trees[1], None);
        let name = format!("weirgate-test-{}-{test}", std::process::id());
        let missing = cgroup::missing(&cgroups, &name);
        let made = missing.iter().try_for_each(|directory| cgroup::create(&cgroups, directory));
        let live = Live { name, cgroups };
        match made {
            Ok(()) => Some(live),
            Err(why) => {
                // Not captured by the test runner, so that a skipped test is visible.
                let _ = std::io::Write::write_all(
                    &mut std::io::stderr(),
                    format!("SKIPPED: cgroup v1: {why}\n").as_bytes(),
                );
                None
            }
        }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.cgroups.trees()[0].join(&self.name).join(file)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        for tree in self.cgroups.trees() {
            for group in ["gold", "made/inner", "made", ""] {
                let _ = fs::remove_dir(tree.join(&self.name).join(group));
            }
        }
    }
}

#[test]
fn cgroup_v1_of_this_machine_is_shared_and_left_as_it_was() {
    let Some(live) = Live::new("shared") else { return };
    let [gold, made] = ["gold", "made/inner"].map(|group| format!("{}/{group}", live.name));
    cgroup::missing(&live.cgroups, &gold).iter().for_each(|d| cgroup::create(&live.cgroups, d).expect("a group"));
    let state = tempdir().expect("a directory");
    let open = || {
        let record = Record::open(state.path(), "n1").expect("nobody else has it");
        let trees: Vec<PathBuf> = live.cgroups.trees().into_iter().map(Path::to_owned).collect();
        let cgroups = Box::new(V1::new(&trees[0], &trees[1], None));
        Classes::new(&policy(&[("gold", &gold), ("made+", &made)]), 0, cgroups, record, MEMORY).expect("sound")
    };
    let (mut classes, problems) = open();
    assert!(problems.len() == 1 && problems[0].contains("different parents"), "{problems:?}");
    assert_eq!(classes.in_force(), [50.0, 50.0]);
    classes.set(&[75.0, 25.0]);
    let read = |file: &str| fs::read_to_string(live.path(file)).expect(file).trim().to_owned();
    assert_eq!((read("gold/cpu.shares"), read("made/inner/cpu.shares")), ("196608".into(), "65536".into()));
    assert_eq!(classes.counters(), [0, 0]);
    // The agent was killed. The next one knows both the present and the original values.
    drop(classes);
    let (classes, _) = open();
    assert_eq!(classes.in_force(), [75.0, 25.0]);
    assert_eq!(classes.restore(), Vec::<String>::new());
    assert_eq!(read("gold/cpu.shares"), "1024");
    assert!(!live.path("made").exists(), "what was made is gone");
}
