//! The image for containers, from the `Containerfile`.

use std::path::Path;
use std::process::Command;

use super::{Release, VERSION, empty, packages, tree};
use crate::steps::{read, show};

/// Certificate authorities of the machine that builds. Debian's package `ca-certificates` has them.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Makes `weirgate-VERSION.oci.tar`, which `podman load` and `skopeo copy` read.
pub(super) fn build(release: &Release) -> Result<(), String> {
    if read(Command::new("buildah").arg("--version")).is_err() {
        println!("   SKIPPED: no image, because buildah is missing: apt-get install buildah");
        return Ok(());
    }
    let context = release.work.join("image");
    empty(&context)?;
    tree::copy(&release.program, &context.join("weirgate"), 0o755)?;
    for (from, to) in [("packaging/policy.yaml", "policy.yaml"), ("packaging/Containerfile", "Containerfile")] {
        tree::copy(&crate::root().join(from), &context.join(to), 0o644)?;
    }
    tree::copy(Path::new(AUTHORITIES), &context.join("ca-certificates.crt"), 0o644)?;
    // A store of its own, which needs no overlay and is removed with the work.
    let store = |words: &[&str]| {
        let mut command = release.tool("buildah");
        command.args(["--storage-driver", "vfs", "--root"]).arg(release.work.join("store")).arg("--runroot");
        command.arg(release.work.join("run")).args(words);
        command
    };
    let tag = format!("weirgate:{VERSION}");
    let build = ["build", "--quiet", "--isolation", "chroot", "--timestamp", &release.epoch, "--tag", &tag];
    show(store(&build).arg(&context))?;
    // Packed here, because buildah's own archive has the time at which it was packed.
    let folder = release.work.join("oci");
    empty(&folder)?;
    show(store(&["push", "--quiet", &tag]).arg(format!("oci:{}:{tag}", folder.display())))?;
    let file = release.file(&format!("weirgate-{VERSION}-{}.oci.tar", std::env::consts::ARCH));
    packages::packed(release, &folder, &["blobs", "index.json", "oci-layout"], &file)
}
