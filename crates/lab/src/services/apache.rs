//! Apache in front of a pool of PHP processes.
//!
//! It uses the event MPM and a separate pool rather than prefork and mod_php. A prefork process belongs to
//! a connection for as long as the connection is kept, so the idle connections of a gateway would occupy
//! the slots of requests.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;

use super::Kind;
use super::guarded::Guarded;
use super::instance::{Place, Server};

/// Path of Apache in Debian.
pub(super) const PROGRAM: &str = "/usr/sbin/apache2";

/// Directory of PHP's process coordinator in Debian. The name of the program contains its version.
const PROGRAMS: &str = "/usr/sbin";

/// Returns the newest PHP process coordinator.
pub(super) fn php_fpm() -> Option<PathBuf> {
    let names = fs::read_dir(PROGRAMS).into_iter().flatten().flatten().map(|entry| entry.path());
    let fpm = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("php-fpm"));
    names.filter(fpm).max()
}

/// An application of PHP.
pub(super) struct Application<'a> {
    /// Directory of its pages.
    pub(super) pages: &'a str,
    /// Lines of `php.ini`. The system's own file is not read, and no extension is loaded that is not named here.
    pub(super) ini: &'a str,
    /// Lines of the pool's configuration that set its environment.
    pub(super) environment: &'a str,
}

/// Writes the configuration of Apache and the pool for `application`.
pub(super) fn prepare(place: &Place, application: &Application) -> Result<(), String> {
    let (address, workers) = (place.address.to_string(), place.workers.to_string());
    let words = [
        ("DIRECTORY", place.directory.text()?),
        ("PAGES", application.pages),
        ("ADDRESS", &address),
        ("WORKERS", &workers),
        ("SOCKET", place.socket.text()?),
        ("ENVIRONMENT", application.environment),
    ];
    place.directory.write("apache.conf", include_str!("apache.conf"), &words)?;
    place.directory.write("fpm.conf", include_str!("fpm.conf"), &words)?;
    place.directory.write("php.ini", application.ini, &[])
}

/// Writes the configuration for the page `name`, and the page.
fn prepare_page(place: &Place, name: &str, page: &str, words: &[(&str, &str)]) -> Result<(), String> {
    let pages = format!("{}/pages", place.directory.text()?);
    prepare(place, &Application { pages: &pages, ini: "", environment: "" })?;
    place.directory.write(&format!("pages/{name}"), page, words)
}

/// Writes the configuration and the page of [`Kind::ApachePhp`].
pub(super) fn prepare_loop(place: &Place) -> Result<(), String> {
    prepare_page(place, "loop.php", include_str!("loop.php"), &[])
}

/// A CGI program that a page of PHP runs once for each request.
///
/// Apache could run it. But `mod_cgi` waits about 50 ms for a program that has written all its output and is about to
/// exit. `mod_cgid` waits for none of its programs, so that their CPU time would not be counted.
pub(super) struct Cgi<'a> {
    /// Name of the page.
    pub(super) page: &'a str,
    /// Path of the program.
    pub(super) program: &'a str,
    /// Variable of the environment that names its configuration.
    pub(super) variable: &'a str,
    /// Name of its configuration in the directory of the instance.
    pub(super) configuration: &'a str,
}

/// Writes the configuration and the page that runs `cgi`, but not the program's own configuration.
pub(super) fn prepare_cgi(place: &Place, cgi: &Cgi) -> Result<(), String> {
    let configuration = format!("{}/{}", place.directory.text()?, cgi.configuration);
    let words = [("PROGRAM", cgi.program), ("VARIABLE", cgi.variable), ("CONFIGURATION", configuration.as_str())];
    prepare_page(place, cgi.page, include_str!("cgi.php"), &words)
}

/// Starts the pool and Apache.
pub(super) fn start(place: &Place) -> Result<Vec<Server>, String> {
    let program = php_fpm().ok_or_else(|| Kind::ApachePhp.missing("php-fpm"))?;
    // Without the system's directory of extensions.
    let before = ["env", "PHP_INI_SCAN_DIR="].map(OsStr::new);
    let options = ["-c", "php.ini", "-y", "fpm.conf"].map(OsStr::new);
    let words: Vec<&OsStr> = before.into_iter().chain([program.as_os_str()]).chain(options).collect();
    // Remains of servers that were killed. The numbers of their processes may belong to others by now.
    for remains in [place.directory.path().join("apache.pid"), PathBuf::from(place.socket.text()?)] {
        let _ = fs::remove_file(remains);
    }
    let pool = Guarded::start("php-fpm", &words, place.cpu, place.directory.path())?;
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
