//! Listeners: addresses where clients connect, and their TLS.

use weirgate_listening::{Address, group_id, user_id};
use weirgate_spanned_yaml::decode::{Defaulted, FromText, OneOrMany, Optional, Required, TextOrMap};
use weirgate_spanned_yaml::errors::{Complaint, quoted};
use weirgate_spanned_yaml::unit::{Answer, Text};
use weirgate_spanned_yaml::{record, text_schema, words};
use weirgate_tls::{ClientMode, MinVersion};

use super::acme::CertificateName;
use super::address::{ListenAddress, Net};
use super::conditions::Port;
use crate::site::Interception;

/// A listener, written as its address alone or as a map with further properties.
pub(crate) type ListenerForm = TextOrMap<ListenAddress, Listener>;

record! {
    /// An address where clients connect.
    pub(crate) struct Listener {
        /// `IP:PORT`, or `unix:/path` for a Unix socket. `unix:@name` is one without a file.
        address: Required<ListenAddress>,
        /// Mode of the file of a Unix socket, in octal. To connect, a program needs the right to write. `660` by
        /// default, so that you choose the programs by the group.
        mode: Defaulted<FileMode> = "660",
        /// Owner of that file: a name or an id. The user of the process by default.
        owner: Optional<UserName>,
        /// Group of that file: a name or an id. The group of the process by default.
        group: Optional<GroupName>,
        /// Whether clients may speak HTTP/2 here. With TLS it is offered in the handshake. Without, a client that
        /// begins with the preface of HTTP/2 gets it (`h2c` by prior knowledge). `true` by default, because gRPC needs
        /// it and it costs other clients nothing.
        http2: Defaulted<Answer> = true,
        /// Port to which requests are redirected over `https`, often 443. Each gets status 308 with its host, path and
        /// query at that port. None of them has a class or reaches a node. By default requests are served here.
        redirect_to_https: Optional<Port>,
        /// Balancers in front of this listener that begin each connection with a header of the PROXY protocol, version
        /// 1 or 2: addresses or networks of peers, or `unix` for those on a Unix socket. The client of such a
        /// connection is the one that the header names, for classes, limits, logs and nodes. A connection of theirs
        /// without a header is closed. A header of any other peer is refused. By default no peer sends one.
        proxy_protocol: Optional<OneOrMany<Net>>,
        /// How the kernel brings connections for other addresses to this listener: `tproxy` or `redirect`, after the
        /// targets of netfilter. The nodes of an upstream with the address `original` are then the addresses that the
        /// clients wanted. By default the listener serves connections for its own address.
        transparent: Optional<InterceptionWord>,
        /// TLS with these certificates. Without it, requests and responses are not encrypted.
        tls: Optional<ListenerTls>,
    }
}

record! {
    /// TLS of a listener.
    pub(crate) struct ListenerTls {
        /// Certificates with their keys. A client gets the first one that covers the name that it asks for. A client
        /// that asks for no name, or for another one, gets the first certificate of the list.
        certificates: Required<OneOrMany<CertificateForm>>,
        /// Lowest version of TLS: `1.2` or `1.3`. 1.2 by default, because some programs and old devices know no newer
        /// one and its remaining ciphers are sound.
        min_version: Defaulted<VersionText> = "1.2",
        /// Certificates of clients. By default clients are not asked for one.
        client_certificates: Optional<ClientCertificates>,
    }
}

record! {
    /// A certificate: either its files, `certificate` and `key`, or the `names` that an authority shall issue one for.
    /// Paths count from the folder of the policy. The files are read again when they change.
    pub(crate) struct CertificateForm {
        /// File with the certificate, followed by those of its authorities (PEM). It is often called `fullchain.pem`.
        certificate: Optional<Text>,
        /// File with its private key (PEM), without a passphrase.
        key: Optional<Text>,
        /// DNS names for which the authority of `acme:` issues the certificate. Without the files.
        names: Optional<OneOrMany<CertificateName>>,
        /// File with a response of the authority's OCSP server (DER), which clients get with the certificate.
        ocsp: Optional<Text>,
    }
}

record! {
    /// Certificates of clients (mutual TLS).
    pub(crate) struct ClientCertificates {
        /// Whether each client needs one, or may have one. A certificate that is not valid ends the connection in both
        /// cases.
        mode: Defaulted<ClientModeWord> = "required",
        /// File with the authorities that sign them (PEM).
        ca: Required<Text>,
        /// File with the revocation lists of all these authorities (PEM). Without it no certificate is revoked.
        crl: Optional<Text>,
    }
}

words! {
    /// How the kernel brings connections for other addresses to a listener.
    pub(crate) struct InterceptionWord(Interception) {
        /// The target `TPROXY`, which changes no packet. It needs a rule for routing, and `CAP_NET_ADMIN`.
        "tproxy" => Interception::Tproxy,
        /// The target `REDIRECT`, which translates the address.
        "redirect" => Interception::Redirect,
    }
}

words! {
    /// Whether clients need a certificate.
    pub(crate) struct ClientModeWord(ClientMode) {
        /// A client without a certificate cannot connect.
        "required" => ClientMode::Required,
        /// A client may have a certificate. Classes can tell by `client_certificate`.
        "optional" => ClientMode::Optional,
    }
}

/// A version of TLS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VersionText(pub(crate) MinVersion);

impl FromText for VersionText {
    const EXPECTED: &'static str = "`1.2` or `1.3`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        match text {
            "1.2" => Ok(VersionText(MinVersion::Tls12)),
            "1.3" => Ok(VersionText(MinVersion::Tls13)),
            "1.0" | "1.1" => Err(Complaint::new(
                format!("TLS {text} is not supported, because it is not secure (RFC 8996)"),
                "write `1.2` or `1.3`",
            )),
            _ => Err(Complaint::about(text, "is no version of TLS", "write `1.2` or `1.3`")),
        }
    }
}

/// Mode of a file, written in octal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileMode(pub(crate) u32);

impl FromText for FileMode {
    const EXPECTED: &'static str = "a mode in octal such as `660`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let digits = text.strip_prefix("0o").unwrap_or(text);
        match u32::from_str_radix(digits, 8) {
            // Without the bits beyond those of the rights, which mean nothing for a socket.
            Ok(mode) if digits.bytes().all(|byte| byte.is_ascii_digit()) && mode <= 0o777 => Ok(FileMode(mode)),
            _ => Err(Complaint::about(
                text,
                "is no mode of a file",
                "write three octal digits, such as `660` for owner and group",
            )),
        }
    }
}

/// Id of a user of this machine, written as a name or an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserName(pub(crate) u32);

impl FromText for UserName {
    const EXPECTED: &'static str = "a user's name or id";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let hint = "add it to this machine, or write another name or an id";
        user_id(text)
            .map(UserName)
            .ok_or_else(|| Complaint::new(format!("this machine has no user {}", quoted(text)), hint))
    }
}

/// Id of a group of this machine, written as a name or an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupName(pub(crate) u32);

impl FromText for GroupName {
    const EXPECTED: &'static str = "a group's name or id";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let hint = "add it to this machine, or write another name or an id";
        group_id(text)
            .map(GroupName)
            .ok_or_else(|| Complaint::new(format!("this machine has no group {}", quoted(text)), hint))
    }
}

text_schema! {
    VersionText: { "enum": ["1.2", "1.3", 1.2, 1.3] };
    FileMode: { "type": ["string", "integer"], "examples": ["660", 600] };
    UserName: { "type": ["string", "integer"], "examples": ["weirgate", 1001] };
    GroupName: { "type": ["string", "integer"], "examples": ["www-data", 33] };
}

/// Returns the address of a listener. `None` if it could not be read.
pub(crate) fn address(form: &ListenerForm) -> Option<&Address> {
    match form {
        ListenerForm::Text(listen) => Some(&listen.0),
        ListenerForm::Map(map) => map.address.get().map(|listen| &listen.0),
    }
}
