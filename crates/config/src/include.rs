//! Files that a file names: their trees are put in place of their paths.
//!
//! So what is wrong in them is found with everything else, and reported with their names and places.

use std::path::Path;
use std::rc::Rc;

use weirgate_spanned_yaml::errors::{Place, Problems};
use weirgate_spanned_yaml::read::included;
use weirgate_spanned_yaml::tree::{Entry, Node, Value};

use crate::load::PAGE_TABLE;

/// The policy with its page table's file in place, if it names one: `page_table: FILE` becomes
/// `page_table: { file: … }`.
pub fn with_page_table(policy: &Node, folder: &Path, nodes: &mut usize, problems: &mut Problems) -> Option<Rc<Node>> {
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
