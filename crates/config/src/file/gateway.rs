//! The gateway process: limits, timeouts towards clients, admin listener, access log.

use weirgate_spanned_yaml::decode::{Context, Decode, Defaulted, OneOrMany, Optional, Required, Switch, unknown_word};
use weirgate_spanned_yaml::errors::Complaint;
use weirgate_spanned_yaml::tree::{Node, Value};
use weirgate_spanned_yaml::unit::{Answer, Bytes, Count, Rate, Share, Span, Text};
use weirgate_spanned_yaml::{any_of, record, words};

use super::address::ListenAddress;
use super::discover::CollectorUrl;
use super::listener::{FileMode, GroupName, UserName};
use crate::site::{AccessField, AccessFormat};

record! {
    /// Limits on client input and on buffers.
    pub(crate) struct Limits {
        /// Maximum number of connections at once. Beyond it connections are closed: first those that never sent a
        /// request, then those of peers with more than their part of all. Of these the ones idle for longest come
        /// first, and then requests that wait, which get 503 unless their class has a guaranteed throughput. Others
        /// make room last. A client that has been answered less than 250 ms ago may be sending its next request, and
        /// keeps its connection as long as another one can make room without refusing a request. At the limit, answers
        /// over HTTP/1.1 to peers with more than their part also end their connections. Further connections wait in the
        /// kernel. 20,000 with one node connection each stay below the usual limit of 65,536 open files.
        connections: Defaulted<Count> = 20000,
        /// Maximum number of connections of one peer at once: of an IPv4 address or an IPv6 /64. Further ones are
        /// closed when they are accepted. `trusted_proxies` have no limit. `off` by default, because an office or a
        /// provider may share one address.
        connections_per_source: Defaulted<Switch<Count>> = "off",
        /// Maximum rate of new connections of one peer, such as `20/s` or `120/min`: of an IPv4 address or an IPv6 /64.
        /// Those of 10 s may come at once, and further ones are closed when they are accepted, before TLS.
        /// `trusted_proxies` have no limit. `off` by default, because an office or a provider may share one address.
        new_connections_per_source: Defaulted<Switch<Rate>> = "off",
        /// Maximum size of a request head. A larger one is answered with 431. The default is eight times the
        /// size that browsers send.
        head_bytes: Defaulted<Bytes> = "64KiB",
        /// Maximum number of headers in a request. More are answered with 431. Browsers send about 20.
        headers: Defaulted<Count> = 100,
        /// Maximum size of a request body. A larger one is answered with 413. `off` by default, because
        /// bodies are streamed and not stored.
        body_bytes: Defaulted<Switch<Bytes>> = "off",
        /// Bytes of a request's body that conditions (`match: { body: … }`) see, at most 64 KiB. They are received
        /// before the request has a class, if a condition that may still hold asks for them. 8 KiB hold the forms and
        /// calls that people write.
        body_prefix: Defaulted<Bytes> = "8KiB",
        /// Maximum number of requests at once on one HTTP/2 connection. Further ones are refused (REFUSED_STREAM), and
        /// clients send them again. The default is the lowest number that RFC 9113 recommends. Each may keep 64 KiB of
        /// its body, and `buffer_per_request` of its reply.
        http2_streams: Defaulted<Count> = 100,
        /// Number of HTTP/2 frames without content that a client may send at once: resets, settings, pings,
        /// priorities, window updates, empty DATA, and frames that make the gateway reset a stream. In 30 s it may send
        /// as many again, and four for each frame of a reply. A client that sends more loses its connection
        /// (ENHANCE_YOUR_CALM). The default is the burst that nghttp2 allows.
        http2_overhead_frames: Defaulted<Count> = 1000,
        /// Maximum number of tunnels, such as WebSockets, at once. A request for a further one is answered with 503.
        /// The default leaves half of the default `connections` to requests.
        tunnels: Defaulted<Count> = 10000,
        /// Bytes of one reply that are buffered for a slow client, so that its slot is free once the node is
        /// done. 1 MiB holds most pages.
        buffer_per_request: Defaulted<Bytes> = "1MiB",
        /// Bytes of all replies that are buffered for slow clients. Past it, slow clients hold their slots.
        buffer_total: Defaulted<Bytes> = "256MiB",
        /// Memory limit of the process. Replies of at most a quarter of it are buffered for slow clients, and none from
        /// 80 % of it. From 90 % no connection is accepted, from 95 % requests are answered with 503. `auto` is the
        /// limit of the process's control group, as in a container or a systemd unit. `off` or a group without a limit
        /// mean no limit, because everything that uses memory has a limit of its own.
        memory: Defaulted<MemoryForm> = "auto",
    }
}

record! {
    /// Timeouts towards clients.
    pub(crate) struct ClientTimeouts {
        /// Time for a request head: from its first byte, or for the first request of a connection from the
        /// acceptance of the connection. 10 s are ample for a slow phone and limit an attacker that sends one byte
        /// at a time.
        header: Defaulted<Span> = "10s",
        /// Time between two requests on one connection. 60 s usually keep the connection of a reader from one
        /// page to the next.
        idle: Defaulted<Span> = "60s",
        /// Time that a client may take for a request body, and a second more for every `body_rate` bytes that have
        /// arrived. A slower one is answered with 408. It does not run while the node is the slower side. The default
        /// is that of Apache's mod_reqtimeout.
        body: Defaulted<Span> = "20s",
        /// Minimum rate of a request body after that time, in bytes a second. The default is Apache's. Slow phones send
        /// ten times as fast.
        body_rate: Defaulted<Bytes> = "500B",
    }
}

record! {
    /// Changes to requests on their way to the nodes, and to responses on their way back.
    pub(crate) struct ForwardForm {
        /// Whether nodes get the normal form of a path, which rules compare, in place of the path as it was sent.
        /// `false` by default, because signatures and names with `%2F` or `//` depend on the spelling.
        normalized_path: Defaulted<Answer> = false,
        /// Whether `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host` are written. If not, those of
        /// `trusted_proxies` pass as they are. Those of other clients never pass.
        x_forwarded: Defaulted<Answer> = true,
        /// Whether `Forwarded` is written. If not, the same holds for it as for `x_forwarded`.
        forwarded: Defaulted<Answer> = true,
        /// Whether `Via` is written, in both directions. Without it, nginx compresses responses to this gateway.
        via: Defaulted<Answer> = true,
        /// Whether `traceparent` is added to a request without a valid one, and names the gateway's span in traces that
        /// `telemetry` exports.
        traceparent: Defaulted<Answer> = true,
        /// Whether `X-Request-ID` is written, with the trace id of the access log. That of `trusted_proxies` is kept.
        request_id: Defaulted<Answer> = false,
    }
}

/// Memory limit of the process: `auto`, `off` or a size.
#[derive(Clone, Debug)]
pub(crate) enum MemoryForm {
    /// The limit of the control group.
    Auto,
    /// A size, or no limit.
    Given(Switch<Bytes>),
}

/// The admin listener, written in short or as a map.
#[derive(Clone, Debug)]
pub(crate) struct Admin(pub(crate) Box<AdminForm>);

record! {
    /// The admin listener.
    pub(crate) struct AdminForm {
        /// `IP:PORT` or `unix:/path`. A TCP address outside loopback needs the policy's `trust`.
        address: Defaulted<ListenAddress> = "127.0.0.1:9900",
        /// Mode of the file of a Unix socket, in octal. To connect, a program needs the right to write. `600` by
        /// default, so that only the owner has access.
        mode: Defaulted<FileMode> = "600",
        /// Owner of that file: a name or an id. The user of the process by default.
        owner: Optional<UserName>,
        /// Group of that file: a name or an id. The group of the process by default.
        group: Optional<GroupName>,
        /// File with a bearer token, at least 128 bits as hex or base64. You can set the environment
        /// variable `WEIRGATE_ADMIN_TOKEN` instead. With `trust` it is for clients without a certificate.
        token_file: Optional<Text>,
        /// Values of `Host` that are accepted in addition to the address itself and `localhost`. Other values
        /// are refused, so that a web page cannot make a browser call this listener.
        hosts: Optional<OneOrMany<Text>>,
    }
}

/// The access log, written in short or as a map.
#[derive(Clone, Debug)]
pub(crate) struct AccessLog(pub(crate) Box<AccessLogForm>);

record! {
    /// Messages of the process.
    pub(crate) struct LogForm {
        /// Their form. Under systemd each line also has its priority for the journal.
        format: Defaulted<LogFormatWord> = "text",
        /// The least grave messages that are written.
        level: Defaulted<LevelWord> = "info",
    }
}

words! {
    /// Form of messages.
    pub(crate) struct LogFormatWord(weirgate_log::Format) {
        /// Lines that begin with `weirgate: `. Standard error's reader adds the time.
        "text" => weirgate_log::Format::Text,
        /// An object a line, with `time`, `level`, `message`, and `event` for the kind of an event.
        "json" => weirgate_log::Format::Json,
    }
}

words! {
    /// How much a message matters.
    pub(crate) struct LevelWord(weirgate_log::Level) {
        /// Requests fail because of it, or something that was asked for was not done.
        "error" => weirgate_log::Level::Error,
        /// Also conditions that need attention, such as a node that is down.
        "warning" => weirgate_log::Level::Warning,
        /// All messages.
        "info" => weirgate_log::Level::Info,
    }
}

record! {
    /// Export of traces and metrics to a collector of OpenTelemetry, as JSON of OTLP over HTTP.
    pub(crate) struct TelemetryForm {
        /// Address of the collector, such as `http://127.0.0.1:4318` or `https://otlp.example.com`. Traces are sent to
        /// `/v1/traces` below it, and metrics to `/v1/metrics`. Over `https` exports are compressed with gzip.
        otlp: Required<CollectorUrl>,
        /// File with the authorities that may sign the collector's certificate (PEM). Those of the system by default.
        /// The path counts from the folder of the policy.
        ca: Optional<Text>,
        /// File with header fields for each export, such as a key: one `Name: value` a line. It is read again for each
        /// export. Only with `https`, or to a collector on this machine.
        headers_file: Optional<Text>,
        /// Share of the traces of which the gateway's spans are exported. The trace id decides, so that every program
        /// with the same share has the same traces. A trace that a trusted proxy has sampled is always among them,
        /// unless the share is 0.
        traces: Defaulted<Share> = "1%",
        /// Time between two exports of metrics.
        metrics_every: Defaulted<Switch<Span>> = "15s",
        /// Name of this gateway, `service.name`. Gateways of one site may share it.
        service: Defaulted<Text> = "weirgate",
    }
}

record! {
    /// The access log: a line per request.
    pub(crate) struct AccessLogForm {
        /// The file to append to. Standard output by default.
        file: Optional<Text>,
        /// Share of served requests that are logged. Shed requests and errors are always logged. 100 % by
        /// default, so that you can find every request in the log.
        sample: Defaulted<Share> = "100%",
        /// Form of a line. JSON has the most figures.
        format: Defaulted<AccessFormatWord> = "json",
        /// Fields of a line in JSON, in this order. All by default.
        fields: Optional<OneOrMany<FieldWord>>,
    }
}

words! {
    /// Form of a line of the access log.
    pub(crate) struct AccessFormatWord(AccessFormat) {
        /// A JSON object.
        "json" => AccessFormat::Json,
        /// The common log format of NCSA, Apache and nginx.
        "common" => AccessFormat::Common,
        /// The combined log format: the common one, then `Referer` and `User-Agent`.
        "combined" => AccessFormat::Combined,
    }
}

words! {
    /// A field of a line in JSON. It is left out of lines where it has no value.
    pub(crate) struct FieldWord(AccessField) {
        /// End of the request, RFC 3339, UTC.
        "time" => AccessField::Time,
        /// Class or template.
        "class" => AccessField::Class,
        /// How it ended.
        "ending" => AccessField::Ending,
        /// Why it was not served.
        "reason" => AccessField::Reason,
        /// Decision that would have been carried out, if the class was observed.
        "would" => AccessField::Would,
        /// Why it would not have been served.
        "would_reason" => AccessField::WouldReason,
        /// Status sent to the client.
        "status" => AccessField::Status,
        /// Protocol of the client.
        "protocol" => AccessField::Protocol,
        /// The method.
        "method" => AccessField::Method,
        /// The host.
        "host" => AccessField::Host,
        /// The path with the query.
        "path" => AccessField::Path,
        /// Address of the client.
        "client" => AccessField::Client,
        /// `http` or `https`.
        "scheme" => AccessField::Scheme,
        /// Version of TLS.
        "tls_version" => AccessField::TlsVersion,
        /// Subject of the client's certificate.
        "client_certificate" => AccessField::ClientCertificate,
        /// Node that answered or failed last.
        "node" => AccessField::Node,
        /// Attempts after the first.
        "retries" => AccessField::Retries,
        /// Wait before the release or the shed, in milliseconds.
        "queue_wait_ms" => AccessField::QueueWait,
        /// Time from the release to the node's last byte, in milliseconds.
        "service_time_ms" => AccessField::ServiceTime,
        /// Time from the head to the last byte for the client, in milliseconds.
        "total_ms" => AccessField::Total,
        /// Body bytes from the client.
        "bytes_in" => AccessField::BytesIn,
        /// Body bytes to the client.
        "bytes_out" => AccessField::BytesOut,
        /// Trace id of `traceparent`.
        "trace_id" => AccessField::TraceId,
        /// Version of the policy.
        "policy_version" => AccessField::PolicyVersion,
        /// The header `Referer`. Only if it is named here.
        "referer" => AccessField::Referer,
        /// The header `User-Agent`. Only if it is named here.
        "user_agent" => AccessField::UserAgent,
    }
}

impl Decode for Admin {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        let form = match &node.value {
            Value::Map(_) => AdminForm::decode(node, cx)?,
            _ => {
                let address = ListenAddress::decode(node, cx)?;
                let mut form = AdminForm::decode(&Node::assumed("{}", node.position), cx)?;
                form.address.set(address);
                form
            }
        };
        Some(Admin(Box::new(form)))
    }
}

impl Decode for MemoryForm {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match &node.value {
            Value::Text(text) if &**text == "auto" => Some(MemoryForm::Auto),
            _ => Switch::decode(node, cx).map(MemoryForm::Given),
        }
    }
}

impl Decode for AccessLog {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        let form = match &node.value {
            Value::Text(text) if &**text == "stdout" => AccessLogForm::decode(&Node::assumed("{}", node.position), cx)?,
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

any_of! {
    Admin = [ListenAddress, AdminForm];
    AccessLog = [{ "const": "stdout" }, AccessLogForm];
    MemoryForm = [{ "enum": ["auto", "off"] }, Bytes];
}
