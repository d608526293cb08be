//! The archive, and the packages for Debian and for systems with rpm. All contain the same program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Release, VERSION, empty, tree, write};
use crate::repository::text;
use crate::steps::{read, show};

/// Scripts of the Debian package, which run as root when it is installed and removed.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Maintainer of the packages, as in `packaging/deb/control`.
const MAINTAINER: &str = "The Weirgate maintainers <maintainers@weirgate.invalid>";

/// Makes `weirgate-VERSION-ARCHITECTURE-linux.tar.gz`: what one needs without a package manager.
pub(super) fn archive(release: &Release) -> Result<(), String> {
    let name = format!("weirgate-{VERSION}-{}-linux", std::env::consts::ARCH);
    let (packed_from, folder) = (release.work.join("archive"), release.work.join("archive").join(&name));
    empty(&folder)?;
    let installed = release.work.join("tree");
    tree::make(release, &installed)?;
    for (from, to, mode) in [
        ("usr/bin/weirgate", "weirgate", 0o755),
        ("etc/weirgate/policy.yaml", "policy.yaml", 0o644),
        ("usr/lib/systemd/system/weirgate.service", "weirgate.service", 0o644),
        ("usr/lib/sysusers.d/weirgate.conf", "sysusers.conf", 0o644),
        ("usr/share/doc/weirgate/LICENSE", "LICENSE", 0o644),
        ("usr/share/doc/weirgate/README.md", "README.md", 0o644),
        ("usr/share/doc/weirgate/THIRD-PARTY.gz", "THIRD-PARTY.gz", 0o644),
    ] {
        tree::copy(&installed.join(from), &folder.join(to), mode)?;
    }
    for (from, to) in [("CHANGELOG.md", "CHANGELOG.md"), ("packaging/Containerfile", "Containerfile")] {
        tree::copy(&crate::root().join(from), &folder.join(to), 0o644)?;
    }
    for part in ["man", "bash-completion", "zsh", "fish"] {
        show(release.tool("cp").arg("-R").arg(installed.join("usr/share").join(part)).arg(folder.join(part)))?;
    }
    let file = release.file(&format!("{name}.tar"));
    packed(release, &packed_from, &[&name], &file)?;
    show(release.tool("gzip").args(["-9", "--no-name"]).arg(&file))
}

/// Packs `names` in `folder` as the same bytes every time: sorted, of root, and as old as the commit.
pub(super) fn packed(release: &Release, folder: &Path, names: &[&str], file: &Path) -> Result<(), String> {
    let mut tar = release.tool("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"]);
    tar.arg(format!("--mtime=@{}", release.epoch)).args(["--create", "--file"]).arg(file);
    show(tar.arg("--directory").arg(folder).args(names))
}

/// Makes the Debian package of `version`, and returns its path.
pub(super) fn deb(release: &Release, version: &str) -> Result<PathBuf, String> {
    let root = release.work.join("deb");
    tree::make(release, &root)?;
    let templates = crate::root().join("packaging/deb");
    for name in SCRIPTS {
        tree::copy(&templates.join(name), &root.join("DEBIAN").join(name), 0o755)?;
    }
    tree::copy(&templates.join("conffiles"), &root.join("DEBIAN/conffiles"), 0o644)?;
    let documents = root.join("usr/share/doc/weirgate");
    // Debian has one place for each of these.
    fs::remove_file(documents.join("LICENSE")).map_err(|e| e.to_string())?;
    tree::copy(&templates.join("copyright"), &documents.join("copyright"), 0o644)?;
    let date = read(Command::new("date").args(["--utc", "--rfc-email", "--date", &format!("@{}", release.epoch)]))?;
    let changes = documents.join("changelog");
    write(
        &changes,
        &format!("weirgate ({version}) stable; urgency=medium\n\n  * See CHANGELOG.md.gz.\n\n -- {MAINTAINER}  {date}"),
    )?;
    show(release.tool("gzip").args(["-9", "--no-name"]).arg(&changes))?;
    let shell = "find etc usr -type f -printf '%p\\n' | LC_ALL=C sort | xargs md5sum && du -sk --apparent-size etc usr";
    let listed = Command::new("sh").args(["-c", shell]).current_dir(&root).output().map_err(|e| e.to_string())?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let (sums, sizes): (Vec<&str>, Vec<&str>) = listed.lines().partition(|line| line.contains("  "));
    let kilobytes: u64 = sizes.iter().filter_map(|line| line.split('\t').next()?.parse::<u64>().ok()).sum();
    write(&root.join("DEBIAN/md5sums"), &sums.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    let control = text(&templates.join("control"))?
        .replace("@VERSION@", version)
        .replace("@ARCHITECTURE@", debian_architecture())
        .replace("@KILOBYTES@", &kilobytes.to_string());
    write(&root.join("DEBIAN/control"), &control)?;
    let file = release.file(&format!("weirgate_{version}_{}.deb", debian_architecture()));
    show(release.tool("dpkg-deb").args(["--root-owner-group", "-Zxz", "--build"]).arg(&root).arg(&file))?;
    Ok(file)
}

/// Packs the files of the last [`deb`] once more, in `folder`, as `version`. Without compression, to save time.
pub(super) fn repack(release: &Release, folder: &Path, version: &str) -> Result<(), String> {
    let root = release.work.join("deb");
    let control = text(&root.join("DEBIAN/control"))?;
    let lines = control.lines().map(|line| match line.starts_with("Version: ") {
        true => format!("Version: {version}\n"),
        false => format!("{line}\n"),
    });
    write(&root.join("DEBIAN/control"), &lines.collect::<String>())?;
    show(release.tool("dpkg-deb").args(["--root-owner-group", "-Znone", "--build"]).arg(&root).arg(folder))
}

/// Makes the rpm package.
pub(super) fn rpm(release: &Release) -> Result<(), String> {
    if read(Command::new("rpmbuild").arg("--version")).is_err() {
        println!("   SKIPPED: no rpm package, because rpmbuild is missing: apt-get install rpm");
        return Ok(());
    }
    let (top, spec) = (release.work.join("rpm"), crate::root().join("packaging/rpm/weirgate.spec"));
    let define = |name: &str, value: &Path| format!("{name} {}", value.display());
    show(
        release
            .tool("rpmbuild")
            .arg("-bb")
            .args(["--define", &define("_topdir", &top)])
            .args(["--define", &define("tree", &release.work.join("tree"))])
            .args(["--define", &format!("version {VERSION}")])
            .arg("--quiet")
            .arg(spec),
    )?;
    let architecture = std::env::consts::ARCH;
    let name = format!("weirgate-{VERSION}-1.{architecture}.rpm");
    let made = top.join("RPMS").join(architecture).join(&name);
    fs::copy(&made, release.file(&name)).map(|_| ()).map_err(|e| format!("{}: {e}", made.display()))
}

/// Debian's name of this machine's processors.
fn debian_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
