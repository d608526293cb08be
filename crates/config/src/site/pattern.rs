//! Comparisons of hosts, paths and values, compiled.

/// How a host is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// Exactly this name.
    Exact(String),
    /// Any name that ends with this suffix, which starts with a dot.
    Below(String),
}

/// How a path is compared.
#[derive(Clone, Debug)]
pub enum PathPattern {
    /// Exactly this path.
    Exact(String),
    /// This path and everything below it: `/mail` matches `/mail` and `/mail/x`, not `/mailbox`.
    Prefix(String),
    /// A regular expression over the whole path.
    Pattern(Pattern),
}

/// How a value is compared.
#[derive(Clone, Debug)]
pub enum ValuePattern {
    /// The value is present.
    Present,
    /// Exactly this value.
    Exact(String),
    /// The value starts with this text.
    Prefix(String),
    /// A regular expression over the whole value.
    Pattern(Pattern),
}

/// A compiled linear-time regular expression with its text.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The expression as written.
    pub text: String,
    /// The compiled expression, anchored at both ends.
    pub regex: regex_automata::meta::Regex,
}
