//! A policy, and the classes of logged requests under it.
//!
//! A log lacks headers, cookies, bodies and a few facts of the connection, so some rules cannot be decided
//! ([`Classifier::candidates`]). If such a rule may apply, the class in the log counts, as long as it is one of the
//! classes that are possible. Otherwise the first rule that certainly matches counts, as if the undecided rules did not
//! match. Both are counted.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use weirgate_config::{Key, RuleTarget, Site, client_address};
use weirgate_gateway::classify::{Candidates, ClassRef, Classifier, View, unlogged};
use weirgate_gateway::{ClientTls, Request};
use weirgate_pages::Index;
use weirgate_tls::Identity;
use weirgate_wire::access_log::LoggedRequest;

/// Route of a request without one in the page table.
pub const NO_ROUTE: u32 = u32::MAX;

/// A policy under which a log is replayed.
#[derive(Debug)]
pub struct Side {
    /// Name for people: its file.
    pub name: String,
    /// The policy.
    pub site: Site,
    classifier: Classifier,
    /// The listener's port, by whether the connection is encrypted, if there is only one.
    ports: [Option<u16>; 2],
    /// Numbers of the keys of each template.
    keys: Vec<HashMap<u64, u32>>,
    routes: Option<Index>,
    /// For each route, and for requests without one, the first path seen.
    paths: HashMap<u32, String>,
    counts: [u64; 4],
    /// For each rule, the requests for which it could not be decided.
    undecided: Vec<u64>,
}

/// The class of a logged request under a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// Index among the classes of the policy and its templates after them.
    pub spec: u32,
    /// Number of the template's key. 0 for a class.
    pub key: u32,
    /// Hash of the source.
    pub flow: u64,
    /// Index of the route in the page table, or `u32::MAX`.
    pub route: u32,
    /// How the class was found.
    pub how: How,
}

/// How the class of a logged request was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By the rules.
    Rules,
    /// Some rules depend on facts that are not in the log. The class in the log counts.
    Log,
    /// The same, but the class in the log is not possible, or not in the policy. The undecided rules count as not met.
    Guess,
    /// The log's line is no request that can be classified. The class in the log counts, or else the last one.
    Unreadable,
}

impl Side {
    /// Creates the side of a policy.
    pub fn new(name: String, site: Site) -> Side {
        let port = |encrypted: bool| {
            let listeners = site.listeners.iter().filter(|listener| listener.tls.is_some() == encrypted);
            let mut ports = listeners.map(|listener| listener.name.address.tcp().map(|address| address.port()));
            let first = ports.next()?;
            ports.all(|port| port == first).then_some(first)?
        };
        let routes = site.page_table.as_ref().filter(|table| !table.routes.is_empty());
        let routes = routes.map(|table| Index::new(table.routes.iter().map(|route| route.pattern.clone()).collect()));
        Side {
            name,
            ports: [port(false), port(true)],
            classifier: Classifier::new(site.rules.clone()),
            keys: vec![HashMap::new(); site.policy.templates.len()],
            routes,
            paths: HashMap::new(),
            counts: [0; 4],
            undecided: vec![0; site.rules.len()],
            site,
        }
    }

    /// Number of requests whose class was found in this way.
    pub fn count(&self, how: How) -> u64 {
        self.counts[how as usize]
    }

    /// Returns, for each rule that could not be decided for some requests, its class, their number, and the conditions
    /// that no log decides. Those with most requests come first.
    pub fn undecided(&self) -> Vec<(String, u64, Vec<String>)> {
        let rules = self.site.rules.iter().zip(&self.undecided).filter(|(_, count)| **count > 0);
        let mut all: Vec<_> =
            rules.map(|(rule, count)| (self.target_name(&rule.target).to_owned(), *count, unlogged(rule))).collect();
        all.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
        all
    }

    /// Returns the name of a class or template by its index in [`Assigned::spec`].
    pub fn spec_name(&self, spec: usize) -> &str {
        let policy = &self.site.policy;
        let class = policy.classes.get(spec);
        let template = || policy.templates.get(spec - policy.classes.len()).map(|template| &template.class);
        class.or_else(template).map_or("?", |class| class.name.as_str())
    }

    /// Returns the names of a class or template and of its upstream.
    pub(crate) fn spec(&self, spec: u32) -> (&str, &str) {
        let policy = &self.site.policy;
        let class = policy.all_classes().nth(spec as usize);
        let pool = class.and_then(|class| policy.pools.get(class.pool));
        (self.spec_name(spec as usize), pool.map_or("?", |pool| &pool.name))
    }

    /// Number of keys of a template that were seen, at least 1.
    pub fn keys(&self, template: usize) -> u32 {
        (self.keys[template].len() as u32).max(1)
    }

    /// Returns a path of requests of this route, for the page table.
    pub fn path_of(&self, route: u32) -> Option<&str> {
        self.paths.get(&route).map(String::as_str)
    }

    /// Classifies a logged request.
    pub fn assign(&mut self, logged: &LoggedRequest<'_>) -> Assigned {
        let client = logged
            .client
            .as_deref()
            .and_then(|client| client_address(client).ok())
            .unwrap_or(IpAddr::from([0, 0, 0, 0]));
        let (target, how, route) = match parsed(logged) {
            None => (self.logged_or_last(logged.class.as_deref().unwrap_or_default()), How::Unreadable, NO_ROUTE),
            Some(request) => {
                let (target, how) = self.find(&request, logged, client);
                let route = self.routes.as_ref().map(|index| index.find(request.path(), request.query()));
                let route = route.map(|route| route.and_then(|route| u32::try_from(route).ok()).unwrap_or(NO_ROUTE));
                if let Some(route) = route {
                    self.paths.entry(route).or_insert_with(|| logged.path.as_deref().unwrap_or_default().to_owned());
                }
                (target, how, route.unwrap_or(NO_ROUTE))
            }
        };
        self.counts[how as usize] += 1;
        let classes = self.site.policy.classes.len();
        let (spec, key, place) = match target {
            RuleTarget::Class(class) => (class.0 as usize, 0, self.site.classes.get(class.0 as usize)),
            RuleTarget::Template(template, by) => {
                let template = template.0 as usize;
                // Without the value, every client counts as a key of its own.
                let key = source(&by, client);
                let keys = &mut self.keys[template];
                let next = keys.len() as u32;
                (classes + template, *keys.entry(key).or_insert(next), self.site.templates.get(template))
            }
        };
        let flow = place.map_or(0, |place| source(&place.source, client));
        Assigned { spec: spec as u32, key, flow, route, how }
    }

    /// Returns the class of a request by the rules, or by the log where they cannot be decided.
    fn find(&mut self, request: &Request, logged: &LoggedRequest<'_>, client: IpAddr) -> (RuleTarget, How) {
        let encrypted = logged.scheme.as_deref() == Some("https");
        let identity = logged.client_certificate.as_ref();
        let identity =
            identity.map(|subject| Identity { subject: subject.clone().into_owned(), ..Identity::default() });
        let tls = encrypted.then_some(ClientTls { version: "", sni: None, identity });
        let port = self.ports[usize::from(encrypted)];
        let view = View {
            request,
            path: request.path(),
            client,
            port: port.unwrap_or(0),
            tls: tls.as_ref(),
            // Only fields are vouched for, and the log has none.
            vouched: true,
            visitor: None,
        };
        let Candidates { certain, possible } = self.classifier.candidates(&self.site.policy, &view, port.is_some());
        possible.iter().for_each(|rule| self.undecided[*rule] += 1);
        let of_rule = |rule: usize| self.site.rules.get(rule).map(|rule| rule.target.clone());
        let certain = certain.and_then(|certain| {
            debug_assert!(matches!(certain.class, ClassRef::Class(_) | ClassRef::Template(..) | ClassRef::Network(..)));
            of_rule(certain.rule)
        });
        if possible.is_empty()
            && let Some(certain) = certain
        {
            return (certain, How::Rules);
        }
        let as_logged = possible
            .iter()
            .filter_map(|rule| of_rule(*rule))
            .chain(certain.clone())
            .find(|target| Some(self.target_name(target)) == logged.class.as_deref());
        match as_logged {
            Some(target) => (target, How::Log),
            None => (certain.unwrap_or_else(|| self.last()), How::Guess),
        }
    }

    fn target_name(&self, target: &RuleTarget) -> &str {
        match target {
            RuleTarget::Class(class) => self.spec_name(class.0 as usize),
            RuleTarget::Template(template, _) => self.spec_name(self.site.policy.classes.len() + template.0 as usize),
        }
    }

    fn logged_or_last(&self, name: &str) -> RuleTarget {
        let named = self.site.rules.iter().find(|rule| self.target_name(&rule.target) == name);
        named.map_or_else(|| self.last(), |rule| rule.target.clone())
    }

    /// The class of the last rule, which always matches.
    fn last(&self) -> RuleTarget {
        let last = self.site.rules.last().map(|rule| rule.target.clone());
        last.unwrap_or(RuleTarget::Class(weirgate_engine::ClassId(0)))
    }
}

/// Returns the request of a line, or `None` if the gateway would not accept it in this form.
fn parsed(logged: &LoggedRequest<'_>) -> Option<Request> {
    let [method, path, host] = [&logged.method, &logged.path, &logged.host].map(|field| field.as_deref());
    let (method, path, host) = (method?, path?, host?);
    // A field with a control character or a space would be another request.
    if [method, path, host].into_iter().any(|field| field.bytes().any(|b| b <= b' ' || b == 0x7f)) {
        return None;
    }
    // A field that was cut is compared as far as it is known.
    let path = path.strip_suffix(weirgate_wire::access_log::CUT).unwrap_or(path);
    let head = match host.is_empty() {
        true => format!("{method} {path} HTTP/1.0\r\n\r\n"),
        false => format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
    };
    Request::parse(head.as_bytes()).ok()
}

/// Hash of the source of a client's requests. A value of the request is unknown, so the address stands for it.
fn source(key: &Key, client: IpAddr) -> u64 {
    match key {
        Key::Network(size) => hash(&size.network_of(client)),
        Key::Header(_) | Key::Cookie(_) | Key::Visitor => hash(&client),
    }
}

/// A hash that is the same in every run.
fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = "
listen: 127.0.0.1:8080
upstreams: { web: { nodes: ['n1:80'] } }
classes:
  - { name: gold, match: { host: gold.test, header: { x-plan: gold } } }
  - { name: mail, match: { path_prefix: /mail } }
  - { name: rest }
";

    fn side() -> Side {
        let site = weirgate_config::load("test", POLICY).unwrap_or_else(|errors| panic!("{errors}")).site;
        Side::new("test".into(), site)
    }

    fn line(class: &str, host: &str, path: &str) -> LoggedRequest<'static> {
        LoggedRequest {
            class: Some(class.to_owned().into()),
            method: Some("GET".into()),
            host: Some(host.to_owned().into()),
            path: Some(path.to_owned().into()),
            client: Some("192.0.2.1".into()),
            ..LoggedRequest::default()
        }
    }

    #[test]
    fn the_rules_decide_and_then_the_log_and_then_the_rest() {
        let mut side = side();
        let mut of = |class, host, path| {
            let found = side.assign(&line(class, host, path));
            (found.spec, found.how)
        };
        assert_eq!(of("rest", "a.test", "/mail/1"), (1, How::Rules));
        assert_eq!(of("gold", "gold.test", "/mail/1"), (0, How::Log));
        assert_eq!(of("mail", "gold.test", "/mail/1"), (1, How::Log));
        // Neither a class that is gone nor one that the rules exclude is believed.
        assert_eq!(of("silver", "gold.test", "/"), (2, How::Guess));
        assert_eq!(of("mail", "gold.test", "/"), (2, How::Guess));
        assert_eq!(of("mail", "gold.test", "not a path"), (1, How::Unreadable));
        assert_eq!(of("gone", "gold.test", "x y"), (2, How::Unreadable));
        let counts = [How::Rules, How::Log, How::Guess, How::Unreadable].map(|how| side.count(how));
        assert_eq!(counts, [1, 2, 2, 2]);
        assert_eq!(side.undecided(), [("gold".to_owned(), 4, vec!["header x-plan = …".to_owned()])]);
    }

    #[test]
    fn sources_are_networks_of_clients() {
        let mut side = side();
        let mut flow = |client: &'static str| {
            side.assign(&LoggedRequest { client: Some(client.into()), ..line("rest", "a.test", "/") }).flow
        };
        assert_eq!(flow("2001:db8::1"), flow("2001:db8::2"));
        assert_ne!(flow("192.0.2.1"), flow("192.0.2.2"));
        assert_eq!(flow("unix"), flow("unix"));
    }
}
