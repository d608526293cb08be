//! The account at an authority that issues certificates by itself (ACME).

use weirgate_spanned_yaml::decode::{Defaulted, FromText, OneOrMany, Optional, Required};
use weirgate_spanned_yaml::errors::Complaint;
use weirgate_spanned_yaml::unit::{Answer, Text};
use weirgate_spanned_yaml::{record, text_schema, words};

use super::address::is_host_name;
use crate::site::Challenge;

record! {
    /// The authority that issues certificates for the `names` of listeners (ACME, RFC 8555), such as Let's Encrypt.
    pub(crate) struct AcmeForm {
        /// `true` if you agree to the terms of service of the authority. It issues nothing otherwise. Let's Encrypt
        /// has them at `https://letsencrypt.org/repository/`.
        terms_agreed: Required<Answer>,
        /// Folder for the account and the certificates with their keys. It is made if it is missing, for this user
        /// only. Gateways that share it order each certificate once.
        storage: Required<Text>,
        /// URL of the authority's directory. Let's Encrypt by default, because it is free and every client trusts it.
        directory: Defaulted<DirectoryUrl> = "https://acme-v02.api.letsencrypt.org/directory",
        /// E-mail addresses under which the authority can reach you, sent when the account is made. None by default.
        contact: Optional<OneOrMany<Email>>,
        /// File with the authorities that sign the directory's own certificate (PEM). Those of the system by default.
        ca: Optional<Text>,
        /// The account at an authority that wants to know its customers.
        external_account: Optional<ExternalAccount>,
        /// How the authority checks that the names lead here. With two, attempts take turns. By default
        /// `tls-alpn-01`, and also `http-01` if there is a listener without TLS.
        challenges: Optional<OneOrMany<ChallengeWord>>,
    }
}

record! {
    /// An account at the authority outside of ACME (RFC 8555 Sec. 7.3.4).
    pub(crate) struct ExternalAccount {
        /// Identifier of its key, from the authority.
        key_id: Required<Text>,
        /// File with its key (HMAC) in base64url, from the authority.
        key_file: Required<Text>,
    }
}

words! {
    /// A challenge of the authority.
    pub(crate) struct ChallengeWord(Challenge) {
        /// The authority asks for a page on port 80. A listener without TLS answers it.
        "http-01" => Challenge::Http01,
        /// The authority begins TLS on port 443. A listener with the name answers it.
        "tls-alpn-01" => Challenge::TlsAlpn01,
    }
}

/// URL of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryUrl(pub(crate) String);

impl FromText for DirectoryUrl {
    const EXPECTED: &'static str = "a URL such as `https://acme-v02.api.letsencrypt.org/directory`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let host = text.strip_prefix("https://").and_then(|rest| rest.split('/').next());
        let sound = host.is_some_and(|host| !host.is_empty() && !host.contains('@'))
            && text.bytes().all(|byte| byte.is_ascii_graphic())
            && text.parse::<http::Uri>().is_ok();
        if !sound {
            let hint = "write the URL of the directory that the authority documents";
            return Err(Complaint::about(text, "is no URL with `https://`", hint));
        }
        Ok(DirectoryUrl(text.to_owned()))
    }
}

/// A DNS name in a certificate, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateName(pub(crate) String);

impl FromText for CertificateName {
    const EXPECTED: &'static str = "a DNS name such as `shop.test`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let hint = if name.starts_with("*.") {
            "authorities issue wildcards only for changes of the DNS (`dns-01`), which is not supported: list the names"
        } else if name.parse::<std::net::IpAddr>().is_ok() {
            "an address needs a certificate in a file: `certificate` and `key`"
        } else if !name.is_ascii() {
            "write the ASCII form of the name, which begins with `xn--`"
        } else {
            "authorities issue certificates for names such as `shop.test`"
        };
        let label = |label: &str| !label.starts_with('-') && !label.ends_with('-') && !label.contains('_');
        let digits = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
        let sound = is_host_name(&name)
            && name.contains('.')
            && name.split('.').all(label)
            && !name.rsplit('.').next().is_some_and(digits);
        if !sound {
            return Err(Complaint::about(text, "is not a public DNS name", hint));
        }
        Ok(CertificateName(name))
    }
}

/// An e-mail address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Email(pub(crate) String);

impl FromText for Email {
    const EXPECTED: &'static str = "an e-mail address such as `ops@shop.test`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let text = text.strip_prefix("mailto:").unwrap_or(text);
        // A comma or a question mark would begin another part of a `mailto` URL (RFC 8555 Sec. 7.3).
        let graphic =
            |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_graphic() && !b",?<>@".contains(&b));
        if !text.split_once('@').is_some_and(|(user, host)| graphic(user) && graphic(host)) {
            return Err(Complaint::about(text, "is no e-mail address", "write one such as `ops@shop.test`"));
        }
        Ok(Email(text.to_owned()))
    }
}

text_schema! {
    CertificateName: { "type": "string", "examples": ["shop.test"] };
    DirectoryUrl: { "type": "string", "pattern": "^https://" };
    Email: { "type": "string", "examples": ["ops@shop.test"] };
}
