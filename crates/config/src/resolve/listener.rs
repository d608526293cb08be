//! Listeners with their TLS. The files of certificates are read here, so that their faults are reported with their
//! places in the policy.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use weirgate_listening::FileAccess;
use weirgate_spanned_yaml::decode::{Context, Mark, OneOrMany, Optional};
use weirgate_spanned_yaml::errors::quoted;
use weirgate_tls::{Certificate, ClientAuth, Part, Server, ServerSettings};

use super::acme;
use super::gateway::{file_access, is_any_port};
use crate::embed::Defaults;
use crate::file::{ListenerForm, ListenerTls, Net, PolicyFile, listener_address};
use crate::site::{Acme, HostPattern, Listener, ListenerName, Match, Rule};

/// Longest remaining time of a certificate that is warned about. Programs renew certificates of 90 days when 30 are
/// left, so renewal has failed for two weeks then.
const SOON: Duration = Duration::from_secs(14 * 86_400);

/// The remaining share of its lifetime below which a certificate is warned about, for those that live for days only.
const SOON_SHARE: u32 = 5;

/// The listeners, and the contents of their certificates.
#[derive(Default)]
pub(super) struct Listeners {
    pub(super) listeners: Vec<Listener>,
    /// The authority that issues certificates.
    pub(super) acme: Option<Acme>,
    servers: Vec<Server>,
    /// Whether the contents of all certificates are known.
    complete: bool,
}

/// Binds the listeners. Paths count from `folder`.
pub(super) fn listeners(file: &PolicyFile, folder: &Path, defaults: Option<&Defaults>, cx: &mut Context) -> Listeners {
    if let Some(defaults) = defaults.filter(|_| !file.listen.given) {
        return Listeners {
            listeners: vec![Listener {
                name: ListenerName::first(defaults.listen.into()),
                file: FileAccess::OWNER,
                http2: true,
                redirect_to_https: None,
                proxy_protocol: Vec::new(),
                transparent: None,
                tls: None,
            }],
            ..Listeners::default()
        };
    }
    let acme = acme::acme(file, folder, defaults.is_none(), cx);
    let mut all = Listeners { complete: !file.listen.bad, acme, ..Listeners::default() };
    for form in file.listen.get().map_or(&[][..], |l| &l.0) {
        let Some(address) = listener_address(&form.value) else { continue };
        let map = match &form.value {
            ListenerForm::Text(_) => None,
            ListenerForm::Map(map) => Some(map),
        };
        let http2 = map.is_none_or(|map| map.http2.get().0);
        let redirect = map.and_then(|map| map.redirect_to_https.get());
        let tls = map.and_then(|map| map.tls.get());
        let transparent = map.and_then(|map| map.transparent.get()).map(|word| word.0);
        let proxy_protocol = map.map_or_else(Vec::new, |map| balancers(&map.proxy_protocol, cx));
        if redirect.is_some() && tls.is_some() {
            cx.fail(
                form.mark,
                "`redirect_to_https` is for a listener without TLS, and this one has `tls`",
                "remove one of them",
            );
        }
        let redirect_to_https = redirect.map(|port| port.0);
        let nth = all.listeners.iter().filter(|other| other.name.address == *address).count();
        if nth > 0 && !is_any_port(address) {
            cx.fail(form.mark, format!("`{address}` is listed twice"), "keep one of them");
        }
        if transparent.is_some() && address.tcp().is_none() {
            let what = "no connections for other addresses reach a Unix socket";
            cx.fail(form.mark, what, "remove `transparent`, or write `IP:PORT`");
        }
        let name = ListenerName { address: address.clone(), nth };
        let socket_file = match map {
            Some(map) => file_access(address, (&map.mode, &map.owner, &map.group), cx),
            None => FileAccess::GROUP,
        };
        let tls = tls.and_then(|tls| Some((tls, settings(tls, http2, (file, folder), &mut all.acme, cx)?)));
        // A policy inside another file describes a gateway elsewhere, or one without real clients.
        if let Some((form, settings)) = tls.as_ref().filter(|_| defaults.is_none()) {
            match Server::load(settings, None) {
                Ok(server) => {
                    dates(form, settings, &server, cx);
                    all.servers.push(server);
                }
                Err(faults) => {
                    all.complete = false;
                    for fault in faults {
                        cx.fail(mark(form, fault.part), fault.what, fault.hint);
                    }
                }
            }
        }
        let tls = tls.map(|(_, settings)| settings);
        all.listeners.push(Listener {
            name,
            file: socket_file,
            http2,
            redirect_to_https,
            proxy_protocol,
            transparent,
            tls,
        });
    }
    acme::unused(file, all.acme.as_ref(), cx);
    all
}

/// Returns the peers that send a header of the PROXY protocol.
fn balancers(field: &Optional<OneOrMany<Net>>, cx: &mut Context) -> Vec<IpNet> {
    let nets = field.get().map_or(&[][..], |nets| &nets.0);
    if let Some(every) = nets.iter().find(|net| net.value.0.prefix_len() == 0) {
        let what = "every peer may name another client: anybody who reaches this listener can choose its address";
        cx.warn(every.mark, what, "list the balancers in front of it");
    }
    nets.iter().map(|net| net.value.0).collect()
}

/// Returns the settings, unless a part is missing, which was reported. Adds the certificates that `acme` shall issue.
fn settings(
    form: &ListenerTls,
    http2: bool,
    (file, folder): (&PolicyFile, &Path),
    acme: &mut Option<Acme>,
    cx: &mut Context,
) -> Option<ServerSettings> {
    let OneOrMany(forms) = form.certificates.get()?;
    let found: Vec<_> = forms.iter().map(|form| acme::files(form, (file, folder), acme, cx)).collect();
    let certificates = found.into_iter().collect::<Option<Vec<_>>>()?;
    let clients = match form.client_certificates.get() {
        None => None,
        Some(clients) => Some(ClientAuth {
            mode: clients.mode.get().0,
            ca: folder.join(&clients.ca.get()?.0),
            crl: clients.crl.get().map(|path| folder.join(&path.0)),
        }),
    };
    Some(ServerSettings { certificates, min_version: form.min_version.get().0, clients, http2 })
}

/// Returns the place of a file in the policy.
fn mark(form: &ListenerTls, part: Part) -> Mark {
    let certificate = |index: usize| form.certificates.get().and_then(|all| all.0.get(index)).map(|at| &at.value);
    let clients = form.client_certificates.get();
    let mark = match part {
        Part::Certificate(index) => {
            certificate(index).map(|form| if form.names.given { form.names.mark } else { form.certificate.mark })
        }
        Part::Key(index) => certificate(index).map(|form| form.key.mark),
        Part::Ocsp(index) => certificate(index).map(|form| form.ocsp.mark),
        Part::Ca => clients.map(|clients| clients.ca.mark),
        Part::Crl => clients.map(|clients| clients.crl.mark),
    };
    mark.unwrap_or(form.certificates.mark)
}

/// Warns about certificates that clients refuse, or soon will.
fn dates(form: &ListenerTls, settings: &ServerSettings, server: &Server, cx: &mut Context) {
    for certificate in server.certificates.all() {
        // Certificates of `acme` that are not there yet are in the settings only.
        let index = settings.certificates.iter().position(|files| *files == certificate.files).unwrap_or(0);
        let mark = mark(form, Part::Certificate(index));
        date(certificate, mark, cx);
        if certificate.names.is_empty() {
            let shown = quoted(&certificate.files.certificate.display().to_string());
            let what = format!("the certificate in {shown} covers no DNS name");
            cx.warn(mark, what, "clients compare its alternative names, and not its common name");
        }
    }
}

/// Warns about a certificate that others refuse, or soon will.
pub(super) fn date(certificate: &Certificate, mark: Mark, cx: &mut Context) {
    let now = weirgate_clock::calendar();
    let shown = quoted(&certificate.files.certificate.display().to_string());
    let left = certificate.not_after.duration_since(now).unwrap_or_default();
    let lifetime = certificate.not_after.duration_since(certificate.not_before).unwrap_or_default();
    if certificate.not_before > now {
        let what = format!("the certificate in {shown} is not valid yet");
        cx.warn(mark, what, "check the clock of this machine");
    } else if left.is_zero() {
        let what = format!("the certificate in {shown} has expired {}", days(since(now, certificate.not_after)));
        cx.warn(mark, what, "renew it: clients refuse it");
    } else if left < SOON.min(lifetime / SOON_SHARE) {
        let what = format!("the certificate in {shown} expires in {}", days(left).trim_end_matches(" ago"));
        cx.warn(mark, what, "check its renewal");
    }
}

fn since(now: SystemTime, then: SystemTime) -> Duration {
    now.duration_since(then).unwrap_or_default()
}

/// Returns a time in days, or in hours if it is short, as in `3 days ago`.
fn days(span: Duration) -> String {
    let hours = span.as_secs() / 3600;
    match hours {
        0..48 => format!("{hours} hours ago"),
        _ => format!("{} days ago", hours / 24),
    }
}

impl Listeners {
    /// Warns about names in the conditions of a class that no certificate covers.
    pub(super) fn warn_of_names(&self, file: &PolicyFile, rules: &[Rule], cx: &mut Context) {
        if self.servers.is_empty() || !self.complete {
            return;
        }
        // Each class of the file has a rule, in the same order.
        for (class, rule) in file.classes.get().into_iter().flatten().zip(rules) {
            let mut names = Vec::new();
            collect(&rule.matches, &mut names);
            let mark = class.value.r#match.mark;
            let ordered = self.acme.iter().flat_map(|acme| &acme.certificates).flat_map(|one| &one.names);
            let ordered: BTreeSet<&str> = ordered.map(String::as_str).collect();
            for name in names.into_iter().filter(|name| !ordered.contains(name)) {
                if !self.servers.iter().any(|server| server.certificates.covers(name)) {
                    let what = format!("no certificate covers {}, which this class matches", quoted(name));
                    cx.warn(mark, what, "add a certificate for it, or ignore this if it needs no TLS");
                }
            }
        }
    }
}

/// Collects the names of hosts that a condition asks for. Other conditions of the same rule do not matter.
fn collect<'m>(condition: &'m Match, names: &mut Vec<&'m str>) {
    match condition {
        Match::All(parts) | Match::Either(parts) => parts.iter().for_each(|part| collect(part, names)),
        Match::Host(HostPattern::Exact(name)) | Match::Sni(HostPattern::Exact(name)) => names.push(name),
        _ => {}
    }
}
