//! The bearer token of the admin API (RFC 6750, Sec. 2.1), and how often a wrong one may be tried.
//!
//! A right token always passes. Wrong ones are answered 401 and logged up to an allowance per source,
//! then 429 and only counted: with 128 bits a guess is hopeless at any rate, while locking everybody of
//! one address out would let a broken script keep the operator from her gateway.

use std::collections::HashMap;
use std::fmt;
use std::hash::RandomState;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use weirgate_engine::Time;

/// The environment variable that holds the token where no file does.
pub const TOKEN_VARIABLE: &str = "WEIRGATE_ADMIN_TOKEN";

/// A shared secret of at least 128 bits. Never printed.
pub(super) struct Token(Vec<u8>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// The token of `file`, else of the environment (`variable`), else none.
    ///
    /// # Errors
    /// The file cannot be read, or the token is too weak.
    pub(super) fn find(file: Option<&Path>, variable: Option<String>) -> io::Result<Option<Token>> {
        let (text, place) = match (file, variable) {
            (Some(file), _) => {
                let text = std::fs::read_to_string(file)
                    .map_err(|e| io::Error::new(e.kind(), format!("admin token file {}: {e}", file.display())))?;
                (text, format!("the file {}", file.display()))
            }
            (None, Some(text)) => (text, format!("the variable {TOKEN_VARIABLE}")),
            (None, None) => return Ok(None),
        };
        match Token::checked(text.trim()) {
            Ok(token) => Ok(Some(token)),
            Err(why) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("the admin token in {place} {why}; make one with: head -c 32 /dev/urandom | base64"),
            )),
        }
    }

    fn checked(text: &str) -> Result<Token, &'static str> {
        let hex = text.bytes().all(|b| b.is_ascii_hexdigit());
        // 4 bits a digit or 6 bits a letter: 32 or 22 of them are 128 bits.
        let least = if hex { 32 } else { 22 };
        let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'-' | b'_' | b'=');
        let mut different: Vec<u8> = text.bytes().collect();
        different.sort_unstable();
        different.dedup();
        if !text.bytes().all(known) {
            Err("is neither hex nor base64")
        } else if text.trim_end_matches('=').len() < least {
            Err("is shorter than 128 bits (32 hex digits or 22 base64 letters)")
        } else if different.len() < 8 {
            // 22 random letters have fewer than 8 different ones less than once in 10^10 times.
            Err("is not random: it has fewer than 8 different letters")
        } else {
            Ok(Token(text.as_bytes().to_vec()))
        }
    }

    /// Whether `given` is the token. Takes the same time for every text of the token's length.
    pub(super) fn is(&self, given: &[u8]) -> bool {
        let different = self.0.iter().zip(given).fold(0, |all, (a, b)| std::hint::black_box(all | (a ^ b)));
        self.0.len() == given.len() && different == 0
    }
}

/// Wrong tokens in a row that one source may try before it is told to slow down.
const ALLOWANCE: f64 = 10.0;
/// Further ones a second.
const PER_SECOND: f64 = 1.0;
/// Sources remembered at once. Past it all others share one allowance.
const MOST_SOURCES: usize = 1024;

/// Allowances for wrong tokens.
#[derive(Debug)]
pub(super) struct Attempts {
    sources: HashMap<Source, Allowance, RandomState>,
}

/// Who tried: an IPv4 address, an IPv6 network of 64 bits, whoever may open the Unix socket, or all
/// sources past the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    Address(IpAddr),
    Local,
    Others,
}

#[derive(Clone, Copy, Debug)]
struct Allowance {
    left: f64,
    at: Time,
}

impl Allowance {
    fn now(self, now: Time) -> f64 {
        (self.left + now.since(self.at).as_secs_f64() * PER_SECOND).min(ALLOWANCE)
    }
}

impl Attempts {
    pub(super) fn new(hasher: RandomState) -> Attempts {
        Attempts { sources: HashMap::with_hasher(hasher) }
    }

    /// Counts a wrong token from `peer` (`None` on a Unix socket); false if it was one too many.
    pub(super) fn wrong(&mut self, peer: Option<IpAddr>, now: Time) -> bool {
        let mut source = match peer.map(|p| p.to_canonical()) {
            // An IPv6 subscriber has a whole network of 64 bits.
            Some(IpAddr::V6(v6)) => Source::Address(Ipv6Addr::from(u128::from(v6) & !u128::from(u64::MAX)).into()),
            Some(v4) => Source::Address(v4),
            None => Source::Local,
        };
        if self.sources.len() >= MOST_SOURCES && !self.sources.contains_key(&source) {
            self.sources.retain(|_, allowance| allowance.now(now) < ALLOWANCE);
            if self.sources.len() >= MOST_SOURCES {
                source = Source::Others;
            }
        }
        let allowance = self.sources.entry(source).or_insert(Allowance { left: ALLOWANCE, at: now });
        let left = allowance.now(now);
        *allowance = Allowance { left: if left >= 1.0 { left - 1.0 } else { left }, at: now };
        left >= 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for text in ["0123456789abcdef0123456789abcdef", "0123456789ABCDEFghijkl", "q83vASNFZ4mrze8BI0VniQ=="] {
            assert!(Token::checked(text).unwrap().is(text.as_bytes()));
        }
    }

    #[test]
    fn a2_a_token_comes_from_a_file_or_the_environment_and_is_never_shown() {
        const TEXT: &str = "0123456789abcdef0123456789abcdef";
        assert!(Token::find(None, None).unwrap().is_none());
        let token = Token::find(None, Some(format!("{TEXT}\n"))).unwrap().unwrap();
        assert!(token.is(TEXT.as_bytes()));
        assert_eq!(format!("{token:?}"), "Token(…)");
        let error = Token::find(Some(Path::new("/nonexistent/token")), Some(TEXT.into())).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/token"), "{error}");
        let error = Token::find(None, Some("hunter2".into())).unwrap_err().to_string();
        assert!(error.contains(TOKEN_VARIABLE) && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn a2_only_the_whole_token_is_the_token() {
        let token = Token::checked("0123456789abcdef0123456789abcdef").unwrap();
        for wrong in [
            "",
            "0123456789abcdef0123456789abcde",
            "0123456789abcdef0123456789abcdef0",
            "1123456789abcdef0123456789abcdef",
        ] {
            assert!(!token.is(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn a2_wrong_tries_are_allowed_ten_times_then_once_a_second_for_each_source() {
        let mut attempts = Attempts::new(crate::Clock::keyed_hasher());
        let (one, two) = (Some(IpAddr::from([192, 0, 2, 1])), Some(IpAddr::from([192, 0, 2, 2])));
        let allowed = |attempts: &mut Attempts, who, at| (0..100).filter(|_| attempts.wrong(who, at)).count();
        assert_eq!(allowed(&mut attempts, one, Time::ZERO), 10);
        assert_eq!(allowed(&mut attempts, two, Time::ZERO), 10);
        assert_eq!(allowed(&mut attempts, None, Time::ZERO), 10);
        assert_eq!(allowed(&mut attempts, one, Time::from_millis(2_000)), 2);
        assert_eq!(allowed(&mut attempts, one, Time::from_millis(60_000)), 10);
    }

    #[test]
    fn a2_the_table_of_sources_is_bounded() {
        let mut attempts = Attempts::new(crate::Clock::keyed_hasher());
        let tries =
            (0..100_000u32).filter(|&i| attempts.wrong(Some(IpAddr::from(i.to_be_bytes())), Time::ZERO)).count();
        assert_eq!((attempts.sources.len(), tries), (MOST_SOURCES + 1, MOST_SOURCES + 10));
        // One subscriber's many addresses are one source.
        let mut attempts = Attempts::new(crate::Clock::keyed_hasher());
        let v6 = |i: u128| Some(IpAddr::from(Ipv6Addr::from(0x2001_0db8_u128 << 96 | i)));
        assert_eq!((0..100).filter(|&i| attempts.wrong(v6(i), Time::ZERO)).count(), 10);
    }
}
