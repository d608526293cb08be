//! The syntax of nginx's configuration: words, strings, blocks and comments.

use super::{MAX_CONFIG_BYTES, Source};

/// Deepest nesting of blocks and of files. Real configurations have five levels.
const MAX_DEPTH: usize = 32;

/// Maximum number of files. Sites with hundreds of hosts have a file for each.
const MAX_FILES: usize = 1000;

/// A directive, perhaps with a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) args: Vec<String>,
    pub(super) block: Option<Vec<Directive>>,
    /// `file:line`.
    pub(super) place: String,
}

/// A word of a file.
enum Word {
    Text(String),
    Open,
    Close,
    End,
}

/// Reads files.
pub(super) struct Reader<'f> {
    pub(super) include: &'f mut dyn FnMut(&str) -> Result<Vec<Source>, String>,
    files: usize,
    bytes: usize,
    /// Files that could not be read, each as place and fault.
    pub(super) missing: Vec<(String, String)>,
}

impl<'f> Reader<'f> {
    pub(super) fn new(include: &'f mut dyn FnMut(&str) -> Result<Vec<Source>, String>) -> Reader<'f> {
        Reader { include, files: 0, bytes: 0, missing: Vec::new() }
    }

    /// Returns the directives of a file, with those of the files that it includes.
    pub(super) fn file(&mut self, source: &Source, depth: usize) -> Result<Vec<Directive>, String> {
        self.files += 1;
        self.bytes += source.text.len();
        if self.files > MAX_FILES || self.bytes > MAX_CONFIG_BYTES || depth > MAX_DEPTH {
            return Err(format!(
                "{}: the configuration has more than {MAX_FILES} files or {} MiB, or is nested too deeply; does a file \
                 include itself?",
                source.name,
                MAX_CONFIG_BYTES >> 20
            ));
        }
        let words = words(source)?;
        let mut at = 0;
        let directives = self.block(&words, &mut at, source, depth)?;
        match words.get(at) {
            Some((_, line)) => Err(format!("{}:{line}: this `}}` closes nothing", source.name)),
            None => Ok(directives),
        }
    }

    /// Reads directives up to the end of a block or of the file.
    fn block(
        &mut self,
        words: &[(Word, usize)],
        at: &mut usize,
        source: &Source,
        depth: usize,
    ) -> Result<Vec<Directive>, String> {
        if depth > MAX_DEPTH {
            return Err(format!("{}: blocks are nested more than {MAX_DEPTH} times", source.name));
        }
        let mut all = Vec::new();
        let mut current = Directive::default();
        while let Some((word, line)) = words.get(*at) {
            match word {
                Word::Close => break,
                Word::Text(text) if current.place.is_empty() => {
                    current.name.clone_from(text);
                    current.place = format!("{}:{line}", source.name);
                }
                Word::Text(text) => current.args.push(text.clone()),
                Word::End | Word::Open if current.place.is_empty() => {
                    return Err(format!("{}:{line}: there is no directive before this `;` or `{{`", source.name));
                }
                Word::End => {
                    let done = std::mem::take(&mut current);
                    match (done.name.as_str(), done.args.first()) {
                        ("include", Some(pattern)) => all.append(&mut self.included(pattern, &done.place, depth)?),
                        _ => all.push(done),
                    }
                }
                Word::Open => {
                    *at += 1;
                    current.block = Some(self.block(words, at, source, depth + 1)?);
                    if *at >= words.len() {
                        return Err(format!("{}: the block of `{}` is not closed", current.place, current.name));
                    }
                    all.push(std::mem::take(&mut current));
                }
            }
            *at += 1;
        }
        match current.place.is_empty() {
            true => Ok(all),
            false => Err(format!("{}: `{}` has no `;` at its end", current.place, current.name)),
        }
    }

    fn included(&mut self, pattern: &str, place: &str, depth: usize) -> Result<Vec<Directive>, String> {
        // Types of files, parameters of FastCGI and modules have no routes.
        if pattern.ends_with("mime.types") || pattern.ends_with("_params") || pattern.contains("modules-enabled") {
            return Ok(Vec::new());
        }
        let mut all = Vec::new();
        match (self.include)(pattern) {
            Ok(files) => {
                for file in &files {
                    all.append(&mut self.file(file, depth + 1)?);
                }
            }
            Err(why) => self.missing.push((place.to_owned(), format!("include {pattern}: {why}"))),
        }
        Ok(all)
    }
}

/// Splits a file into words, each with its line.
fn words(source: &Source) -> Result<Vec<(Word, usize)>, String> {
    let mut all = Vec::new();
    let mut line = 1;
    let mut chars = source.text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' => line += 1,
            c if c.is_whitespace() => {}
            '#' => while chars.next_if(|c| *c != '\n').is_some() {},
            '{' => all.push((Word::Open, line)),
            '}' => all.push((Word::Close, line)),
            ';' => all.push((Word::End, line)),
            quote @ ('"' | '\'') => {
                let (begin, mut text) = (line, String::new());
                loop {
                    match chars.next() {
                        Some(c) if c == quote => break,
                        Some('\\') => text.extend(chars.next()),
                        Some(c) => {
                            line += usize::from(c == '\n');
                            text.push(c);
                        }
                        None => return Err(format!("{}:{begin}: this string is not closed", source.name)),
                    }
                }
                all.push((Word::Text(text), begin));
            }
            first => {
                let mut text = String::from(first);
                // `${name}` has braces inside a word.
                let mut variable = false;
                while let Some(&c) = chars.peek() {
                    let opens = c == '{' && text.ends_with('$');
                    if c.is_whitespace() || c == ';' || (c == '{' && !opens) || (c == '}' && !variable) {
                        break;
                    }
                    variable = opens || (variable && c != '}');
                    text.push(c);
                    chars.next();
                    if c == '\\' {
                        text.extend(chars.next_if(|c| !c.is_whitespace()));
                    }
                }
                all.push((Word::Text(text), line));
            }
        }
    }
    Ok(all)
}
