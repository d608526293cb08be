//! Rules for the files in `packaging/`: documentation quotes them word for word, systemd accepts the units, and
//! Prometheus its rules.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::repository::{report, text};
use crate::steps::read;

/// A page, and the files below `packaging/` that it quotes. The files are the source.
const QUOTED: [(&str, &[&str]); 1] =
    [("docs/guide/restarts.md", &["systemd/weirgate.service", "systemd/weirgate.socket"])];

/// Highest exposure that `systemd-analyze security` may find, in tenths. 2.0 is the limit of what it calls "OK".
const MAX_EXPOSURE: &str = "20";

/// Programs that the units start, which systemd looks for.
const STARTED: [&str; 2] = ["usr/bin/weirgate", "bin/kill"];

/// Checks every rule.
pub(crate) fn check() -> Result<(), String> {
    let mut faults = Vec::new();
    for (page, files) in QUOTED {
        let written = text(&crate::root().join(page))?;
        for file in files {
            if !written.contains(&format!("\n```\n{}```\n", text(&packaging(file))?)) {
                faults.push(format!("{page} does not quote packaging/{file} as it is: copy it there"));
            }
        }
    }
    if read(Command::new("promtool").arg("--version")).is_ok() {
        let rules = |words: [&str; 2], file: &str| read(Command::new("promtool").args(words).arg(packaging(file)));
        faults.extend(rules(["check", "rules"], "prometheus/alerts.yaml").err());
        faults.extend(rules(["test", "rules"], "prometheus/alerts_test.yaml").err());
    } else {
        println!("   SKIPPED: the alert rules are not tried: promtool is in Debian's package `prometheus`");
    }
    if read(Command::new("systemd-analyze").arg("--version")).is_err() {
        println!("   SKIPPED: the units are not checked, because there is no systemd-analyze");
        return report(&faults);
    }
    faults.extend(verify(["weirgate.service", "weirgate.socket"]).err());
    let unit = packaging("systemd/weirgate.service");
    let security = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--threshold", MAX_EXPOSURE])
        .arg(&unit)
        .output()
        .map_err(|e| format!("systemd-analyze: {e}"))?;
    let table = String::from_utf8_lossy(&security.stdout);
    let verdict = table.lines().rev().find(|line| line.contains("exposure")).unwrap_or_default();
    println!("   {}", verdict.trim_start_matches(['→', ' ']));
    if !security.status.success() {
        faults.push(format!("{}: {verdict}: more than {MAX_EXPOSURE} tenths", unit.display()));
    }
    report(&faults)
}

/// Lets systemd read `units` in a root of their own, beside the units that they name.
fn verify(units: [&str; 2]) -> Result<(), String> {
    let root = Root::new()?;
    for program in STARTED {
        root.copy(Path::new("/bin/true"), program)?;
    }
    let ours = "usr/lib/systemd/system";
    let theirs = [Path::new("/usr/lib/systemd/system"), Path::new("/lib/systemd/system")];
    let theirs = theirs.into_iter().find(|path| path.is_dir()).ok_or("systemd has no units here")?;
    for unit in fs::read_dir(theirs).map_err(|e| format!("{}: {e}", theirs.display()))?.flatten() {
        // Aliases point out of the root, and folders hold settings of this machine.
        if unit.file_type().is_ok_and(|kind| kind.is_file()) {
            root.copy(&unit.path(), &format!("{ours}/{}", unit.file_name().display()))?;
        }
    }
    for unit in units {
        root.copy(&packaging(&format!("systemd/{unit}")), &format!("{ours}/{unit}"))?;
    }
    let mut command = Command::new("systemd-analyze");
    command.arg("verify").arg("--man=no").arg(format!("--root={}", root.0.display())).args(units);
    let output = command.output().map_err(|e| format!("systemd-analyze: {e}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    // Warnings leave the exit code at 0.
    let said: Vec<&str> = said.lines().filter(|line| units.iter().any(|unit| line.contains(unit))).collect();
    match output.status.success() && said.is_empty() {
        true => Ok(()),
        false => Err(format!("systemd-analyze verify: {}: {}", output.status, said.join("; "))),
    }
}

/// A folder that is removed with this value.
struct Root(PathBuf);

impl Root {
    fn new() -> Result<Root, String> {
        let made = read(Command::new("mktemp").args(["--directory", "--tmpdir", "weirgate-units.XXXXXX"]))?;
        Ok(Root(PathBuf::from(made.trim())))
    }

    /// Copies `from` to the path `to` below the root.
    fn copy(&self, from: &Path, to: &str) -> Result<(), String> {
        let to = self.0.join(to);
        let made = to.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::copy(from, &to));
        made.map(|_| ()).map_err(|e| format!("{}: {e}", to.display()))
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn packaging(file: &str) -> PathBuf {
    crate::root().join("packaging").join(file)
}
