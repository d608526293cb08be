//! The keys and times of the visitors' cookie.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use weirgate_spanned_yaml::decode::{Context, Mark};
use weirgate_spanned_yaml::errors::{Complaint, quoted};
use weirgate_spanned_yaml::read::read_bounded;
use weirgate_tls::SigningKey;

use crate::file::{PolicyFile, SourceForm, VisitorsForm};
use crate::visitors::Visitors;

/// Environment variable with the keys, separated by commas.
const VARIABLE: &str = "WEIRGATE_VISITOR_KEYS";

/// Minimum length of a key in letters: 128 bits in hexadecimal digits.
const MIN_KEY: usize = 32;

/// Minimum number of different letters of a key. 32 random hexadecimal digits have fewer than 8 different ones less
/// than once in 10^7 times.
const MIN_LETTERS: usize = 8;

/// Maximum number of keys: the present one, and the one before or after it while they are changed.
const MAX_KEYS: usize = 2;

/// Shortest lifetime of a cookie. A shorter one is over before a page is read.
const MIN_LIFETIME: Duration = Duration::from_secs(60);

/// The key of `policies/visitors.keys`, which everybody can read.
const EXAMPLE: &str = "4be1c8a09d52f7631e0fa4d87b93c265d8e1740f3a6b9c52e7d04f18a3c6b95e";

/// Hint on how to make a key.
const MAKE: &str = "make one with `openssl rand -hex 32`";

/// Returns the settings, if the policy has any, and reports classes that need them.
pub(super) fn visitors(file: &PolicyFile, folder: Option<&Path>, cx: &mut Context) -> Option<Visitors> {
    if !file.visitors.given {
        for class in file.classes.get().map_or(&[][..], Vec::as_slice) {
            if matches!(class.value.source.get(), SourceForm::Visitor) {
                cx.report(class.value.source.mark, unknown());
            }
        }
        return None;
    }
    let form = file.visitors.get()?;
    let (after, lifetime) = (form.returning_after.get().0, form.lifetime.get().0);
    if lifetime < MIN_LIFETIME {
        let what = "a cookie this short-lived knows nobody again";
        cx.fail(form.lifetime.mark, what, "write at least `1min`; `720h` is usual");
    } else if after >= lifetime {
        let mark = if form.returning_after.given { form.returning_after.mark } else { form.lifetime.mark };
        let what = "cookies end before a visitor can become a returning one";
        cx.fail(mark, what, "make `returning_after` shorter than `lifetime`");
    }
    let keys = match folder {
        Some(folder) => keys(form, folder, file.visitors.mark, cx),
        None => Vec::new(),
    };
    Some(Visitors { cookie: form.cookie.get().0.clone(), returning_after: after, lifetime, keys })
}

/// The complaint about a class that needs visitors in a policy without them.
pub(super) fn unknown() -> Complaint {
    let hint = "add `visitors: { keys_file: visitors.keys }` at the top of the policy";
    Complaint::new("the gateway knows no visitors", hint)
}

/// Reads the keys. Errors are reported without the text of a key.
fn keys(form: &VisitorsForm, folder: &Path, mark: Mark, cx: &mut Context) -> Vec<SigningKey> {
    let (text, mark, of) = match form.keys_file.get() {
        Some(path) => {
            let file = folder.join(&path.0);
            let bytes = match read_bounded(&file) {
                Ok(bytes) => bytes,
                Err(error) => {
                    let what = format!("the keys {} cannot be read: {error}", quoted(&file.display().to_string()));
                    cx.fail(form.keys_file.mark, what, MAKE);
                    return Vec::new();
                }
            };
            (String::from_utf8_lossy(&bytes).into_owned(), form.keys_file.mark, "line")
        }
        None if form.keys_file.bad => return Vec::new(),
        None => match std::env::var(VARIABLE) {
            Ok(text) => (text.replace(',', "\n"), mark, "key"),
            Err(_) => {
                let hint = format!("name a file in `keys_file:`, or set {VARIABLE}; {MAKE}");
                cx.fail(mark, "there are no keys to sign cookies with", hint);
                return Vec::new();
            }
        },
    };
    let mut keys = Vec::new();
    for (line, key) in
        (1..).zip(text.lines().map(str::trim)).filter(|(_, key)| !key.is_empty() && !key.starts_with('#'))
    {
        let letters: BTreeSet<char> = key.chars().collect();
        let wrong = match (key.len() >= MIN_KEY, letters.len() >= MIN_LETTERS) {
            (true, true) => None,
            (false, _) => Some("is shorter than 32 letters"),
            (_, false) => Some("is not random: it has fewer than 8 different letters"),
        };
        if let Some(wrong) = wrong {
            cx.fail(mark, format!("the key in {of} {line} {wrong}"), MAKE);
        }
        if key == EXAMPLE {
            let what = format!("the key in {of} {line} is that of Weirgate's examples, with which everybody can sign");
            cx.warn(mark, what, MAKE);
        }
        keys.push(SigningKey::new(key.as_bytes()));
    }
    if keys.is_empty() || keys.len() > MAX_KEYS {
        let what = format!("there are {} keys", keys.len());
        cx.fail(mark, what, "write one, or two while you change them: the first one signs");
    }
    keys
}
