//! Bearer tokens (RFC 6750, Sec. 2.1): shared secrets that an admin API accepts in place of a certificate.

use std::path::Path;
use std::{fmt, io};

/// A shared secret of at least 128 bits. Never printed.
pub struct Token(Vec<u8>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// Returns the token in `file`, else the one in an environment variable (given by its name and value),
    /// else none. `whose` names the token's owner in errors, for example `admin`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or the token is too weak.
    pub fn find(whose: &str, file: Option<&Path>, variable: Option<(&str, String)>) -> io::Result<Option<Token>> {
        let (text, place) = match (file, variable) {
            (Some(file), _) => {
                let text = std::fs::read_to_string(file)
                    .map_err(|e| io::Error::new(e.kind(), format!("{whose} token file {}: {e}", file.display())))?;
                (text, format!("the file {}", file.display()))
            }
            (None, Some((name, text))) => (text, format!("the variable {name}")),
            (None, None) => return Ok(None),
        };
        match Token::checked(text.trim()) {
            Ok(token) => Ok(Some(token)),
            Err(why) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("the {whose} token in {place} {why}; make one with: head -c 32 /dev/urandom | base64"),
            )),
        }
    }

    fn checked(text: &str) -> Result<Token, &'static str> {
        let hex = text.bytes().all(|b| b.is_ascii_hexdigit());
        // 4 bits per hex digit or 6 bits per base64 letter: 32 or 22 of them are 128 bits.
        let min = if hex { 32 } else { 22 };
        let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'-' | b'_' | b'=');
        let mut different: Vec<u8> = text.bytes().collect();
        different.sort_unstable();
        different.dedup();
        if !text.bytes().all(known) {
            Err("is neither hex nor base64")
        } else if text.trim_end_matches('=').len() < min {
            Err("is shorter than 128 bits (32 hex digits or 22 base64 letters)")
        } else if different.len() < 8 {
            // 22 random letters have fewer than 8 different ones less than once in 10^10 times.
            Err("is not random: it has fewer than 8 different letters")
        } else {
            Ok(Token(text.as_bytes().to_vec()))
        }
    }

    /// Whether `given` is the token. The comparison takes the same time for all texts of the token's length.
    pub fn is(&self, given: &[u8]) -> bool {
        let different = self.0.iter().zip(given).fold(0, |all, (a, b)| std::hint::black_box(all | (a ^ b)));
        self.0.len() == given.len() && different == 0
    }

    /// Returns the value of an `Authorization` field with this token.
    pub fn authorization(&self) -> String {
        format!("Bearer {}", String::from_utf8_lossy(&self.0))
    }
}

/// Returns the bearer token in the value of an `Authorization` field.
pub(crate) fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, given) = authorization.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| given.trim_ascii())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step fails the test")]
mod tests {
    use super::*;

    const TEXT: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a2_weak_tokens_are_refused() {
        for (text, problem) in [
            ("", "shorter"),
            ("0123456789abcdef0123456789abcde", "shorter"),
            ("0123456789abcdefghijk", "shorter"),
            ("0123456789abcdefghi==", "shorter"),
            ("correct horse battery staple!!", "neither"),
            ("00000000000000000000000000000001", "random"),
        ] {
            assert!(Token::checked(text).unwrap_err().contains(problem), "{text}");
        }
        for text in [TEXT, "0123456789ABCDEFghijkl", "q83vASNFZ4mrze8BI0VniQ=="] {
            assert!(Token::checked(text).unwrap().is(text.as_bytes()));
        }
    }

    #[test]
    fn a2_a_token_comes_from_a_file_or_the_environment_and_is_never_shown() {
        assert!(Token::find("admin", None, None).unwrap().is_none());
        let token = Token::find("admin", None, Some(("X_TOKEN", format!("{TEXT}\n")))).unwrap().unwrap();
        assert!(token.is(TEXT.as_bytes()));
        assert_eq!(format!("{token:?}"), "Token(…)");
        let nowhere = Some(Path::new("/nonexistent/token"));
        let error = Token::find("admin", nowhere, Some(("X_TOKEN", TEXT.into()))).unwrap_err();
        assert!(error.to_string().contains("admin token file /nonexistent/token"), "{error}");
        let error = Token::find("admin", None, Some(("X_TOKEN", "hunter2".into()))).unwrap_err().to_string();
        assert!(error.contains("X_TOKEN") && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn a2_only_the_whole_token_is_the_token() {
        let token = Token::checked(TEXT).unwrap();
        for wrong in [
            "",
            "0123456789abcdef0123456789abcde",
            "0123456789abcdef0123456789abcdef0",
            "1123456789abcdef0123456789abcdef",
        ] {
            assert!(!token.is(wrong.as_bytes()), "{wrong}");
        }
        assert_eq!(bearer(format!("Bearer {TEXT}").as_bytes()), Some(TEXT.as_bytes()));
        assert_eq!(bearer(b"bEARER  x "), Some(b"x".as_slice()));
        assert_eq!((bearer(b"Basic eDp5"), bearer(b"bear"), bearer(b"")), (None, None, None));
    }
}
