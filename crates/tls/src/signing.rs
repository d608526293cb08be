//! Signatures by a shared secret: HMAC (RFC 2104) with SHA-256, by aws-lc as all cryptography here (ADR 16).

use std::fmt;

use aws_lc_rs::hmac;

/// Length of a signature in bytes.
pub const SIGNATURE_BYTES: usize = 32;

/// A key that signs and verifies. It is never printed.
#[derive(Clone)]
pub struct SigningKey(hmac::Key);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

impl SigningKey {
    /// Returns the key with these bytes, which should be random and have 256 bits of entropy.
    pub fn new(secret: &[u8]) -> SigningKey {
        SigningKey(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// Returns the signature of `message`.
    pub fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        let tag = hmac::sign(&self.0, message);
        std::array::from_fn(|at| tag.as_ref().get(at).copied().unwrap_or_default())
    }

    /// Whether `signature` is that of `message`. The time depends on their lengths only.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        hmac::verify(&self.0, message, signature).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second test case of RFC 4231.
    #[test]
    fn a_signature_is_that_of_the_standard() {
        let (key, message) = (SigningKey::new(b"Jefe"), b"what do ya want for nothing?");
        let hex: String = key.sign(message).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let mut signature = key.sign(message);
        assert!(key.verifies(message, &signature) && !SigningKey::new(b"jefe").verifies(message, &signature));
        assert!(!key.verifies(message, &signature[..16]), "a part is no signature");
        signature[31] ^= 1;
        assert!(!key.verifies(message, &signature));
        assert_eq!(format!("{key:?}"), "SigningKey(…)");
    }
}
