//! Returning visitors: a signed cookie that the gateway sets, verifies, renews, and keeps from the nodes.
//!
//! Sources: RFC 6265 (cookies), RFC 2104 (HMAC). The cookie has a version and a standing, the time of its issue, and
//! 128 random bits that name the visitor, followed by their HMAC-SHA-256, in base64url. It says nothing about the
//! person, and is not bound to an address, because phones change theirs. The gateway keeps no table of visitors: all
//! it has to know is in the cookie.
//!
//! A standing is earned by answers of nodes. The first answer brings a cookie with [`Standing::New`]. A visitor that
//! comes back with it after `returning_after`, and is answered again, gets [`Standing::Returning`]. So a crawler that
//! drops its cookies is never known, and one that is not answered earns nothing. An application can vouch for a
//! visitor, for instance after its login or a solved challenge, with the header [`VOUCH`] in a response. No cookie
//! goes with a response that shared caches may store (RFC 9111 Sec. 5.2.2), because all their clients would become one
//! visitor.
//!
//! Nodes do not see the cookie: they have no use for it, and caches in them would take each visitor's pages for
//! different ones.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use weirgate_config::{Standing, Variable, Visitors};
use weirgate_http1::{Head, Name, write};
use weirgate_tls::SIGNATURE_BYTES;

use crate::classify::cookies_of;
use crate::exchange::Exchange;
use crate::header_edits::{Facts as _, take_out};
use crate::request::Request;

/// Header of a response by which an application vouches for the visitor. It does not reach the client.
const VOUCH: &str = "weirgate-visitor";

/// Begins the signed text, so that a signature for another purpose with the same key is none here.
const PURPOSE: &[u8] = b"weirgate visitor";

/// Version of the cookie, in the upper half of its first byte. The standing is in the lower one.
const VERSION: u8 = 1;

/// Length of the part that is signed: version and standing, seconds since 1970 in 4 bytes (until 2106), and the id.
const SIGNED: usize = 1 + 4 + 16;

/// Length of the value in letters.
const LETTERS: usize = (SIGNED + SIGNATURE_BYTES) * 8 / 6 + 1;

/// How far the clocks of gateways with the same key may differ.
const SKEW: Duration = Duration::from_secs(60);

/// Part of its lifetime after which a cookie is renewed. A visitor then gets few cookies, and still stays known as long
/// as it comes once in nine tenths of a lifetime.
const RENEWED_AFTER: u32 = 10;

/// A visitor with a valid cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visitor {
    /// What its cookie says.
    pub standing: Standing,
    /// A random number that names it.
    pub id: [u8; 16],
    /// Seconds since 1970 at which the cookie was issued.
    issued: u32,
    /// Whether the cookie was signed by the first key.
    signed_by_first: bool,
}

impl Visitor {
    /// Returns the visitor that the cookie of `request` names.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn of(visitors: &Visitors, request: &Request, now: SystemTime) -> Result<Visitor, &'static str> {
        let mut values = cookies_of(request).filter(|(name, _)| *name == visitors.cookie.as_bytes());
        let (_, value) = values.next().ok_or("there is no such cookie")?;
        if values.next().is_some() {
            return Err("there are two such cookies");
        }
        let visitor = Visitor::read(visitors, value).ok_or("it was not signed by a key of this gateway")?;
        match now.duration_since(visitor.issued_at()) {
            Ok(age) if age > visitors.lifetime => Err("its lifetime is over"),
            Err(ahead) if ahead.duration() > SKEW => Err("it was issued in the future"),
            _ => Ok(visitor),
        }
    }

    /// Returns a visitor with this standing, whose cookie is issued at `now`.
    pub fn with(standing: Standing, now: SystemTime) -> Visitor {
        let issued = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Visitor { standing, id: [0; 16], issued: u32::try_from(issued).unwrap_or(u32::MAX), signed_by_first: true }
    }

    /// Returns the time since the cookie was issued.
    pub fn age(&self, now: SystemTime) -> Duration {
        now.duration_since(self.issued_at()).unwrap_or_default()
    }

    fn issued_at(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(u64::from(self.issued))
    }

    fn read(visitors: &Visitors, value: &[u8]) -> Option<Visitor> {
        if value.len() != LETTERS {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(value).ok()?;
        let (signed, signature) = bytes.split_at_checked(SIGNED)?;
        let message = [PURPOSE, signed].concat();
        let key = visitors.keys.iter().position(|key| key.verifies(&message, signature))?;
        let (first, rest) = signed.split_first()?;
        let (issued, id) = rest.split_first_chunk::<4>()?;
        let standing = Standing::ALL.get(usize::from(first & 0xf)).copied().filter(|_| first >> 4 == VERSION)?;
        let (issued, id) = (u32::from_be_bytes(*issued), id.try_into().ok()?);
        Some(Visitor { standing, id, issued, signed_by_first: key == 0 })
    }

    /// Returns the value of the cookie. `None` without a key.
    pub fn value(&self, visitors: &Visitors) -> Option<String> {
        let standing = Standing::ALL.iter().position(|one| *one == self.standing)? as u8;
        let mut bytes = vec![VERSION << 4 | standing];
        bytes.extend_from_slice(&self.issued.to_be_bytes());
        bytes.extend_from_slice(&self.id);
        let signature = visitors.keys.first()?.sign(&[PURPOSE, &bytes].concat());
        bytes.extend_from_slice(&signature);
        Some(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Returns the visitor as the next cookie names it, or `None` if it keeps the one it has. `before` is the visitor
    /// of the request, and `fresh` makes the id of a new one. `vouched` tells whether the application vouches for it.
    fn next(
        visitors: &Visitors,
        before: Option<&Visitor>,
        (vouched, now): (bool, SystemTime),
        fresh: impl FnOnce() -> Option<[u8; 16]>,
    ) -> Option<Visitor> {
        let seconds = u32::try_from(now.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()?;
        let Some(before) = before else {
            let standing = if vouched { Standing::Vouched } else { Standing::New };
            return Some(Visitor { standing, id: fresh()?, issued: seconds, signed_by_first: true });
        };
        let age = before.age(now);
        let standing = match before.standing {
            _ if vouched => Standing::Vouched,
            Standing::New if age >= visitors.returning_after => Standing::Returning,
            standing => standing,
        };
        let rises = standing > before.standing;
        let is_old = age > visitors.lifetime / RENEWED_AFTER;
        if !rises && !is_old && before.signed_by_first {
            return None;
        }
        // A new key must not make a visitor wait anew.
        let issued = if rises || is_old { seconds } else { before.issued };
        Some(Visitor { standing, id: before.id, issued, signed_by_first: true })
    }
}

/// Whether `request` has a cookie of this name.
pub(crate) fn has_cookie(request: &Request, name: &str) -> bool {
    request.has(Name::Cookie) && cookies_of(request).any(|(other, _)| other == name.as_bytes())
}

/// Writes the cookies of `request` without those of this name.
pub(crate) fn write_other_cookies(out: &mut Vec<u8>, request: &Request, name: &str) {
    for line in request.all(Name::Cookie) {
        let is_other = |pair: &&[u8]| {
            let other = pair.split(|&b| b == b'=').next().unwrap_or_default().trim_ascii();
            !pair.is_empty() && other != name.as_bytes()
        };
        let pairs: Vec<&[u8]> = line.split(|&b| b == b';').map(<[u8]>::trim_ascii).filter(is_other).collect();
        if !pairs.is_empty() {
            write::field(out, b"cookie", &pairs.join(&b"; "[..]));
        }
    }
}

/// The visitor whose request is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reception<'a> {
    visitors: &'a Visitors,
    before: Option<&'a Visitor>,
    /// Whether an answer earns a standing: it comes from the nodes of the class, and not from its fallback.
    earns: bool,
    /// Whether the client uses `https`.
    secure: bool,
    now: SystemTime,
}

impl Reception<'_> {
    /// Adds the cookie to the head of a response that begins at `start` of `out`, if there is one to set. `head` is
    /// that of the node.
    pub(crate) fn write(&self, out: &mut Vec<u8>, start: usize, (head, bytes): (&Head, &[u8])) {
        let vouched = head.named(bytes, VOUCH.as_bytes()).any(|value| value.eq_ignore_ascii_case(b"vouched"));
        take_out(out, start, &[VOUCH.to_owned()]);
        let earns = self.earns && (200..400).contains(&head.status());
        if !(vouched || earns) || is_shared(head, bytes) {
            return;
        }
        let fresh = || weirgate_clock::random_bytes().ok();
        let next = Visitor::next(self.visitors, self.before, (vouched, self.now), fresh);
        let Some(value) = next.and_then(|next| next.value(self.visitors)) else { return };
        let Visitors { cookie, lifetime, .. } = self.visitors;
        let secure = if self.secure { "; Secure" } else { "" };
        let seconds = lifetime.as_secs();
        let line = format!("{cookie}={value}; Path=/; Max-Age={seconds}; HttpOnly{secure}; SameSite=Lax");
        write::field(out, b"set-cookie", line.as_bytes());
    }
}

/// Whether a shared cache may store a response that its server has marked for it.
fn is_shared(head: &Head, bytes: &[u8]) -> bool {
    let directives = head.named(bytes, b"cache-control").flat_map(|line| line.split(|&b| b == b','));
    directives.map(<[u8]>::trim_ascii).any(|directive| {
        let name = directive.split(|&b| b == b'=').next().unwrap_or_default();
        [&b"public"[..], b"s-maxage"].iter().any(|shared| name.eq_ignore_ascii_case(shared))
    })
}

impl Exchange {
    /// Finds the visitor of the request, if the policy has visitors.
    pub(crate) fn find_visitor(&mut self) {
        let visitors = self.active_config.site.visitors.as_ref();
        let of = |visitors| Visitor::of(visitors, &self.request, weirgate_clock::calendar()).ok();
        self.visitor = visitors.and_then(of).map(Box::new);
    }

    /// Returns the name of the cookie that nodes do not see, if the request has it.
    pub(crate) fn hidden_cookie(&self) -> Option<&str> {
        let cookie = self.active_config.site.visitors.as_ref()?.cookie.as_str();
        has_cookie(&self.request, cookie).then_some(cookie)
    }

    /// Returns the visitor that is answered, if the policy has visitors. Programs that call gRPC keep no cookies.
    pub(crate) fn reception(&self) -> Option<Reception<'_>> {
        let visitors = self.active_config.site.visitors.as_ref().filter(|_| !self.is_call())?;
        let secure = self.value(Variable::Scheme).is_some_and(|scheme| scheme.as_ref() == b"https");
        let (before, earns, now) = (self.visitor.as_deref(), !self.fell_back, weirgate_clock::calendar());
        Some(Reception { visitors, before, earns, secure, now })
    }
}

#[cfg(test)]
mod tests;
