//! How often each part of the program runs under load: a profile, by which the compiler optimises a release.
//!
//! The repository keeps one, because two profiles are never the same, and releases should be. `cargo xtask train` makes
//! it anew: it builds a program that counts, and loads it. Decision 29 (`docs/adr/0029-releases-by-profile.md`) says
//! what it gains, and what a profile that is older than the code costs.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{build, commit_time, dist, empty, tree};
use crate::steps::{read, show};
use crate::{instructions, proxy_cpu, tls};

/// Seconds of each load over plain connections. The program that counts serves thousands of requests a second.
const SECONDS: u32 = 5;

/// Requests, one at a time, of each case of `bench instructions`.
const REQUESTS: u32 = 20_000;

/// Commands of the program that an operator waits for. What no load has run is optimised as without a profile.
const COMMANDS: [&[&str]; 3] =
    [&["demo", "--plain"], &["sim", "experiments/quorum-fig9.yaml"], &["sim", "experiments/mqos-guarantees.yaml"]];

/// The profile of the machine's architecture, compressed. An architecture may have none.
fn kept() -> PathBuf {
    crate::root().join(format!("packaging/profile/{}.profdata.gz", std::env::consts::ARCH))
}

/// Unpacks the kept profile into `folder`. Its name changes with its content, because cargo compares the flags of two
/// builds and not the files that they name.
pub(super) fn unpacked(folder: &Path) -> Result<Option<PathBuf>, String> {
    let kept = kept();
    if !kept.exists() {
        println!("   there is no {}: this release is slower than it could be", crate::repository::relative(&kept));
        return Ok(None);
    }
    let sum = read(Command::new("sha256sum").arg(&kept))?;
    let to = folder.join(format!("{}.profdata", sum.get(..16).unwrap_or_default()));
    // The compiler counts the file as a source, so to write it again would have everything built again. It gets its
    // name when it is complete.
    if !to.exists() {
        let part = folder.join("part");
        let packed = part.with_extension("gz");
        tree::copy(&kept, &packed, 0o644)?;
        read(Command::new("gzip").args(["--decompress", "--force"]).arg(packed))?;
        std::fs::rename(&part, &to).map_err(|e| format!("{}: {e}", to.display()))?;
    }
    Ok(Some(to))
}

/// Makes the profile of this architecture anew.
pub(crate) fn train() -> Result<(), String> {
    let folder = dist().join("train");
    let counts = folder.join("counts");
    empty(&counts)?;
    let merge = profdata()?;
    let program = build::program(&folder, &commit_time()?, &format!("-Cprofile-generate={}", counts.display()))?;
    println!("   loads:");
    proxy_cpu::play(&program, SECONDS)?;
    instructions::play(&program, REQUESTS)?;
    tls::play(&program, &folder.join("tls"))?;
    for words in COMMANDS {
        println!("   weirgate {}", words.join(" "));
        // It exits with 1 if a guarantee was missed, as may happen to a program that counts.
        read(Command::new("sh").args(["-c", "\"$@\" || test $? = 1", "sh"]).arg(&program).args(words))?;
    }
    let merged = folder.join("merged.profdata");
    // Sparse: functions that never ran are left out. With counts of zero the compiler would make them small and slow.
    show(Command::new(merge).args(["merge", "--sparse", "--output"]).arg(&merged).arg(&counts))?;
    show(Command::new("gzip").args(["--best", "--no-name", "--force"]).arg(&merged))?;
    tree::copy(&merged.with_extension("profdata.gz"), &kept(), 0o644)?;
    println!("   written to {}", crate::repository::relative(&kept()));
    Ok(())
}

/// The program that merges counts. It must be of the compiler's LLVM, so it comes with the toolchain.
fn profdata() -> Result<PathBuf, String> {
    show(Command::new("rustup").args(["component", "add", "llvm-tools"]))?;
    let host = read(Command::new("rustc").args(["--print", "host-tuple"]))?;
    let root = read(Command::new("rustc").args(["--print", "sysroot"]))?;
    Ok(Path::new(root.trim()).join("lib/rustlib").join(host.trim()).join("bin/llvm-profdata"))
}
