//! Counts words that make comments and documentation hard to read, per 1,000 words.
//!
//! It counts `what`, semicolons, and words for persons (`who`, `nobody` and the like), which are mostly written of
//! requests and classes. Code blocks, inline code and link targets do not count. The counts are there to compare
//! texts, so no limit is checked.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use crate::comments;
use crate::repository::{RUNS, files, relative, text};

/// Words for persons. `whose` is not among them, because it is also right for things.
const PERSONS: [&str; 7] = ["who", "whoever", "whom", "nobody", "everybody", "anybody", "somebody"];

/// Counts of some text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    words: usize,
    what: usize,
    persons: usize,
    semicolons: usize,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.words += other.words;
        self.what += other.what;
        self.persons += other.persons;
        self.semicolons += other.semicolons;
    }
}

/// Prints the counts of every crate, of the documentation, of all other files, and of all together.
pub(crate) fn print() -> Result<(), String> {
    let mut groups: BTreeMap<String, Counts> = BTreeMap::new();
    let mut total = Counts::default();
    for file in files(&["."], &["rs", "md", "toml", "yaml"]) {
        let place = relative(&file);
        if place.starts_with(RUNS) {
            continue;
        }
        let text = text(&file)?;
        let counts = match place.rsplit_once('.').map_or("", |(_, extension)| extension) {
            "rs" => count(comments::rust(&text).iter().map(|comment| comment.text)),
            "md" => count(text.lines()),
            _ => count(comments::hash(&text).iter().map(|comment| comment.text)),
        };
        let group = match place.split('/').collect::<Vec<_>>()[..] {
            ["crates", name, ..] => name,
            _ if place.ends_with(".md") => "docs",
            _ => "other",
        };
        *groups.entry(group.to_owned()).or_default() += counts;
        total += counts;
    }
    println!("   {:13} {:>8} {:>8} {:>8} {:>8}   per 1,000 words", "", "words", "what", "who", ";");
    for (name, counts) in groups.iter().map(|(name, counts)| (name.as_str(), counts)).chain([("total", &total)]) {
        let share = |count: usize| 1000.0 * count as f64 / counts.words.max(1) as f64;
        let [what, persons, semicolons] = [counts.what, counts.persons, counts.semicolons].map(share);
        println!("   {name:13} {:8} {what:8.2} {persons:8.2} {semicolons:8.2}", counts.words);
    }
    Ok(())
}

fn count<'a>(lines: impl Iterator<Item = &'a str>) -> Counts {
    let mut counts = Counts::default();
    let mut in_code = false;
    for line in lines {
        if line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~") {
            in_code = !in_code;
        } else if !in_code {
            let line = plain(line);
            counts.words += line
                .split(|c: char| !c.is_ascii_alphabetic() && !"'’-".contains(c))
                .filter(|word| word.contains(|c: char| c.is_ascii_alphabetic()))
                .count();
            for word in line.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_lowercase) {
                counts.what += usize::from(word == "what");
                counts.persons += usize::from(PERSONS.contains(&word.as_str()));
            }
            counts.semicolons += line.matches(';').count();
        }
    }
    counts
}

/// `line` with a letter in place of inline code, and without the targets of links and HTML's entities.
fn plain(line: &str) -> String {
    let mut text = String::new();
    // Every second part is between two backticks. An odd one at the end has no partner.
    let parts: Vec<&str> = line.split('`').collect();
    for (index, part) in parts.iter().enumerate() {
        let code = index % 2 == 1 && index + 1 < parts.len();
        text += if code { "X" } else { part };
    }
    let text = without(&text, "](", ')', |_| true);
    without(&text, "&", ';', |name| name.chars().all(char::is_alphanumeric))
}

/// `text` with a space in place of every part from `start` to `end` with `removable` text in between.
fn without(text: &str, start: &str, end: char, removable: impl Fn(&str) -> bool) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(start) {
        kept += before;
        match behind.split_once(end) {
            Some((in_flight, after)) if removable(in_flight) => {
                kept.push(' ');
                rest = after;
            }
            _ => {
                kept += start;
                rest = behind;
            }
        }
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_counted_outside_of_code() {
        let text =
            ["What is *what*; who asks?", "```", "let what = 1;", "```", "See `what;` [here](who;what.md) &lt; so."];
        let expected = Counts { words: 9, what: 2, persons: 1, semicolons: 1 };
        assert_eq!(count(text.into_iter()), expected);
    }

    #[test]
    fn an_ampersand_and_an_open_bracket_stay() {
        assert_eq!(plain("a & b; c](d `e"), "a & b; c](d e");
        assert_eq!(plain("R&D &amp; [x](y) `z`"), "R&D   [x  X");
    }
}
