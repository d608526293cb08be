//! Path patterns such as `*.php` and `/cgi-bin/*`.

use weirgate_cgroup::fits;

/// A list of patterns. A path matches the list if it matches one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Globs(Vec<String>);

impl Globs {
    /// Creates a list of patterns, in which `*` stands for any text, including slashes.
    ///
    /// # Errors
    /// A pattern can match no path.
    pub fn new(patterns: Vec<String>) -> Result<Globs, String> {
        match patterns.iter().find(|pattern| !pattern.starts_with(['/', '*'])) {
            Some(odd) => Err(format!("{odd:?} fits no path: a path begins with `/`, so write `/{odd}` or `*{odd}`")),
            None => Ok(Globs(patterns)),
        }
    }

    /// Returns whether `path` matches.
    pub fn fit(&self, path: &str) -> bool {
        self.0.iter().any(|pattern| fits(pattern.as_bytes(), path.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, path, fit) in [
            ("*.php", "/a/b.php", true),
            ("*.php", "/a/b.php5", false),
            ("/cgi-bin/*", "/cgi-bin/a/b", true),
            ("/cgi-bin/*", "/cgi-bin/", true),
            ("/cgi-bin/*", "/cgi-bin", false),
            ("/a*b*c", "/abxbc", true),
            ("/a*b*c", "/acb", false),
            ("*", "/", true),
            ("/", "/", true),
            ("/", "/x", false),
            ("**a", "/a", true),
        ] {
            assert_eq!(Globs::new(vec![pattern.into()]).expect("sound").fit(path), fit, "{pattern} {path}");
        }
        assert!(!Globs::new(Vec::new()).expect("sound").fit("/"));
        // Many stars cost no more than the product of the two lengths.
        let many = Globs::new(vec![format!("{}b", "*a".repeat(50))]).expect("sound");
        assert!(!many.fit(&"a".repeat(10_000)));
    }

    #[test]
    fn what_fits_no_path_is_refused() {
        let error = Globs::new(vec!["*.php".into(), ".cgi".into()]).expect_err("it fits nothing");
        assert!(error.contains("`*.cgi`"), "{error}");
    }
}
