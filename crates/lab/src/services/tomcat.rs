//! Tomcat with a page that burns CPU time.
//!
//! The page is a JSP. Tomcat compiles it at the first request for it, so no JDK is needed. If the lab runs
//! as root, so does Tomcat, but it listens only on loopback and has only this page.

use rustix::process::Signal;

use super::guarded::Guarded;
use super::instance::{Place, Server};

/// Home directory of Tomcat in Debian.
const HOME: &str = "/usr/share/tomcat10";

/// The classes that start it.
const CLASSES: [&str; 2] = ["/usr/share/tomcat10/bin/bootstrap.jar", "/usr/share/tomcat10/bin/tomcat-juli.jar"];

/// Path of Java in Debian.
const PROGRAM: &str = "/usr/bin/java";

/// The files that must exist.
pub(super) const NEEDS: [&str; 3] = [CLASSES[0], CLASSES[1], PROGRAM];

/// Options of the JVM for an instance with one CPU: a collector without threads of its own, and only the
/// compiler that finishes soon, because the other one competes with requests for the CPU for minutes. The
/// heap has room for a thousand connections of about 16 kB each, and little else.
const MACHINE: [&str; 6] = [
    "-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
];

/// Without this option, a Tomcat with a taken port would go on without serving.
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
        // Directory for the files of the JVM and of Tomcat.
        ("temp/README", "Tomcat's temporary files.\n"),
    ];
    files.iter().try_for_each(|(name, text)| place.directory.write(name, text, &words))?;
    // Written unchanged, because `%` is Java code there.
    place.directory.write("webapps/ROOT/loop.jsp", include_str!("loop.jsp"), &[])
}

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
    // Upon SIGTERM it stops its connector, finishes its requests, and closes its log.
    Ok(vec![(Guarded::start("tomcat", &words, place.cpu, place.directory.path())?, Signal::TERM)])
}
