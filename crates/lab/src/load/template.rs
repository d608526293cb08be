//! The form of a traffic source's requests on the wire.

use std::net::Ipv4Addr;

use super::text::{Text, digits};
use weirgate_config::{Key, RuleTarget};
use weirgate_emulator::station::Demand;
use weirgate_engine::{Content, TemplateId};
use weirgate_experiment::{Experiment, TrafficClass};

use super::sent::Id;

/// The header by which every gateway can classify.
const CLASS: &str = "x-class";

/// A request without a body, with marks to fill in for each request. `{cpu_us}`, `{io_us}`, `{disk_us}`, `{link_us}`
/// and `{stream_us}` are its demand in whole microseconds, `{id}` is its id, `{key}` its key of a template, `{source}`
/// an address that stands for its client, `{object}` and `{bytes}` its file and the file's size, and `{word}` one of
/// `words`. `X-Request-Id: {id}` is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Its method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Its `Host`.
    pub host: String,
    /// Further header fields: name, value.
    pub headers: Vec<(String, String)>,
    /// Words to draw from for every new request, all equally likely.
    pub words: Vec<String>,
    /// Whether the nodes sign their replies with `X-Node`, as emulated ones do. An unsigned reply then comes from the
    /// gateway and does not serve the request. Without signatures only a 429 or 5xx can be the gateway's.
    pub signed: bool,
}

impl Template {
    /// Returns the form of traffic source number `traffic` for a service that understands `path`, unless the
    /// experiment sets another path. Requests carry their class, and their key where the policy looks for it.
    ///
    /// # Panics
    /// There is no such traffic source.
    pub fn new(experiment: &Experiment, traffic: usize, path: &str) -> Template {
        let (site, traffic) = (&experiment.site, &experiment.traffic[traffic]);
        let name = traffic.class.name(&site.policy);
        let mut headers = vec![(CLASS.to_owned(), name.to_owned())];
        if let TrafficClass::Template { template, .. } = traffic.class {
            let of = |target: &RuleTarget| match target {
                RuleTarget::Template(TemplateId(id), key) if *id as usize == template => Some(key.clone()),
                _ => None,
            };
            headers.extend(site.rules.iter().find_map(|rule| of(&rule.target)).and_then(|key| match key {
                Key::Header(header) => Some((header.as_str().to_owned(), "{key}".to_owned())),
                Key::Cookie(cookie) => Some(("cookie".to_owned(), format!("{cookie}={{key}}"))),
                // The lab has one address, so all requests are of one class.
                Key::Network(_) | Key::Visitor => None,
            }));
        }
        let shape = &traffic.request;
        // Headers that the experiment sets replace the defaults.
        headers.retain(|(name, _)| !shape.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name)));
        headers.extend(shape.headers.iter().cloned());
        Template {
            method: shape.method.clone(),
            path: shape.path.clone().unwrap_or_else(|| path.to_owned()),
            host: shape.host.clone().unwrap_or_else(|| name.to_owned()),
            headers,
            words: Vec::new(),
            signed: false,
        }
    }

    /// Returns the form of traffic source number `traffic` for emulated nodes.
    ///
    /// # Panics
    /// There is no such traffic source.
    pub fn emulated(experiment: &Experiment, traffic: usize) -> Template {
        let policy = &experiment.site.policy;
        let content = experiment.traffic[traffic].class.class(policy).content;
        if experiment.traffic[experiment.home_of(traffic)].documents.is_some() {
            // The path contains the name, because a gateway takes the path as the target.
            let path = "/{object}?object={object}&bytes={bytes}&demand={cpu_us}us&io={io_us}us&content=static";
            return Template { signed: true, ..Template::new(experiment, traffic, path) };
        }
        let mut path = String::from("/?demand={cpu_us}us&io={io_us}us");
        if experiment.takes_disk_or_link(traffic) {
            path += "&disk={disk_us}us&link={link_us}us";
        }
        if experiment.streams(traffic) {
            path += "&stream={stream_us}us";
        }
        if content == Content::Static {
            path += "&content=static";
        }
        Template { signed: true, ..Template::new(experiment, traffic, &path) }
    }

    /// Returns the text for the wire.
    ///
    /// # Errors
    /// A part cannot be sent. The error names the reason.
    pub(super) fn head(&self) -> Result<Head, String> {
        let token = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        let line = |text: &str| !text.bytes().any(|b| b.is_ascii_control());
        if !token(&self.method) || !token(&self.path) || !self.path.starts_with('/') || !line(&self.host) {
            return Err(format!(
                "{} {} to {:?} cannot be sent: write a method, a path from / on and a host, without spaces",
                self.method, self.path, self.host
            ));
        }
        if let Some((name, value)) = self.headers.iter().find(|(name, value)| !token(name) || !line(value)) {
            return Err(format!("header {name:?}: {value:?} cannot be sent: write a name and a value in one line"));
        }
        if let Some(word) = self.words.iter().find(|word| !token(word)) {
            return Err(format!("the word {word:?} cannot be sent: write it percent-encoded, without spaces"));
        }
        let mut text = format!("{} {} HTTP/1.1\r\nhost: {}\r\n", self.method, self.path, self.host);
        // RFC 9110, Sec. 8.6: a method that normally has a body states that there is none.
        if ["POST", "PUT", "PATCH"].contains(&self.method.as_str()) {
            text += "content-length: 0\r\n";
        }
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += "x-request-id: {id}\r\n\r\n";
        let text = Text::cut(&text, &MARKS);
        if text.has(WORD) && self.words.is_empty() {
            return Err(format!("{} asks for a word, and there are none", self.path));
        }
        let words =
            if text.has(WORD) { self.words.iter().map(|word| word.as_bytes().into()).collect() } else { vec![] };
        Ok(Head { text, words, is_head: self.method == "HEAD", signed: self.signed })
    }
}

const MARKS: [&str; 11] = [
    "{cpu_us}", "{io_us}", "{id}", "{key}", "{word}", "{object}", "{bytes}", "{disk_us}", "{link_us}", "{stream_us}",
    "{source}",
];
/// Indices into [`MARKS`].
const ID: usize = 2;
const WORD: usize = 4;
const OBJECT: usize = 5;
const BYTES: usize = 6;
const DISK: usize = 7;
const LINK: usize = 8;
const STREAM: usize = 9;
const SOURCE: usize = 10;

/// A template that is ready to send.
#[derive(Debug)]
pub(super) struct Head {
    text: Text,
    /// Empty if the text uses no word.
    pub(super) words: Vec<Box<[u8]>>,
    pub(super) is_head: bool,
    pub(super) signed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Filling {
    pub(super) id: Id,
    pub(super) demand: Demand,
    pub(super) key: u32,
    /// Hash of the source.
    pub(super) flow: u64,
    /// Index of a word.
    pub(super) word: u32,
    /// A file name, and its size in bytes below.
    pub(super) object: u64,
    pub(super) bytes: u64,
}

impl Head {
    pub(super) fn write(&self, filling: &Filling, out: &mut Vec<u8>) {
        let micros = |nanos: u64| nanos.saturating_add(500) / 1000;
        self.text.write(out, |mark, out| match mark {
            0 => digits(micros(filling.demand.cpu), out),
            1 => digits(micros(filling.demand.io), out),
            ID => filling.id.write(out),
            WORD => out.extend_from_slice(self.words.get(filling.word as usize).map_or(&[], |word| &**word)),
            OBJECT => digits(filling.object, out),
            BYTES => digits(filling.bytes, out),
            DISK => digits(micros(filling.demand.disk), out),
            LINK => digits(micros(filling.demand.link), out),
            SOURCE => out.extend_from_slice(address_of(filling.flow).to_string().as_bytes()),
            STREAM => digits(micros(filling.demand.stream), out),
            _ => digits(u64::from(filling.key), out),
        });
    }
}

/// Returns the address that stands for a source, in the private network 10.0.0.0/9. The upper half of the private
/// network is for addresses that an experiment writes itself.
fn address_of(flow: u64) -> Ipv4Addr {
    let [high, middle, low, ..] = flow.to_le_bytes();
    Ipv4Addr::new(10, high & 0x7f, middle, low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(traffic: &str) -> Experiment {
        taking(traffic, "cpu: 8ms, io: 1.5ms")
    }

    fn taking(traffic: &str, demand: &str) -> Experiment {
        let text = format!(
            "policy:\n  trusted_proxies: 127.0.0.1/32\n  upstreams: {{ web: {{ nodes: [n1:80] }} }}\n  classes:\n    \
             - {{ name: gold }}\n    - {{ name: tenant, per: {{ header: X-Tenant }}, max_live: 10 }}\n    \
             - {{ name: other }}\ntraffic:\n  - {{ {traffic}, rate: 1/s, demand: {{ {demand} }} }}\n\
             phases:\n  - {{ name: all, until: 60s }}\n"
        );
        let loaded = weirgate_experiment::load_experiment("test.yaml", &text, std::path::Path::new(""), &[]);
        loaded.unwrap_or_else(|e| panic!("{e}")).experiment
    }

    fn written(template: &Template) -> String {
        let filling = Filling {
            id: Id { traffic: 0, number: 7 },
            demand: Demand { cpu: 8_000_400, io: 1_500_000, disk: 2_000_000, link: 700_000, stream: 30_000_000_000 },
            key: 3,
            flow: 0x0003_02ff,
            word: 1,
            object: 17,
            bytes: 900,
        };
        let mut out = Vec::new();
        template.head().expect("it can be sent").write(&filling, &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn emulated_nodes_are_told_the_demand_and_gateways_the_class() {
        assert_eq!(
            written(&Template::emulated(&experiment("class: gold"), 0)),
            "GET /?demand=8000us&io=1500us HTTP/1.1\r\nhost: gold\r\nx-class: gold\r\nx-request-id: 0-7\r\n\r\n"
        );
    }

    #[test]
    fn nodes_are_told_of_disk_and_link_where_requests_take_something_of_them() {
        let path = "/?demand=8000us&io=1500us&disk=2000us&link=700us ";
        for parts in ["disk: 2ms", "link: 700us", "disk: { exponential: 2ms }, link: 700us"] {
            let text = written(&Template::emulated(&taking("class: gold", parts), 0));
            assert!(text.contains(path), "{parts}: {text}");
        }
        let own = "class: gold, request: { path: '/math?disk={disk_us}us&link={link_us}us' }";
        assert!(written(&Template::emulated(&experiment(own), 0)).starts_with("GET /math?disk=2000us&link=700us HTTP"));
    }

    #[test]
    fn nodes_are_told_how_long_replies_stream() {
        let text = written(&Template::emulated(&taking("class: gold", "cpu: 1ms, stream: 30s"), 0));
        assert!(text.starts_with("GET /?demand=8000us&io=1500us&stream=30000000us HTTP"), "{text}");
    }

    #[test]
    fn requests_for_files_have_the_name_in_their_path() {
        let text = written(&Template::emulated(
            &experiment("class: gold, documents: { files: 100, total: 1MiB, zipf: 1, others: { other: 10% } }"),
            1,
        ));
        let path = "/17?object=17&bytes=900&demand=8000us&io=1500us&content=static";
        assert_eq!(text, format!("GET {path} HTTP/1.1\r\nhost: other\r\nx-class: other\r\nx-request-id: 0-7\r\n\r\n"));
    }

    #[test]
    fn requests_of_a_template_carry_their_key() {
        let text = written(&Template::emulated(&experiment("class: tenant, keys: 5"), 0));
        assert!(text.contains("\r\nx-class: tenant\r\nx-tenant: 3\r\n"), "{text}");
    }

    #[test]
    fn requests_tell_an_address_that_stands_for_their_client() {
        let traffic = "class: gold, request: { headers: { Cookie: 'session={source}', X-Forwarded-For: '{source}' } }";
        let text = written(&Template::emulated(&experiment(traffic), 0));
        assert!(text.contains("\r\nCookie: session=10.127.2.3\r\nX-Forwarded-For: 10.127.2.3\r\n"), "{text}");
    }

    #[test]
    fn an_experiment_may_say_what_goes_over_the_wire() {
        let traffic =
            "class: gold, request: { method: POST, path: '/p?q={word}', host: a.test, headers: { X-Class: x } }";
        let template = Template::new(&experiment(traffic), 0, "/never");
        let template = Template { words: vec!["one".into(), "two".into()], ..template };
        assert_eq!(
            written(&template),
            "POST /p?q=two HTTP/1.1\r\nhost: a.test\r\ncontent-length: 0\r\nX-Class: x\r\nx-request-id: 0-7\r\n\r\n"
        );
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        let sound = Template::emulated(&experiment("class: gold"), 0);
        let of = |change: &dyn Fn(&mut Template)| {
            let mut template = sound.clone();
            change(&mut template);
            template
        };
        for (words, template) in [
            ("cannot be sent", of(&|t| t.path = "/a b".into())),
            ("a path from /", of(&|t| t.path = "x".into())),
            ("cannot be sent", of(&|t| t.host = "a\r\nb: c".into())),
            ("in one line", of(&|t| t.headers.push(("a".into(), "b\r\nc: d".into())))),
            ("percent-encoded", of(&|t| t.words.push("a b".into()))),
            ("there are none", of(&|t| t.path = "/{word}".into())),
        ] {
            let error = template.head().expect_err("it cannot be sent");
            assert!(error.contains(words), "{error:?} does not say {words:?}");
        }
    }
}
