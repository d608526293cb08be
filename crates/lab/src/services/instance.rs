//! One instance of a service, from its start to its access log.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;

use super::calibration::fetch;
use super::directory::{Directory, Socket};
use super::guarded::{Guarded, LOOK};
use super::{Kind, apache, tomcat};
use weirgate_emulator::clock;

/// How long an instance may take to answer first. A JVM needs 3 s of CPU time, and several start at once on one
/// CPU of a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// How long one reply is waited for meanwhile, before it is seen whether the servers have ended.
const GLANCE: Duration = Duration::from_secs(2);

/// What is shown of a log when something goes wrong.
const LAST_LINES: usize = 12;

/// Where an instance runs.
#[derive(Debug)]
pub(super) struct Place {
    /// What it is called in messages.
    pub(super) name: String,
    /// Its own.
    pub(super) directory: Directory,
    /// Where its servers meet, if there are two.
    pub(super) socket: Socket,
    /// Where it is to listen.
    pub(super) address: SocketAddr,
    /// The most requests inside.
    pub(super) workers: usize,
    /// Its CPU.
    pub(super) cpu: Option<usize>,
}

/// A server of an instance, and the signal upon which it finishes what it has begun.
pub(super) type Server = (Guarded, Signal);

/// An instance under way.
#[derive(Debug)]
pub(super) struct Instance {
    /// In the order in which they are stopped. They end before the directory goes.
    servers: Vec<Server>,
    place: Place,
}

impl Instance {
    /// Starts the servers of an instance of `kind` in `place`, where everything is prepared.
    pub(super) fn start(kind: Kind, place: Place) -> Result<Instance, String> {
        let servers = match kind {
            Kind::ApachePhp | Kind::Xapian => apache::start(&place)?,
            Kind::Tomcat => tomcat::start(&place)?,
        };
        Ok(Instance { servers, place })
    }

    /// Waits until a request for `path` has been answered with 200, and by this instance: its log has it.
    pub(super) fn await_reply(&mut self, path: &str) -> Result<(), String> {
        let start = clock::now();
        let mut answered = false;
        let mut obstacle = "no reply".to_owned();
        while clock::now() - start < clock::nanos(PATIENCE) {
            if let Some(ended) = self.ended() {
                return Err(self.fault(&ended));
            }
            if !answered {
                match fetch(self.place.address, path, GLANCE) {
                    Ok((200, _)) => answered = true,
                    Ok((status, _)) => return Err(self.fault(&format!("{path} is answered with {status}"))),
                    Err(error) => obstacle = error,
                }
            }
            // The log is written after the reply.
            if answered && self.access_log().metadata().is_ok_and(|log| log.len() > 0) {
                return Ok(());
            }
            clock::pause(LOOK);
        }
        let whose = if answered { "somebody else answers" } else { obstacle.as_str() };
        Err(self.fault(&format!("it does not serve after {} s: {whose}", PATIENCE.as_secs())))
    }

    /// CPU time of all its processes.
    pub(super) fn cpu_time(&self) -> Duration {
        self.servers.iter().map(|(server, _)| server.cpu_time()).sum()
    }

    /// Has one of its servers ended by itself? Then with which words.
    pub(super) fn ended(&mut self) -> Option<String> {
        self.servers.iter_mut().find_map(|(server, _)| server.ended())
    }

    /// Lets it finish what is inside, and ends it.
    pub(super) fn stop(&mut self) -> Result<(), String> {
        self.servers.iter_mut().try_for_each(|(server, signal)| server.stop(*signal))
    }

    /// Ids of complete replies with a status of 2xx in its log, whose lines are status, connection and id.
    pub(super) fn answered(&self) -> Result<Vec<String>, String> {
        let log = self.access_log();
        let text = std::fs::read_to_string(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        Ok(text.lines().filter_map(complete).map(str::to_owned).collect())
    }

    fn access_log(&self) -> PathBuf {
        self.place.directory.path().join("access.log")
    }

    /// What went wrong, with the last lines of the logs.
    fn fault(&self, what: &str) -> String {
        let mut message = format!("{} at {}: {what}", self.place.name, self.place.address);
        let error_log = self.place.directory.path().join("error.log");
        for log in self.servers.iter().map(|(server, _)| &server.log).chain([&error_log]) {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            if let Some(name) = log.file_name().filter(|_| !lines.is_empty()) {
                message += &format!("\n{} says:", name.display());
                for line in &lines[lines.len().saturating_sub(LAST_LINES)..] {
                    message += &format!("\n  {line}");
                }
            }
        }
        message
    }
}

/// The id in a line of an access log, if its reply is a complete 2xx and has one.
fn complete(line: &str) -> Option<&str> {
    let mut words = line.split(' ');
    let (status, connection, id) = (words.next()?, words.next()?, words.next()?);
    (status.len() == 3 && status.starts_with('2') && connection != "X" && id != "-").then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_replies_count() {
        assert_eq!(complete("200 + r7"), Some("r7"));
        assert_eq!(complete("204 - r8"), Some("r8"));
        assert_eq!(complete("200 X r9"), None, "it broke");
        assert_eq!(complete("503 + r10"), None);
        assert_eq!(complete("200 + -"), None, "without an id");
        assert_eq!(complete(""), None);
    }
}
