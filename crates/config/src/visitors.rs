//! Settings of the signed cookie by which the gateway knows returning visitors.

use std::time::Duration;

use weirgate_tls::SigningKey;

/// Standing of a visitor, from its cookie. A later one includes the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// The visitor was answered once.
    New,
    /// It came back with the cookie, not too soon, and was answered again.
    Returning,
    /// The application vouched for it.
    Vouched,
}

impl Standing {
    /// Every standing, in order. Its index is its number in cookies.
    pub const ALL: [Standing; 3] = [Standing::New, Standing::Returning, Standing::Vouched];

    /// Returns the word of the policy file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Standing::New => "new",
            Standing::Returning => "returning",
            Standing::Vouched => "vouched",
        }
    }
}

/// The cookie of visitors.
#[derive(Clone, Debug)]
pub struct Visitors {
    /// Its name.
    pub cookie: String,
    /// Time from the first cookie after which a visitor that comes back is known.
    pub returning_after: Duration,
    /// Time for which a cookie is valid.
    pub lifetime: Duration,
    /// The keys: the first one signs, and all of them verify. None in a policy that describes a gateway elsewhere,
    /// where no cookie is valid.
    pub keys: Vec<SigningKey>,
}
