//! Real services as the lab starts them: every request is answered and logged once and costs its demand,
//! and nothing is left behind. A service that is not installed is skipped with a note that names the
//! command to install it.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use weirgate_emulator::clock;
use weirgate_lab::process;
use weirgate_lab::services::{Instances, Kind};

/// Lets one test run at a time, because the tests read CPU times and processes.
static ALONE: Mutex<()> = Mutex::new(());

/// The machine for one test: exclusive, with a directory that is removed at the end.
struct Bench {
    directory: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    /// Returns `None` if `kind` is not installed here.
    fn new(kind: Kind) -> Option<Bench> {
        if let Err(why) = kind.check() {
            say(&format!("SKIPPED: {why}"));
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // The name contains a `=`, as the directory of an approach with a knob does.
        let open = Permissions::from_mode(0o755);
        let directory = tempfile::Builder::new().prefix("a=b").permissions(open).tempdir().expect("a directory");
        Some(Bench { directory, _alone: alone })
    }
}

/// Prints a line past the output capture of the test runner.
fn say(line: &str) {
    // A test goes on if the line cannot be printed.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Returns the reply to a request with the id `id`, including its head.
fn ask(address: SocketAddr, path: &str, id: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket has this");
    let head = format!("GET {path} HTTP/1.1\r\nHost: test\r\nX-Request-Id: {id}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).expect("it answers");
    String::from_utf8_lossy(&reply).into_owned()
}

fn status(reply: &str) -> &str {
    reply.get(9..12).unwrap_or(reply)
}

/// Returns the living descendants of this process.
fn descendants() -> BTreeSet<u32> {
    let entries = std::fs::read_dir("/proc").expect("this is Linux");
    let stats: Vec<(u32, u32)> = entries
        .filter_map(|entry| {
            let stat = std::fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
            let (id, rest) = stat.split_once(' ')?;
            let mut fields = rest.rsplit_once(") ")?.1.split(' ');
            let living = fields.next().is_some_and(|state| state != "Z" && state != "X");
            living.then_some((id.parse().ok()?, fields.next()?.parse().ok()?))
        })
        .collect();
    let mut family = vec![std::process::id()];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        family.extend(stats.iter().filter(|(_, of)| *of == parent).map(|(id, _)| *id));
        next += 1;
    }
    family.into_iter().skip(1).collect()
}

/// Asserts that no process of `family` lives and no file is left.
fn nothing_is_left(bench: &Bench, family: &BTreeSet<u32>) {
    let living = |id: &&u32| std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|s| !s.contains(") Z "));
    let left: Vec<&u32> = family.iter().filter(living).collect();
    assert!(left.is_empty(), "processes are left: {left:?}");
    assert_eq!(std::fs::read_dir(bench.directory.path()).expect("it is there").count(), 0, "files are left");
}

/// Starts two instances, sends twenty requests to each, and compares their logs with the requests.
fn each_request_is_answered_once(kind: Kind) {
    let Some(bench) = Bench::new(kind) else { return };
    let mut instances = Instances::start(kind, 2, 8, None, bench.directory.path()).expect("they start");
    assert_eq!(instances.addresses().len(), 2);
    let mut asked = Vec::new();
    // All requests are sent at once, more than there are workers.
    std::thread::scope(|scope| {
        for number in 0..20 {
            for (instance, &address) in instances.addresses().iter().enumerate() {
                let id = format!("request-{instance}-{number}");
                asked.push(id.clone());
                let word = instances.words().get(number).map_or("", String::as_str);
                let path = instances
                    .path()
                    .replace("{cpu_us}", "2000")
                    .replace("{io_us}", "1000")
                    .replace("{stream_us}", "0")
                    .replace("{word}", word);
                scope.spawn(move || assert_eq!(status(&ask(address, &path, &id)), "200"));
            }
        }
    });
    // A failed request does not count as answered.
    for &address in instances.addresses() {
        assert_eq!(status(&ask(address, "/no/such/page", "lost")), "404");
    }
    assert_eq!(instances.ended(), None);
    let family = descendants();
    assert!(family.len() >= 4, "two guards and two servers at least: {family:?}");
    let mut answered = instances.answered().expect("they stop");
    answered.sort();
    asked.sort();
    assert_eq!(answered, asked);
    drop(instances);
    nothing_is_left(&bench, &family);
}

/// Requests 20 ms and 80 ms of CPU time, and compares the use.
fn the_cpu_time_that_is_asked_for_is_used(kind: Kind) {
    const REQUESTS: usize = 25;
    let Some(bench) = Bench::new(kind) else { return };
    let cpu = process::cpus().expect("they can be read")[0];
    let instances = Instances::start(kind, 1, 4, Some(cpu), bench.directory.path()).expect("it starts");
    let [cheap, expensive] = [20, 80].map(|ms| {
        let asked = Duration::from_millis(ms);
        let used = instances.measure(REQUESTS, asked).expect("all are answered");
        assert_eq!(used.requests, REQUESTS);
        // Each of the few processes may add a tick of 10 ms, over all requests.
        assert!(used.cpu >= asked.mul_f64(0.95), "{kind}: {used:?} for {asked:?}");
        assert!(used.cpu <= asked.mul_f64(1.5), "{kind}: {used:?} for {asked:?}");
        assert!(used.mean >= asked && used.p95 >= used.p50, "{kind}: {used:?} for {asked:?}");
        used.cpu.as_secs_f64()
    });
    let ratio = expensive / cheap;
    assert!((3.0..4.6).contains(&ratio), "{kind}: {cheap} s and {expensive} s");
    for id in descendants() {
        let file = Path::new("/proc").join(id.to_string()).join("status");
        let text = std::fs::read_to_string(file).expect("it lives");
        assert!(text.contains(&format!("Cpus_allowed_list:\t{cpu}\n")), "{text}");
    }
    let (page, _) = instances.path().split_once('?').expect("it has a query");
    for bad in ["", "us=", "us=-1", "us=1e3", "us=99999999", "us=8000x"] {
        let reply = ask(instances.addresses()[0], &format!("{page}?{bad}"), "bad");
        assert_eq!(status(&reply), "400", "{kind} {bad}: {reply}");
    }
    // This time without a stop before.
    let family = descendants();
    drop(instances);
    nothing_is_left(&bench, &family);
}

#[test]
fn cgit_shows_files_differences_and_archives() {
    let Some(bench) = Bench::new(Kind::Cgit) else { return };
    let instances = Instances::start(Kind::Cgit, 1, 2, None, bench.directory.path()).expect("it starts");
    let show = |page: &str| ask(instances.addresses()[0], &format!("/cgit.php?url=repo/{page}"), "page");
    for (page, content) in [
        ("tree/part-7/text-7.txt", "text-7.txt"),
        ("log/", "Change 999"),
        ("commit/", "Move the lines of some files."),
        ("diff/&id2=main~3", "part-"),
        ("blame/part-7/text-7.txt", "Change"),
        ("snapshot/repo-main.tar.gz", "application/x-gzip"),
    ] {
        let reply = show(page);
        assert!(status(&reply) == "200" && reply.contains(content), "{page}: {reply}");
    }
    assert_eq!(status(&show("tree/no-such-file")), "404");
    assert_eq!(status(&ask(instances.addresses()[0], "/robots.txt", "check")), "200");
}

#[test]
fn mediawiki_shows_pages_lists_and_histories_and_its_database_is_counted() {
    let Some(bench) = Bench::new(Kind::MediaWiki) else { return };
    let instances = Instances::start(Kind::MediaWiki, 2, 2, None, bench.directory.path()).expect("they start");
    let titles: BTreeSet<&String> = instances.words().iter().collect();
    assert_eq!(titles.len(), 300, "no page twice");
    for &address in instances.addresses() {
        let page = ask(address, "/index.php?title=Page_17", "page");
        assert!(page.contains("Section 11") && page.contains("another one"), "{page}");
        let history = ask(address, "/index.php?title=Page_17&action=history", "history");
        assert!(history.contains("Revision history"), "{history}");
        let found = ask(address, "/index.php?title=Special:Search&search=warranty", "search");
        assert!(found.contains("Search results"), "{found}");
        let text = "/api.php?action=parse&contentmodel=wikitext&format=json&text=%7B%7BVolume%7CPage_17%7D%7D";
        let volume = ask(address, text, "volume");
        assert_eq!(volume.matches("Section 11").count() % 16, 0, "{volume}");
        assert!(volume.contains("Section 11"), "{volume}");
    }
    let used = instances.measure(20, Duration::ZERO).expect("all are answered");
    assert!(used.cpu > Duration::from_millis(1), "{used:?}");
    let family = descendants();
    drop(instances);
    nothing_is_left(&bench, &family);
}

fn it_waits_and_streams(kind: Kind, page: &str) {
    let Some(bench) = Bench::new(kind) else { return };
    let instances = Instances::start(kind, 1, 2, None, bench.directory.path()).expect("it starts");
    let address = instances.addresses()[0];
    let before = instances.cpu_time();
    let waited = ask(address, &format!("{page}?us=0&wait=500000"), "wait");
    assert_eq!(status(&waited), "200", "{waited}");
    let used = instances.cpu_time().saturating_sub(before);
    assert!(used < Duration::from_millis(400), "it has waited with a CPU: {used:?}");
    for bad in ["us=0&wait=x", "us=0&wait=61000000", "us=0&stream=-1"] {
        assert_eq!(status(&ask(address, &format!("{page}?{bad}"), "bad")), "400", "{bad}");
    }
    // The stream ends after a minute. Its first event comes long before.
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket has this");
    let head = format!("GET {page}?us=0&stream=60000000 HTTP/1.1\r\nHost: test\r\nX-Request-Id: events\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it reads");
    let (mut seen, mut part) = (Vec::new(), [0; 1000]);
    while !String::from_utf8_lossy(&seen).contains("event\n") {
        let read = stream.read(&mut part).expect("an event comes");
        assert!(read > 0, "it has ended: {}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&part[..read]);
    }
    assert!(!seen.ends_with(b"0\r\n\r\n"), "it has ended: {}", String::from_utf8_lossy(&seen));
    drop(stream);
    let family = descendants();
    drop(instances);
    nothing_is_left(&bench, &family);
}

/// Kills one of two instances and starts it again, and stops the other where it is.
fn it_can_be_killed_and_frozen(kind: Kind) {
    let Some(bench) = Bench::new(kind) else { return };
    let mut instances = Instances::start(kind, 2, 2, None, bench.directory.path()).expect("they start");
    let addresses = instances.addresses().to_vec();
    let word = instances.words().first().cloned().unwrap_or_default();
    let marks = [("{cpu_us}", "0"), ("{io_us}", "0"), ("{stream_us}", "0"), ("{word}", word.as_str())];
    let path = marks.iter().fold(instances.path().to_owned(), |path, (mark, value)| path.replace(mark, value));
    let used = instances.cpu_time();
    instances.set_killed(0, true).expect("it can be killed");
    assert!(TcpStream::connect(addresses[0]).is_err(), "it is gone");
    assert_eq!(instances.ended(), None, "it has not ended by itself");
    assert!(instances.cpu_time() >= used, "its CPU time counts on");
    assert_eq!(status(&ask(addresses[1], &path, "other")), "200");
    instances.set_killed(0, false).expect("it can be started again");
    let serves = || TcpStream::connect(addresses[0]).is_ok() && status(&ask(addresses[0], &path, "again")) == "200";
    while !serves() {
        clock::pause(Duration::from_millis(10));
    }
    instances.set_frozen(1, true).expect("it can be stopped");
    let mut stream = TcpStream::connect(addresses[1]).expect("the system accepts");
    stream.set_read_timeout(Some(Duration::from_millis(500))).expect("a socket has this");
    let head = format!("GET {path} HTTP/1.1\r\nHost: test\r\nX-Request-Id: frozen\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("the system takes it");
    let mut reply = String::new();
    assert!(stream.read_to_string(&mut reply).is_err() && reply.is_empty(), "it answers nothing: {reply}");
    instances.set_frozen(1, false).expect("it goes on");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket has this");
    stream.read_to_string(&mut reply).expect("it answers");
    assert_eq!(status(&reply), "200");
    // One that is stopped while it is frozen ends in good order.
    instances.set_frozen(1, true).expect("it can be stopped");
    let family = descendants();
    let answered = instances.answered().expect("they stop");
    assert!(["other", "again", "frozen"].iter().all(|id| answered.iter().any(|own| own == id)), "{answered:?}");
    drop(instances);
    nothing_is_left(&bench, &family);
}

#[test]
fn xapian_finds_pages_and_its_searches_are_counted() {
    let Some(bench) = Bench::new(Kind::Xapian) else { return };
    let instances = Instances::start(Kind::Xapian, 1, 4, None, bench.directory.path()).expect("it starts");
    let words: BTreeSet<&String> = instances.words().iter().collect();
    assert_eq!(words.len(), 1000, "no search twice");
    let page = ask(instances.addresses()[0], &instances.path().replace("{word}", "scheduler"), "page");
    assert!(page.contains("/scheduler/"), "a page about it is found: {page}");
    // Each search is a separate program that has exited when it is counted.
    let used = instances.measure(100, Duration::ZERO).expect("all are answered");
    assert!(used.cpu > Duration::from_millis(1) && used.cpu < used.mean.mul_f64(1.5), "{used:?}");
}

/// Declares a test for each of these kinds of a service, which calls the function of the module's name.
macro_rules! of_kinds {
    ($check:ident: $($name:ident = $kind:ident $(at $page:literal)?),+) => {
        mod $check {
            use super::*;

            $(
                #[test]
                fn $name() {
                    super::$check(Kind::$kind $(, $page)?);
                }
            )+
        }
    };
}

of_kinds! {
    each_request_is_answered_once:
    apache_php = ApachePhp, tomcat = Tomcat, xapian = Xapian, gunicorn = Gunicorn, cgit = Cgit, mediawiki = MediaWiki
}
of_kinds! { the_cpu_time_that_is_asked_for_is_used: gunicorn = Gunicorn, apache_php = ApachePhp, tomcat = Tomcat }
of_kinds! { it_can_be_killed_and_frozen: gunicorn = Gunicorn, apache_php = ApachePhp, mediawiki = MediaWiki }
of_kinds! { it_waits_and_streams: gunicorn = Gunicorn at "/loop", apache_php = ApachePhp at "/loop.php" }

/// Measures the figures of `docs/guide/services.md`.
#[test]
#[ignore = "measures for minutes, on a machine that should do nothing else"]
fn figures() {
    let cpu = *process::cpus().expect("they can be read").last().expect("there is one");
    let asked = [
        (Kind::ApachePhp, 0),
        (Kind::ApachePhp, 8),
        (Kind::Tomcat, 0),
        (Kind::Tomcat, 8),
        (Kind::Xapian, 0),
        (Kind::MediaWiki, 0),
        (Kind::Gunicorn, 0),
        (Kind::Gunicorn, 8),
        (Kind::Cgit, 0),
    ];
    for (kind, cost) in asked {
        let Some(bench) = Bench::new(kind) else { continue };
        let cost = Duration::from_millis(cost);
        let instances = Instances::start(kind, 2, 150, Some(cpu), bench.directory.path()).expect("they start");
        let alone = instances.measure(1000, cost).expect("all are answered");
        let rate = instances.capacity(4, cost, Duration::from_secs(10)).expect("all are answered");
        say(&format!("{kind}, {cost:?} asked: {alone:?}; two instances on one CPU do {rate:.0}/s"));
    }
}
