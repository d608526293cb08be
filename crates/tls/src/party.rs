//! The parties of a site: Weirgate's own processes, and the people and programs that use them, as certificates name
//! them.
//!
//! Source: the SPIFFE standards "SPIFFE ID" and "X.509-SVID". A certificate has exactly one URI among its alternative
//! names, `spiffe://SITE/ROLE/NAME`, so that any authority that issues such certificates can be used (ADR 20).
//! Departure: the path has exactly two segments.

use std::fmt;
use std::str::FromStr;

use rustls::pki_types::CertificateDer;

use crate::Identity;

/// Maximum length of a site's name and of a party's name. It is that of names in policies.
const MAX_NAME: usize = 64;

/// The scheme of the names.
const SCHEME: &str = "spiffe://";

/// A party's part in a site. It decides which requests a party may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// A gateway: serves its admin API, and asks agents for reports.
    Gateway,
    /// The agent of the node that the party is named after: serves reports, and reports to the coordinator.
    Agent,
    /// The coordinator of Cluster Reserves: serves agents and its page.
    Coordinator,
    /// A person or program that may use every admin API.
    Operator,
    /// A person or program that may only read, such as Prometheus.
    Monitor,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 5] = [Role::Gateway, Role::Agent, Role::Coordinator, Role::Operator, Role::Monitor];

    /// Returns the word in certificates.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Gateway => "gateway",
            Role::Agent => "agent",
            Role::Coordinator => "coordinator",
            Role::Operator => "operator",
            Role::Monitor => "monitor",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Role, String> {
        let all = Role::ALL.map(Role::as_str).join(", ");
        Role::ALL.into_iter().find(|role| role.as_str() == text).ok_or_else(|| format!("the roles are {all}"))
    }
}

/// A party of a site. Shown as `agent n1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Party {
    /// The site. Parties of different sites do not trust each other.
    pub site: String,
    /// Its role.
    pub role: Role,
    /// Its name, unique among those of its role. That of an agent is the name of its node.
    pub name: String,
}

impl Party {
    /// Returns the party that a certificate is for.
    ///
    /// # Errors
    /// The certificate names none.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Party, String> {
        let names = Identity::of(certificate).ok_or("the certificate cannot be read")?.names;
        let mut uris = names.iter().filter(|name| name.contains("://"));
        match (uris.next(), uris.next()) {
            (Some(uri), None) => uri.parse(),
            (None, _) => Err(format!("the certificate has no name such as `{SCHEME}SITE/agent/NODE`")),
            (Some(_), Some(_)) => Err("the certificate has more than one URI".to_owned()),
        }
    }

    /// Returns its name in certificates: `spiffe://SITE/ROLE/NAME`.
    pub fn uri(&self) -> String {
        format!("{SCHEME}{}/{}/{}", self.site, self.role, self.name)
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.role, self.name)
    }
}

impl FromStr for Party {
    type Err = String;

    fn from_str(uri: &str) -> Result<Party, String> {
        let party = || {
            let mut parts = uri.strip_prefix(SCHEME)?.split('/');
            let (site, role, name) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
            let sound = parts.next().is_none() && is_site(site) && is_party_name(name);
            sound.then(|| Party { site: site.to_owned(), role, name: name.to_owned() })
        };
        party().ok_or_else(|| {
            // The text is from another machine.
            let shown: String = uri.chars().take(2 * MAX_NAME).collect();
            format!("the certificate is for {shown:?}, and Weirgate's are for `{SCHEME}SITE/ROLE/NAME`")
        })
    }
}

/// Whether `text` can be the name of a site: letters in lower case, digits, `-`, `_` and `.`.
pub fn is_site(text: &str) -> bool {
    is_party_name(text) && !text.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// Whether `text` can be the name of a party: letters, digits, `-`, `_` and `.`, a letter or digit first.
pub fn is_party_name(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.len() <= MAX_NAME && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.bytes().all(known)
}

/// The party that a client wants to reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its role.
    pub role: Role,
    /// Its name. `None` accepts every name.
    pub name: Option<String>,
}

impl Wanted {
    /// Whether `party` is it.
    pub fn is(&self, party: &Party) -> bool {
        party.role == self.role && self.name.as_ref().is_none_or(|name| *name == party.name)
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{} {name}", self.role),
            None => write!(f, "a {}", self.role),
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    fn certificate(uris: &[&str]) -> Result<Party, String> {
        let mut params = CertificateParams::new(vec!["a.test".to_owned()]).expect("names");
        params.subject_alt_names.extend(uris.iter().map(|uri| SanType::URI((*uri).try_into().expect("ASCII"))));
        Party::of(params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate").der())
    }

    #[test]
    fn what_is_written_is_read() {
        for role in Role::ALL {
            let party = Party { site: "prod.example".to_owned(), role, name: "N_1.a-b".to_owned() };
            assert_eq!(certificate(&[&party.uri()]), Ok(party));
        }
        let agent: Party = "spiffe://weirgate/agent/n1".parse().expect("sound");
        assert_eq!((agent.to_string(), agent.uri()), ("agent n1".to_owned(), "spiffe://weirgate/agent/n1".to_owned()));
        assert!(Wanted { role: Role::Agent, name: None }.is(&agent));
        assert!(Wanted { role: Role::Agent, name: Some("n1".to_owned()) }.is(&agent));
        assert!(!Wanted { role: Role::Agent, name: Some("n2".to_owned()) }.is(&agent));
        assert!(!Wanted { role: Role::Gateway, name: None }.is(&agent));
    }

    #[test]
    fn other_certificates_are_for_no_party() {
        let long = format!("spiffe://site/agent/{}", "x".repeat(65));
        for uri in [
            "spiffe://site", "spiffe://site/agent", "spiffe://site/agent/", "spiffe://site/agent/n1/",
            "spiffe://site/agent/n1/x", "spiffe://site/agent/..", "spiffe://site/agent/n%31", "spiffe://site/Agent/n1",
            "spiffe://site/root/n1", "spiffe:///agent/n1", "spiffe://Site/agent/n1", "spiffe://u@site/agent/n1",
            "spiffe://site:1/agent/n1", "SPIFFE://site/agent/n1", "https://site/agent/n1", &long,
        ] {
            assert!(certificate(&[uri]).is_err_and(|why| why.contains("and Weirgate's are for")), "{uri}");
        }
        assert!(certificate(&[]).is_err_and(|why| why.contains("has no name such as")));
        let two = certificate(&["spiffe://site/agent/n1", "spiffe://site/operator/n1"]);
        assert!(two.is_err_and(|why| why.contains("more than one URI")));
    }
}
