//! Orders at the authority: account, order, checks, certificate (RFC 8555 Sec. 7).

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, ExternalAccountKey, Identifier,
    NewAccount, NewOrder, Order, OrderStatus, Problem,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use weirgate_config::{Acme, Challenge};

use crate::challenges::Challenges;
use crate::client::{Https, RetryAfter};
use crate::store;

/// Waits between two looks at an order, which double from the first to the second. Checks take a second or a few.
const LOOK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Time for a whole order. Let's Encrypt checks within seconds. Others have people behind them, and a later attempt
/// finds their answer.
const WITHIN: Duration = Duration::from_secs(300);

/// The certificate that an order replaces: the key identifier of its authority, and its serial number.
pub(crate) type RenewalId = (Vec<u8>, Vec<u8>);

/// Why an authority did not do as asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The reason, for the operator.
    pub(crate) why: String,
    /// The time that the authority wants to be left alone.
    pub(crate) retry_after: Option<Duration>,
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure { why, retry_after: None }
    }
}

/// A session with an authority.
pub(crate) struct Session {
    account: Account,
    retry_after: RetryAfter,
}

impl Session {
    /// Opens a session with the account in the storage of `settings`. The first one makes the account.
    pub(crate) async fn open(settings: &Acme) -> Result<Session, Failure> {
        let retry_after = RetryAfter::default();
        let client = Https::new(settings.ca.as_deref(), retry_after.clone())?;
        let builder = Account::builder_with_http(Box::new(client));
        let failed = |error| failure(error, &retry_after);
        if let Some(known) = store::account(&settings.storage)? {
            let account = builder.from_credentials(known).await.map_err(failed)?;
            return Ok(Session { account, retry_after });
        }
        let external = settings.external_account.as_ref().map(external_key).transpose()?;
        let contact: Vec<String> = settings.contact.iter().map(|address| format!("mailto:{address}")).collect();
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let made = builder.create(&new, settings.directory.clone(), external.as_ref()).await;
        let (account, credentials) = made.map_err(failed)?;
        store::keep_account(&settings.storage, &credentials)?;
        Ok(Session { account, retry_after })
    }

    /// Asks when the certificate should be renewed, and when to ask again. The authority may have no such window.
    pub(crate) async fn window(&self, (authority, serial): &RenewalId) -> Option<((SystemTime, SystemTime), Duration)> {
        let (info, again) = self.account.renewal_info(&identifier(authority, serial)).await.ok()?;
        let window = info.suggested_window;
        Some(((window.start.into(), window.end.into()), again))
    }

    /// Orders a certificate for `names`. The account offers `challenge`, and `challenges` answers the authority's
    /// checks in the meantime. Returns the certificate with its chain and its key (PEM).
    pub(crate) async fn order(
        &self,
        settings: &Acme,
        names: &[String],
        replaces: Option<&RenewalId>,
        (challenge, challenges): (Challenge, &Challenges),
    ) -> Result<String, Failure> {
        let _clear = Clear(challenges);
        let work = self.run(names, replaces, challenge, challenges);
        let done = weirgate_clock::within(WITHIN, work).await;
        let done = done.unwrap_or_else(|| Err(format!("the order was not done within {} s", WITHIN.as_secs()).into()));
        if done.as_ref().is_err_and(|failure| failure.why.contains("accountDoesNotExist")) {
            store::forget_account(&settings.storage);
        }
        done
    }

    async fn run(
        &self,
        names: &[String],
        replaces: Option<&RenewalId>,
        challenge: Challenge,
        challenges: &Challenges,
    ) -> Result<String, Failure> {
        let failed = |error| failure(error, &self.retry_after);
        let identifiers: Vec<Identifier> = names.iter().map(|name| Identifier::Dns(name.clone())).collect();
        let mut new = NewOrder::new(&identifiers);
        if let Some((authority, serial)) = replaces {
            new = new.replaces(identifier(authority, serial));
        }
        let mut order = self.account.new_order(&new).await.map_err(failed)?;
        self.answer(&mut order, challenge, challenges).await?;
        if self.reached(&mut order, OrderStatus::Ready).await? == OrderStatus::Ready {
            let key = KeyPair::generate().map_err(|error| error.to_string())?;
            let mut params = CertificateParams::new(names).map_err(|error| error.to_string())?;
            params.distinguished_name = DistinguishedName::new();
            let request = params.serialize_request(&key).map_err(|error| error.to_string())?;
            order.finalize_csr(request.der()).await.map_err(failed)?;
            if self.reached(&mut order, OrderStatus::Valid).await? == OrderStatus::Valid
                && let Some(chain) = order.certificate().await.map_err(failed)?
            {
                return Ok(format!("{}\n{}", chain.trim_end(), key.serialize_pem()));
            }
        }
        Err(self.refused(&mut order).await)
    }

    /// Prepares the answers for all names that the authority wants to check.
    async fn answer(&self, order: &mut Order, challenge: Challenge, challenges: &Challenges) -> Result<(), Failure> {
        let failed = |error| failure(error, &self.retry_after);
        let (kind, word) = match challenge {
            Challenge::Http01 => (ChallengeType::Http01, "http-01"),
            Challenge::TlsAlpn01 => (ChallengeType::TlsAlpn01, "tls-alpn-01"),
        };
        let mut all = order.authorizations();
        while let Some(authorization) = all.next().await {
            let mut authorization = authorization.map_err(failed)?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let Identifier::Dns(name) = authorization.identifier().identifier.clone() else { continue };
            let Some(mut due) = authorization.challenge(kind.clone()) else {
                return Err(format!("the authority offers no `{word}` for {name}").into());
            };
            let answer = due.key_authorization();
            match challenge {
                Challenge::Http01 => challenges.expect_page(&due.token, answer.as_str()),
                Challenge::TlsAlpn01 => challenges.expect_handshake(&name, answer.digest().as_ref())?,
            }
            due.set_ready().await.map_err(failed)?;
        }
        Ok(())
    }

    /// Waits until an order is in `wanted`, or will never be. Returns its state.
    async fn reached(&self, order: &mut Order, wanted: OrderStatus) -> Result<OrderStatus, Failure> {
        let mut wait = LOOK.0;
        loop {
            let status = order.state().status;
            if status == wanted || status == OrderStatus::Invalid {
                return Ok(status);
            }
            weirgate_clock::sleep(self.retry_after.last().unwrap_or(wait).max(LOOK.0)).await;
            wait = (wait * 2).min(LOOK.1);
            order.refresh().await.map_err(|error| failure(error, &self.retry_after))?;
        }
    }

    /// Returns why the authority refuses an order: the reasons of its checks, if there are any.
    async fn refused(&self, order: &mut Order) -> Failure {
        let mut reasons: Vec<String> = order.state().error.iter().map(shown).collect();
        let mut all = order.authorizations();
        while let Some(Ok(mut authorization)) = all.next().await {
            let Ok(state) = authorization.refresh().await else { continue };
            let errors = state.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
            for reason in errors.map(shown) {
                // Some authorities repeat it for the order.
                if !reasons.contains(&reason) {
                    reasons.push(reason);
                }
            }
        }
        if reasons.is_empty() {
            reasons.push("the authority refuses the order without a reason".to_owned());
        }
        Failure { why: reasons.join("; "), retry_after: self.retry_after.last() }
    }
}

/// Takes the answers back, however an order ends.
struct Clear<'a>(&'a Challenges);

impl Drop for Clear<'_> {
    fn drop(&mut self) {
        self.0.clear();
    }
}

fn identifier<'a>(authority: &'a [u8], serial: &'a [u8]) -> CertificateIdentifier<'a> {
    CertificateIdentifier::new(authority.into(), serial.into())
}

/// Reads the key of an account outside of ACME.
fn external_key((id, path): &(String, std::path::PathBuf)) -> Result<ExternalAccountKey, String> {
    let failed = |error: &dyn std::fmt::Display| format!("`{}` has no key: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    let key = BASE64_URL_SAFE_NO_PAD.decode(text.trim().trim_end_matches('=')).map_err(|error| failed(&error))?;
    Ok(ExternalAccountKey::new(id.clone(), &key))
}

fn failure(error: Error, retry_after: &RetryAfter) -> Failure {
    let why = match &error {
        Error::Api(problem) => shown(problem),
        // The answer of something that is no authority, such as a page of a proxy.
        Error::Json(error) => format!("the answer is not that of an ACME server: {error}"),
        error => error.to_string(),
    };
    Failure { why, retry_after: retry_after.last() }
}

/// Longest text of an authority that is shown, in bytes.
const MAX_SHOWN: usize = 500;

/// Returns the text of a problem on one line.
fn shown(problem: &Problem) -> String {
    let mut text = problem.detail.clone().unwrap_or_default();
    for one in &problem.subproblems {
        text += &format!("; {one}");
    }
    if let Some(kind) = &problem.r#type {
        text += &format!(" ({})", kind.trim_start_matches("urn:ietf:params:acme:error:"));
    }
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let end = text.floor_char_boundary(MAX_SHOWN);
    text.get(..end).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_one_line_of_bounded_length() {
        let problem = |text: &str| -> Problem { serde_json::from_str(text).expect("a problem") };
        let text = r#"{"type":"urn:ietf:params:acme:error:dns","detail":"no\nanswer"}"#;
        assert_eq!(shown(&problem(text)), "no answer (dns)");
        let long = format!(r#"{{"detail":"{}"}}"#, "ü".repeat(1000));
        assert_eq!(shown(&problem(&long)).len(), MAX_SHOWN);
        assert_eq!(shown(&problem("{}")), "");
    }

    #[test]
    fn keys_of_external_accounts_are_base64url() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        for (text, sound) in [("AAEC_w==\n", true), ("AAEC_w", true), ("AAEC/w", false), ("", true)] {
            std::fs::write(&path, text).expect("it can be written");
            assert_eq!(external_key(&("id".to_owned(), path.clone())).is_ok(), sound, "{text:?}");
        }
        assert!(external_key(&("id".to_owned(), folder.path().join("no"))).is_err());
    }
}
