//! The files of a package, where they are installed.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::{Release, empty, write};
use crate::steps::{read, show};

/// Files of the repository by the path where a package puts them, and their mode.
const FILES: [(&str, &str, u32); 13] = [
    ("packaging/policy.yaml", "etc/weirgate/policy.yaml", 0o644),
    ("packaging/hand-over", "usr/lib/weirgate/hand-over", 0o755),
    ("packaging/systemd/weirgate.service", "usr/lib/systemd/system/weirgate.service", 0o644),
    ("packaging/systemd/weirgate.socket", "usr/share/doc/weirgate/examples/weirgate.socket", 0o644),
    ("packaging/sysusers.d/weirgate.conf", "usr/lib/sysusers.d/weirgate.conf", 0o644),
    ("policies/one-site.yaml", "usr/share/doc/weirgate/examples/one-site.yaml", 0o644),
    ("policies/two-tenants.yaml", "usr/share/doc/weirgate/examples/two-tenants.yaml", 0o644),
    ("policies/reference.yaml", "usr/share/doc/weirgate/examples/reference.yaml", 0o644),
    ("packaging/kubernetes/weirgate.yaml", "usr/share/doc/weirgate/examples/kubernetes.yaml", 0o644),
    ("packaging/prometheus/alerts.yaml", "usr/share/doc/weirgate/examples/prometheus-alerts.yaml", 0o644),
    ("packaging/grafana/weirgate.json", "usr/share/doc/weirgate/examples/grafana.json", 0o644),
    ("README.md", "usr/share/doc/weirgate/README.md", 0o644),
    ("LICENSE", "usr/share/doc/weirgate/LICENSE", 0o644),
];

/// Completions by shell.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/weirgate"),
    ("zsh", "usr/share/zsh/vendor-completions/_weirgate"),
    ("fish", "usr/share/fish/vendor_completions.d/weirgate.fish"),
];

/// Lays out the files of a package below `root`.
pub(super) fn make(release: &Release, root: &Path) -> Result<(), String> {
    empty(root)?;
    copy(&release.program, &root.join("usr/bin/weirgate"), 0o755)?;
    for (from, to, mode) in FILES {
        copy(&crate::root().join(from), &root.join(to), mode)?;
    }
    for (shell, to) in COMPLETIONS {
        let text = read(release.tool(&release.program.display().to_string()).args(["completions", shell]))?;
        put(&text, &root.join(to))?;
    }
    let schema = read(release.tool(&release.program.display().to_string()).arg("schema"))?;
    put(&schema, &root.join("usr/share/weirgate/weirgate.schema.json"))?;
    let changes = root.join("usr/share/doc/weirgate/CHANGELOG.md");
    copy(&crate::root().join("CHANGELOG.md"), &changes, 0o644)?;
    let licences = root.join("usr/share/doc/weirgate/THIRD-PARTY");
    write(&licences, &super::licences::texts()?)?;
    let pages = root.join("usr/share/man/man1");
    show(release.tool(&release.program.display().to_string()).args(["man", "--output"]).arg(&pages))?;
    let pages = fs::read_dir(&pages).map_err(|e| e.to_string())?.flatten().map(|entry| entry.path());
    // Without their time, so that they are the same in every build.
    show(release.tool("gzip").args(["-9", "--no-name"]).args([changes, licences]).args(pages))?;
    show(release.tool("chmod").args(["-R", "u=rwX,go=rX"]).arg(root))
}

/// Copies `from` to `to`, in folders that need not exist.
pub(super) fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    let made = to.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::copy(from, to).map(|_| ()));
    let made = made.and_then(|()| fs::set_permissions(to, Permissions::from_mode(mode)));
    made.map_err(|e| format!("{} to {}: {e}", from.display(), to.display()))
}

fn put(text: &str, to: &Path) -> Result<(), String> {
    to.parent().map_or(Ok(()), fs::create_dir_all).map_err(|e| e.to_string())?;
    write(to, text)
}
