//! The index that Xapian searches, and the searches in it.
//!
//! It is built once from Debian's `linux-doc`, the documentation of Linux (in Debian 12 3185 pages of
//! HTML), and kept in the user's cache. Searches are drawn from its own words, without those that are too
//! rare to be found or that occur on every page. The seed is fixed, so that the same documentation gives
//! the same searches.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use weirgate_emulator::random::Random;

use super::Kind;
use super::guarded::Guarded;
use weirgate_emulator::clock;

/// The program that builds the index.
pub(super) const INDEXER: &str = "/usr/bin/omindex";

/// The program that lists the words of the index.
pub(super) const READER: &str = "/usr/bin/xapian-delve";

/// The documents to search: a large amount of real text, compressed well for download, that every Debian offers.
pub(super) const DOCUMENTS: &str = "/usr/share/doc/linux-doc/html";

/// Version of the index and the searches. Increase it when either is made differently.
const FORMAT: u32 = 1;

/// Number of different searches. An experiment repeats them, and the index pages that they need fit into
/// memory anyway.
const QUERIES: usize = 1000;

/// Maximum number of words in a search. Searches by people have two or three.
const MAX_WORDS: u64 = 3;

/// Minimum and maximum percentage of pages that contain a word of a search. Rarer words are misspellings
/// and symbols, and searching for them costs no more than the start of the program. More frequent words are
/// in the margin of every page.
const FREQUENCY: (usize, usize) = (1, 30);

/// Number of letters of a word. Shorter words are mostly names of variables, longer ones symbols.
const LETTERS: std::ops::RangeInclusive<usize> = 4..=12;

/// Polling interval for the indexer's progress.
const LOOK: Duration = Duration::from_millis(200);

/// An index on disk.
#[derive(Debug)]
pub(super) struct Index {
    /// Directory with the database `docs`.
    pub(super) directory: PathBuf,
    /// Searches in URL form.
    pub(super) queries: Vec<String>,
}

impl Index {
    /// Returns the index of the installed documentation. Builds it first if there is none, while other
    /// processes wait.
    pub(super) fn open() -> Result<Index, String> {
        let cache = cache()?;
        fs::create_dir_all(&cache).map_err(|error| format!("{}: {error}", cache.display()))?;
        let directory = cache.join(format!("xapian-{FORMAT}-linux-doc-{}", version()?));
        let list = directory.join("queries.txt");
        let lock = cache.join("xapian.lock");
        let locked = File::create(&lock).and_then(|file| file.lock().map(|()| file));
        let _locked = locked.map_err(|error| format!("{}: {error}", lock.display()))?;
        if !list.exists() {
            // Removes the remains of a build that was interrupted.
            let building = cache.join("xapian-building");
            let _ = fs::remove_dir_all(&building);
            let fault = |error: std::io::Error| format!("{}: {error}", building.display());
            fs::create_dir(&building).map_err(fault)?;
            build(&building)?;
            fs::write(building.join("queries.txt"), queries(&terms(&building)?)?.join("\n") + "\n").map_err(fault)?;
            fs::rename(&building, &directory).map_err(fault)?;
        }
        let text = fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
        Ok(Index { directory, queries: text.lines().map(str::to_owned).collect() })
    }
}

/// Returns the directory of the cache. Root's own cache is closed to `www-data`, the user of root's
/// servers, so root uses the system's.
fn cache() -> Result<PathBuf, String> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/cache/weirgate"));
    }
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    Ok(base.ok_or("neither XDG_CACHE_HOME nor HOME says where to keep the index")?.join("weirgate"))
}

/// Returns the version of the installed documentation.
fn version() -> Result<String, String> {
    let output = Command::new("dpkg-query").args(["--show", "--showformat=${Version}", "linux-doc"]).output();
    let output = output.map_err(|error| format!("dpkg-query, for the version of linux-doc: {error}"))?;
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() && !version.is_empty() { Ok(version) } else { Err(Kind::Xapian.missing("linux-doc")) }
}

/// Indexes the documentation into `directory/docs`.
fn build(directory: &Path) -> Result<(), String> {
    let pages = pages(Path::new(DOCUMENTS)).map_err(|error| format!("{DOCUMENTS}: {error}"))?;
    let bar = ProgressBar::new(pages).with_message("indexing the documentation of Linux, once");
    // The template is a constant, and the bar's own style serves as well.
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} pages, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    // The sources of the pages are next to them as text files, and would make every search find everything twice.
    let words = [INDEXER, "--verbose", "--db", "docs", "--url", "/", "--mime-type", "txt:ignore", DOCUMENTS];
    let mut indexer = Guarded::start("omindex", &words, None, directory)?;
    let mut seen = 0;
    while indexer.ended().is_none() {
        let log = fs::read_to_string(&indexer.log).unwrap_or_default();
        seen = log.lines().skip(seen).fold(seen, |seen, line| {
            bar.inc(u64::from(line.ends_with("added")));
            seen + 1
        });
        clock::pause(LOOK);
    }
    bar.finish_and_clear();
    if indexer.succeeded() {
        return Ok(());
    }
    let log = fs::read_to_string(&indexer.log).unwrap_or_default();
    Err(format!("{INDEXER} failed: {}", log.lines().last().unwrap_or("no output")))
}

fn pages(directory: &Path) -> std::io::Result<u64> {
    let mut count = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            count += pages(&entry.path())?;
        } else if entry.path().extension().is_some_and(|extension| extension == "html") {
            count += 1;
        }
    }
    Ok(count)
}

/// Returns the size of the index, and each term with the number of its pages, as listed by xapian-delve.
fn terms(directory: &Path) -> Result<(usize, Vec<(String, usize)>), String> {
    let read = |words: &[&str]| {
        let output = Command::new(READER).args(words).arg(directory.join("docs")).output();
        let output = output.map_err(|error| format!("{READER}: {error}"))?;
        if !output.status.success() {
            return Err(format!("{READER}: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let about = read(&[])?;
    let size = about.lines().find_map(|line| line.strip_prefix("number of documents = ")?.trim().parse().ok());
    let size = size.ok_or_else(|| format!("{READER} does not report the number of pages"))?;
    let list = read(&["-a", "-v", "-1"])?;
    let term = |line: &str| {
        let (term, pages) = line.split_once(' ')?;
        Some((term.to_owned(), pages.parse().ok()?))
    };
    Ok((size, list.lines().filter_map(term).collect()))
}

/// Returns the searches: one to three words each that are neither rare nor on every page.
fn queries((size, terms): &(usize, Vec<(String, usize)>)) -> Result<Vec<String>, String> {
    let words: Vec<&str> = terms
        .iter()
        .filter(|(term, pages)| {
            LETTERS.contains(&term.len())
                && term.bytes().all(|letter| letter.is_ascii_lowercase())
                && (FREQUENCY.0 * size..=FREQUENCY.1 * size).contains(&(pages * 100))
        })
        .map(|(term, _)| term.as_str())
        .collect();
    // Pairs alone must give enough different searches.
    if words.len() * words.len() < 2 * QUERIES {
        return Err(format!("only {} of the {} terms of the index are words to search for", words.len(), terms.len()));
    }
    let mut random = Random::new(1);
    let mut below = |bound: usize| (random.unit() * bound as f64) as usize;
    let mut queries = BTreeSet::new();
    let mut drawn = Vec::with_capacity(QUERIES);
    while drawn.len() < QUERIES {
        let count = 1 + below(MAX_WORDS as usize);
        let query: Vec<&str> = (0..count).map(|_| words[below(words.len())]).collect();
        let query = query.join("+");
        if queries.insert(query.clone()) {
            drawn.push(query);
        }
    }
    Ok(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_are_of_the_words_between_rare_and_frequent() {
        let mut terms: Vec<(String, usize)> = Vec::new();
        for a in 'a'..='z' {
            for b in 'a'..='z' {
                terms.push((format!("wo{a}{b}"), 50));
            }
        }
        for (term, pages) in [("rare", 9), ("everywhere", 301), ("cpu", 50), ("Zstemmed", 50), ("x86_64_v2", 50)] {
            terms.push((term.to_owned(), pages));
        }
        let index = (1000, terms);
        let drawn = queries(&index).expect("there are enough words");
        assert_eq!(drawn.len(), QUERIES);
        assert_eq!(drawn, queries(&index).expect("the same"), "the same index, the same searches");
        for count in 1..=3 {
            assert!(drawn.iter().any(|query| query.split('+').count() == count));
        }
        assert!(drawn.iter().flat_map(|query| query.split('+')).all(|word| word.starts_with("wo") && word.len() == 4));
    }

    #[test]
    fn an_index_without_words_is_refused() {
        let error = queries(&(10, vec![("rare".to_owned(), 0)])).expect_err("nothing to search for");
        assert_eq!(error, "only 0 of the 1 terms of the index are words to search for");
    }
}
