//! Real services for the lab: unmodified programs that do real work and that the gateway knows nothing about.
//!
//! An experiment's machines are emulated nodes (see [`nodes`](crate::nodes)) or instances of one of the
//! [`Kind`]s here. Two of them burn exactly the CPU time that a request asks for: Apache with PHP, with a
//! page that can also wait and send a stream of events, and Tomcat, the "CPU-loop service" of Blanquer et al.,
//! *Quorum* (NSDI 2005), Sec. 4.2 and following. The third searches the documentation of Linux with
//! Xapian's Omega. It replaces the Teoma index search of the paper's Sec. 4.1, which is not available. The fourth is
//! MediaWiki with a database, an application whose pages cost what they cost. The fifth is an API in Python, and the
//! sixth shows a Git repository.
//!
//! The programs are Debian's. Each instance has its own directory with its configuration and logs, shares
//! nothing with the system's instance, and listens on a loopback port that the system chose. All processes
//! end with the [`Instances`].

mod apache;
mod calibration;
mod cgit;
mod directory;
mod guarded;
mod gunicorn;
mod index;
mod instance;
mod mediawiki;
mod shared;
mod tomcat;
mod xapian;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

pub use calibration::ServiceTime;
use directory::{Directory, Socket};
use guarded::Guarded;
use instance::{Instance, Place};
use shared::Shared;

/// Maximum number of requests that one instance may work on at once. It is enough for any experiment on one
/// machine, and few enough that all threads or processes fit into its memory.
const MAX_WORKERS: usize = 1000;

/// Maximum number of instances. A Tomcat uses 150 MB.
const MAX_INSTANCES: usize = 64;

weirgate_engine::named! {
    /// The kind of a service.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kind {
        /// A page that burns CPU time, PHP behind Apache.
        ApachePhp = "apache-php",
        /// A page that burns CPU time, in Tomcat.
        Tomcat = "tomcat",
        /// A search in the documentation of Linux, Omega behind Apache and PHP.
        Xapian = "xapian",
        /// A page of a wiki, MediaWiki behind Apache and PHP, with one MariaDB.
        MediaWiki = "mediawiki",
        /// An API that burns CPU time, in Python with gunicorn.
        Gunicorn = "gunicorn",
        /// A page of a Git repository, cgit behind Apache and PHP.
        Cgit = "cgit",
    }
}

impl Kind {
    /// Returns a one-line description.
    pub fn description(self) -> &'static str {
        match self {
            Kind::ApachePhp => {
                "Apache and a pool of PHP processes. A request burns the CPU time that it asks for, then waits or \
                 streams"
            }
            Kind::Tomcat => "Tomcat. A request burns the CPU time that it asks for (Quorum's CPU-loop service)",
            Kind::Xapian => "Apache, PHP and Xapian Omega. A request searches the documentation of Linux",
            Kind::MediaWiki => "Apache, PHP and MediaWiki with one MariaDB. A request views a page of the wiki",
            Kind::Gunicorn => {
                "gunicorn and Python. A request burns the CPU time that it asks for, then waits or streams"
            }
            Kind::Cgit => "Apache, PHP and cgit. A request shows a file of a Git repository",
        }
    }

    /// Returns the Debian packages that it needs, without those that they install as dependencies.
    pub fn packages(self) -> &'static [&'static str] {
        match self {
            Kind::ApachePhp => &["apache2", "php-fpm"],
            Kind::Tomcat => &["tomcat10-common"],
            Kind::Xapian => &["apache2", "linux-doc", "php-fpm", "xapian-omega", "xapian-tools"],
            Kind::MediaWiki => &[
                "apache2", "mariadb-client-core", "mariadb-server-core", "mediawiki", "php-apcu", "php-cli", "php-fpm",
                "php-mysql",
            ],
            Kind::Gunicorn => &["gunicorn"],
            Kind::Cgit => &["apache2", "cgit", "git", "php-fpm"],
        }
    }

    /// Returns the request from its path on. `{cpu_us}` stands for the CPU time to burn, `{io_us}` for the time to
    /// wait without a CPU and `{stream_us}` for the time to send events, in microseconds, and `{word}` for one of the
    /// service's [words](Instances::words): a search, the title of a page, or the path of a file.
    pub fn path(self) -> &'static str {
        match self {
            Kind::ApachePhp => "/loop.php?us={cpu_us}&wait={io_us}&stream={stream_us}",
            Kind::Tomcat => "/loop?us={cpu_us}",
            // A search for any of the words. The reply has the ten best pages with excerpts, and words to
            // narrow the search.
            Kind::Xapian => "/search.php?DB=docs&DEFAULTOP=or&FMT=topterms&P={word}",
            Kind::MediaWiki => "/index.php?title={word}",
            Kind::Gunicorn => "/loop?us={cpu_us}&wait={io_us}&stream={stream_us}",
            Kind::Cgit => "/cgit.php?url=repo/tree/{word}",
        }
    }

    /// Checks that it can be started on this machine.
    ///
    /// # Errors
    /// A part is not installed. The error names the part and the command that installs it.
    pub fn check(self) -> Result<(), String> {
        let needs: &[&str] = match self {
            Kind::ApachePhp => &[],
            Kind::Tomcat => &tomcat::NEEDS,
            Kind::Xapian => &[xapian::PROGRAM, index::INDEXER, index::READER, index::DOCUMENTS],
            Kind::MediaWiki => &mediawiki::NEEDS,
            Kind::Gunicorn => &[gunicorn::PROGRAM],
            Kind::Cgit => &[cgit::PROGRAM, cgit::GIT, mediawiki::LICENCE],
        };
        let missing = needs.iter().find(|need| !Path::new(need).exists()).map(|need| (*need).to_owned());
        let of_php = || match self {
            Kind::Tomcat | Kind::Gunicorn => None,
            _ if !Path::new(apache::PROGRAM).exists() => Some(apache::PROGRAM.to_owned()),
            _ if apache::php_fpm().is_none() => Some("php-fpm".to_owned()),
            Kind::MediaWiki => mediawiki::missing_extension(),
            Kind::ApachePhp | Kind::Xapian | Kind::Cgit => None,
        };
        missing.or_else(of_php).map_or(Ok(()), |missing| Err(self.missing(&missing)))
    }

    fn missing(self, what: &str) -> String {
        format!(
            "{self} needs {what}, which is not installed; `apt-get install --no-install-recommends {}` installs it",
            self.packages().join(" ")
        )
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Kind, String> {
        let names = Kind::ALL.map(Kind::as_str).join(", ");
        let found = Kind::ALL.into_iter().find(|kind| kind.as_str() == name);
        found.ok_or_else(|| format!("`{name}` is not a service; write one of {names}"))
    }
}

/// Running, warm instances of one service. Dropping them ends all their processes and removes their directories.
#[derive(Debug)]
pub struct Instances {
    kind: Kind,
    addresses: Vec<SocketAddr>,
    /// Maximum number of requests in flight in each.
    workers: usize,
    instances: Vec<Instance>,
    /// The content that all of them serve. It ends after them.
    shared: Shared,
}

impl Instances {
    /// Starts `count` instances of `kind`, all on `cpu`, or anywhere if it is `None`. Each has its own new
    /// directory in `directory`, which must exist, and which the user `www-data` must be able to enter if
    /// the lab runs as root. Each works on at most `workers` requests at once, and more requests wait in
    /// the system's queue of connections. Returns when all have answered and are warm.
    ///
    /// The first start of [`Kind::Xapian`] on a machine builds its index, which takes about a minute and
    /// shows its progress.
    ///
    /// # Errors
    /// A program is missing, or an instance does not start or gives an answer other than 200. The error
    /// quotes its logs.
    pub fn start(
        kind: Kind,
        count: usize,
        workers: usize,
        cpu: Option<usize>,
        directory: &Path,
    ) -> Result<Instances, String> {
        for (what, value, max) in [("instances", count, MAX_INSTANCES), ("workers", workers, MAX_WORKERS)] {
            if !(1..=max).contains(&value) {
                return Err(format!("{kind}: {value} {what} are not possible; write 1 to {max}"));
            }
        }
        kind.check()?;
        let shared = Shared::open(kind, cpu, directory)?;
        // A port is held until just before its instance is started, so that no two instances get the same port.
        let port = || -> std::io::Result<_> {
            let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            Ok((held.local_addr()?, held))
        };
        let ports: Result<Vec<_>, _> = (0..count).map(|_| port()).collect();
        let ports = ports.map_err(|error| format!("{kind}: no free port on 127.0.0.1: {error}"))?;
        let addresses: Vec<SocketAddr> = ports.iter().map(|(address, _)| *address).collect();
        let mut instances = Vec::with_capacity(count);
        for (number, (address, held)) in (1..).zip(ports) {
            let directory = Directory::new(directory.join(format!("{kind}-{number}")))?;
            let socket = Socket::of(address);
            let place = Place { name: format!("{kind}-{number}"), directory, socket, address, workers, cpu };
            shared.prepare(kind, &place)?;
            drop(held);
            instances.push(Instance::start(kind, place)?);
        }
        let mut started = Instances { kind, addresses, workers, instances, shared };
        for number in 0..count {
            let path = started.request(Duration::ZERO, 0);
            started.instances[number].await_reply(&path)?;
        }
        started.warm()?;
        Ok(started)
    }

    /// Returns the kind of the service.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns their addresses.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the request, with the marks of [`Kind::path`] to fill in.
    pub fn path(&self) -> &'static str {
        self.kind.path()
    }

    /// Returns the values for `{word}` in URL form, or none for services that have no words. They are in no
    /// particular order, but the same on every machine with the same documentation.
    pub fn words(&self) -> &[String] {
        self.shared.words()
    }

    /// Returns the CPU time of all their processes since the start, including children that have exited
    /// ([`process::cpu_time`](crate::process::cpu_time)).
    pub fn cpu_time(&self) -> Duration {
        let database = self.shared.database().map_or(Duration::ZERO, Guarded::cpu_time);
        database + self.instances.iter().map(Instance::cpu_time).sum::<Duration>()
    }

    /// Returns a message if one of them has exited by itself.
    pub fn ended(&mut self) -> Option<String> {
        let database = self.shared.database_mut().and_then(Guarded::ended);
        database.or_else(|| self.instances.iter_mut().find_map(Instance::ended))
    }

    /// Kills instance `number`, counted from 0, with its requests, or starts it again. It serves some moments later.
    ///
    /// # Errors
    /// A program cannot be started.
    pub fn set_killed(&mut self, number: usize, killed: bool) -> Result<(), String> {
        let Some(instance) = self.instances.get_mut(number) else { return Ok(()) };
        if killed {
            instance.kill();
            return Ok(());
        }
        instance.revive()
    }

    /// Stops instance `number` where it is, or lets it go on: it accepts requests and works on none. Of
    /// [`Kind::MediaWiki`], the database behind all instances stops, so that pages wait for it as for a lock.
    ///
    /// # Errors
    /// The processes do not take the signal.
    pub fn set_frozen(&mut self, number: usize, frozen: bool) -> Result<(), String> {
        match (self.shared.database(), self.instances.get(number)) {
            (Some(database), _) => database.freeze(frozen),
            (None, Some(instance)) => instance.freeze(frozen),
            (None, None) => Ok(()),
        }
    }

    /// Lets their requests in flight finish, and stops them. Their logs are complete afterwards.
    ///
    /// # Errors
    /// One does not stop in time. Dropping this value kills it.
    pub fn stop(&mut self) -> Result<(), String> {
        if let Some(database) = self.shared.database() {
            database.freeze(false)?;
        }
        self.instances.iter_mut().try_for_each(Instance::stop)
    }

    /// [Stops](Instances::stop) them and returns the request ids (`X-Request-Id`) of all complete replies with a 2xx
    /// status, in the order of their logs, one instance after the other. Ids must not contain spaces.
    ///
    /// # Errors
    /// They do not stop, or their logs cannot be read.
    pub fn answered(&mut self) -> Result<Vec<String>, String> {
        self.stop()?;
        let mut ids = Vec::new();
        for instance in &self.instances {
            ids.extend(instance.answered()?);
        }
        Ok(ids)
    }

    /// Returns the path of a request for `cpu`, or for the word of this `turn`.
    fn request(&self, cpu: Duration, turn: usize) -> String {
        let words = self.words();
        let word = words.get(turn % words.len().max(1)).map_or("", String::as_str);
        let cpu = cpu.as_micros().to_string();
        let marks = [("{cpu_us}", cpu.as_str()), ("{io_us}", "0"), ("{stream_us}", "0"), ("{word}", word)];
        marks.iter().fold(self.path().to_owned(), |path, (mark, value)| path.replace(mark, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names() {
        for kind in Kind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
            assert!(!kind.packages().is_empty() && !kind.description().is_empty());
        }
        let error = "nginx".parse::<Kind>().expect_err("there is none");
        assert_eq!(
            error,
            "`nginx` is not a service; write one of apache-php, tomcat, xapian, mediawiki, \
                           gunicorn, cgit"
        );
    }

    #[test]
    fn what_is_missing_comes_with_the_command_that_installs_it() {
        assert_eq!(
            Kind::Tomcat.missing("/usr/bin/java"),
            "tomcat needs /usr/bin/java, which is not installed; `apt-get install --no-install-recommends \
             tomcat10-common` installs it"
        );
    }

    #[test]
    fn counts_are_checked_first() {
        let error = Instances::start(Kind::Tomcat, 1, 0, None, Path::new("/")).expect_err("no workers");
        assert_eq!(error, "tomcat: 0 workers are not possible; write 1 to 1000");
    }
}
