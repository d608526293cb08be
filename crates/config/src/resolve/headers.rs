//! Rules for headers: checked, and merged into one list for each class.

use std::sync::Arc;

use weirgate_spanned_yaml::decode::{Context, Mark, Optional};
use weirgate_spanned_yaml::errors::quoted;

use crate::file::{FieldName, Headers, ValueTemplate, is_authority};
use crate::headers::{FieldTemplate, HeaderEdits, HeaderRules, Piece, Variable, canonical};

/// Maximum number of headers that are written. A message with more is refused by many servers.
const MAX_WRITTEN: usize = 64;

/// The header that clients must not get without TLS (RFC 6797 Sec. 7.2).
const STRICT_TRANSPORT: &str = "strict-transport-security";

/// Returns the rules of a place in the policy, applied after those of `base`.
pub(super) fn rules(
    request: &Optional<Headers>,
    response: &Optional<Headers>,
    base: &HeaderRules,
    cx: &mut Context,
) -> HeaderRules {
    HeaderRules {
        request: edits(request, &base.request, Side::Request, cx),
        response: edits(response, &base.response, Side::Response, cx),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Request,
    Response,
}

fn edits(field: &Optional<Headers>, base: &Arc<HeaderEdits>, side: Side, cx: &mut Context) -> Arc<HeaderEdits> {
    let Some(form) = field.get() else { return Arc::clone(base) };
    if !form.remove.given && !form.set.given && !form.add.given && !field.bad {
        let hint = "give it `set:`, `add:` or `remove:`, or remove it";
        cx.fail(field.mark, "this changes no header", hint);
    }
    let mut edits = HeaderEdits::clone(base);
    let mut named: Vec<String> = Vec::new();
    for name in form.remove.get().map_or(&[][..], |names| &names.0) {
        check_host(&name.value, None, name.mark, side, cx);
        remove(&mut edits, &name.value);
        named.push(canonical(&name.value.0));
    }
    for item in form.set.get().map_or(&[][..], |set| &set.items) {
        let FieldName(name) = &item.name;
        if named.contains(&canonical(name)) {
            let what = format!("{} is here twice", quoted(name));
            let hint = "keep one of them: `set:` also removes, and names are compared in any case, with `_` as `-`";
            cx.fail(item.value.mark, what, hint);
        }
        named.push(canonical(name));
        remove(&mut edits, &item.name);
        let Some(value) = &item.value.value else { continue };
        check_host(&item.name, Some(value), item.value.mark, side, cx);
        write(&mut edits, &item.name, value);
    }
    for item in form.add.get().map_or(&[][..], |add| &add.items) {
        check_host(&item.name, None, item.value.mark, side, cx);
        for value in item.value.value.as_ref().map_or(&[][..], |values| &values.0) {
            write(&mut edits, &item.name, &value.value);
        }
    }
    if edits.written.len() > MAX_WRITTEN {
        let what = format!("{} headers are written here, with those of the whole policy", edits.written.len());
        cx.fail(field.mark, what, format!("write at most {MAX_WRITTEN}"));
    }
    Arc::new(edits)
}

/// Removes the field as it was received, and as an earlier rule writes it.
fn remove(edits: &mut HeaderEdits, FieldName(name): &FieldName) {
    let name = canonical(name);
    edits.written.retain(|field| canonical(&field.name) != name);
    if !edits.removed.contains(&name) {
        edits.removed.push(name);
    }
}

fn write(edits: &mut HeaderEdits, FieldName(name): &FieldName, ValueTemplate(value): &ValueTemplate) {
    let https_only = name.eq_ignore_ascii_case(STRICT_TRANSPORT);
    edits.written.push(FieldTemplate { name: name.clone(), value: value.clone(), https_only });
}

/// Checks that a request keeps exactly one `Host`, which is an authority.
fn check_host(FieldName(name): &FieldName, set: Option<&ValueTemplate>, mark: Mark, side: Side, cx: &mut Context) {
    if side == Side::Response || canonical(name) != "host" {
        return;
    }
    let Some(ValueTemplate(value)) = set else {
        let what = "a request has exactly one `Host`";
        return cx.fail(mark, what, "use `set:` to give nodes another one");
    };
    let sound = match value.as_slice() {
        [Piece::Text(text)] => is_authority(text),
        [Piece::Variable(variable)] => matches!(variable, Variable::Host | Variable::NodeAddress),
        _ => false,
    };
    if !sound {
        let hint = "write a host with or without a port, `${host}` or `${node_address}`";
        cx.fail(mark, "this is no value for `Host`", hint);
    }
}
