//! Apache in front of a pool of PHP processes.
//!
//! It uses the event MPM and a separate pool rather than prefork and mod_php. A prefork process belongs to
//! a connection for as long as the connection is kept, so the idle connections of a gateway would occupy
//! the slots of requests.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use weirgate_emulator::clock;

use super::Kind;
use super::guarded::{Guarded, LOOK};
use super::instance::{Place, Server};

/// Path of Apache in Debian.
pub(super) const PROGRAM: &str = "/usr/sbin/apache2";

/// Directory of PHP's process coordinator in Debian. The name of the program contains its version.
const PROGRAMS: &str = "/usr/sbin";

/// Maximum time until the pool listens. It forks its processes first.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the newest PHP process coordinator.
pub(super) fn php_fpm() -> Option<PathBuf> {
    let names = fs::read_dir(PROGRAMS).into_iter().flatten().flatten().map(|entry| entry.path());
    let fpm = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("php-fpm"));
    names.filter(fpm).max()
}

/// Writes the configuration of Apache and the pool, and the page `name`.
pub(super) fn prepare(place: &Place, name: &str, page: &str) -> Result<(), String> {
    let (address, workers) = (place.address.to_string(), place.workers.to_string());
    let words = [
        ("DIRECTORY", place.directory.text()?),
        ("ADDRESS", &address),
        ("WORKERS", &workers),
        ("SOCKET", place.socket.text()?),
    ];
    place.directory.write("apache.conf", include_str!("apache.conf"), &words)?;
    place.directory.write("fpm.conf", include_str!("fpm.conf"), &words)?;
    place.directory.write(&format!("pages/{name}"), page, &[])
}

/// Writes the configuration and the page of [`Kind::ApachePhp`].
pub(super) fn prepare_loop(place: &Place) -> Result<(), String> {
    prepare(place, "loop.php", include_str!("loop.php"))
}

/// Starts the pool, and Apache once the pool listens.
pub(super) fn start(place: &Place) -> Result<Vec<Server>, String> {
    let program = php_fpm().ok_or_else(|| Kind::ApachePhp.missing("php-fpm"))?;
    // -n: without the system's php.ini and its extensions.
    let words = [program.as_os_str(), "-n".as_ref(), "-y".as_ref(), "fpm.conf".as_ref()];
    let mut pool = Guarded::start("php-fpm", &words, place.cpu, place.directory.path())?;
    let (socket, start) = (place.socket.text()?, clock::now());
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        if pool.ended().is_some() || clock::now() - start > clock::nanos(PATIENCE) {
            let said = fs::read_to_string(&pool.log).unwrap_or_default();
            return Err(format!("{}: {} does not listen:\n{said}", place.name, program.display()));
        }
        clock::pause(LOOK);
    }
    let words = [PROGRAM, "-d", place.directory.text()?, "-f", "apache.conf", "-D", "FOREGROUND"];
    let apache = Guarded::start("apache", &words, place.cpu, place.directory.path())?;
    // Apache finishes its requests upon SIGWINCH ("Stopping and Restarting": graceful stop), and the pool
    // upon SIGQUIT (php-fpm(8)).
    Ok(vec![(apache, Signal::WINCH), (pool, Signal::QUIT)])
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::directory::{Directory, Socket};
    use super::super::instance::Instance;
    use super::*;

    fn place(name: &str, held: &TcpListener) -> Place {
        let directory = std::env::temp_dir().join(format!("weirgate-{name}-{}", std::process::id()));
        let directory = Directory::new(directory).expect("it is made");
        let address = held.local_addr().expect("it has one");
        Place { name: name.to_owned(), directory, socket: Socket::of(address), address, workers: 2, cpu: None }
    }

    /// Reports a skipped test past the output capture of the test runner.
    fn skip(why: &str) {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("SKIPPED: {why}\n").as_bytes());
    }

    #[test]
    fn a_port_that_is_taken_is_named() {
        if let Err(why) = Kind::ApachePhp.check() {
            return skip(&why);
        }
        let held = TcpListener::bind("127.0.0.1:0").expect("a port");
        let place = place("taken", &held);
        prepare_loop(&place).expect("it is written");
        let path = place.directory.path().to_owned();
        let mut instance = Instance::start(Kind::ApachePhp, place).expect("it is started");
        let error = instance.await_reply("/loop.php?us=0").expect_err("there is no port");
        let address = held.local_addr().expect("it has one");
        assert!(error.starts_with(&format!("taken at {address}: apache has ended with status 1")), "{error}");
        assert!(
            error.contains(&format!("Address already in use: AH00072: make_sock: could not bind to address {address}")),
            "{error}"
        );
        drop(instance);
        assert!(!path.exists());
    }

    #[test]
    fn a_page_that_does_not_run_is_an_error_with_the_log() {
        if let Err(why) = Kind::ApachePhp.check() {
            return skip(&why);
        }
        let held = TcpListener::bind("127.0.0.1:0").expect("a port");
        let place = place("broken", &held);
        drop(held);
        prepare_loop(&place).expect("it is written");
        place.directory.write("pages/loop.php", "<?php no_such_function();", &[]).expect("it is written");
        let mut instance = Instance::start(Kind::ApachePhp, place).expect("it is started");
        let error = instance.await_reply("/loop.php?us=0").expect_err("the page is broken");
        assert!(error.contains("/loop.php?us=0 is answered with 500"), "{error}");
        assert!(error.contains("no_such_function"), "{error}");
    }

    #[test]
    fn a_directory_may_be_longer_than_a_sockets_name() {
        if let Err(why) = Kind::ApachePhp.check() {
            return skip(&why);
        }
        let held = TcpListener::bind("127.0.0.1:0").expect("a port");
        let place = place(&"long".repeat(25), &held);
        drop(held);
        prepare_loop(&place).expect("it is written");
        let mut instance = Instance::start(Kind::ApachePhp, place).expect("it is started");
        instance.await_reply("/loop.php?us=0").expect("it answers");
    }
}
