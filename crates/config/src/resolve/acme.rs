//! The authority that issues certificates, and the certificates that listeners want from it.

use std::path::{Path, PathBuf};

use weirgate_spanned_yaml::decode::{At, Context};
use weirgate_spanned_yaml::errors::quoted;
use weirgate_tls::{CertificateFiles, ClientSettings};

use crate::file::{AcmeForm, CertificateForm, ListenerForm, PolicyFile};
use crate::site::{Acme, AcmeCertificate, Challenge};

/// Maximum number of names of a certificate. It is the limit of Let's Encrypt.
const MAX_NAMES: usize = 100;

/// Maximum number of certificates. They are ordered one after the other, and Let's Encrypt issues 300 to an account in
/// three hours.
const MAX_CERTIFICATES: usize = 1_000;

/// Returns the authority. The listeners add their certificates. Files are read if the gateway is `here`.
pub(super) fn acme(file: &PolicyFile, folder: &Path, here: bool, cx: &mut Context) -> Option<Acme> {
    let form = file.acme.get()?;
    if let Some(agreed) = form.terms_agreed.get()
        && !agreed.0
    {
        let hint = "read the terms of service of the authority and write `true`, or remove `acme:`";
        cx.fail(form.terms_agreed.mark, "the authority issues no certificates then", hint);
    }
    if let Some(ca) = form.ca.get().filter(|_| here) {
        let settings = ClientSettings { ca: Some(folder.join(&ca.0)), server_name: None, own: None, verify: true };
        for fault in weirgate_tls::Client::load(&settings).err().into_iter().flatten() {
            cx.fail(form.ca.mark, fault.what, fault.hint);
        }
    }
    let storage = folder.join(&form.storage.get()?.0);
    if storage.exists() && !storage.is_dir() {
        let what = format!("{} is no folder", quoted(&storage.display().to_string()));
        cx.fail(form.storage.mark, what, "write the path of a folder that only Weirgate uses");
    }
    let directory = form.directory.get().0.clone();
    let contact = form.contact.get().map_or(&[][..], |all| &all.0);
    Some(Acme {
        storage: storage.join(folder_of(&directory)),
        directory,
        contact: contact.iter().map(|at| at.value.0.clone()).collect(),
        ca: form.ca.get().map(|path| folder.join(&path.0)),
        external_account: external_account(form, folder, here, cx),
        challenges: challenges(form, file, cx),
        certificates: Vec::new(),
    })
}

/// Returns the name of the folder for the account and the certificates of a directory, so that those of an authority's
/// test server are not taken for real ones.
fn folder_of(directory: &str) -> String {
    let rest = directory.trim_start_matches("https://");
    rest.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect()
}

fn external_account(form: &AcmeForm, folder: &Path, here: bool, cx: &mut Context) -> Option<(String, PathBuf)> {
    let account = form.external_account.get()?;
    let (id, file) = (account.key_id.get()?, account.key_file.get()?);
    let path = folder.join(&file.0);
    let shown = quoted(&file.0);
    let base64 = |text: &str| {
        let text = text.trim().trim_end_matches('=');
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    match std::fs::read_to_string(&path) {
        _ if !here => {}
        Ok(text) if base64(&text) => {}
        Ok(_) => {
            let what = format!("{shown} has no key in base64url");
            cx.fail(account.key_file.mark, what, "it has the key (HMAC) as the authority shows it");
        }
        Err(error) => {
            let what = format!("{shown} cannot be read: {error}");
            cx.fail(account.key_file.mark, what, "write the path of a file that this user may read");
        }
    }
    Some((id.0.clone(), path))
}

fn challenges(form: &AcmeForm, file: &PolicyFile, cx: &mut Context) -> Vec<Challenge> {
    let plain = file.listen.get().is_some_and(|all| {
        all.0.iter().any(|form| match &form.value {
            ListenerForm::Text(_) => true,
            ListenerForm::Map(map) => !map.tls.given,
        })
    });
    let Some(all) = form.challenges.get() else {
        let both = [Challenge::TlsAlpn01, Challenge::Http01];
        return both.into_iter().filter(|one| plain || *one == Challenge::TlsAlpn01).collect();
    };
    let mut found = Vec::new();
    for at in &all.0 {
        if at.value.0 == Challenge::Http01 && !plain {
            let hint = "add one: the authority asks for its page on port 80";
            cx.fail(at.mark, "`http-01` needs a listener without TLS, and there is none", hint);
        }
        if !found.contains(&at.value.0) {
            found.push(at.value.0);
        }
    }
    found
}

/// Returns the files of a certificate, which are either named or come from `acme`. `None` after an error.
pub(super) fn files(
    At { value: form, mark, .. }: &At<CertificateForm>,
    (file, folder): (&PolicyFile, &Path),
    acme: &mut Option<Acme>,
    cx: &mut Context,
) -> Option<CertificateFiles> {
    if !form.names.given {
        let neither = !form.certificate.given && !form.key.given;
        let or = if neither { ", or write `names:` alone if the authority of `acme:` shall issue it" } else { "" };
        for (given, field) in [(form.certificate.given, "certificate"), (form.key.given, "key")] {
            if !given {
                cx.fail_in(*mark, field, "this field is missing", format!("add `{field}:`{or}"));
            }
        }
        return Some(CertificateFiles {
            certificate: folder.join(&form.certificate.get()?.0),
            key: folder.join(&form.key.get()?.0),
            ocsp: form.ocsp.get().map(|path| folder.join(&path.0)),
            automatic: false,
        });
    }
    let fields = [(&form.certificate, "certificate"), (&form.key, "key"), (&form.ocsp, "ocsp")];
    for (field, name) in fields.into_iter().filter(|(field, _)| field.given) {
        let what = format!("there are `names`, whose certificate has no `{name}` of yours");
        cx.fail(field.mark, what, "remove one of them");
    }
    if !file.acme.given {
        let hint =
            "add `acme: { terms_agreed: true, storage: FOLDER }` to the policy, or write `certificate` and `key`";
        cx.fail(form.names.mark, "`names` needs an authority that issues the certificate", hint);
    }
    let mut names: Vec<String> = Vec::new();
    for at in &form.names.get()?.0 {
        if !names.contains(&at.value.0) {
            names.push(at.value.0.clone());
        }
    }
    if names.len() > MAX_NAMES {
        let what = format!("{} names are too many", names.len());
        cx.fail(form.names.mark, what, "write at most 100 for a certificate");
    }
    let (first, acme) = (names.first()?, acme.as_mut()?);
    let path = acme.storage.join(format!("{first}.pem"));
    let files = CertificateFiles { certificate: path.clone(), key: path, ocsp: None, automatic: true };
    match acme.certificates.iter().find(|known| known.files == files) {
        Some(known) if known.names == names => {}
        Some(_) => {
            let what = format!("another certificate begins with {} and has other names", quoted(first));
            cx.fail(form.names.mark, what, "give both the same names, or begin with different ones");
        }
        None if acme.certificates.len() >= MAX_CERTIFICATES => {
            let what = "there are more than 1,000 certificates of the authority";
            cx.fail(form.names.mark, what, "put several names into one");
        }
        None => acme.certificates.push(AcmeCertificate { names, files: files.clone() }),
    }
    Some(files)
}

/// Reports an authority without certificates.
pub(super) fn unused(file: &PolicyFile, acme: Option<&Acme>, cx: &mut Context) {
    let names = file.listen.get().into_iter().flat_map(|all| &all.0).any(|form| match &form.value {
        ListenerForm::Text(_) => false,
        ListenerForm::Map(map) => map.tls.get().is_some_and(|tls| {
            tls.certificates.get().is_some_and(|all| all.0.iter().any(|form| form.value.names.given))
        }),
    });
    if acme.is_some() && !names {
        let hint = "write `certificates: { names: [shop.test] }` in `tls:` of a listener, or remove `acme:`";
        cx.warn(file.acme.mark, "no listener has `names` for this authority", hint);
    }
}
