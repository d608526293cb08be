//! Settings of the signed cookie by which the gateway knows returning visitors.

use std::time::Duration;

use weirgate_tls::SigningKey;

weirgate_engine::named! {
    /// Standing of a visitor, from its cookie. A later one includes the earlier ones.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Standing {
        /// The visitor was answered once.
        New = "new",
        /// It came back with the cookie, not too soon, and was answered again.
        Returning = "returning",
        /// The application vouched for it.
        Vouched = "vouched",
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
