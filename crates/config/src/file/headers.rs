//! Rules for the fields of heads.

use weirgate_spanned_yaml::decode::{FromText, Named, OneOrMany, Optional};
use weirgate_spanned_yaml::errors::{Complaint, unknown};
use weirgate_spanned_yaml::{record, text_schema};

use crate::headers::{Piece, Variable};

record! {
    /// Changes to the headers of a message, in this order: `remove`, `set`, `add`. They come last, so they win over
    /// the gateway's own headers. Names are compared in any case, and `_` counts as `-`.
    pub(crate) struct Headers {
        /// Headers that are removed: a name, or a list of names.
        remove: Optional<OneOrMany<FieldName>>,
        /// Headers that are written in place of all of the same name: a map from names to values. A value may contain
        /// variables such as `${client}`. If one of them has no value, the header is not written, and those of the
        /// same name are removed all the same.
        set: Optional<Named<FieldName, ValueTemplate>>,
        /// Headers that are written in addition to those of the same name: a map from names to a value, or to a list
        /// of values.
        add: Optional<Named<FieldName, OneOrMany<ValueTemplate>>>,
    }
}

/// The name of a header that rules may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldName(pub(crate) String);

/// The value of a header: texts and variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueTemplate(pub(crate) Vec<Piece>);

/// Headers that frame a message or concern one connection. The gateway writes them for each connection.
const OWN: &[&str] = &[
    "connection", "content-length", "expect", "http2-settings", "keep-alive", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade",
];

/// Longest value. Servers commonly accept 8 KiB for all headers together.
const MAX_VALUE: usize = 4 << 10;

impl FromText for FieldName {
    const EXPECTED: &'static str = "the name of a header";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        if http::HeaderName::from_bytes(text.as_bytes()).is_err() || text.len() > 128 {
            let hint = "write letters, digits and `-`, such as `X-Frame-Options`";
            return Err(Complaint::about(text, "is not a header name", hint));
        }
        if OWN.contains(&&*text.to_ascii_lowercase()) {
            let hint = "leave it out: the gateway writes it for each connection";
            return Err(Complaint::about(
                text,
                "cannot be changed, because it frames messages or concerns one connection",
                hint,
            ));
        }
        Ok(FieldName(text.to_owned()))
    }
}

impl FromText for ValueTemplate {
    const EXPECTED: &'static str = "the value of a header";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let refuse = |what: &str, hint: &str| Err(Complaint::new(what, hint));
        if text.trim().is_empty() {
            return refuse("this header has no value", "write its value, or name it in `remove:`");
        }
        if text.len() > MAX_VALUE {
            return refuse("this value is longer than 4 KiB", "write a shorter one: servers limit their heads");
        }
        if text.contains(|c: char| c.is_control() && c != '\t') {
            return refuse("this value has a line break or another control character", "write it in one line");
        }
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text.trim();
        while let Some(at) = rest.find("${") {
            let (before, variable) = (rest.get(..at).unwrap_or_default(), rest.get(at + 2..).unwrap_or_default());
            if let Some(before) = before.strip_suffix('$') {
                literal.push_str(before);
                literal.push_str("${");
                rest = variable;
                continue;
            }
            literal.push_str(before);
            let Some((name, after)) = variable.split_once('}') else {
                return refuse("`${` has no `}`", "write a variable as `${client}`, or `$${` for these two characters");
            };
            let known = Variable::ALL.iter().find(|variable| variable.as_str() == name);
            let Some(&variable) = known else {
                return Err(unknown("the variable", name, Variable::ALL.iter().map(|variable| variable.as_str())));
            };
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Variable(variable));
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Ok(ValueTemplate(pieces))
    }
}

text_schema! {
    FieldName: { "type": "string", "minLength": 1, "maxLength": 128, "examples": ["X-Frame-Options"] };
    ValueTemplate: { "type": ["string", "number", "boolean"], "examples": ["DENY", "${client}"] };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_texts_and_variables() {
        let pieces = |text| ValueTemplate::from_text(text).map(|template| template.0);
        let text = |text: &str| Piece::Text(text.to_owned());
        assert_eq!(pieces("DENY"), Ok(vec![text("DENY")]));
        assert_eq!(pieces(" ${client} "), Ok(vec![Piece::Variable(Variable::Client)]));
        assert_eq!(
            pieces("a $5 ${sni}${class}; $${x} é"),
            Ok(
                vec![text("a $5 "), Piece::Variable(Variable::Sni), Piece::Variable(Variable::Class), text("; ${x} é"),]
            )
        );
        let long = "x".repeat(5000);
        for wrong in ["", " ", "${", "a ${client", "${}", "${clinet}", "a\r\nX: b", "a\nb", "\u{0}", &long] {
            assert!(pieces(wrong).is_err(), "{wrong:?}");
        }
        assert!(pieces("${clinet}").unwrap_err().hint.contains("`client`"));
    }

    #[test]
    fn names_are_those_that_may_be_changed() {
        for name in ["Server", "x-a", "Host", "Via", "Date", "Set-Cookie"] {
            assert!(FieldName::from_text(name).is_ok(), "{name}");
        }
        for name in ["", "a b", "a:", "a\r\n", "é", "Content-Length", "TRANSFER-ENCODING", "te", ":authority"] {
            assert!(FieldName::from_text(name).is_err(), "{name}");
        }
    }
}
