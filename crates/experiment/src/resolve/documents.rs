//! Documents: the files that requests ask for, and the classes that they belong to.

use weirgate_spanned_yaml::decode::{Context, Mark};
use weirgate_spanned_yaml::errors::quoted;
use weirgate_spanned_yaml::unit::{Amount, Bytes, Count, Share, Whole, number_text};

use super::names::Names;
use super::traffic::class_named;
use crate::experiment::{Documents, RequestShape, Source, Traffic, TrafficClass};
use crate::file::{DocumentsForm, TrafficForm};

/// Maximum number of files in a set, because each file takes memory.
const MAX_FILES: u32 = 10_000_000;

/// Largest exponent. Above it the first file gets nearly all requests.
const MAX_ZIPF: f64 = 5.0;

/// A further class that has a part of a stream's files: the class, and its share of the requests.
pub(super) type Part = (TrafficClass, f64);

/// Returns the files of stream number `index`, which belongs to `class`, and the parts of other classes.
pub(super) fn documents(
    form: &DocumentsForm,
    of: &TrafficForm,
    (index, class): (usize, &TrafficClass),
    names: &Names,
    cx: &mut Context,
) -> Option<(Documents, Vec<Part>)> {
    for (field, given) in [("session", of.session.given), ("objects", of.objects.given)] {
        if given {
            let what = format!("`documents` and `{field}` exclude each other");
            cx.fail(of.documents.mark, what, "keep one of them");
        }
    }
    let &Count(files) = form.files.get()?;
    if files > MAX_FILES {
        cx.fail(form.files.mark, format!("{files} files are too many"), "write at most 10000000");
    }
    let &Bytes(bytes) = form.total.get()?;
    if bytes < u64::from(files) {
        cx.fail(form.total.mark, "the files have less than a byte each", "write their size together");
    }
    let &Amount(zipf) = form.zipf.get()?;
    if !(zipf > 0.0 && zipf <= MAX_ZIPF) {
        let what = format!("an exponent of {} makes all files equal, or one of them everything", number_text(zipf));
        cx.fail(form.zipf.mark, what, "write more than 0 and at most 5; 0.9 is usual");
    }
    let mut parts: Vec<Part> = Vec::new();
    for item in form.others.get().map_or(&[][..], |named| &named.items) {
        let Some(&Share(share)) = item.value.get() else { continue };
        if let Some(other) = class_named(&item.name.0, names, item.value.mark, cx) {
            if other == *class {
                let what = format!("{} is the `class` of these requests: it has the rest", quoted(&item.name.0));
                cx.fail(item.value.mark, what, "remove it");
            }
            parts.push((other, share));
        }
    }
    let rest = 1.0 - parts.iter().map(|(_, share)| share).sum::<f64>();
    check_rest(rest, form.others.mark, cx);
    let Whole(seed) = *form.seed.get();
    Some((
        Documents { files, bytes, zipf, seed: u64::from(seed), counted: Vec::new(), parts: vec![(index, rest)] },
        parts,
    ))
}

fn check_rest(rest: f64, mark: Mark, cx: &mut Context) {
    if rest <= 0.0 {
        let what = "nothing is left for the `class` of these requests";
        cx.fail(mark, what, "make the others' shares less than 100 % together");
    }
}

/// Adds a stream for each part after all other streams, so that those keep their numbers and with them their
/// random seeds.
pub(super) fn add_parts(all: &mut Vec<Traffic>, parts: Vec<(usize, Part)>) {
    for (of, (class, share)) in parts {
        let number = all.len();
        let home = &mut all[of];
        if let Some(documents) = &mut home.documents {
            documents.parts.push((number, share));
        }
        let request = RequestShape { host: None, ..home.request.clone() };
        let source = Source::Part { of };
        let part = Traffic { class, source, documents: None, traced: Vec::new(), request, ..home.clone() };
        all.push(part);
    }
}
