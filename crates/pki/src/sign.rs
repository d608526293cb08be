//! Certificates and revocation lists, with keys of ECDSA over P-256, which every TLS library knows.
//!
//! The subject of an authority is made from the name of its site. So the folder's certificate, which is read only for
//! its dates and its name, and the one that signs have the same subject and the same key.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevocationReason, RevokedCertParams,
    SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use time::OffsetDateTime;
use weirgate_tls::{Identity, Party, is_site};
use x509_cert::der::Decode as _;

use crate::index::{Entry, seconds};

/// Time before its issue from which a certificate is valid, because the clocks of machines differ.
const BACKDATED: Duration = Duration::from_secs(3_600);

/// An authority that can sign.
pub(crate) struct Signer {
    pub(crate) site: String,
    /// End of the validity of its own certificate.
    pub(crate) not_after: SystemTime,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, both as PEM.
pub(crate) struct Signed {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Signer {
    /// Makes an authority for `site`, valid for `life`. Also returns its certificate and key.
    pub(crate) fn create(site: &str, now: SystemTime, life: Duration) -> Result<(Signer, Signed), String> {
        let key = KeyPair::generate().map_err(odd)?;
        let mut params = authority(site);
        params.subject_alt_names = vec![SanType::URI(ascii(&format!("spiffe://{site}"))?)];
        params.serial_number = Some(serial(&fresh_serial()?)?);
        let not_after = now + life;
        (params.not_before, params.not_after) = (date(now - BACKDATED), date(not_after));
        let certificate = params.self_signed(&key).map_err(odd)?.pem();
        let signed = Signed { certificate, key: key.serialize_pem() };
        Ok((Signer { site: site.to_owned(), not_after, issuer: Issuer::new(params, key) }, signed))
    }

    /// Reads an authority from its certificate and key. `folder` is for errors.
    pub(crate) fn read(folder: &Path, certificate: &str, key: &str) -> Result<Signer, String> {
        let wrong = |why: &str| format!("`{}` is no authority of `weirgate pki`: {why}", folder.display());
        let der = CertificateDer::from_pem_slice(certificate.as_bytes());
        let der = der.map_err(|error| wrong(&format!("ca.crt: {error}")))?;
        let key = KeyPair::from_pem(key).map_err(|error| wrong(&format!("ca.key: {error}")))?;
        let names = Identity::of(&der).unwrap_or_default();
        let site = names.names.iter().find_map(|name| name.strip_prefix("spiffe://")).filter(|site| is_site(site));
        let site = site.ok_or_else(|| wrong("ca.crt names no site"))?.to_owned();
        let parsed = x509_cert::Certificate::from_der(&der).map_err(|error| wrong(&format!("ca.crt: {error}")))?;
        let parsed = parsed.tbs_certificate();
        if parsed.subject_public_key_info().subject_public_key.raw_bytes() != key.public_key_raw() {
            return Err(wrong("ca.key does not belong to ca.crt"));
        }
        if names.common_name.as_deref() != Some(&common_name(&site)) {
            return Err(wrong("the subject of ca.crt is another one"));
        }
        let not_after = SystemTime::UNIX_EPOCH + parsed.validity().not_after.to_unix_duration();
        Ok(Signer { issuer: Issuer::new(authority(&site), key), site, not_after })
    }

    /// Makes a certificate for `party`, which also covers `hosts`, until `expires`, with this serial number.
    pub(crate) fn issue(&self, party: &Party, entry: &Entry, now: SystemTime) -> Result<Signed, String> {
        let key = KeyPair::generate().map_err(odd)?;
        let mut params = CertificateParams::new(entry.hosts.clone()).map_err(odd)?;
        params.subject_alt_names.push(SanType::URI(ascii(&party.uri())?));
        params.distinguished_name = subject(&self.site, &party.to_string());
        params.serial_number = Some(serial(&entry.serial)?);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Every party is a client of some and a server for others.
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        (params.not_before, params.not_after) = (date(now - BACKDATED), date(entry.expiry()));
        let certificate = params.signed_by(&key, &self.issuer).map_err(odd)?.pem();
        Ok(Signed { certificate, key: key.serialize_pem() })
    }

    /// Makes the revocation list, as PEM. It counts as long as the authority, because a new one is made with each
    /// revocation and not after a time.
    pub(crate) fn revocations(&self, number: u64, revoked: &[&Entry], now: SystemTime) -> Result<String, String> {
        let revoked = revoked.iter().map(|entry| {
            Ok(RevokedCertParams {
                serial_number: serial(&entry.serial)?,
                revocation_time: date(std::time::UNIX_EPOCH + Duration::from_secs(entry.revoked.unwrap_or_default())),
                reason_code: Some(RevocationReason::Unspecified),
                invalidity_date: None,
            })
        });
        let params = CertificateRevocationListParams {
            this_update: date(now - BACKDATED),
            next_update: date(self.not_after),
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect::<Result<_, String>>()?,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).map_err(odd)?.pem().map_err(odd)
    }
}

/// Returns a fresh serial number in hex: 16 random bytes, of which the first makes it positive and 16 bytes long (RFC
/// 5280 Sec. 4.1.2.2).
pub(crate) fn fresh_serial() -> Result<String, String> {
    let bytes: [u8; 15] = weirgate_clock::random_bytes().map_err(|error| format!("/dev/urandom: {error}"))?;
    Ok(bytes.iter().fold("01".to_owned(), |text, byte| text + &format!("{byte:02x}")))
}

/// Returns everything about an authority but its dates.
fn authority(site: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name = subject(site, &common_name(site));
    params
}

fn common_name(site: &str) -> String {
    format!("Weirgate authority of {site}")
}

fn subject(site: &str, common_name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, site);
    subject.push(DnType::CommonName, common_name);
    subject
}

fn serial(hex: &str) -> Result<SerialNumber, String> {
    let digits = hex.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2);
        pair.and_then(|pair| u8::from_str_radix(pair, 16).ok())
    });
    let bytes = digits.collect::<Option<Vec<u8>>>().ok_or_else(|| format!("{hex:?} is no serial number"))?;
    Ok(SerialNumber::from_slice(&bytes))
}

/// Returns a time in whole seconds.
fn date(time: SystemTime) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + Duration::from_secs(seconds(time))
}

/// Returns the day of a time in UTC, such as `2027-11-25`.
pub fn day(time: SystemTime) -> String {
    date(time).date().to_string()
}

fn ascii(text: &str) -> Result<rcgen::string::Ia5String, String> {
    text.try_into().map_err(odd)
}

/// Reports an error of the cryptography, such as a system without random numbers.
fn odd(error: rcgen::Error) -> String {
    format!("the certificate cannot be made: {error}")
}
