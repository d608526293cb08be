//! Classification of a request that is known from the access log only.
//!
//! The log has method, host, path, query, client, scheme, and the subject of the client's certificate. It has no
//! headers, cookies and bodies, nor the name of the TLS handshake and the listener's port. Conditions on these are
//! undecided, in the three-valued logic of [`condition`].

use weirgate_config::{CertificatePart, Key, Match, Rule, RuleTarget};

use super::explain::{Values, describe, describe_key};
use super::view::{Fields, View};
use super::{Classified, Classifier, Payload, condition, promise, target};

/// The rules that may apply to a request of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidates<'a> {
    /// The first rule that certainly matches. `None` only without a last rule that matches everything.
    pub certain: Option<Classified<'a>>,
    /// Earlier rules that may match, by index.
    pub possible: Vec<usize>,
}

impl Classifier {
    /// Returns the rules that may apply to a request of the log. `has_port` tells whether `view.port` is known.
    /// `policy` has the classes that the rules select.
    ///
    /// If every condition is decided, the result is that of [`Classifier::classify_readings`].
    pub fn candidates<'a>(&self, policy: &weirgate_engine::Policy, view: &View<'a>, has_port: bool) -> Candidates<'a> {
        let mut found = self.of_reading(view, has_port);
        if found.possible.is_empty() {
            for path in view.request.readings() {
                let other = self.of_reading(&View { path, ..*view }, has_port);
                let worth = |of: &Candidates<'a>| of.certain.and_then(|certain| promise(policy, certain.class));
                if worth(&other) < worth(&found) {
                    found = other;
                }
            }
        }
        found
    }

    fn of_reading<'a>(&self, view: &View<'a>, has_port: bool) -> Candidates<'a> {
        let fields = Fields::new(view, Payload::Awaited);
        let mut possible = Vec::new();
        for (index, rule) in self.rules().iter().enumerate() {
            let leaf = |leaf: &Match| is_logged(leaf, view, has_port).then(|| condition::is_met(leaf, &fields));
            match condition::evaluated(&rule.matches, &leaf) {
                Some(false) => {}
                Some(true) if !is_keyed_by_header(rule) => {
                    // Its conditions do not look at the body, because they are decided.
                    let class = target(rule, &fields).and_then(Result::ok);
                    let certain = class.map(|class| Classified { rule: index, class, path: view.path });
                    return Candidates { certain, possible };
                }
                _ => possible.push(index),
            }
        }
        Candidates { certain: None, possible }
    }
}

/// Whether the log tells if a condition without parts holds.
fn is_logged(leaf: &Match, view: &View<'_>, has_port: bool) -> bool {
    match leaf {
        Match::Header(..) | Match::Cookie(..) | Match::Visitor(_) | Match::Body(_) => false,
        Match::Port(_) => has_port,
        // Without TLS there is no such name.
        Match::Sni(_) => view.tls.is_none(),
        Match::ClientCertificate(part, _) => *part == CertificatePart::Subject || condition::identity(view).is_none(),
        _ => true,
    }
}

/// Whether a rule matches only requests with a value that the log lacks.
fn is_keyed_by_header(rule: &Rule) -> bool {
    matches!(rule.target, RuleTarget::Template(_, Key::Header(_) | Key::Cookie(_)))
}

/// Describes the conditions of `rule` that no access log decides, without the values that they compare.
pub fn unlogged(rule: &Rule) -> Vec<String> {
    let mut all = Vec::new();
    collect(&rule.matches, &mut all);
    if let RuleTarget::Template(_, key @ (Key::Header(_) | Key::Cookie(_))) = &rule.target {
        all.push(format!("key {}", describe_key(key)));
    }
    all.sort_unstable();
    all.dedup();
    all
}

fn collect(condition: &Match, all: &mut Vec<String>) {
    match condition {
        Match::All(parts) | Match::Either(parts) => parts.iter().for_each(|part| collect(part, all)),
        Match::Not(part) => collect(part, all),
        Match::Header(..)
        | Match::Cookie(..)
        | Match::Body(_)
        | Match::Port(_)
        | Match::Sni(_)
        | Match::ClientCertificate(..) => all.push(describe(condition, Values::Hidden)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::ClassRef;
    use super::*;
    use crate::request::Request;

    const POLICY: &str = "
listen: 127.0.0.1:8080
upstreams: { web: { nodes: ['n1:80'] } }
classes:
  - { name: gold, match: { host: gold.test, header: { x-plan: gold } } }
  - { name: mail, match: { path_prefix: /mail } }
  - { name: bots, match: { any: [{ header: { user-agent: bot } }, { source: 192.0.2.0/24 }] } }
  - { name: rest }
";

    fn candidates(host: &str, path: &str, client: [u8; 4]) -> (Option<u32>, Vec<usize>) {
        let site = weirgate_config::load("test", POLICY).unwrap_or_else(|errors| panic!("{errors}")).site;
        let request = Request::parse(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap();
        let client = IpAddr::from(client);
        let view =
            View { request: &request, path: request.path(), client, port: 0, tls: None, vouched: true, visitor: None };
        let found = Classifier::new(site.rules.clone()).candidates(&site.policy, &view, false);
        let class = found.certain.map(|certain| match certain.class {
            ClassRef::Class(class) => class.0,
            other => panic!("{other:?}"),
        });
        (class, found.possible)
    }

    #[test]
    fn rules_on_headers_are_possible_and_others_decide() {
        // The host excludes gold, and the path decides before the rule on bots.
        assert_eq!(candidates("a.test", "/mail/x", [1, 1, 1, 1]), (Some(1), vec![]));
        assert_eq!(candidates("gold.test", "/mail/x", [1, 1, 1, 1]), (Some(1), vec![0]));
        assert_eq!(candidates("gold.test", "/", [1, 1, 1, 1]), (Some(3), vec![0, 2]));
        // One part of an alternative is enough.
        assert_eq!(candidates("a.test", "/", [192, 0, 2, 9]), (Some(2), vec![]));
    }

    #[test]
    fn conditions_are_named_without_their_values() {
        let site = weirgate_config::load("test", POLICY).unwrap_or_else(|errors| panic!("{errors}")).site;
        let said: Vec<Vec<String>> = site.rules.iter().map(unlogged).collect();
        assert_eq!(said[0], ["header x-plan = …"]);
        assert!(said[1].is_empty() && said[3].is_empty());
        assert_eq!(said[2], ["header user-agent = …"]);
    }
}
