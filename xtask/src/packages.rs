//! Debian packages and a script that tests of real processes need: installs the missing ones.
//!
//! Tests run real servers and a real load generator together with the gateway. Each test starts its own
//! processes with its own configuration. Services that the packages start are stopped at once.

use std::process::{Command, Stdio};

use crate::steps::{read, show, target};

/// A package, why tests need it, and the service it starts when it is installed.
struct Package {
    name: &'static str,
    why: &'static str,
    service: Option<&'static str>,
}

const PACKAGES: [Package; 13] = [
    Package { name: "apache2", why: "unmodified servers behind the gateway", service: Some("apache2") },
    Package { name: "etcd-server", why: "elections and records of a site of gateways", service: Some("etcd") },
    Package { name: "etcd-client", why: "users and roles of that etcd", service: None },
    Package { name: "php-fpm", why: "the CPU loop of the lab's services", service: None },
    Package { name: "libapache2-mod-php", why: "pages with a cost parameter on them", service: None },
    Package { name: "nginx-light", why: "origin of the replayed log, peer in benchmarks", service: Some("nginx") },
    Package { name: "haproxy", why: "the peer that the gateway is compared with", service: Some("haproxy") },
    Package { name: "chromium", why: "the browser that shows the live page", service: None },
    Package { name: "chromium-driver", why: "drives that browser", service: None },
    Package { name: "iproute2", why: "a wire of known bandwidth, and networks of their own for tests", service: None },
    Package { name: "iptables", why: "connections that the kernel intercepts for the gateway", service: None },
    Package { name: "pebble", why: "an authority that issues certificates", service: None },
    Package { name: "wrk", why: "load of the benchmarks, and the generator that ours is held against", service: None },
];

/// Set to `1` to do without the packages. Tests that need them then report that they are skipped.
pub(crate) const SKIP: &str = "WEIRGATE_SKIP_PACKAGES";

/// The program that looks for faults of accessibility in pages, from npm: Debian does not have it.
const AXE: &str = "axe-core@4.14.1";

/// Installs the missing packages.
pub(crate) fn install() -> Result<(), String> {
    if std::env::var_os(SKIP).is_some_and(|value| value == "1") {
        println!("   {SKIP}=1: nothing is installed; tests whose programs are missing say that they are skipped");
        return Ok(());
    }
    axe();
    let missing: Vec<&Package> = PACKAGES.iter().filter(|p| !installed(p.name)).collect();
    if missing.is_empty() {
        println!("   all {} packages are installed", PACKAGES.len());
        return Ok(());
    }
    for package in &missing {
        println!("   missing: {} ({})", package.name, package.why);
    }
    let names: Vec<&str> = missing.iter().map(|p| p.name).collect();
    if let Some(obstacle) = obstacle() {
        return Err(format!(
            "tests need Debian packages, and {obstacle}.\n   either: sudo apt-get install --no-install-recommends {}\n   \
             or leave those tests out: {SKIP}=1 cargo xtask test",
            names.join(" ")
        ));
    }
    show(Command::new("apt-get").args(["-qq", "update"]))?;
    show(
        Command::new("apt-get")
            .args(["-qq", "--yes", "--no-install-recommends", "install"])
            .args(&names)
            .env("DEBIAN_FRONTEND", "noninteractive")
            // Progress of dpkg is of no use in a log.
            .stdout(Stdio::null()),
    )?;
    for service in missing.iter().filter_map(|p| p.service) {
        stop(service);
    }
    Ok(())
}

/// Fetches [`AXE`] into the target folder. Without it only the tests of accessibility are skipped, so a failure is no
/// error.
fn axe() {
    let folder = target().join("axe");
    if folder.join("node_modules/axe-core/axe.min.js").exists() {
        return;
    }
    let fetched = std::fs::create_dir_all(&folder).map_err(|e| e.to_string()).and_then(|()| {
        read(Command::new("npm").args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&folder).arg(AXE))
    });
    if let Err(why) = fetched {
        println!("   {AXE} cannot be fetched, so that accessibility is not tested: {why}");
    }
}

/// Why packages cannot be installed here, if they cannot.
fn obstacle() -> Option<&'static str> {
    let apt = Command::new("apt-get").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !apt.is_ok_and(|status| status.success()) {
        return Some("this system has no apt-get");
    }
    match read(Command::new("id").arg("-u")) {
        Ok(user) if user.trim() == "0" => None,
        _ => Some("only root may install them"),
    }
}

fn installed(package: &str) -> bool {
    read(Command::new("dpkg-query").args(["--show", "--showformat=${db:Status-Status}", package]))
        .is_ok_and(|status| status == "installed")
}

/// Stops a service that its package has just started. Failure does no harm: tests use ports of their
/// own, so a service that runs on only takes memory.
fn stop(service: &str) {
    println!("   stopping the service {service}: tests start their own");
    if let Err(why) = read(Command::new("service").args([service, "stop"])) {
        println!("   it may still run: {why}");
    }
}
