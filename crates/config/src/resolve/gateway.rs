//! Listeners, admin listener, limits and log: everything that belongs to the process and not to a class.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderValue;
use ipnet::IpNet;
use weirgate_listening::{Address, FileAccess, abstract_name};
use weirgate_spanned_yaml::decode::{Context, Defaulted, Mark, OneOrMany, Optional, Switch};
use weirgate_spanned_yaml::errors::quoted;
use weirgate_spanned_yaml::unit::{Bytes, Count, Rate, Text};
use weirgate_tls::trust::is_local;

use crate::embed::Defaults;
use crate::file::{CollectorUrl, FileMode, ForwardForm, GroupName, MemoryForm, NEEDED, PolicyFile, UserName};
use crate::site::{
    AccessField, AccessFormat, AccessLog, Admin, ClientTimeouts, Forward, Limits, Listener, MemoryLimit, Telemetry,
};
use crate::telemetry::header_fields;

/// Maximum number of threads. A number above the cores of any machine is a typing error.
const MAX_THREADS: u32 = 1_024;

/// Minimum time between two exports of metrics. The exporter looks once a second.
const MIN_METRICS_EVERY: Duration = Duration::from_secs(1);

/// Maximum mean time between new connections of one source. A slower rate is a typing error, because it shuts people
/// out.
const MAX_CONNECT_INTERVAL: Duration = Duration::from_secs(3600);

/// Reports missing fields that every gateway needs.
pub(super) fn needed(file: &PolicyFile, defaults: Option<&Defaults>, cx: &mut Context) {
    // A missing field has the mark of its record.
    let fields = [
        (file.listen.given || defaults.is_some(), file.listen.mark),
        (file.upstreams.given, file.upstreams.mark),
        (file.classes.given, file.classes.mark),
    ];
    for (name, (_, mark)) in NEEDED.into_iter().zip(fields).filter(|(_, (given, _))| !given) {
        cx.fail_in(mark, name, "this field is missing", format!("add `{name}:`"));
    }
}

pub(super) fn trusted_proxies(file: &PolicyFile, cx: &mut Context) -> Vec<IpNet> {
    let mut nets = Vec::new();
    for net in file.trusted_proxies.get().map_or(&[][..], |n| &n.0) {
        if net.value.0.prefix_len() == 0 {
            let what = "every peer is trusted: any client can choose its address and its class by a header";
            cx.warn(net.mark, what, "list the proxies in front of this gateway");
        }
        nets.push(net.value.0);
    }
    nets
}

pub(super) fn forward(form: &ForwardForm) -> Forward {
    Forward {
        normalized_path: form.normalized_path.get().0,
        x_forwarded: form.x_forwarded.get().0,
        forwarded: form.forwarded.get().0,
        via: form.via.get().0,
        traceparent: form.traceparent.get().0,
        request_id: form.request_id.get().0,
    }
}

pub(super) fn admin(file: &PolicyFile, listeners: &[Listener], trusted: bool, cx: &mut Context) -> Option<Admin> {
    let Switch::On(admin) = file.admin.get() else { return None };
    let form = &admin.0;
    let token_file = form.token_file.get().map(|text| PathBuf::from(&text.0));
    if token_file.as_ref().is_some_and(|path| path.as_os_str().is_empty()) {
        cx.fail(form.token_file.mark, "this is no file", "write the path of the token's file");
    }
    let mark = if form.address.given { form.address.mark } else { file.admin.mark };
    let address = &form.address.get().0;
    if let Some(address) = address.tcp() {
        guarded(address, "reach the admin listener", trusted, mark, cx);
    }
    if !is_any_port(address) && listeners.iter().any(|l| l.name.address == *address) {
        let what = format!("clients connect to `{address}` already");
        cx.fail(mark, what, "give the admin listener an address of its own");
    }
    let file = file_access(address, (&form.mode, &form.owner, &form.group), cx);
    Some(Admin { address: address.clone(), file, token_file, hosts: hosts(&form.hosts, cx) })
}

/// Whether the kernel chooses the port, a new one each time.
pub(super) fn is_any_port(address: &Address) -> bool {
    address.tcp().is_some_and(|address| address.port() == 0)
}

/// Returns the mode and the owner of a Unix socket's file. Reports them at an address without a file.
pub(super) fn file_access(
    address: &Address,
    (mode, owner, group): (&Defaulted<FileMode>, &Optional<UserName>, &Optional<GroupName>),
    cx: &mut Context,
) -> FileAccess {
    let (why, hint) = match address {
        Address::Unix(path) if abstract_name(path).is_none() => (None, ""),
        Address::Unix(_) => (Some("has no file"), "write a path such as `unix:/run/weirgate.sock`, or remove this"),
        Address::Tcp(_) => (Some("is no Unix socket"), "remove this, or write `unix:/path`"),
    };
    let given = [(mode.given, mode.mark), (owner.given, owner.mark), (group.given, group.mark)];
    for (_, mark) in given.into_iter().filter(|(given, _)| *given) {
        if let Some(why) = why {
            cx.fail(mark, format!("`{address}` {why}"), hint);
        }
    }
    FileAccess { mode: mode.get().0, owner: owner.get().map(|user| user.0), group: group.get().map(|group| group.0) }
}

/// Reports an address at which others could do something without a certificate.
pub(super) fn guarded(address: SocketAddr, what: &str, trusted: bool, mark: Mark, cx: &mut Context) {
    if !address.ip().to_canonical().is_loopback() && !trusted {
        let hint = "make certificates with `weirgate pki` and write `trust:` with their folder, or use `127.0.0.1`";
        cx.fail(mark, format!("`{address}` lets others {what} without a certificate"), hint);
    }
}

/// Returns the accepted values of `Host`.
pub(super) fn hosts(field: &Optional<OneOrMany<Text>>, cx: &mut Context) -> Vec<String> {
    let mut hosts = Vec::new();
    for host in field.get().map_or(&[][..], |h| &h.0) {
        let name = host.value.0.to_ascii_lowercase();
        let sound = !name.is_empty() && !name.contains(['/', '*', ' ', '@']) && HeaderValue::from_str(&name).is_ok();
        if !sound {
            let what = format!("{} is not a host name", quoted(&host.value.0));
            cx.fail(host.mark, what, "write a name as it stands in `Host`, without scheme or `*`");
        }
        hosts.push(name);
    }
    hosts
}

pub(super) fn limits(file: &PolicyFile, cx: &mut Context) -> Limits {
    let limits = file.limits.get();
    // A head is kept in one piece, so its limit is a limit of memory per connection.
    let head_bytes = bytes(&limits.head_bytes, "a request head", 1 << 10, 1 << 20, cx);
    let buffer_per_request = bytes(&limits.buffer_per_request, "the buffer of one request", 0, 1 << 30, cx);
    let buffer_total = bytes(&limits.buffer_total, "the buffer of all requests", 0, 1 << 40, cx);
    if limits.buffer_total.given && buffer_total < buffer_per_request {
        let what = "the buffer of all requests is smaller than that of one".to_owned();
        cx.fail(limits.buffer_total.mark, what, "make it at least `buffer_per_request`");
    }
    Limits {
        connections: count(&limits.connections, 1 << 20, cx) as usize,
        connections_per_source: limits.connections_per_source.get().on().map(|connections| connections.0),
        connect_interval_per_source: connect_interval(&limits.new_connections_per_source, cx),
        head_bytes,
        headers: count(&limits.headers, 1_000, cx) as usize,
        body_bytes: limits.body_bytes.get().on().map(|bytes| bytes.0),
        // Each may keep 64 KiB of its body, so this bounds the memory of a connection to 64 MiB.
        body_prefix: bytes(&limits.body_prefix, "the size of the prefix", 1, 64 << 10, cx),
        http2_streams: count(&limits.http2_streams, 1_000, cx),
        http2_overhead_frames: count(&limits.http2_overhead_frames, 1_000_000, cx),
        tunnels: count(&limits.tunnels, 1 << 20, cx),
        buffer_per_request,
        buffer_total,
        memory: match limits.memory.get() {
            MemoryForm::Auto => MemoryLimit::Cgroup,
            MemoryForm::Given(Switch::Off) => MemoryLimit::Off,
            MemoryForm::Given(Switch::On(Bytes(bytes))) => MemoryLimit::Bytes(*bytes),
        },
    }
}

/// Returns the mean time between new connections of one source.
fn connect_interval(field: &Defaulted<Switch<Rate>>, cx: &mut Context) -> Option<Duration> {
    let Switch::On(Rate(rate)) = *field.get() else { return None };
    let interval = Duration::try_from_secs_f64(rate.recip()).unwrap_or(Duration::MAX);
    if interval > MAX_CONNECT_INTERVAL {
        let what = "this allows less than one connection in an hour".to_owned();
        cx.fail(field.mark, what, "write at least `1/h`, or a rate such as `20/s`");
    }
    Some(interval)
}

pub(super) fn timeouts(file: &PolicyFile, cx: &mut Context) -> ClientTimeouts {
    let timeouts = file.timeouts.get();
    ClientTimeouts {
        header: timeouts.header.get().0,
        idle: timeouts.idle.get().0,
        body: timeouts.body.get().0,
        body_rate: bytes(&timeouts.body_rate, "the rate of a body", 1, 1 << 30, cx) as u64,
    }
}

/// Returns a size that must lie between two bounds.
fn bytes(field: &Defaulted<Bytes>, name: &str, min: u64, max: u64, cx: &mut Context) -> usize {
    let Bytes(bytes) = *field.get();
    if !(min..=max).contains(&bytes) {
        let what = format!("{name} of `{}` is out of range", Bytes(bytes));
        let hint = format!("write a size from `{}` to `{}`", Bytes(min), Bytes(max));
        cx.fail(field.mark, what, hint);
    }
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Returns a count that must not exceed a bound.
pub(super) fn count(field: &Defaulted<Count>, max: u32, cx: &mut Context) -> u32 {
    let Count(count) = *field.get();
    if count > max {
        cx.fail(field.mark, format!("`{count}` is too large"), format!("write at most {max}"));
    }
    count
}

pub(super) fn access_log(file: &PolicyFile, cx: &mut Context) -> Option<AccessLog> {
    let Switch::On(log) = file.access_log.get() else { return None };
    let path = log.0.file.get().map(|text| PathBuf::from(&text.0));
    if path.as_ref().is_some_and(|p| p.as_os_str().is_empty()) {
        cx.fail(log.0.file.mark, "this is no file", "write the log's path, or leave it out for stdout");
    }
    let format = log.0.format.get().0;
    let chosen = log.0.fields.get().map(|fields| fields.0.iter().map(|field| field.value.0).collect::<Vec<_>>());
    if chosen.is_some() && format != AccessFormat::Json {
        cx.fail(
            log.0.fields.mark,
            "only lines in JSON have fields to choose",
            "leave out `fields`, or write `format: json`",
        );
    }
    let fields = chosen.unwrap_or_else(|| AccessField::USUAL.to_vec());
    if fields.is_empty() {
        cx.fail(log.0.fields.mark, "lines without fields", "name fields, or leave `fields` out for all");
    }
    Some(AccessLog { file: path, sample: log.0.sample.get().0, format, fields })
}

pub(super) fn log(file: &PolicyFile) -> weirgate_log::Settings {
    let log = file.log.get();
    weirgate_log::Settings { format: log.format.get().0, level: log.level.get().0 }
}

/// Returns the export of telemetry. Files are read if the gateway is `here`.
pub(super) fn telemetry(file: &PolicyFile, folder: &Path, here: bool, cx: &mut Context) -> Option<Telemetry> {
    let Switch::On(form) = file.telemetry.get() else { return None };
    let metrics_every = form.metrics_every.get().on().map(|every| every.0);
    if metrics_every.is_some_and(|every| every < MIN_METRICS_EVERY) {
        let hint = "write `1s` or more; each export has all metrics";
        cx.fail(form.metrics_every.mark, "metrics are exported too often", hint);
    }
    let service = form.service.get().0.clone();
    if service.is_empty() {
        let hint = "write a name such as `weirgate`, or leave `service` out";
        cx.fail(form.service.mark, "the name of the service is empty", hint);
    }
    let CollectorUrl { https, url } = form.otlp.get()?;
    let in_folder = |path: &Text| folder.join(&path.0);
    let (ca, headers_file) = (form.ca.get().map(in_folder), form.headers_file.get().map(in_folder));
    if ca.is_some() && !https {
        let hint = "write `https://` in `otlp`, or leave `ca` out";
        cx.fail(form.ca.mark, "a connection that is not encrypted has no certificate", hint);
    } else if here && let Some(Err(faults)) = ca.as_deref().map(|ca| weirgate_tls::https(Some(ca))) {
        faults.into_iter().for_each(|fault| cx.fail(form.ca.mark, fault.what, fault.hint));
    }
    if headers_file.is_some() && !https && !is_local(&url.address) {
        let hint = "write `https://` in `otlp`, or send to a collector on this machine";
        let what = "header fields would leave this machine unencrypted";
        cx.fail(form.headers_file.mark, what, hint);
    } else if here && let Some(Err(why)) = headers_file.as_deref().map(header_fields) {
        cx.fail(form.headers_file.mark, why, "write the path of a file with one `Name: value` a line");
    }
    let path = url.path.trim_end_matches('/').to_owned();
    let (address, traces) = (url.address.clone(), form.traces.get().0);
    Some(Telemetry { https: *https, address, path, ca, headers_file, traces, metrics_every, service })
}

pub(super) fn threads(file: &PolicyFile, cx: &mut Context) -> Option<usize> {
    let Count(threads) = *file.threads.get()?;
    if threads > MAX_THREADS {
        let hint = "write the number of cores to use, or leave it out for all of them";
        cx.fail(file.threads.mark, format!("`{threads}` threads are too many"), hint);
    }
    Some(threads as usize)
}
