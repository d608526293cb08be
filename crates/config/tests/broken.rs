//! Policies that are broken in one place: each part of three sound policies, in every way that its form allows. Every
//! one says what is wrong, at a place in the file, with a hint. The messages of 240 of them, chosen by a hash, are
//! pinned in `broken/messages.txt`. `UPDATE_GOLDEN=1 cargo test -p weirgate-config` rewrites these messages. Read the
//! difference before you keep it.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::Path;
use std::rc::Rc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use tempfile::TempDir;
use weirgate_config::{Errors, load, located};
use weirgate_spanned_yaml::errors::{Problems, SourceId, key_name};
use weirgate_spanned_yaml::print;
use weirgate_spanned_yaml::tree::{Entry, Kind, Node, Value, parse};

/// The sound policies.
const SOUND: [(&str, &str); 3] = [
    ("tls", include_str!("broken/tls.yaml")),
    ("edge", include_str!("broken/edge.yaml")),
    ("service", include_str!("broken/service.yaml")),
];

/// Number of messages that are pinned.
const PINNED: usize = 240;

/// A step to a part of a policy.
#[derive(Clone, Debug)]
enum Step {
    Key(Rc<str>),
    Index(usize),
}

/// A policy that is broken in one place.
struct Broken {
    /// Path of the broken part, as in messages.
    path: String,
    /// How it is broken.
    how: &'static str,
    text: String,
    /// Whether the policy cannot be sound.
    certain: bool,
}

fn shown(path: &[Step]) -> String {
    let text = path.iter().fold(String::new(), |text, step| match step {
        Step::Key(key) => format!("{text}.{}", key_name(key)),
        Step::Index(index) => format!("{text}[{index}]"),
    });
    text.trim_start_matches('.').to_owned()
}

fn node(value: Value) -> Rc<Node> {
    Rc::new(Node::new(weirgate_config::Position::new(1, 1), value))
}

fn text(of: impl AsRef<str>) -> Value {
    Value::Text(of.as_ref().into())
}

fn entry(key: impl AsRef<str>, value: &Rc<Node>) -> Entry {
    Entry { key: key.as_ref().into(), key_position: value.position, node: Rc::clone(value) }
}

/// Returns the tree with another value at `path`.
fn with(tree: &Rc<Node>, path: &[Step], value: Value) -> Rc<Node> {
    let Some((step, rest)) = path.split_first() else { return node(value) };
    let mut changed = tree.value.clone();
    match (step, &mut changed) {
        (Step::Key(key), Value::Map(entries)) => {
            let found = entries.iter_mut().find(|entry| entry.key == *key).unwrap();
            found.node = with(&found.node, rest, value);
        }
        (Step::Index(index), Value::List(items)) => items[*index] = with(&items[*index], rest, value),
        other => panic!("{other:?}"),
    }
    node(changed)
}

/// The values that stand in place of `value`: how it is broken, whether that is certain to be wrong, and the value.
fn breaks(value: &Value) -> Vec<(&'static str, bool, Value)> {
    let mut all = vec![("nothing", false, Value::Null)];
    match value {
        Value::Text(word) => {
            let digits: String = word.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
            all.push(("a list of lists", true, Value::List(vec![node(Value::List(vec![node(text("x"))]))])));
            // No cookie and no header has this name, and no map this field.
            all.push(("a map", true, Value::Map(vec![entry("z z", &node(text("1")))])));
            all.push(("empty", false, text("")));
            all.push(("nonsense", false, text("?!\u{e9}")));
            all.push(("a control character", false, text(format!("{word}\u{7}"))));
            all.push(("two lines", false, text(format!("{word}\n{word}"))));
            all.push(("too long", false, text(word.repeat(20_000 / word.len().max(1)))));
            if !digits.is_empty() {
                all.push(("negative", false, text(format!("-{word}"))));
                all.push(("zero", false, text(word.replacen(&digits, "0", 1))));
                all.push(("huge", false, text(word.replacen(&digits, "99999999999999", 1))));
                all.push(("without its unit", false, text(&digits)));
                all.push(("with another unit", false, text(format!("{digits}parsecs"))));
            }
        }
        Value::List(items) => {
            all.push(("a text", false, text("?!")));
            all.push(("a map", false, Value::Map(vec![entry("zzz", &node(text("1")))])));
            all.push(("an empty list", true, Value::List(Vec::new())));
            all.push(("the last item twice", false, Value::List(items.iter().chain(items.last()).cloned().collect())));
        }
        Value::Map(entries) => {
            all.push(("a text", false, text("?!")));
            all.push(("a list", false, Value::List(vec![node(text("?!"))])));
            all.push(("an empty map", false, Value::Map(Vec::new())));
            let more = entries.iter().cloned().chain([entry("zzz_unknown", &node(text("1")))]);
            all.push(("an unknown field", false, Value::Map(more.collect())));
            for (at, found) in entries.iter().enumerate() {
                let mut changed = entries.clone();
                changed[at].key = format!("{}x", found.key).into();
                all.push(("a misspelt field", false, Value::Map(changed)));
                let mut changed = entries.clone();
                changed.remove(at);
                all.push(("a missing field", false, Value::Map(changed)));
            }
        }
        Value::Null | Value::Wrong => {}
    }
    all
}

/// Breaks `tree` at `path` and below it.
fn break_all(tree: &Rc<Node>, at: &Node, path: &mut Vec<Step>, all: &mut Vec<Broken>) {
    for (how, certain, value) in breaks(&at.value) {
        let broken = with(tree, path, value);
        all.push(Broken { path: shown(path), how, text: print::yaml(&broken), certain });
    }
    let mut below = |step, child: &Node| {
        path.push(step);
        break_all(tree, child, path, all);
        path.pop();
    };
    match &at.value {
        Value::List(items) => (0..).zip(items).for_each(|(index, item)| below(Step::Index(index), item)),
        Value::Map(entries) => entries.iter().for_each(|entry| below(Step::Key(Rc::clone(&entry.key)), &entry.node)),
        Value::Null | Value::Wrong | Value::Text(_) => {}
    }
}

/// Writes the certificates that the policies name.
fn certificates(folder: &Path) {
    let mut params = CertificateParams::new(vec!["shop.test".to_owned(), "*.api.test".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    std::fs::write(folder.join("shop.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(folder.join("shop.key"), key.serialize_pem()).unwrap();
    std::fs::write(folder.join("nodes.json"), "[]").unwrap();
}

/// Returns what is wrong with the messages about a broken policy.
fn faults(broken: &Broken, errors: &Errors) -> Vec<String> {
    let lines: Vec<&str> = broken.text.split('\n').collect();
    let mut faults = Vec::new();
    for problem in &errors.problems {
        let inside = problem.position.is_some_and(|position| {
            let line = lines.get(position.line as usize - 1);
            line.is_some_and(|line| (1..=line.chars().count() as u32 + 1).contains(&position.column))
        });
        if !inside {
            faults.push(format!("no place in the file: {problem}"));
        }
        if problem.what.is_empty() || problem.hint.is_empty() {
            faults.push(format!("no hint: {problem}"));
        }
    }
    // At the broken part, at a part of it, or at the part that it belongs to.
    let near = |path: &str| path.starts_with(&broken.path) || broken.path.starts_with(path);
    if broken.certain && !errors.problems.iter().any(|problem| near(&problem.path)) {
        faults.push("no message is about the broken part".to_owned());
    }
    faults
}

/// FNV-1a with 64 bits.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[test]
fn every_broken_part_is_told_with_its_place_and_a_hint() {
    const KIND: Kind = Kind { name: "a policy", min: "", too_long: "", too_deep: "" };
    let folder = TempDir::new().unwrap();
    certificates(folder.path());
    let name = folder.path().join("p.yaml").display().to_string();
    let (mut messages, mut wrong, mut loaded) = (Vec::new(), Vec::new(), 0);
    for (policy, sound) in SOUND {
        let whole = load(&name, sound).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(whole.warning_lines(policy), Vec::<String>::new());
        let tree = parse(sound, KIND, SourceId::FILE, &mut Problems::default()).unwrap();
        let mut all = Vec::new();
        break_all(&tree.root, &tree.root, &mut Vec::new(), &mut all);
        for broken in all {
            let title = format!("{policy}: {}: {}", broken.path, broken.how);
            match load(&name, &broken.text) {
                Ok(_) if broken.certain => wrong.push(format!("{title}: it loads")),
                Ok(_) => loaded += 1,
                Err(errors) => {
                    wrong.extend(faults(&broken, &errors).into_iter().map(|fault| format!("{title}: {fault}")));
                    let said = located(policy, errors.problems.first().unwrap());
                    messages.push((title, said.replace(&folder.path().display().to_string(), "FOLDER")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(messages.len() > 1_000, "{} policies are broken, and {loaded} are sound", messages.len());
    // A hash chooses, so that a change of a policy leaves most of the choice as it is.
    messages.sort_by_key(|(title, _)| hash(title));
    messages.truncate(PINNED);
    messages.sort();
    let text = messages.into_iter().fold(String::new(), |text, (title, said)| format!("{text}{title}\n  {said}\n"));
    let pinned = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken/messages.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&pinned, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&pinned).unwrap_or_default());
}
