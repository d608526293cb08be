//! Names of fields that a gateway has to know, and sets of them.

/// Declares the names once: variant and spelling in lower case.
macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A field that a gateway has to know, or any other.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Name {
            /// Any field that is not in this list.
            Other,
            /// A field that `Connection` names, after [`crate::Head::drop_named`].
            Dropped,
            $($(#[$doc])* $name,)*
        }

        impl Name {
            /// All names with a spelling.
            pub const ALL: &[Name] = &[$(Name::$name),*];

            /// Spelling in lower case. Empty for [`Name::Other`] and [`Name::Dropped`].
            pub const fn as_str(self) -> &'static str {
                match self {
                    Name::Other | Name::Dropped => "",
                    $(Name::$name => $text,)*
                }
            }
        }
    };
}

names! {
    /// `Host`
    Host = "host",
    /// `Content-Length`
    ContentLength = "content-length",
    /// `Transfer-Encoding`
    TransferEncoding = "transfer-encoding",
    /// `Connection`
    Connection = "connection",
    /// `Keep-Alive`
    KeepAlive = "keep-alive",
    /// `Proxy-Connection`
    ProxyConnection = "proxy-connection",
    /// `Upgrade`
    Upgrade = "upgrade",
    /// `HTTP2-Settings`
    Http2Settings = "http2-settings",
    /// `TE`
    Te = "te",
    /// `Trailer`
    Trailer = "trailer",
    /// `Expect`
    Expect = "expect",
    /// `Via`
    Via = "via",
    /// `Forwarded`
    Forwarded = "forwarded",
    /// `X-Forwarded-For`
    XForwardedFor = "x-forwarded-for",
    /// `X-Forwarded-Proto`
    XForwardedProto = "x-forwarded-proto",
    /// `X-Forwarded-Host`
    XForwardedHost = "x-forwarded-host",
    /// `X-Forwarded-Port`
    XForwardedPort = "x-forwarded-port",
    /// `X-Real-IP`
    XRealIp = "x-real-ip",
    /// `Proxy-Authenticate`
    ProxyAuthenticate = "proxy-authenticate",
    /// `Proxy-Authorization`
    ProxyAuthorization = "proxy-authorization",
    /// `X-Request-ID`
    XRequestId = "x-request-id",
    /// `traceparent`
    Traceparent = "traceparent",
    /// `tracestate`
    Tracestate = "tracestate",
    /// `Cookie`
    Cookie = "cookie",
    /// `Date`
    Date = "date",
}

impl Name {
    /// Returns the name with this spelling, in any case.
    #[inline]
    pub fn of(text: &[u8]) -> Name {
        // Few names share a length, so most fields are compared with one or none.
        let candidates: &[Name] = match text.len() {
            2 => &[Name::Te],
            3 => &[Name::Via],
            4 => &[Name::Host, Name::Date],
            6 => &[Name::Cookie, Name::Expect],
            7 => &[Name::Upgrade, Name::Trailer],
            9 => &[Name::Forwarded, Name::XRealIp],
            10 => &[Name::Connection, Name::KeepAlive, Name::Tracestate],
            11 => &[Name::Traceparent],
            12 => &[Name::XRequestId],
            14 => &[Name::ContentLength, Name::Http2Settings],
            15 => &[Name::XForwardedFor],
            16 => &[Name::ProxyConnection, Name::XForwardedHost, Name::XForwardedPort],
            17 => &[Name::TransferEncoding, Name::XForwardedProto],
            18 => &[Name::ProxyAuthenticate],
            19 => &[Name::ProxyAuthorization],
            _ => return Name::Other,
        };
        // A first look at one letter saves most of the comparisons.
        let Some(first) = text.first().map(|b| b | 0x20) else { return Name::Other };
        let is = |name: &&Name| {
            let known = name.as_str().as_bytes();
            known.first() == Some(&first) && text.eq_ignore_ascii_case(known)
        };
        candidates.iter().find(is).copied().unwrap_or(Name::Other)
    }
}

/// A set of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names(u32);

impl Names {
    /// The set without a name.
    pub const NONE: Names = Names(0);

    /// The set of `names`.
    pub const fn of(names: &[Name]) -> Names {
        let mut set = 0;
        let mut at = 0;
        while at < names.len() {
            set |= 1 << names[at] as u32;
            at += 1;
        }
        Names(set)
    }

    /// Adds a name. Returns whether it was missing.
    #[inline]
    pub fn insert(&mut self, name: Name) -> bool {
        let added = !self.contains(name);
        self.0 |= 1 << name as u32;
        added
    }

    /// Returns whether the set has this name.
    #[inline]
    pub const fn contains(self, name: Name) -> bool {
        self.0 & (1 << name as u32) != 0
    }

    /// Returns the names of both sets.
    #[inline]
    pub const fn union(self, other: Names) -> Names {
        Names(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_case() {
        for &name in Name::ALL {
            let text = name.as_str();
            assert_eq!(Name::of(text.as_bytes()), name);
            assert_eq!(Name::of(text.to_ascii_uppercase().as_bytes()), name);
            assert_eq!(Name::of(format!("{text}x").as_bytes()), Name::Other);
            assert_eq!(Name::of(text.get(1..).expect("ASCII").as_bytes()), Name::Other);
        }
        for text in ["", "x", "accept", "hosT ", "content_length", "user-agent"] {
            assert_eq!(Name::of(text.as_bytes()), Name::Other, "{text}");
        }
    }

    #[test]
    fn a_set_has_the_names_that_were_put_in() {
        let mut set = Names::of(&[Name::Host, Name::Date]);
        assert!(set.contains(Name::Host) && set.contains(Name::Date) && !set.contains(Name::Te));
        assert!(set.insert(Name::Te) && !set.insert(Name::Te));
        assert_eq!(set.union(Names::of(&[Name::Via])), Names::of(&[Name::Date, Name::Via, Name::Te, Name::Host]));
    }
}
