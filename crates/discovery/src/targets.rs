//! Lists of nodes in JSON: `[{"targets": ["10.0.0.1:80"], "labels": {"weight": "2"}}]`.
//!
//! Source: Prometheus, `file_sd_config` and `http_sd_config`. Departures: of the labels only `weight` is used, and an
//! address must have a port. Prometheus takes an empty list for no targets. Here it is an error, so that the last nodes
//! stay: a program that has lost its own data writes such a list, and without nodes every request fails.

use serde::Deserialize;
use weirgate_config::node_address;

use crate::found::Found;

/// Maximum size of a list, in bytes: 10,000 nodes with 400 bytes each.
pub const MAX_BYTES: usize = 4 << 20;

/// Largest weight, as in a policy. A node with a smaller one beside it gets no requests.
const MAX_WEIGHT: f64 = 1e6;

#[derive(Deserialize)]
struct Group {
    targets: Vec<String>,
    #[serde(default)]
    labels: Labels,
}

#[derive(Default, Deserialize)]
struct Labels {
    weight: Option<String>,
}

/// Reads a list of at most `max_nodes` nodes. The result is sorted by address.
///
/// # Errors
/// The first error, with its position if the text is not JSON of this form.
pub fn parse(text: &[u8], max_nodes: usize) -> Result<Vec<Found>, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("the list has more than {MAX_BYTES} bytes"));
    }
    let groups: Vec<Group> = serde_json::from_slice(text).map_err(|error| {
        format!("{error}; write `[{{\"targets\": [\"10.0.0.1:80\"], \"labels\": {{\"weight\": \"1\"}}}}]`")
    })?;
    let mut nodes = Vec::new();
    for Group { targets, labels } in groups {
        let weight = labels.weight.as_deref().map_or(Ok(1.0), weight)?;
        for target in targets {
            if nodes.len() == max_nodes {
                return Err(format!("there are more than {max_nodes} nodes; raise `max_nodes`"));
            }
            nodes.push(Found { address: node_address(&target)?, weight });
        }
    }
    if nodes.is_empty() {
        return Err("the list names no node".to_owned());
    }
    Found::sorted(nodes)
}

fn weight(text: &str) -> Result<f64, String> {
    let weight = text.parse().ok().filter(|weight: &f64| *weight > 0.0 && *weight <= MAX_WEIGHT);
    weight.ok_or_else(|| format!("the weight `{}` is out of range; write more than 0 and at most 1000000", short(text)))
}

/// Cuts a text from outside, so that a message stays a line.
fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(40).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wrong(text: &str) -> String {
        parse(text.as_bytes(), 3).expect_err("it is wrong")
    }

    #[test]
    fn weights_come_from_labels() {
        let text = br#"[{"targets": ["Web2:80", "10.0.0.1:80"], "labels": {"weight": "2.5", "dc": "x"}}, {"targets": ["[::1]:9"]}]"#;
        let found = parse(text, 3).expect("a list");
        let found: Vec<(&str, f64)> = found.iter().map(|node| (node.address.as_str(), node.weight)).collect();
        assert_eq!(found, [("10.0.0.1:80", 2.5), ("[::1]:9", 1.0), ("web2:80", 2.5)]);
    }

    #[test]
    fn errors_say_where_and_what() {
        assert!(wrong("[{").starts_with("EOF while parsing an object at line 1 column 2; write `[{\"targets\""));
        assert!(wrong("{}").contains("at line 1 column"));
        assert_eq!(wrong("[]"), "the list names no node");
        assert_eq!(wrong(r#"[{"targets": []}]"#), "the list names no node");
        assert_eq!(
            wrong(r#"[{"targets": ["a:1", "b:1", "c:1", "d:1"]}]"#),
            "there are more than 3 nodes; raise `max_nodes`"
        );
        assert_eq!(wrong(r#"[{"targets": ["a:1", "A:1"]}]"#), "`a:1` is there twice");
        assert_eq!(wrong(r#"[{"targets": ["a"]}]"#), "`a` has no port; write `a:80`");
        for weight in ["0", "-1", "NaN", "inf", "2e6", "x", "\\u0007"] {
            let text = format!(r#"[{{"targets": ["a:1"], "labels": {{"weight": "{weight}"}}}}]"#);
            assert!(wrong(&text).contains("is out of range"), "{weight}");
        }
        assert!(parse(&vec![b' '; MAX_BYTES + 1], 3).expect_err("too long").contains("more than"));
    }

    proptest! {
        /// Any bytes give a list within the bounds, or an error.
        #[test]
        fn nothing_panics(text in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(found) = parse(&text, 3) {
                prop_assert!((1..=3).contains(&found.len()));
            }
        }

        /// Lists that are written are read.
        #[test]
        fn lists_are_read(nodes in prop::collection::btree_map(0u8..99, 1u32..1_000_000, 1..20)) {
            let group = |(n, weight): (&u8, &u32)| format!(r#"{{"targets":["n{n}:80"],"labels":{{"weight":"{weight}"}}}}"#);
            let text = format!("[{}]", nodes.iter().map(group).collect::<Vec<_>>().join(","));
            let found = parse(text.as_bytes(), 20).expect("a list");
            prop_assert_eq!(found.len(), nodes.len());
            for node in &found {
                let number: u8 = node.address[1..node.address.len() - 3].parse().expect("a number");
                prop_assert_eq!(f64::from(nodes[&number]), node.weight);
            }
        }
    }
}
