//! Gateways that keep the guarantees of their site together: names, addresses, etcd, and what all must agree on.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weirgate_engine as engine;
use weirgate_engine::ClassId;
use weirgate_listening::{Address, UNIX};
use weirgate_site::{MAX_MEMBERS, MAX_SAFE, Settings, Site as Agreed};
use weirgate_spanned_yaml::decode::{Context, FromText as _};
use weirgate_spanned_yaml::errors::quoted;
use weirgate_spanned_yaml::unit::span_text;
use weirgate_tls::trust::is_local;
use weirgate_tls::{CertificateFiles, Client, ClientSettings, Part, Trust, is_party_name};

use super::class::Classes;
use crate::file::{EtcdForm, ListenAddress, PolicyFile, SharingForm};
use crate::site::{Admin, Etcd, Listener, Sharing};

/// Shortest and longest lease. Another gateway cannot be elected in less than two seconds, and the share of a gateway
/// that is gone must come back.
const LEASES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// Longest time for which safe shares last.
const MAX_SAFE_FOR: Duration = Duration::from_secs(3600);

/// Longest beginning of keys of etcd.
const MAX_PREFIX: usize = 128;

/// Returns the settings. Paths count from `folder`. Without one the policy belongs to an experiment, whose gateway is
/// alone.
pub(super) fn sharing(
    file: &PolicyFile,
    folder: Option<&Path>,
    (listeners, admin): (&[Listener], Option<&Admin>),
    classes: &Classes,
    cx: &mut Context,
) -> Option<Sharing> {
    let (form, folder) = (file.site.get()?, folder?);
    let members = members(form, file.trust.given, cx)?;
    let own = own(form, file, folder, &members, cx)?;
    let listen = listen(form, &members[own].1, cx)?;
    let taken = listeners.iter().map(|listener| &listener.name.address).chain(admin.map(|admin| &admin.address));
    if taken.into_iter().any(|other| *other == listen) {
        let mark = if form.listen.given { form.listen.mark } else { form.members.mark };
        let what = format!("{listen} is an address of another listener");
        cx.fail(mark, what, "give the gateways an address of their own for each other");
    }
    let electable = electable(form, &members, cx);
    let etcd = etcd(form.etcd.get()?, folder, &members[own].0, cx)?;
    let (classes, agreed) = agreed(form, members.len(), &classes.classes, cx)?;
    let checksum = checksum((&members, &electable), &classes, &agreed);
    let rollouts = form.rollouts.get().0;
    Some(Sharing { members, own, electable, listen, etcd, classes, agreed: Arc::new(agreed), rollouts, checksum })
}

/// Divides the guaranteed throughputs of templates evenly: their classes are too many to be shared by demand.
pub(super) fn divide_templates(templates: &mut [engine::Template], sharing: Option<&Sharing>) {
    let Some(sharing) = sharing else { return };
    for rate in templates.iter_mut().filter_map(|template| template.class.guarantee.throughput.as_mut()) {
        *rate /= sharing.members.len() as f64;
    }
}

/// Returns the members with their addresses, ascending by name.
fn members(form: &SharingForm, trusted: bool, cx: &mut Context) -> Option<Vec<(String, String)>> {
    let all = form.members.get()?;
    if all.items.len() > MAX_MEMBERS {
        let what = format!("{} gateways are too many", all.items.len());
        cx.fail(form.members.mark, what, format!("write at most {MAX_MEMBERS}"));
    }
    let mut members = Vec::with_capacity(all.items.len());
    for item in &all.items {
        let Some(address) = &item.value.value else { continue };
        if !trusted && !is_local(&address.0) && !address.0.starts_with(UNIX) {
            let what = format!("the gateway at {} could be anyone, because there is no `trust`", quoted(&address.0));
            let hint = "make certificates with `weirgate pki` and write `trust:` with their folder";
            cx.fail(item.value.mark, what, hint);
        }
        if !is_party_name(&item.name.0) {
            let what = format!("a certificate cannot be for a gateway called {}", quoted(&item.name.0));
            cx.fail(item.value.mark, what, "use letters, digits, `-`, `_` and `.`");
        }
        if members.iter().any(|(_, other)| *other == address.0) {
            let what = format!("another gateway has the address {}, too", quoted(&address.0));
            cx.fail(item.value.mark, what, "write the address where only this one listens");
        }
        members.push((item.name.0.clone(), address.0.clone()));
    }
    members.sort();
    (members.len() == all.items.len()).then_some(members)
}

/// Returns the index of this gateway.
fn own(
    form: &SharingForm,
    file: &PolicyFile,
    folder: &Path,
    members: &[(String, String)],
    cx: &mut Context,
) -> Option<usize> {
    // Faults of its files are reported where it is named.
    let certified = file.trust.get().and_then(|text| Trust::load(&folder.join(&text.0)).ok());
    let certified = certified.map(|trust| trust.own().name.clone());
    let (name, mark) = match (form.name.get(), &certified) {
        (Some(name), _) => (name.0.clone(), form.name.mark),
        (None, Some(name)) => (name.clone(), form.members.mark),
        // The trust is faulty, or the name is.
        (None, None) if file.trust.given || form.name.given => return None,
        (None, None) => {
            let hint = "write `name:` with the name of this gateway; with `trust` it is in the certificate";
            cx.fail(file.site.mark, "this gateway has no name", hint);
            return None;
        }
    };
    if let Some(certified) = certified.filter(|certified| *certified != name) {
        let what = format!("the certificate of this gateway is for {}", quoted(&certified));
        cx.fail(mark, what, "write that name, or nothing");
    }
    let found = members.iter().position(|(known, _)| *known == name);
    if found.is_none() {
        let known = members.iter().map(|(name, _)| quoted(name)).collect::<Vec<_>>().join(", ");
        let what = format!("this gateway is {}, and the members are {known}", quoted(&name));
        cx.fail(mark, what, "add it to `members:`, or write another `name:`");
    }
    found
}

/// Returns the indexes of the gateways that may be elected.
fn electable(form: &SharingForm, members: &[(String, String)], cx: &mut Context) -> Vec<usize> {
    let Some(names) = form.electable.get() else { return (0..members.len()).collect() };
    if names.0.is_empty() {
        cx.fail(form.electable.mark, "nobody may be elected", "name one gateway at least, or leave `electable:` out");
    }
    let mut electable = Vec::with_capacity(names.0.len());
    for name in &names.0 {
        match members.iter().position(|(known, _)| *known == name.value.0) {
            Some(index) if !electable.contains(&index) => electable.push(index),
            Some(_) => cx.fail(name.mark, format!("{} is there twice", quoted(&name.value.0)), "write it once"),
            None => {
                let what = format!("{} is no gateway of the site", quoted(&name.value.0));
                cx.fail(name.mark, what, "write names of `members:`");
            }
        }
    }
    electable.sort_unstable();
    electable
}

fn listen(form: &SharingForm, own: &str, cx: &mut Context) -> Option<Address> {
    if form.listen.given {
        return form.listen.get().map(|address| address.0.clone());
    }
    let address = ListenAddress::from_text(own).ok().map(|address| address.0);
    if address.is_none() {
        let what = format!("{} has a name, and a gateway listens on an IP address", quoted(own));
        cx.fail(form.members.mark, what, "add `listen:`, such as `0.0.0.0:9905`");
    }
    address
}

fn etcd(form: &EtcdForm, folder: &Path, gateway: &str, cx: &mut Context) -> Option<Etcd> {
    let path = |text: &weirgate_spanned_yaml::unit::Text| folder.join(&text.0);
    let mut endpoints = Vec::new();
    for at in &form.endpoints.get()?.0 {
        let url = &at.value;
        if !url.https && !form.insecure.get().0 && !is_local(&url.address) {
            let what = "anybody on the way to this etcd could change what is guaranteed";
            let hint = "write `https://`, or `insecure: true` if nobody is there";
            cx.fail(at.mark, what, hint);
        }
        endpoints.push((url.https, url.address.clone()));
    }
    if form.certificate.given != form.key.given {
        let mark = if form.certificate.given { form.certificate.mark } else { form.key.mark };
        cx.fail(mark, "a certificate needs its key", "write both `certificate:` and `key:`");
    }
    let own = form.certificate.get().zip(form.key.get());
    let own = own.map(|(certificate, key)| CertificateFiles {
        certificate: path(certificate),
        key: path(key),
        ocsp: None,
        automatic: false,
    });
    let tls = ClientSettings { ca: form.ca.get().map(path), server_name: None, own, verify: true };
    if endpoints.iter().any(|(https, _)| *https)
        && let Err(faults) = Client::load(&tls)
    {
        for fault in faults {
            let mark = match fault.part {
                Part::Certificate(_) | Part::Ocsp(_) => form.certificate.mark,
                Part::Key(_) => form.key.mark,
                Part::Ca | Part::Crl => form.ca.mark,
            };
            cx.fail(mark, fault.what, fault.hint);
        }
    }
    if form.user.given != form.password_file.given {
        let mark = if form.user.given { form.user.mark } else { form.password_file.mark };
        cx.fail(mark, "a user needs a password", "write both `user:` and `password_file:`");
    }
    let user = form
        .user
        .get()
        .zip(form.password_file.get())
        .map(|(user, file)| (user.0.replace("{name}", gateway), path(file)));
    if let Some((_, file)) = user.as_ref().filter(|(_, file)| !file.is_file()) {
        let what = format!("{} is no file", quoted(&file.display().to_string()));
        cx.fail(form.password_file.mark, what, "write the path of a file with the password alone");
    }
    let prefix = form.prefix.get().0.trim_end_matches('/').to_owned();
    if prefix.is_empty() || prefix.len() > MAX_PREFIX || !prefix.bytes().all(|byte| byte.is_ascii_graphic()) {
        let what = format!("{} cannot begin keys", quoted(&form.prefix.get().0));
        cx.fail(form.prefix.mark, what, "write a short name without spaces, such as `weirgate/shop`");
    }
    Some(Etcd { endpoints, tls, user, prefix })
}

/// Returns the classes with a guaranteed throughput, and what the gateways agree on.
fn agreed(
    form: &SharingForm,
    members: usize,
    all: &[engine::Class],
    cx: &mut Context,
) -> Option<(Vec<(String, ClassId)>, Agreed)> {
    let (lease, safe_for, safe) = (form.lease.get().0, form.safe_for.get().0, form.safe.get().0);
    if lease < LEASES.0 || lease > LEASES.1 {
        let what = format!("a lease of {} is out of range", span_text(lease));
        cx.fail(form.lease.mark, what, "write at least 2s and at most 60s");
        return None;
    }
    if safe_for < lease || safe_for > MAX_SAFE_FOR {
        let what = format!("safe shares for {} are out of range", span_text(safe_for));
        cx.fail(form.safe_for.mark, what, "write at least the `lease:` and at most 1h");
        return None;
    }
    if safe * 1e6 > f64::from(MAX_SAFE) {
        let what = format!("a safe part of {} % is too much", safe * 100.0);
        cx.fail(form.safe.mark, what, "write at most 79%: the rest is what the others may use");
        return None;
    }
    let mut classes: Vec<(String, ClassId, u64)> = (0..)
        .map(ClassId)
        .zip(all)
        .filter_map(|(id, class)| Some((class.name.clone(), id, (class.guarantee.throughput? * 1e6).round() as u64)))
        .collect();
    classes.sort();
    for (name, _, rate) in &classes {
        if Settings::new(members, vec![*rate]).check().is_err() {
            let what = format!("{}/s of class {name} cannot be divided among {members} gateways", *rate as f64 / 1e6);
            cx.fail(form.members.mark, what, "guarantee more, or divide it among fewer gateways");
            return None;
        }
    }
    let budgets = classes.iter().map(|(_, _, rate)| *rate).collect();
    let defaults = Settings::new(members, budgets);
    let settings = Settings { lease, safe: (safe * 1e6) as u32, safe_for, ..defaults };
    match settings.check() {
        Ok(agreed) => Some((classes.into_iter().map(|(name, id, _)| (name, id)).collect(), agreed)),
        Err(error) => {
            let hint = "guarantee throughputs to fewer classes";
            cx.fail(form.members.mark, format!("this cannot be shared: {error}"), hint);
            None
        }
    }
}

/// Returns the checksum of all that gateways must agree on: the hash FNV-1a (Fowler, Noll, Vo) of 64 bits in
/// hexadecimal digits. It tells policies apart and resists nobody.
fn checksum(
    (members, electable): (&[(String, String)], &[usize]),
    classes: &[(String, ClassId)],
    agreed: &Agreed,
) -> String {
    let settings = agreed.settings();
    let mut text = String::new();
    members.iter().for_each(|(name, _)| text += &format!("{name}\n"));
    // Writing to a String does not fail.
    let _ = writeln!(text, "{electable:?}");
    for ((name, _), rate) in classes.iter().zip(&settings.budgets) {
        let _ = writeln!(text, "{name} {rate}");
    }
    let _ = writeln!(text, "{:?} {} {:?}", settings.lease, settings.safe, settings.safe_for);
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", text.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, fnv))
}
