//! The gateway as a process: limits, time limits towards clients, admin listener, access log.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use weirgate_spanned_yaml::decode::{Context, Decode, Defaulted, FromText, OneOrMany, Optional, Switch, unknown_word};
use weirgate_spanned_yaml::errors::Complaint;
use weirgate_spanned_yaml::tree::{Node, Value};
use weirgate_spanned_yaml::unit::{Bytes, Count, Share, Span, Text};
use weirgate_spanned_yaml::{record, text_schema};

use super::address::Listen;

record! {
    /// Bounds on what clients may send and on buffers.
    pub(crate) struct Limits {
        /// Most connections at once; more wait in the kernel. 20,000 with a node connection each
        /// stay below the usual limit of 65,536 open files.
        connections: Defaulted<Count> = 20000,
        /// Most bytes of a request head; more is answered with 431. Eight times what browsers send.
        head_bytes: Defaulted<Bytes> = "64KiB",
        /// Most headers of a request; more is answered with 431. Browsers send about 20.
        headers: Defaulted<Count> = 100,
        /// Most bytes of a request body; more is answered with 413. `off` by default: bodies stream
        /// through and are not kept.
        body_bytes: Defaulted<Switch<Bytes>> = "off",
        /// Bytes of one answer kept for a slow client, so that its slot is free once the node is done.
        /// 1 MiB holds most pages.
        buffer_per_request: Defaulted<Bytes> = "1MiB",
        /// Bytes of all answers kept for slow clients; past it, slow clients hold their slots.
        buffer_total: Defaulted<Bytes> = "256MiB",
        /// Memory of the process: from 90 % of it on no connection is accepted, from 95 % on requests are
        /// answered with 503. `off` by default: everything that takes memory has a bound of its own.
        memory: Defaulted<Switch<Bytes>> = "off",
    }
}

record! {
    /// Time limits towards clients.
    pub(crate) struct ClientTimeouts {
        /// From the first byte of a request head to its last. 10 s is ample for a slow phone and short
        /// for an attacker that sends a byte at a time.
        header: Defaulted<Span> = "10s",
        /// Between two requests of one connection. 60 s keep a reader's connection from page to page.
        idle: Defaulted<Span> = "60s",
    }
}

/// The admin listener in either form.
#[derive(Clone, Debug)]
pub(crate) struct Admin(pub(crate) Box<AdminForm>);

record! {
    /// The admin listener.
    pub(crate) struct AdminForm {
        /// `IP:PORT` or `unix:/path`. Elsewhere than on loopback it needs a token.
        address: Defaulted<AdminPlace> = "127.0.0.1:9900",
        /// File with the bearer token, at least 128 bits as hex or base64. The environment variable
        /// `WEIRGATE_ADMIN_TOKEN` serves as well.
        token_file: Optional<Text>,
        /// Names that `Host` may have besides the address itself and `localhost`: others are refused,
        /// against pages that make a browser call this listener.
        hosts: Optional<OneOrMany<Text>>,
    }
}

/// Where the admin listener is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdminPlace {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// The access log in either form.
#[derive(Clone, Debug)]
pub(crate) struct AccessLog(pub(crate) Box<AccessLogForm>);

record! {
    /// The access log: one JSON object per line.
    pub(crate) struct AccessLogForm {
        /// The file it is appended to; standard output by default.
        file: Optional<Text>,
        /// Share of served requests that are logged; sheds and errors always are. All of them by default: who asks for
        /// a log wants to find a request in it.
        sample: Defaulted<Share> = "100%",
    }
}

/// Longest path of a Unix socket that every system takes.
const MAX_SOCKET_PATH: usize = 100;

impl FromText for AdminPlace {
    const EXPECTED: &'static str = "`off`, an address such as `127.0.0.1:9900`, or `unix:/path`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let Some(path) = text.strip_prefix("unix:") else {
            return Listen::from_text(text).map(|Listen(address)| AdminPlace::Tcp(address));
        };
        if !path.starts_with('/') {
            let mend = "write it from the root, such as `unix:/run/weirgate.sock`";
            return Err(Complaint::new("the path of the socket is not absolute", mend));
        }
        if path.len() > MAX_SOCKET_PATH {
            let what = format!("the path of the socket has {} bytes", path.len());
            return Err(Complaint::new(what, format!("systems take at most {MAX_SOCKET_PATH}")));
        }
        Ok(AdminPlace::Unix(PathBuf::from(path)))
    }
}

impl Decode for Admin {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        let form = match &node.value {
            Value::Map(_) => AdminForm::decode(node, cx)?,
            _ => {
                let address = AdminPlace::decode(node, cx)?;
                let mut form = AdminForm::decode(&Node::assumed("{}", node.place), cx)?;
                form.address.set(address);
                form
            }
        };
        Some(Admin(Box::new(form)))
    }
}

impl Decode for AccessLog {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        let form = match &node.value {
            Value::Text(text) if &**text == "stdout" => AccessLogForm::decode(&Node::assumed("{}", node.place), cx)?,
            Value::Text(text) => {
                let complaint = match text.contains('/') {
                    true => {
                        Complaint::new("a file needs its own field", format!("write `access_log: {{ file: {text} }}`"))
                    }
                    false => unknown_word(text, &["off", "stdout"]),
                };
                cx.complain(complaint);
                return None;
            }
            _ => AccessLogForm::decode(node, cx)?,
        };
        Some(AccessLog(Box::new(form)))
    }
}

text_schema! {
    AdminPlace: { "type": "string", "examples": ["127.0.0.1:9900", "unix:/run/weirgate.sock"] };
}

impl JsonSchema for Admin {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Admin".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [generator.subschema_for::<AdminPlace>(), generator.subschema_for::<AdminForm>()] })
    }
}

impl JsonSchema for AccessLog {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AccessLog".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "const": "stdout" }, generator.subschema_for::<AccessLogForm>()] })
    }
}
