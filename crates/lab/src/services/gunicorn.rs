//! An API in Python, behind gunicorn with processes and threads.
//!
//! Most APIs in Python run like this: few processes, because only one thread of each computes at a time, and threads
//! for requests that wait. Requests beyond the threads wait in the system's queue of connections.

use rustix::process::Signal;

use super::guarded::Guarded;
use super::instance::{Place, Server};

/// Path of gunicorn in Debian.
pub(super) const PROGRAM: &str = "/usr/bin/gunicorn";

/// Maximum number of processes of an instance: twice the CPUs and one more, as its manual recommends, for two CPUs.
const PROCESSES: usize = 5;

/// Writes the application.
pub(super) fn prepare(place: &Place) -> Result<(), String> {
    // Written unchanged, because `%` is Python there.
    place.directory.write("loop.py", include_str!("loop.py"), &[])
}

pub(super) fn start(place: &Place) -> Result<Vec<Server>, String> {
    // Processes with equally many threads, as many requests together as the experiment says.
    let processes = (1..=PROCESSES.min(place.workers)).rev().find(|processes| place.workers.is_multiple_of(*processes));
    let processes = processes.unwrap_or(1);
    let mut words: Vec<String> = vec![PROGRAM.to_owned()];
    let root = rustix::process::geteuid().is_root();
    let user: &[&str] = if root { &["--user", "www-data", "--group", "www-data"] } else { &[] };
    words.extend(user.iter().map(|word| (*word).to_owned()));
    words.extend([
        format!("--bind={}", place.address),
        "--worker-class=gthread".to_owned(),
        format!("--workers={processes}"),
        format!("--threads={}", place.workers / processes),
        // The gateway decides when a connection ends.
        "--keep-alive=300".to_owned(),
        // A thread holds a connection only while it works on a request. Idle ones are more than any gateway keeps.
        "--worker-connections=10000".to_owned(),
        // A request may take two minutes, and when it is asked to stop it finishes those of ten seconds.
        "--timeout=120".to_owned(),
        "--graceful-timeout=10".to_owned(),
        "--error-logfile=error.log".to_owned(),
        "--access-logfile=access.log".to_owned(),
        // Status, a place for the state of the connection, which it does not know, the client's name for the request.
        "--access-logformat=%(s)s + %({x-request-id}i)s".to_owned(),
        "loop:application".to_owned(),
    ]);
    // It finishes its requests upon SIGTERM ("Signal Handling": graceful shutdown).
    Ok(vec![(Guarded::start("gunicorn", &words, place.cpu, place.directory.path())?, Signal::TERM)])
}
