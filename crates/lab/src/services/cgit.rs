//! cgit, which shows Git repositories as web pages: a program that a page of PHP runs once for each request.
//!
//! Sites of this kind are the first that crawlers drown: every commit has a difference, every file a history, and every
//! revision an archive, and none of these pages is ever asked for twice. The repository is new in every trial. Its
//! files are cut from the licences that every Debian has, and its history is fixed, so that every trial serves the
//! same pages.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::Kind;
use super::apache::{self, Cgi};
use super::directory::Directory;
use super::instance::Place;
use super::mediawiki::licences;

/// Path of cgit in Debian.
pub(super) const PROGRAM: &str = "/usr/lib/cgit/cgit.cgi";

/// Path of Git in Debian.
pub(super) const GIT: &str = "/usr/bin/git";

/// Number of files. Enough for a tree of several pages, and few enough that a trial begins within seconds.
const FILES: usize = 200;

/// Number of lines of a file, somewhat less than the average of a program's source files.
const LINES: usize = 150;

/// Number of commits, each of which changes [`CHANGED`] files. A history of some years of a small project.
const COMMITS: usize = 1000;

/// Number of files that a commit changes.
const CHANGED: usize = 3;

/// A repository. Dropping it removes it.
#[derive(Debug)]
pub(super) struct Repository {
    directory: Directory,
    /// Paths of its files, as they stand in an address.
    pub(super) paths: Vec<String>,
}

impl Repository {
    /// Makes a new repository in a new directory in `directory`.
    pub(super) fn make(directory: &Path) -> Result<Repository, String> {
        let directory = Directory::new(directory.join("repository"))?;
        let root = directory.text()?;
        git(&["init", "--quiet", "--bare", "--initial-branch=main", root], b"")?;
        git(&["--git-dir", root, "fast-import", "--quiet"], &history(&licences()?))?;
        Ok(Repository { paths: (0..FILES).map(path).collect(), directory })
    }

    /// Writes the configuration of an instance, and the page.
    pub(super) fn prepare(&self, place: &Place) -> Result<(), String> {
        let cgi = Cgi { page: "cgit.php", program: PROGRAM, variable: "CGIT_CONFIG", configuration: "cgitrc" };
        apache::prepare_cgi(place, &cgi)?;
        // A file that costs next to nothing, for health checks.
        place.directory.write("pages/robots.txt", "User-agent: *\nDisallow:\n", &[])?;
        place.directory.write("cgitrc", include_str!("cgitrc"), &[("REPOSITORY", self.directory.text()?)])
    }
}

/// Returns the path of a file.
fn path(file: usize) -> String {
    format!("part-{}/text-{file}.txt", file % 10)
}

/// Returns the history in the language of `git fast-import`.
fn history(lines: &[String]) -> Vec<u8> {
    let mut stream = String::new();
    for commit in 0..COMMITS {
        let message = format!("Change {commit}\n\nMove the lines of some files.\n");
        // One commit an hour from the first second of 2020 on.
        let at = 1_577_836_800 + commit * 3600;
        stream += &format!("commit refs/heads/main\ncommitter Lab <lab@localhost> {at} +0000\n");
        stream += &format!("data {}\n{message}", message.len());
        // The first one makes all files.
        let changed = if commit == 0 { 0..FILES } else { commit * CHANGED..(commit + 1) * CHANGED };
        for file in changed.map(|file| file % FILES) {
            let text = text(file, commit, lines);
            stream += &format!("M 100644 inline {}\ndata {}\n{text}\n", path(file), text.len());
        }
    }
    stream.into_bytes()
}

/// Returns the text of a file after a commit: one part in ten moves on with each.
fn text(file: usize, commit: usize, lines: &[String]) -> String {
    let mut text = String::new();
    for line in 0..LINES {
        let moved = if line % 10 == commit % 10 { commit } else { 0 };
        // Factors without a common divisor with the number of lines of most texts, so that files differ.
        text += &lines[(file * 37 + line + moved * 101) % lines.len()];
        text.push('\n');
    }
    text
}

/// Runs Git with `input`. Settings of the system and of the user are not read.
fn git(words: &[&str], input: &[u8]) -> Result<(), String> {
    let mut command = Command::new(GIT);
    command.args(words).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut run = || {
        let mut child = command.spawn()?;
        if let Some(mut pipe) = child.stdin.take() {
            // Git that ends early says why.
            let _ = pipe.write_all(input);
        }
        child.wait_with_output()
    };
    let output = run().map_err(|error| format!("{}: {GIT}: {error}", Kind::Cgit))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: git {} failed: {}", Kind::Cgit, words.join(" "), String::from_utf8_lossy(&output.stderr)))
}
