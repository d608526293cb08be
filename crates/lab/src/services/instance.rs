//! One instance of a service, from its start to its access log.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;

use super::calibration::fetch;
use super::directory::{Directory, Socket};
use super::guarded::{Guarded, LOOK};
use super::{Kind, apache, gunicorn, tomcat};
use weirgate_emulator::clock;

/// Maximum time until an instance answers for the first time. A JVM needs 3 s of CPU time, and several
/// start at once on one CPU of a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Maximum wait for one reply meanwhile, before the next check whether the servers have exited.
const GLANCE: Duration = Duration::from_secs(2);

/// Number of lines from the end of a log, or of what a program says, that an error message quotes.
pub(super) const LAST_LINES: usize = 12;

/// The place and the resources of an instance.
#[derive(Debug)]
pub(super) struct Place {
    /// Its name in messages.
    pub(super) name: String,
    pub(super) directory: Directory,
    /// The socket between its servers, if it has two.
    pub(super) socket: Socket,
    pub(super) address: SocketAddr,
    /// Maximum number of requests in flight.
    pub(super) workers: usize,
    pub(super) cpu: Option<usize>,
}

/// A server of an instance, and the signal upon which it finishes its requests and stops.
pub(super) type Server = (Guarded, Signal);

#[derive(Debug)]
pub(super) struct Instance {
    kind: Kind,
    /// Its servers in the order in which they are stopped. They end before the directory is removed. None while it is
    /// killed.
    servers: Vec<Server>,
    place: Place,
    /// CPU time of servers that were killed.
    spent: Duration,
}

impl Instance {
    /// Starts the servers of an instance of `kind` in `place`, where all files are prepared.
    pub(super) fn start(kind: Kind, place: Place) -> Result<Instance, String> {
        let mut instance = Instance { kind, servers: Vec::new(), place, spent: Duration::ZERO };
        instance.revive()?;
        Ok(instance)
    }

    /// Kills its servers with their requests.
    pub(super) fn kill(&mut self) {
        self.spent = self.cpu_time();
        self.servers.clear();
    }

    /// Starts its servers, which are killed or were never started. They serve some moments later.
    pub(super) fn revive(&mut self) -> Result<(), String> {
        self.servers = match self.kind {
            Kind::ApachePhp | Kind::Xapian | Kind::Cgit | Kind::MediaWiki => apache::start(&self.place)?,
            Kind::Tomcat => tomcat::start(&self.place)?,
            Kind::Gunicorn => gunicorn::start(&self.place)?,
        };
        Ok(())
    }

    /// Stops its servers where they are, or lets them go on.
    pub(super) fn freeze(&self, frozen: bool) -> Result<(), String> {
        self.servers.iter().try_for_each(|(server, _)| server.freeze(frozen))
    }

    /// Waits until a request for `path` is answered with 200 by this instance, which its log proves.
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
                    // Apache serves before its pool of PHP does.
                    Ok((503, _)) => obstacle = "it is answered with 503".to_owned(),
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
        let whose = if answered { "another server answers" } else { obstacle.as_str() };
        Err(self.fault(&format!("it does not serve after {} s: {whose}", PATIENCE.as_secs())))
    }

    pub(super) fn cpu_time(&self) -> Duration {
        self.spent + self.servers.iter().map(|(server, _)| server.cpu_time()).sum::<Duration>()
    }

    /// Returns a message if one of its servers has exited by itself.
    pub(super) fn ended(&mut self) -> Option<String> {
        self.servers.iter_mut().find_map(|(server, _)| server.ended())
    }

    /// Lets its requests in flight finish, and stops it.
    pub(super) fn stop(&mut self) -> Result<(), String> {
        self.freeze(false)?;
        self.servers.iter_mut().try_for_each(|(server, signal)| server.stop(*signal))
    }

    /// Returns the ids of complete replies with a 2xx status in its log. The fields of a line are status,
    /// connection and id.
    pub(super) fn answered(&self) -> Result<Vec<String>, String> {
        let log = self.access_log();
        let text = std::fs::read_to_string(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        Ok(text.lines().filter_map(complete).map(str::to_owned).collect())
    }

    fn access_log(&self) -> PathBuf {
        self.place.directory.path().join("access.log")
    }

    /// Returns the error message `what` with the last lines of the logs.
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

/// Returns the id in a line of an access log, if the reply is a complete 2xx and has one.
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
