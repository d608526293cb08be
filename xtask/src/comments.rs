//! Finds the comments of source files, for the rules and the counts that are about prose.

/// The comment of one line.
#[derive(Debug, PartialEq)]
pub(crate) struct Comment<'a> {
    /// Counted from 1.
    pub(crate) line: usize,
    /// `///`, `//!`, `//` or `#`.
    pub(crate) mark: &'static str,
    /// The text behind the mark, without one space.
    pub(crate) text: &'a str,
    /// Columns of the whole line.
    pub(crate) columns: usize,
}

/// Comments of Rust source, one per line. A line that has code and a `"` is taken to have none, since its `//` may be
/// part of a string.
pub(crate) fn rust(text: &str) -> Vec<Comment<'_>> {
    lines(text, |line| {
        let start = line.trim_start();
        for mark in ["///", "//!", "//"] {
            if let Some(text) = start.strip_prefix(mark) {
                return Some((mark, text));
            }
        }
        let behind = if line.contains('"') { None } else { line.split_once(" // ") };
        behind.map(|(_, text)| ("//", text))
    })
}

/// Comments of YAML and TOML, one per line. A `#` behind a quote is taken to be part of a string.
pub(crate) fn hash(text: &str) -> Vec<Comment<'_>> {
    lines(text, |line| {
        let at = line.find('#').filter(|at| line[..*at].ends_with([' ', '\t']) || *at == 0)?;
        if line[..at].contains(['"', '\'']) { None } else { Some(("#", &line[at + 1..])) }
    })
}

fn lines<'a>(text: &'a str, find: impl Fn(&'a str) -> Option<(&'static str, &'a str)>) -> Vec<Comment<'a>> {
    let found = text.lines().enumerate().filter_map(|(index, line)| {
        let (mark, text) = find(line)?;
        let text = text.strip_prefix(' ').unwrap_or(text);
        Some(Comment { line: index + 1, mark, text, columns: line.chars().count() })
    });
    found.collect()
}

/// The last lines of blocks of `///` and `//!` comments that end in a question mark.
pub(crate) fn questions<'a>(comments: &'a [Comment<'a>]) -> impl Iterator<Item = &'a Comment<'a>> {
    comments.iter().enumerate().filter_map(|(index, comment)| {
        let goes_on = comments.get(index + 1).is_some_and(|n| n.mark == comment.mark && n.line == comment.line + 1);
        let asks = ["///", "//!"].contains(&comment.mark) && comment.text.trim_end().ends_with('?');
        (asks && !goes_on).then_some(comment)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_of_rust_are_found() {
        let text = "//! A module.\n\n    /// Is it?\nlet url = \"http:// x\"; // no\nlet a = 1; // yes\n//\n";
        let found: Vec<_> = rust(text).into_iter().map(|c| (c.line, c.mark, c.text, c.columns)).collect();
        assert_eq!(
            found,
            [(1, "//!", "A module.", 13), (3, "///", "Is it?", 14), (5, "//", "yes", 17), (6, "//", "", 2)]
        );
    }

    #[test]
    fn comments_of_yaml_are_found() {
        let text = "# One\na: 1  # two\nb: 'c # d'\nc: a#b\n";
        let found: Vec<_> = hash(text).into_iter().map(|c| (c.line, c.text)).collect();
        assert_eq!(found, [(1, "One"), (2, "two")]);
    }

    #[test]
    fn only_the_last_line_of_a_block_is_a_question() {
        let text = "/// Why?\n/// So.\nfn a() {}\n/// What?\nfn b() {}\n// Where?\n//! Who?\n\n//! That.\n";
        let comments = rust(text);
        assert_eq!(questions(&comments).map(|c| c.line).collect::<Vec<_>>(), [4, 7]);
    }
}
