//! Tests of overrides: paths, and the changed trees.

use super::*;
use crate::errors::SourceId;
use crate::tree::parse;
use crate::tree::tests::{FILE, show};

/// Returns `text` with the override applied, as JSON-like text, or the error.
fn with(text: &str, change: &str) -> String {
    let mut problems = Problems::default();
    let tree = parse(text, FILE, SourceId::FILE, &mut problems).unwrap();
    let mut nodes = tree.nodes;
    let changed = change.parse::<Override>().unwrap().apply(&tree.root, &mut nodes, &mut problems);
    match changed {
        Some(root) => show(&root),
        None => problems.into_errors("f").unwrap().to_string(),
    }
}

#[test]
fn paths_have_steps() {
    for (path, expected) in [
        ("a", vec!["a"]),
        ("a.b.0", vec!["a", "b", "0"]),
        ("a[0].b[1][2]", vec!["a", "0", "b", "1", "2"]),
        ("nodes.\"10.0.0.1:80\".weight", vec!["nodes", "10.0.0.1:80", "weight"]),
    ] {
        assert_eq!(steps(path).unwrap(), expected, "{path}");
    }
    for path in ["", ".", "a.", ".a", "a..b", "a[]", "a[0]b", "\"a", "a[0", "a]", "a[0.1]"] {
        assert_eq!(steps(path), None, "{path}");
    }
    let quoted: Override = "\"a=b\".c=d=e".parse().unwrap();
    assert_eq!((quoted.path(), quoted.value()), ("\"a=b\".c", "d=e"));
}

#[test]
fn maps_are_made_and_changed() {
    assert_eq!(with("{a: {b: 1}}", "a.b=2"), "{a: {b: 2}}");
    assert_eq!(with("{a: {b: 1}}", "a.c.d={e: [1, 2]}"), "{a: {b: 1, c: {d: {e: [1, 2]}}}}");
    assert_eq!(with("{a: }", "a.b.c=1"), "{a: {b: {c: 1}}}");
    assert_eq!(with("{a: {b: 1, c: 2}}", "a.b=null"), "{a: {c: 2}}");
}

#[test]
fn items_are_named_by_number_name_or_all() {
    let list = "[{name: x, v: 1}, {class: y, v: 2}, {machine: z}, plain]";
    let text = format!("{{l: {list}}}");
    assert_eq!(with(&text, "l.1.v=5"), "{l: [{name: x, v: 1}, {class: y, v: 5}, {machine: z}, plain]}");
    assert_eq!(with(&text, "l.y.v=5"), "{l: [{name: x, v: 1}, {class: y, v: 5}, {machine: z}, plain]}");
    assert_eq!(with(&text, "l.z.v=5"), "{l: [{name: x, v: 1}, {class: y, v: 2}, {machine: z, v: 5}, plain]}");
    assert_eq!(with(&text, "l.plain=other"), "{l: [{name: x, v: 1}, {class: y, v: 2}, {machine: z}, other]}");
    assert_eq!(with(&text, "l.x=~"), "{l: [{class: y, v: 2}, {machine: z}, plain]}");
    assert_eq!(with("{l: [{v: 1}, {v: 2}]}", "l.*.v=3"), "{l: [{v: 3}, {v: 3}]}");
    let twice = with("{l: [{class: a}, {class: b}, {class: a}]}", "l.a.v=3");
    assert_eq!(twice, "--set l.a.v: 2 items of the list are `a`; name one by its number: 0, 2\n");
}

#[test]
fn a_tree_does_not_grow_deeper_than_a_file() {
    let long = vec!["a"; 70].join(".");
    assert!(with("{b: 1}", &format!("{long}=1")).contains("nested deeper than 64 levels"));
}
