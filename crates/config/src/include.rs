//! Files that another file names: their trees replace their paths.
//!
//! So their errors are found together with all others, and reported with the names and places in those files.

use std::path::Path;
use std::rc::Rc;

use weirgate_spanned_yaml::errors::{Position, Problems};
use weirgate_spanned_yaml::read::included;
use weirgate_spanned_yaml::tree::{Entry, Kind, Node, Value};

/// A page table's file.
const PAGE_TABLE: Kind = Kind {
    name: "a page table",
    min: "write at least `version: 1` and `routes:`",
    too_long: "fold routes into patterns such as `/album/*`",
    too_deep: "a page table needs six at most",
};

/// Returns the policy with its page table's file inserted, if it names one: `page_table: FILE` becomes
/// `page_table: { file: … }`.
pub fn with_page_table(policy: &Node, folder: &Path, nodes: &mut usize, problems: &mut Problems) -> Option<Rc<Node>> {
    let Value::Map(entries) = &policy.value else { return None };
    let at = entries.iter().position(|entry| &*entry.key == "page_table")?;
    let table = &entries[at].node;
    let mut include =
        |path: &str, position: Position| included(path, position, folder, (PAGE_TABLE, "page table"), nodes, problems);
    let table = match &table.value {
        Value::Text(path) if **path != *"learned" => {
            let file = include(path, table.position);
            let entry = Entry { key: "file".into(), key_position: table.position, node: file };
            Node::new(table.position, Value::Map(vec![entry]))
        }
        Value::Map(fields) => {
            let mut fields = fields.clone();
            let field = fields.iter_mut().find(|field| &*field.key == "file")?;
            let Value::Text(path) = &field.node.value else { return None };
            field.node = include(path, field.node.position);
            Node::new(table.position, Value::Map(fields))
        }
        _ => return None,
    };
    let mut entries = entries.clone();
    entries[at].node = Rc::new(table);
    Some(Rc::new(Node::new(policy.position, Value::Map(entries))))
}
