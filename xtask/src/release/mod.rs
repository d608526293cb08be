//! `cargo xtask release`: everything that a release attaches, in `target/dist/weirgate-VERSION`.
//!
//! `RELEASING.md` describes the files. Options:
//! - `--output DIR`: another folder.
//! - `--program FILE`: pack this program instead of building one, to try the packages.
//! - `--check`: install, upgrade and remove the package in a system of its own ([`trial`]).
//! - `--again`: build the commit a second time, in another folder, and compare.

mod build;
mod image;
mod licences;
mod packages;
mod profile;
mod tree;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use self::profile::train;
use crate::cargo::cargo;
use crate::steps::{read, show};

/// Version of all crates.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of cargo-sbom that is installed where there is none.
const CARGO_SBOM: &str = "0.10.0";

/// End of the file that differs between two builds: a list of libraries has a random number, and no order.
const NEVER_THE_SAME: &str = ".cdx.json";

#[derive(Default)]
struct Options {
    output: Option<PathBuf>,
    program: Option<PathBuf>,
    check: bool,
    again: bool,
    /// The work of a release whose packages are tried, in a network of its own. `--check` starts it so.
    inside: Option<PathBuf>,
}

impl Options {
    fn read() -> Result<Options, String> {
        let mut options = Options::default();
        let mut words = std::env::args().skip(2);
        while let Some(word) = words.next() {
            let mut file = || words.next().map(PathBuf::from).ok_or(format!("{word} needs a path"));
            match word.as_str() {
                "--output" => options.output = Some(file()?),
                "--program" => options.program = Some(file()?),
                "--check" => options.check = true,
                "--inside" => options.inside = Some(file()?),
                "--again" => options.again = true,
                _ => return Err(format!("{word}: unknown; there are --output, --program, --check and --again")),
            }
        }
        Ok(options)
    }
}

/// A release in the making.
struct Release {
    /// What it attaches.
    output: PathBuf,
    /// Work in progress.
    work: PathBuf,
    /// Seconds since 1970 of the commit: the time of every file.
    epoch: String,
    program: PathBuf,
}

impl Release {
    /// Path of an attached file.
    fn file(&self, name: &str) -> PathBuf {
        self.output.join(name)
    }

    /// `program` with the time that every tool writes into its files.
    fn tool(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SOURCE_DATE_EPOCH", &self.epoch).env("TZ", "UTC").env("LC_ALL", "C.UTF-8");
        command
    }
}

/// Makes the release.
pub(crate) fn run() -> Result<(), String> {
    let options = Options::read()?;
    if let Some(work) = options.inside {
        return trial::inside(&work);
    }
    let dist = dist();
    let output = options.output.unwrap_or_else(|| dist.join(format!("weirgate-{VERSION}")));
    let output = std::path::absolute(output).map_err(|e| e.to_string())?;
    if options.again && !read(Command::new("git").args(["status", "--porcelain"]))?.is_empty() {
        return Err("--again builds the last commit: commit your changes first".to_owned());
    }
    let epoch = commit_time()?;
    let program = options.program.map_or_else(program, Ok)?;
    let work = dist.join("work");
    for folder in [&output, &work] {
        empty(folder)?;
    }
    let program = stripped(&program, &work)?;
    let release = Release { output, work, epoch, program };
    packages::archive(&release)?;
    let deb = packages::deb(&release, VERSION)?;
    packages::rpm(&release)?;
    image::build(&release)?;
    texts(&release)?;
    sums(&release.output)?;
    if options.check {
        trial::run(&release, &deb)?;
    }
    if options.again {
        again(&release)?;
    }
    println!("   {}", release.output.display());
    print!("{}", read(Command::new("cat").arg(release.file("SHA256SUMS")))?);
    Ok(())
}

/// Builds the program of a release.
pub(crate) fn program() -> Result<PathBuf, String> {
    let dist = dist();
    let profile = profile::unpacked(&dist)?;
    let flag = profile.map_or(String::new(), |file| format!("-Cprofile-use={}", file.display()));
    build::program(&dist, &commit_time()?, &flag)
}

/// Place of all builds and files of releases.
fn dist() -> PathBuf {
    crate::root().join("target/dist")
}

/// Seconds since 1970 of the last commit.
fn commit_time() -> Result<String, String> {
    Ok(read(Command::new("git").args(["log", "-1", "--format=%ct"]))?.trim().to_owned())
}

/// Copies the program without its line tables, which are three quarters of it. Names of functions stay, for backtraces.
fn stripped(program: &Path, work: &Path) -> Result<PathBuf, String> {
    let to = work.join("weirgate");
    show(Command::new("strip").arg("--strip-debug").arg("-o").arg(&to).arg(program))?;
    Ok(to)
}

/// The schemas, and the list of all parts of the program.
fn texts(release: &Release) -> Result<(), String> {
    for (of, name) in [("policy", "weirgate.schema.json"), ("experiment", "experiment.schema.json")] {
        write(&release.file(name), &read(Command::new(&release.program).args(["schema", of]))?)?;
    }
    if read(&mut cargo(&["sbom", "--version"])).is_err() {
        println!("   cargo-sbom is missing; building version {CARGO_SBOM} takes about a minute, once");
        show(&mut cargo(&["install", "--locked", "cargo-sbom", "--version", CARGO_SBOM]))?;
    }
    let words = ["sbom", "--cargo-package", "weirgate", "--output-format", "cyclone_dx_json_1_6"];
    write(&release.file(&format!("weirgate-{VERSION}.cdx.json")), &read(&mut cargo(&words))?)
}

/// Writes `SHA256SUMS` of all files in `folder`.
fn sums(folder: &Path) -> Result<(), String> {
    let shell = "LC_ALL=C; export LC_ALL; sha256sum -- $(ls | grep -v SHA256SUMS)";
    let output = Command::new("sh").args(["-c", shell]).current_dir(folder).output().map_err(|e| e.to_string())?;
    write(&folder.join("SHA256SUMS"), &String::from_utf8_lossy(&output.stdout))
}

/// Makes the release once more, from a clone in another folder, and compares the sums.
fn again(release: &Release) -> Result<(), String> {
    let place = read(Command::new("mktemp").args(["--directory", "--tmpdir", "weirgate-again.XXXXXX"]))?;
    let place = PathBuf::from(place.trim());
    let clone = place.join("a/longer/path");
    let root = crate::root();
    show(Command::new("git").args(["clone", "--quiet"]).arg(root).arg(&clone))?;
    let made = Command::new(env!("CARGO"))
        .args(["xtask", "release", "--output"])
        .arg(place.join("release"))
        .current_dir(&clone)
        .status()
        .map_err(|e| format!("cannot start cargo: {e}"))?;
    if !made.success() {
        return Err(format!("the second build ended with {made}"));
    }
    let lines = |folder: &Path| -> Result<Vec<String>, String> {
        let text = fs::read_to_string(folder.join("SHA256SUMS")).map_err(|e| e.to_string())?;
        let same = |line: &&str| !line.ends_with(NEVER_THE_SAME);
        Ok(text.lines().filter(same).map(str::to_owned).collect())
    };
    let (first, second) = (lines(&release.output)?, lines(&place.join("release"))?);
    let different: Vec<&String> = first.iter().filter(|line| !second.contains(line)).collect();
    println!(
        "   second build in {}: {} of {} files are the same",
        clone.display(),
        first.len() - different.len(),
        first.len()
    );
    if !different.is_empty() {
        return Err(format!("the second build in {} differs: {different:?}", place.display()));
    }
    fs::remove_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))
}

/// Makes an empty folder.
fn empty(folder: &Path) -> Result<(), String> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))
}
