//! A tree as YAML text. Comments and the form of the original are lost, but reading the text gives the same tree.

use std::fmt::Write as _;

use crate::tree::{Entry, Node, Value};

/// Returns `node` as a YAML document.
///
/// # Examples
/// ```
/// use weirgate_spanned_yaml::errors::{Problems, SourceId};
/// use weirgate_spanned_yaml::{print, tree};
///
/// let kind = tree::Kind { name: "a list", min: "", too_long: "", too_deep: "" };
/// let tree = tree::parse("- {a: 1}\n- b", kind, SourceId::FILE, &mut Problems::default()).unwrap();
/// assert_eq!(print::yaml(&tree.root), "- { a: 1 }\n- b\n");
/// ```
pub fn yaml(node: &Node) -> String {
    let mut text = String::new();
    print(node, 0, &mut text);
    text
}

/// Maximum number of scalars of a list or map that is printed in one line. An upstream's node fits.
const MAX_IN_LINE: usize = 6;

/// Prints `node` as YAML on lines of its own, indented by `indent` spaces.
fn print(node: &Node, indent: usize, text: &mut String) {
    match &node.value {
        Value::Map(entries) => {
            for entry in entries {
                let _ = write!(text, "{:indent$}{}:", "", scalar(&entry.key));
                below(&entry.node, indent + 2, text);
            }
        }
        Value::List(items) => {
            for item in items {
                let _ = write!(text, "{:indent$}-", "");
                below(item, indent + 2, text);
            }
        }
        Value::Null | Value::Wrong | Value::Text(_) => {
            let _ = writeln!(text, "{:indent$}{}", "", flow(node));
        }
    }
}

/// Prints the value after a key or a dash, in the same line if it is short.
fn below(node: &Node, indent: usize, text: &mut String) {
    let flat = |node: &Node| matches!(node.value, Value::Null | Value::Wrong | Value::Text(_));
    let short = match &node.value {
        Value::Map(entries) => entries.len() <= MAX_IN_LINE && entries.iter().all(|entry| flat(&entry.node)),
        Value::List(items) => items.len() <= MAX_IN_LINE && items.iter().all(|item| flat(item)),
        Value::Null | Value::Wrong | Value::Text(_) => true,
    };
    if short {
        let _ = writeln!(text, " {}", flow(node));
    } else {
        text.push('\n');
        print(node, indent, text);
    }
}

/// Returns `node` in one line.
fn flow(node: &Node) -> String {
    match &node.value {
        Value::Null | Value::Wrong => "null".to_owned(),
        Value::Text(text) => scalar(text),
        Value::List(items) => {
            format!("[{}]", items.iter().map(|item| flow(item)).collect::<Vec<_>>().join(", "))
        }
        Value::Map(entries) if entries.is_empty() => "{}".to_owned(),
        Value::Map(entries) => {
            let entry = |entry: &Entry| format!("{}: {}", scalar(&entry.key), flow(&entry.node));
            format!("{{ {} }}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Returns the scalar that YAML reads as `text`, quoted if necessary.
fn scalar(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./%-".contains(c);
    let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/');
    if starts && text != "null" && text.chars().all(plain) {
        return text.to_owned();
    }
    // A JSON string is a valid double-quoted scalar of YAML.
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_back_as_they_are() {
        for text in ["null", "~", "a: b", "#x", "", " ", "'", "\"", "1e3", "off", "p95", "a\nb", "ä", "-", "[", "*"] {
            let yaml = format!("x: {}\n", scalar(text));
            let mut problems = crate::errors::Problems::default();
            let kind = crate::tree::tests::FILE;
            let tree =
                crate::tree::parse(&yaml, kind, crate::errors::SourceId::FILE, &mut problems).expect("it is YAML");
            let Value::Map(entries) = &tree.root.value else { panic!("a map") };
            assert!(matches!(&entries[0].node.value, Value::Text(read) if &**read == text), "{text:?} as {yaml}");
        }
    }
}
