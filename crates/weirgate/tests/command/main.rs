//! The command as its users see it: its output, the stream it goes to, and its exit code. The tests run the
//! built binary.

mod browser;
mod check;
mod coordinator;
mod explain;
mod init;
mod manual;
mod pki;
mod plan;
mod recommend;
mod replay;
mod run;
mod sim;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../processes/spoken.rs"]
mod spoken;
mod swarm;
mod watch;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::{TempDir, tempdir};

/// A policy with every kind of entry that `explain` shows.
pub(crate) const POLICY: &str = "\
listen: 127.0.0.1:0
admin: off
upstreams:
  web: { nodes: [127.0.0.1:9001, 127.0.0.1:9002] }
classes:
  - { name: BigCorp,   match: { host: bigcorp.test }, guarantee: { throughput: 800/s, response_time: { p95: 1000ms } } }
  - { name: SmallCorp, match: { host: smallcorp.test }, guarantee: { throughput: 50/s }, service_time: 8ms,
      queue: { max_waiting: 500, max_waiting_per_source: 20, max_wait: 2s } }
  - { name: other }
";

/// The output and the exit code of a command.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Returns the command of the binary, without a token in its environment.
pub(crate) fn weirgate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
    command.args(args).env_remove("WEIRGATE_ADMIN_TOKEN").stdin(Stdio::null());
    command
}

/// Runs the binary to its end, with `input` on its standard input.
pub(crate) fn run_with(args: &[&str], input: &str) -> Ended {
    let mut child = weirgate(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads its input");
    let output = child.wait_with_output().expect("it ends");
    Ended {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// Runs the binary to its end.
pub(crate) fn run(args: &[&str]) -> Ended {
    run_with(args, "")
}

/// A directory of one test, removed at its end.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch(tempdir().expect("a directory"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and returns its path as text.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).expect("the temporary directory is writable");
        text_of(&path)
    }
}

pub(crate) fn text_of(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn schema_is_a_json_schema_of_policies() {
    let ended = run(&["schema"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let schema: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    assert!(schema["$schema"].as_str().is_some_and(|s| s.contains("json-schema.org")));
    for field in ["listen", "upstreams", "classes"] {
        assert!(schema["properties"][field].is_object(), "{field}");
    }
    assert_eq!(run(&["schema", "policy"]).out, ended.out);
}

#[test]
fn schema_experiment_is_the_one_of_experiments() {
    let ended = run(&["schema", "experiment"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let schema: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    for field in ["policy", "machines", "traffic", "phases", "faults"] {
        assert!(schema["properties"][field].is_object(), "{field}");
    }
}

#[test]
fn help_has_examples_and_exit_codes_and_wrong_words_end_with_2() {
    for args in [&["--help"][..], &["run", "--help"], &["check", "--help"], &["explain", "--help"], &["sim", "--help"]]
    {
        let ended = run(args);
        assert_eq!(ended.code, Some(0));
        assert!(ended.out.contains("Examples:") && ended.out.contains("Exit codes:"), "{args:?}: {}", ended.out);
    }
    assert_eq!(run(&["--version"]).out, format!("weirgate {}\n", env!("CARGO_PKG_VERSION")));
    for args in [&[][..], &["serve"], &["run"], &["check"], &["explain", "x"], &["sim"], &["schema", "log"]] {
        let ended = run(args);
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{args:?}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut child = weirgate(&["schema"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}
