//! The signed cookie by which the gateway knows returning visitors.

use weirgate_spanned_yaml::decode::{Defaulted, Optional};
use weirgate_spanned_yaml::unit::{Span, Text};
use weirgate_spanned_yaml::{record, words};

use super::conditions::Token;
use crate::visitors::Standing;

record! {
    /// The signed cookie by which the gateway knows returning visitors. It has a random number, a time and a standing,
    /// and nothing about the person.
    pub(crate) struct VisitorsForm {
        /// File with one or two keys, a line each, of at least 32 letters. The first key signs, and both verify. Paths
        /// count from the folder of the policy. Without it the keys are those in the environment variable
        /// `WEIRGATE_VISITOR_KEYS`, separated by commas.
        keys_file: Optional<Text>,
        /// Name of the cookie.
        cookie: Defaulted<Token> = "weirgate_visitor",
        /// Time from a visitor's first cookie after which it can become a returning one. 10 s are longer than the
        /// requests of one page take, and short for a person who reads it.
        returning_after: Defaulted<Span> = "10s",
        /// Time for which a cookie is valid. It is renewed when a tenth of this has passed. 30 days by default: a
        /// visitor who comes once a month stays known, and a stolen cookie ends.
        lifetime: Defaulted<Span> = "720h",
    }
}

words! {
    /// Standing of a visitor, from its cookie.
    pub(crate) struct StandingWord(Standing) {
        /// It is valid.
        "new" => Standing::New,
        /// The visitor came back after `returning_after` and was answered again, or the application vouched for it.
        "returning" => Standing::Returning,
        /// The application vouched for the visitor, with `Weirgate-Visitor: vouched` in a response.
        "vouched" => Standing::Vouched,
    }
}
