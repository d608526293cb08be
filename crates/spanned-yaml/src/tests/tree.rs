//! Tests of the tree with places.

use super::*;

/// A file of the tests.
pub(crate) const FILE: Kind =
    Kind { name: "a policy", min: "write at least a field", too_long: "write less", too_deep: "nest less" };

/// Returns the tree as JSON-like text, and the problems.
fn read(text: &str) -> (String, Vec<String>) {
    let mut problems = Problems::default();
    let root = parse(text, FILE, SourceId::FILE, &mut problems);
    let shown = root.map(|tree| show(&tree.root)).unwrap_or_default();
    (shown, problems.into_sorted().iter().map(ToString::to_string).collect())
}

/// Returns a tree as JSON-like text.
pub(crate) fn show(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".into(),
        Value::Wrong => "wrong".into(),
        Value::Text(text) => text.to_string(),
        Value::List(items) => format!("[{}]", items.iter().map(|n| show(n)).collect::<Vec<_>>().join(", ")),
        Value::Map(entries) => {
            let fields: Vec<String> = entries.iter().map(|e| format!("{}: {}", e.key, show(&e.node))).collect();
            format!("{{{}}}", fields.join(", "))
        }
    }
}

#[test]
fn scalars_are_their_text() {
    let (shown, problems) = read("{a: 012, b: 1e3, c: off, d: ~, e: '~', f: , g: \"x y\", h: 1.10}");
    assert_eq!(shown, "{a: 012, b: 1e3, c: off, d: null, e: ~, f: null, g: x y, h: 1.10}");
    assert!(problems.is_empty());
}

#[test]
fn positions_count_from_one() {
    let mut problems = Problems::default();
    let root = parse("a: 1\nb:\n  - é: x\n", FILE, SourceId::FILE, &mut problems).unwrap().root;
    let Value::Map(entries) = &root.value else { panic!() };
    assert_eq!(entries[1].key_position, Position::new(2, 1));
    let Value::List(items) = &entries[1].node.value else { panic!() };
    let Value::Map(inner) = &items[0].value else { panic!() };
    assert_eq!(inner[0].node.position, Position::new(3, 8));
}

#[test]
fn merge_keys_give_what_is_not_there() {
    let (shown, problems) = read("base: &b {x: 1, y: 2}\nother: &o {y: 3, z: 4}\nall: {<<: [*b, *o], x: 0}\n");
    assert_eq!(shown, "{base: {x: 1, y: 2}, other: {y: 3, z: 4}, all: {x: 0, y: 2, z: 4}}");
    assert!(problems.is_empty());
    let (_, problems) = read("a: &a 5\nb: {<<: *a}\n");
    assert_eq!(problems, ["1:7: b: `<<` merges a map or a list of maps; write `<<: *name`"]);
}

#[test]
fn a_key_is_a_word_and_occurs_once() {
    let (shown, problems) = read("a: 1\nb: 2\na: 3\n");
    assert_eq!(shown, "{a: 1, b: 2}");
    assert_eq!(problems, ["3:1: a: `a` is given twice, first in line 1 column 1; keep one of them"]);
    let (shown, problems) = read("{a: 1}: 2\nb: 3\n? [x]\n: 4\n~: 5\n");
    assert_eq!(shown, "{b: 3}");
    assert_eq!(problems.len(), 3, "{problems:?}");
}

#[test]
fn aliases_lead_somewhere() {
    let (_, problems) = read("a: *no\nb: *no\n*no : 1\n");
    assert_eq!(problems.len(), 3, "{problems:?}");
    let (_, problems) = read("a: &a [1, *a]\n");
    assert_eq!(problems.len(), 1);
    let (shown, problems) = read("k: &k name\n*k : 1\n");
    assert_eq!((shown.as_str(), problems.len()), ("{k: name, name: 1}", 0));
}

#[test]
fn depth_is_bounded_also_through_aliases() {
    for text in ["[".repeat(200), "a:\n".to_owned() + &(0..100).map(|i| " ".repeat(i + 1) + "b:\n").collect::<String>()]
    {
        let (shown, problems) = read(&text);
        assert_eq!(shown, "");
        assert!(problems[0].contains("64 levels"), "{problems:?}");
    }
    let mut text = "a0: &a0 [x]\n".to_owned();
    for i in 1..100 {
        text.push_str(&format!("a{i}: &a{i} [*a{}]\n", i - 1));
    }
    let (_, problems) = read(&text);
    assert!(problems[0].contains("64 levels"), "{problems:?}");
}

#[test]
fn merges_are_bounded() {
    let fields: Vec<String> = (0..2_000).map(|i| format!("f{i}: 1")).collect();
    let mut text = format!("base: &b {{{}}}\n", fields.join(", "));
    for i in 0..1_000 {
        text.push_str(&format!("m{i}: {{<<: *b}}\n"));
    }
    let (_, problems) = read(&text);
    assert!(problems.iter().any(|p| p.contains("more than a million")), "{problems:?}");
}

#[test]
fn one_document_of_bounded_length() {
    assert!(read("a: 1\n---\nb: 2\n").1[0].contains("one document"));
    assert!(read("").1[0].contains("empty"));
    assert!(read("--- ~\n").1[0].contains("empty"));
    assert!(read("%YAML 1.2\n---\na: 1\n").1[0].contains("directive"));
    assert!(read(&"#".repeat(MAX_BYTES + 1)).1[0].contains("16 MiB"));
}
