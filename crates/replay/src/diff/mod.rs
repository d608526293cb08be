//! Differences between two policies, in sentences.
//!
//! Both policies are resolved first, so that spelling, order of fields and defaults make no difference. A policy is
//! then a list of settings ([`settings`]), each about one thing: a class, an upstream, a listener, the gateway. Two
//! lists are compared. Settings that an operator would not read as one value, such as TLS, are only said to differ.

mod settings;

use std::collections::BTreeMap;

use serde::Serialize;
use weirgate_config::Site;

pub use settings::{Setting, settings};

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The thing that it is about, such as `class gold`.
    pub about: String,
    /// The setting. `None` if the whole thing is new or gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setting: Option<String>,
    /// The older value. `None` if there was none.
    pub old: Option<String>,
    /// The newer value. `None` if there is none.
    pub new: Option<String>,
    /// Classes that it concerns, apart from the thing itself.
    pub classes: Vec<String>,
    /// The difference in a sentence.
    pub text: String,
}

/// Returns all differences between two policies, in the order of the newer one. Things that are gone come last.
pub fn changes(old: &Site, new: &Site) -> Vec<Change> {
    let (old_settings, new_settings) = (settings(old), settings(new));
    let (before, after) = (things(&old_settings), things(&new_settings));
    let mut all = Vec::new();
    for about in order(&new_settings) {
        let now = &after[about];
        match before.get(about) {
            None => all.push(whole(about, now, true, concerned(new, about))),
            Some(was) => compare(about, was, now, &concerned(new, about), &mut all),
        }
    }
    for about in order(&old_settings).into_iter().filter(|about| !after.contains_key(about)) {
        all.push(whole(about, &before[about], false, concerned(old, about)));
    }
    all.extend(other_order(old, new));
    all
}

/// Returns a change if the rules of classes that both policies have are tried in another order.
fn other_order(old: &Site, new: &Site) -> Option<Change> {
    let both = [settings::order(old), settings::order(new)];
    let common = |which: usize| {
        let mut names: Vec<&str> = both[which].iter().copied().filter(|name| both[1 - which].contains(name)).collect();
        names.dedup();
        names.join(", ")
    };
    let (was, is) = (common(0), common(1));
    (was != is).then(|| Change {
        about: "rules".to_owned(),
        setting: Some("order".to_owned()),
        text: format!("rules: they were tried in the order {was}, and are in the order {is}"),
        old: Some(was),
        new: Some(is),
        classes: Vec::new(),
    })
}

/// Settings of each thing.
fn things(all: &[Setting]) -> BTreeMap<&str, Vec<&Setting>> {
    let mut things: BTreeMap<&str, Vec<&Setting>> = BTreeMap::new();
    all.iter().for_each(|setting| things.entry(&setting.about).or_default().push(setting));
    things
}

/// Things in their order.
fn order(all: &[Setting]) -> Vec<&str> {
    let mut order: Vec<&str> = Vec::new();
    for setting in all {
        if order.last() != Some(&setting.about.as_str()) && !order.contains(&setting.about.as_str()) {
            order.push(&setting.about);
        }
    }
    order
}

/// The classes of an upstream.
fn concerned(site: &Site, about: &str) -> Vec<String> {
    let Some(name) = about.strip_prefix("upstream ") else { return Vec::new() };
    let classes = site.policy.all_classes();
    let uses = |pool: usize| site.policy.pools.get(pool).is_some_and(|pool| pool.name == name);
    classes.filter(|class| uses(class.pool)).map(|class| class.name.clone()).collect()
}

fn for_classes(classes: &[String]) -> String {
    if classes.is_empty() { String::new() } else { format!(" (for {})", classes.join(", ")) }
}

/// A thing that is new or gone.
fn whole(about: &str, own: &[&Setting], is_new: bool, classes: Vec<String>) -> Change {
    let shown: Vec<String> = own
        .iter()
        .filter(|setting| setting.is_main && setting.value != settings::NONE)
        .map(|setting| format!("{} {}", setting.name, setting.value))
        .collect();
    let shown = shown.join(", ");
    let text = match (is_new, shown.is_empty()) {
        (true, false) => format!("{about} is new: {shown}{}", for_classes(&classes)),
        (true, true) => format!("{about} is new{}", for_classes(&classes)),
        (false, _) => format!("{about} is gone{}", for_classes(&classes)),
    };
    let (old, new) = if is_new { (None, Some(shown)) } else { (Some(shown), None) };
    Change { about: about.to_owned(), setting: None, old, new, classes, text }
}

fn compare(about: &str, was: &[&Setting], now: &[&Setting], classes: &[String], all: &mut Vec<Change>) {
    let find = |among: &[&Setting], name: &str| among.iter().find(|setting| setting.name == name).copied().cloned();
    let gone = was.iter().filter(|was| now.iter().all(|now| now.name != was.name));
    for setting in now.iter().chain(gone) {
        let (old, new) = (find(was, &setting.name), find(now, &setting.name));
        if old.as_ref().map(|old| &old.value) == new.as_ref().map(|new| &new.value) {
            continue;
        }
        let (name, of) = (&setting.name, for_classes(classes));
        let shown = |of: &Option<Setting>| of.as_ref().map(|of| of.value.clone());
        let text = match (&old, &new) {
            (Some(_), Some(_)) if setting.is_opaque => format!("{about}: {name} is different{of}"),
            (Some(old), Some(new)) => format!("{about}: {name} was {} and is {}{of}", old.value, new.value),
            (None, Some(new)) if setting.is_opaque => format!("{about}: {name} is new{of}{}", settings::hidden(new)),
            (None, Some(new)) => format!("{about}: {name} is new, {}{of}", new.value),
            (Some(_), None) => format!("{about}: {name} is gone{of}"),
            (None, None) => continue,
        };
        let hide = |value: Option<String>| if setting.is_opaque { None } else { value };
        all.push(Change {
            about: about.to_owned(),
            setting: Some(name.clone()),
            old: hide(shown(&old)),
            new: hide(shown(&new)),
            classes: classes.to_vec(),
            text,
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OLD: &str = "
listen: 127.0.0.1:8080
upstreams: { web: { nodes: ['n1:80', { address: 'n2:80', weight: 2 }] }, db: { nodes: ['d1:80'] } }
classes:
  - { name: gold, match: { host: gold.test }, upstream: web,
      guarantee: { throughput: 50/s, response_time: { p95: 300ms } } }
  - { name: silver, match: { path_prefix: /mail }, upstream: db }
  - { name: rest, upstream: web }
";

    fn site(text: &str) -> Site {
        weirgate_config::load("test", text).unwrap_or_else(|errors| panic!("{errors}")).site
    }

    fn said(changes: &[(&str, &str)]) -> Vec<String> {
        let mut new = OLD.to_owned();
        for (from, to) in changes {
            assert!(new.contains(from), "{from}");
            new = new.replace(from, to);
        }
        super::changes(&site(OLD), &site(&new)).into_iter().map(|change| change.text).collect()
    }

    #[test]
    fn spelling_and_defaults_are_no_difference() {
        assert_eq!(said(&[]), [""; 0]);
        let spelled =
            [("300ms", "0.3s"), ("50/s", "3000/min"), ("nodes: ['d1:80']", "nodes: [{ address: 'd1:80', weight: 1 }]")];
        assert_eq!(said(&spelled[..1]), [""; 0]);
        assert_eq!(said(&spelled[2..]), [""; 0]);
    }

    #[test]
    fn changes_are_sentences() {
        assert_eq!(
            said(&[("50/s", "40/s"), ("300ms", "200ms")]),
            [
                "class gold: guaranteed throughput was 50/s and is 40/s",
                "class gold: limit of the response time was p95 300 ms and is p95 200 ms",
            ]
        );
        assert_eq!(
            said(&[("weight: 2", "weight: 3"), ("'d1:80'", "'d2:80'")]),
            [
                "upstream web: node n2:80 was weight 2 and is weight 3 (for gold, rest)",
                "upstream db: node d2:80 is new, weight 1 (for silver)",
                "upstream db: node d1:80 is gone (for silver)",
            ]
        );
        assert_eq!(
            said(&[("name: silver", "name: mail")]),
            ["class mail is new: match path below /mail, upstream db", "class silver is gone"]
        );
        assert_eq!(
            said(&[("host: gold.test", "host: [gold.test, au.test]")]),
            ["class gold: match was host gold.test and is host gold.test or host au.test"]
        );
        let swapped =
            [("name: gold,", "name: first,"), ("name: silver,", "name: gold,"), ("name: first,", "name: silver,")];
        let said = said(&swapped);
        let order = "rules: they were tried in the order gold, silver, rest, and are in the order silver, gold, rest";
        assert_eq!(said.last().map(String::as_str), Some(order), "{said:?}");
    }

    proptest! {
        #[test]
        fn a_changed_figure_is_one_change(rate in 1u32..1000, limit in 1u32..1000) {
            let found = said(&[("50/s", &format!("{rate}/s")), ("300ms", &format!("{limit}ms"))]);
            prop_assert_eq!(found.len(), usize::from(rate != 50) + usize::from(limit != 300));
        }
    }
}
