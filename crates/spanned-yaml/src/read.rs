//! Files: from their bytes to text, and from a path in one file to the tree of another.
//!
//! The tree of an included file replaces its path. The errors of both files are therefore found together, each with
//! the name and positions of its own file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::rc::Rc;

use crate::errors::{Errors, Position, Problem, Problems, Source, quoted};
use crate::tree::{self, Kind, MAX_BYTES, Node, Value};

/// Returns `bytes` as text.
///
/// # Errors
/// There are too many bytes, or they are not UTF-8. In the second case the error has the position of the first wrong
/// byte.
pub fn sound_text<'b>(name: &str, bytes: &'b [u8]) -> Result<&'b str, Errors> {
    if bytes.len() > MAX_BYTES {
        return Err(unreadable(name, "the file is longer than 16 MiB".to_owned(), "is it a policy at all?"));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) => {
            let (sound, _) = bytes.split_at(error.valid_up_to());
            let line_start = sound.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
            let lines = sound.iter().filter(|&&b| b == b'\n').count();
            let column = String::from_utf8_lossy(&sound[line_start..]).chars().count();
            let clip = |n: usize| u32::try_from(n + 1).unwrap_or(u32::MAX);
            let problem = Problem {
                source: None,
                position: Some(Position::new(clip(lines), clip(column))),
                path: String::new(),
                what: "this byte is not UTF-8".to_owned(),
                hint: "save the file as UTF-8".to_owned(),
            };
            Err(Errors { file: name.to_owned(), problems: vec![problem], more: 0 })
        }
    }
}

/// Reads the file at `path`, at most one byte more than allowed, which distinguishes a file that is too
/// long from one that just fits.
///
/// # Errors
/// The error of the operating system.
pub fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns an error about the file as a whole.
pub fn unreadable(name: &str, what: String, hint: &str) -> Errors {
    let problem = Problem { source: None, position: None, path: String::new(), what, hint: hint.to_owned() };
    Errors { file: name.to_owned(), problems: vec![problem], more: 0 }
}

/// Reads the file at `path`, relative to `folder`. `what` names the kind of file in messages, and in the path
/// of the field at `position`. Errors are reported.
pub fn included(
    path: &str,
    position: Position,
    folder: &Path,
    (kind, what): (Kind, &str),
    nodes: &mut usize,
    problems: &mut Problems,
) -> Rc<Node> {
    let file = folder.join(path);
    let field = what.replace(' ', "_");
    let wrong = |problems: &mut Problems, what: String, hint: &str| {
        let (path, hint) = (field.clone(), hint.to_owned());
        problems.add(Problem { source: None, position: Some(position), path, what, hint });
        Rc::new(Node::new(position, Value::Wrong))
    };
    let shown = quoted(&file.display().to_string());
    let bytes = match read_bounded(&file) {
        Ok(bytes) => bytes,
        Err(error) => {
            let hint = format!("the path of a {what} file counts from the folder of the file that names it");
            return wrong(problems, format!("the {what} {shown} cannot be read: {error}"), &hint);
        }
    };
    let text = match sound_text(path, &bytes) {
        Ok(text) => text,
        Err(errors) => {
            let Some(problem) = errors.problems.first() else { return Rc::new(Node::new(position, Value::Wrong)) };
            return wrong(problems, format!("the {what} {shown} is no text: {}", problem.what), &problem.hint);
        }
    };
    let source = problems.add_source(Source::File(file.display().to_string()));
    match tree::parse(text.strip_prefix('\u{feff}').unwrap_or(text), kind, source, problems) {
        Some(tree) => {
            *nodes += tree.nodes;
            tree.root
        }
        None => Rc::new(Node::new(position, Value::Wrong)),
    }
}
