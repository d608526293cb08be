//! Tomcat with a page that burns CPU time.
//!
//! The page is a JSP: Tomcat compiles it itself when it is first asked for, so no JDK is needed. As root, Tomcat
//! runs as root; it listens on loopback and has this one page.

use rustix::process::Signal;

use super::guarded::Guarded;
use super::instance::{Place, Server};

/// Where Debian has Tomcat.
const HOME: &str = "/usr/share/tomcat10";

/// What starts it.
const CLASSES: [&str; 2] = ["/usr/share/tomcat10/bin/bootstrap.jar", "/usr/share/tomcat10/bin/tomcat-juli.jar"];

/// Where Debian has Java.
const PROGRAM: &str = "/usr/bin/java";

/// What must be there.
pub(super) const NEEDS: [&str; 3] = [CLASSES[0], CLASSES[1], PROGRAM];

/// One CPU is what an instance has: a collector without threads of its own, and only the compiler that is soon done
/// (the other one takes CPU time beside the requests for minutes). Room for a thousand connections, which need some
/// 16 kB each, and little else.
const MACHINE: [&str; 6] = [
    "-Xms32m",
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
];

/// Without this a Tomcat whose port is taken runs on and serves nobody.
const EXIT: &str = "-Dorg.apache.catalina.startup.EXIT_ON_INIT_FAILURE=true";

/// Writes its configuration and the page.
pub(super) fn prepare(place: &Place) -> Result<(), String> {
    let (host, port) = (place.address.ip().to_string(), place.address.port().to_string());
    let workers = place.workers.to_string();
    let words = [("HOST", host.as_str()), ("PORT", &port), ("WORKERS", &workers)];
    let files = [
        ("conf/server.xml", include_str!("tomcat-server.xml")),
        ("conf/web.xml", include_str!("tomcat-web.xml")),
        ("webapps/ROOT/WEB-INF/web.xml", include_str!("tomcat-application.xml")),
        // For the JVM's and Tomcat's own files.
        ("temp/README", "Tomcat's temporary files.\n"),
    ];
    files.iter().try_for_each(|(name, text)| place.directory.write(name, text, &words))?;
    // As it is: what stands between % there is Java.
    place.directory.write("webapps/ROOT/loop.jsp", include_str!("loop.jsp"), &[])
}

/// Starts it.
pub(super) fn start(place: &Place) -> Result<Vec<Server>, String> {
    let directory = place.directory.text()?;
    let mut words = vec![PROGRAM.to_owned()];
    words.extend(MACHINE.map(str::to_owned));
    words.extend([
        EXIT.to_owned(),
        format!("-Dcatalina.home={HOME}"),
        format!("-Dcatalina.base={directory}"),
        format!("-Djava.io.tmpdir={directory}/temp"),
        "-cp".to_owned(),
        CLASSES.join(":"),
        "org.apache.catalina.startup.Bootstrap".to_owned(),
        "start".to_owned(),
    ]);
    // Upon SIGTERM it stops its connector, finishes, and closes its log.
    Ok(vec![(Guarded::start("tomcat", &words, place.cpu, place.directory.path())?, Signal::TERM)])
}
