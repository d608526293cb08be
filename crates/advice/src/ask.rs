//! A first policy from a few answers.
//!
//! At most five questions, each with a default, about facts that a person knows: addresses, important requests, their
//! rate, and their response time. Service times, capacities and methods are left to Weirgate.

use std::net::SocketAddr;

use weirgate_spanned_yaml::decode::FromText;
use weirgate_spanned_yaml::unit::{Rate, Span};

use crate::import;
use crate::names::{host_of, name_of, segments_of};
use crate::numbers::{rate, span};
use crate::policy::{Class, Noted, Policy, Upstream, scalar};
use crate::propose::{LISTEN, NODE};

/// A question.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Its text.
    pub text: &'static str,
    /// The answer if none is given.
    pub default: &'static str,
}

/// The questions, in order.
pub const QUESTIONS: [Question; 5] = [
    Question { text: "Where should clients connect? IP:PORT", default: LISTEN },
    Question { text: "Where do your servers listen? HOST:PORT, several with commas", default: NODE },
    Question {
        text: "Which requests matter most? A host such as shop.test, a path such as /checkout, or `all`",
        default: "all",
    },
    Question {
        text: "How many of them should always be served, whatever the others do? Such as 50/s or 600/min",
        default: "10/s",
    },
    Question { text: "Within what time should 95 of 100 of them be answered? Such as 300ms or 2s", default: "1s" },
];

/// The answers so far.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    given: usize,
    listen: String,
    nodes: Vec<String>,
    /// The condition as YAML, and a name.
    important: Option<(String, String)>,
    throughput: f64,
    limit: f64,
}

impl Answers {
    /// Returns the next question, or `None` after the last one.
    pub fn question(&self) -> Option<Question> {
        QUESTIONS.get(self.given).copied()
    }

    /// Takes the answer to the next question. An empty one is the default.
    ///
    /// # Errors
    /// The text is no answer. The message has a hint.
    pub fn answer(&mut self, text: &str) -> Result<(), String> {
        let Some(question) = self.question() else { return Ok(()) };
        let text = match text.trim() {
            "" => question.default,
            text => text,
        };
        match self.given {
            0 => self.listen = listener(text)?,
            1 => self.nodes = servers(text)?,
            2 => self.important = important(text)?,
            3 => {
                let Rate(rate) =
                    Rate::from_text(text).map_err(|complaint| format!("{}; {}", complaint.what, complaint.hint))?;
                // Two decimals are written.
                self.throughput = rate.max(0.01);
            }
            _ => {
                let Span(time) =
                    Span::from_text(text).map_err(|complaint| format!("{}; {}", complaint.what, complaint.hint))?;
                self.limit = time.as_secs_f64();
            }
        }
        self.given += 1;
        Ok(())
    }

    /// Returns the policy, with the default of each question that was not answered.
    ///
    /// # Errors
    /// A default is not sound, which is a defect.
    pub fn yaml(mut self) -> Result<String, String> {
        while self.question().is_some() {
            self.answer("")?;
        }
        let listen_why = vec!["Where clients connect. `0.0.0.0:PORT` is every interface of this machine.".into()];
        let upstream = Upstream {
            name: "app".into(),
            why: vec!["Your servers. If each has a fixed number of workers, write it down: `{ address: …, max_outstanding: 8 }`.".into()],
            nodes: self.nodes.iter().map(|node| scalar(node)).collect(),
            fields: Vec::new(),
        };
        let throughput = Noted::new(
            rate(self.throughput),
            vec!["Requests a second that are served whatever the others do. Too low, and a busy day exceeds it. Too high for your \
                  servers, and no promise is kept in full."
                .into()],
        );
        let limit = Noted::new(
            format!("{{ p95: {} }}", span(self.limit)),
            vec![
                "95 of 100 are answered within this time. Missed if the servers themselves need longer on a quiet day."
                    .into(),
            ],
        );
        let (matches, name) = match self.important {
            Some((matches, name)) => (Some(matches), name),
            None => (None, "everything".into()),
        };
        let rest = matches.is_some();
        let promised = Class {
            name,
            about: vec![if rest { "What matters most." } else { "All requests." }.into()],
            matches,
            throughput: Some(throughput),
            response_time: Some(limit),
            ..Class::default()
        };
        let mut classes = vec![promised];
        if rest {
            classes.push(Class {
                name: "other".into(),
                about: vec!["The rest, without a promise: it gets what the others leave.".into()],
                ..Class::default()
            });
        }
        let policy = Policy {
            about: vec![
                "Made by `weirgate init` from your answers. Weirgate learns how long requests take, and how many your servers can \
                 work on at once."
                    .into(),
                "When you have access logs, `weirgate recommend ACCESS_LOG` proposes figures from them.".into(),
            ],
            listen: vec![self.listen],
            listen_why,
            observe: true,
            upstreams: vec![upstream],
            classes,
            end: Vec::new(),
        };
        Ok(policy.yaml())
    }
}

fn listener(text: &str) -> Result<String, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() > 0 => Ok(address.to_string()),
        _ => {
            let port = text
                .rsplit(':')
                .next()
                .and_then(|port| port.parse::<u16>().ok())
                .filter(|port| *port > 0)
                .unwrap_or(8080);
            Err(format!(
                "{text:?} is not an IP address with a port; write `127.0.0.1:{port}` for this machine alone, or `0.0.0.0:{port}` \
                 for every interface"
            ))
        }
    }
}

fn servers(text: &str) -> Result<Vec<String>, String> {
    let mut nodes: Vec<String> = Vec::new();
    for one in text.split([',', ' ']).filter(|one| !one.is_empty()) {
        let node = import::node(one)?;
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }
    if nodes.is_empty() { Err("there is no address; write one such as `10.0.0.1:80`".into()) } else { Ok(nodes) }
}

/// Returns the condition and a name for the class, or `None` for all requests.
fn important(text: &str) -> Result<Option<(String, String)>, String> {
    if matches!(text, "all" | "*") || text.bytes().all(|byte| byte == b'/') {
        return Ok(None);
    }
    let name = |text: &str| name_of(text.trim_matches(['/', '*', '.']), &["other".to_owned()]);
    if text.starts_with('/') {
        let path = segments_of(text).map(|path| path.trim_end_matches('/'));
        let path = path.ok_or_else(|| {
            format!("{text:?} is not a plain path; write one such as `/checkout`, and conditions by hand later")
        })?;
        return Ok(Some((format!("{{ path_prefix: {} }}", scalar(path)), name(path))));
    }
    match import::host(text).filter(|_| host_of(text.trim_start_matches("*.")).is_some() && !text.contains("//")) {
        Some(host) => Ok(Some((format!("{{ host: {} }}", scalar(&host)), name(&host)))),
        None => Err(format!(
            "{text:?} is neither a host nor a path; write one such as `shop.test` or `/checkout`, or `all`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answered(texts: &[&str]) -> Result<String, String> {
        let mut answers = Answers::default();
        texts.iter().try_for_each(|text| answers.answer(text))?;
        answers.yaml()
    }

    #[test]
    fn answers_become_a_policy_without_warnings() {
        for texts in [
            &[][..],
            &["0.0.0.0:80", "10.0.0.1:80, web.test:81,10.0.0.1:80", "shop.test", "600/min", "300ms"],
            &["[::1]:80", "unix:/run/app.sock", "/checkout/"],
            &["", "", "*.shop.test", "0.001/s", "0.5 s"],
            &["", "", "other"],
            &["", "", "//"],
        ] {
            let yaml = answered(texts).unwrap_or_else(|why| panic!("{why}"));
            let loaded = weirgate_config::load("p.yaml", &yaml).unwrap_or_else(|errors| panic!("{errors}\n{yaml}"));
            assert_eq!(loaded.warning_lines("p.yaml"), Vec::<String>::new(), "{yaml}");
            let is_all = texts.get(2).is_none_or(|important| *important == "//");
            assert_eq!(loaded.site.policy.classes.len(), if is_all { 1 } else { 2 });
        }
    }

    #[test]
    fn wrong_answers_have_a_hint() {
        for (texts, hint) in [
            (&["8080"][..], "`0.0.0.0:8080`"),
            (&["localhost:80"], "`127.0.0.1:80`"),
            (&["", "http://10.0.0.1"], "has a scheme"),
            (&["", ","], "no address"),
            (&["", "", "/a b"], "not a plain path"),
            (&["", "", "a b"], "neither a host nor a path"),
            (&["", "", "", "50"], "`50/s`"),
            (&["", "", "", "", "2"], "`2ms` or `2s`"),
        ] {
            let why = answered(texts).unwrap_err();
            assert!(why.contains(hint), "{texts:?}: {why}");
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_loads(
            listen in "([0-9.:\\[\\]]{0,12}|)", nodes in "[a-z0-9.:,/_ -]{0,16}", important in "/?[a-zA-Z0-9*._~/-]{0,12}", rate in "[0-9.]{1,4}/(s|min|h)",
            limit in "[0-9.]{1,7}(us|ms|s|min)",
        ) {
            let mut answers = Answers::default();
            for text in [&listen, &nodes, &important, &rate, &limit] {
                if answers.answer(text).is_err() {
                    answers.answer("").expect("a default");
                }
            }
            let yaml = answers.yaml().expect("a policy");
            prop_assert!(weirgate_config::load("p.yaml", &yaml).is_ok(), "{}", yaml);
        }
    }
}
