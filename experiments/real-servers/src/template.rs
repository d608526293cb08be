//! Configuration files with words between `%` that are filled in.

/// Replaces every `%NAME%` of `values` in `text`.
pub(crate) fn fill(text: &str, values: &[(&str, String)]) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("%{name}%"), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_replaced_everywhere() {
        let text = fill("%A% and %B%, %A%", &[("A", "one".into()), ("B", "two".into())]);
        assert_eq!(text, "one and two, one");
    }
}
