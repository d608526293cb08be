//! Files that a file names: their trees are put in place of their paths.
//!
//! So what is wrong in them is found with everything else, and reported with their names and places.

use std::path::Path;
use std::rc::Rc;

use crate::errors::{Place, Problem, Problems, Source, quoted};
use crate::load::{read_bounded, sound_text};
use crate::tree::{self, Entry, Kind, Node, PAGE_TABLE, Value};

/// The file at `path`, which counts from `folder`; `what` it is called in messages, and in the place that names it.
/// What is wrong is reported.
pub(crate) fn included(
    path: &str,
    place: Place,
    folder: &Path,
    (kind, what): (Kind, &str),
    nodes: &mut usize,
    problems: &mut Problems,
) -> Rc<Node> {
    let file = folder.join(path);
    let field = what.replace(' ', "_");
    let wrong = |problems: &mut Problems, what: String, mend: &str| {
        let (path, mend) = (field.clone(), mend.to_owned());
        problems.add(Problem { source: None, place: Some(place), path, what, mend });
        Rc::new(Node::new(place, Value::Wrong))
    };
    let shown = quoted(&file.display().to_string());
    let bytes = match read_bounded(&file) {
        Ok(bytes) => bytes,
        Err(error) => {
            let mend = format!("the path of a {what} file counts from the folder of the file that names it");
            return wrong(problems, format!("the {what} {shown} cannot be read: {error}"), &mend);
        }
    };
    let text = match sound_text(path, &bytes) {
        Ok(text) => text,
        Err(errors) => {
            let Some(problem) = errors.problems.first() else { return Rc::new(Node::new(place, Value::Wrong)) };
            return wrong(problems, format!("the {what} {shown} is no text: {}", problem.what), &problem.mend);
        }
    };
    let source = problems.add_source(Source::File(file.display().to_string()));
    match tree::parse(text.strip_prefix('\u{feff}').unwrap_or(text), kind, source, problems) {
        Some(tree) => {
            *nodes += tree.nodes;
            tree.root
        }
        None => Rc::new(Node::new(place, Value::Wrong)),
    }
}

/// The policy with its page table's file in place, if it names one: `page_table: FILE` becomes
/// `page_table: { file: … }`.
pub(crate) fn with_page_table(
    policy: &Node,
    folder: &Path,
    nodes: &mut usize,
    problems: &mut Problems,
) -> Option<Rc<Node>> {
    let Value::Map(entries) = &policy.value else { return None };
    let at = entries.iter().position(|entry| &*entry.key == "page_table")?;
    let table = &entries[at].node;
    let mut include =
        |path: &str, place: Place| included(path, place, folder, (PAGE_TABLE, "page table"), nodes, problems);
    let table = match &table.value {
        Value::Text(path) if **path != *"learned" => {
            let file = include(path, table.place);
            let entry = Entry { key: "file".into(), key_place: table.place, node: file };
            Node::new(table.place, Value::Map(vec![entry]))
        }
        Value::Map(fields) => {
            let mut fields = fields.clone();
            let field = fields.iter_mut().find(|field| &*field.key == "file")?;
            let Value::Text(path) = &field.node.value else { return None };
            field.node = include(path, field.node.place);
            Node::new(table.place, Value::Map(fields))
        }
        _ => return None,
    };
    let mut entries = entries.clone();
    entries[at].node = Rc::new(table);
    Some(Rc::new(Node::new(policy.place, Value::Map(entries))))
}
