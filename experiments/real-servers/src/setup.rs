//! What the figures depend on.

use std::process::Command;

use crate::terms::SURGE;

/// Processes that ran or wanted to run in the last minute, on average.
#[must_use]
pub fn load_average() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}

/// The text of `SETUP.md` for a run with these words on its command line and this load before it.
#[must_use]
pub fn setup(words: &str, load: &str) -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or_default();
    let cores = cpu.lines().filter(|l| l.starts_with("processor")).count();
    let package = |name: &str| line("dpkg-query", &["--show", "--showformat=${Package} ${Version}", name]);
    format!(
        "# Setup\n\n`experiments/real-servers/run{words}`, see `experiments/real-servers/README.md` for the method.\n\n\
         - {date}, commit {commit}\n\
         - {cores} cores, {model}; Linux {kernel}; load average before {load}\n\
         - {rust}, profile `{profile}`\n\
         - {apache}, {php}, {haproxy} (Debian)\n\
         - servers on one core, load and proxy on another; priority raised where allowed\n\
         - surge: B × {SURGE}; dear: B's requests × 5; judged from the sixth second of a phase\n\
         - the proxies' configurations as they ran are beside this file\n",
        date = line("date", &["+%Y-%m-%d %H:%M %Z"]),
        commit = line("git", &["describe", "--always", "--dirty"]),
        model = model.trim_start_matches(['\t', ' ', ':']),
        kernel = line("uname", &["-r"]),
        rust = line("rustc", &["--version"]),
        profile = if cfg!(debug_assertions) { "dev" } else { "release" },
        apache = package("apache2"),
        php = package("libapache2-mod-php8.2"),
        haproxy = package("haproxy"),
    )
}

/// The first line that a program prints; `unknown` if it does not run.
fn line(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().ok().filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}
