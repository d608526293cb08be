//! A JSON Schema as a page of Markdown: a section for each record, method and list of words, with links between them.
//!
//! Handles only the parts of JSON Schema that the schemas of Weirgate's files use.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::Value as Json;

/// Number of words that are listed where they may be written. More have a link alone.
const FEW: usize = 4;

/// A page about one file.
pub struct Page<'s> {
    /// Name of the kind of file in `weirgate schema`, and of the page without `.md`.
    pub name: &'static str,
    schema: &'s Json,
    /// The page that has the sections of shared definitions.
    shared: Option<&'s Page<'s>>,
    /// Definitions that have a section, in the order of the page.
    sections: Vec<&'s str>,
    /// The places that use a definition: the section, empty for the top of the file, and the field.
    uses: BTreeMap<&'s str, Vec<(&'s str, &'s str)>>,
}

impl<'s> Page<'s> {
    /// Finds the sections of the page. Definitions with a section on the page `shared` get none.
    pub fn new(name: &'static str, schema: &'s Json, shared: Option<&'s Page<'s>>) -> Page<'s> {
        let mut page = Page { name, schema, shared, sections: Vec::new(), uses: BTreeMap::new() };
        page.walk("", schema);
        let titles: BTreeSet<String> = page.sections.iter().map(|section| page.title(section)).collect();
        assert_eq!(titles.len(), page.sections.len(), "two sections of {name} have one title");
        page
    }

    /// Notes the sections that the fields of `section` lead to, each with its own directly after it.
    fn walk(&mut self, section: &'s str, schema: &'s Json) {
        for (field, property) in ordered(schema) {
            let mut used = Vec::new();
            self.used(property, &mut used);
            for name in used {
                if self.shared.is_some_and(|page| page.sections.contains(&name)) {
                    continue;
                }
                let uses = self.uses.entry(name).or_default();
                if !uses.contains(&(section, field)) {
                    uses.push((section, field));
                }
                if !self.sections.contains(&name) {
                    self.sections.push(name);
                    self.walk(name, &self.schema["$defs"][name]);
                }
            }
        }
    }

    /// Collects the definitions with a section that a value of `schema` may contain.
    fn used(&self, schema: &'s Json, found: &mut Vec<&'s str>) {
        if let Some(name) = reference(schema) {
            match &self.schema["$defs"][name] {
                body if has_section(body) => found.push(name),
                // It is the other page.
                _ if name == "PolicyOfExperiment" => {}
                body => self.used(body, found),
            }
        }
        for inner in alternatives(schema).chain(schema.get("items")).chain(schema.get("additionalProperties")) {
            self.used(inner, found);
        }
    }

    /// The whole page. `purpose` is its title, and `guide` the page that explains the file.
    pub fn text(&self, purpose: &str, guide: &str) -> String {
        let title = purpose.split(',').next().unwrap_or(purpose);
        let mut text = format!(
            "# {title}: reference\n\n\
             {purpose}, with all its fields. [The guide]({guide}) explains them with examples.\n\n\
             In the column *default*, `{{}}` is a map in which every field has its default. An *optional* field may be \
             missing. The last column describes the behaviour without it.\n\n\
             This page is generated from the JSON Schema that `weirgate schema {}` prints. `cargo xtask reference` \
             generates it anew.\n\n\
             ## Top of the file\n\n{}\n\n{}",
            self.name,
            sentence(self.schema),
            self.table(self.schema),
        );
        for section in &self.sections {
            let schema = &self.schema["$defs"][*section];
            write!(text, "\n## {}\n\n{}\n\n", self.title(section), sentence(schema)).expect("a string grows");
            writeln!(text, "Used in {}.\n", self.users(section)).expect("a string grows");
            text.push_str(&if schema.get("properties").is_some() { self.table(schema) } else { self.words(schema) });
        }
        text
    }

    /// Returns the fields with values that a section describes, and links to their sections.
    fn users(&self, section: &str) -> String {
        let mut records: Vec<(&str, Vec<String>)> = Vec::new();
        for (record, field) in &self.uses[section] {
            match records.iter_mut().find(|(other, _)| other == record) {
                Some((_, fields)) => fields.push(format!("`{field}`")),
                None => records.push((record, vec![format!("`{field}`")])),
            }
        }
        let place = |(record, fields): &(&str, Vec<String>)| match *record {
            "" => format!("{} at the [top of the file](#top-of-the-file)", listed(fields, "and")),
            record => format!("{} of {}", listed(fields, "and"), self.link(record)),
        };
        listed(&records.iter().map(place).collect::<Vec<_>>(), "and")
    }

    /// Returns the table of a record.
    fn table(&self, schema: &Json) -> String {
        let mut rows = vec![["field", "value", "default", "meaning"].map(str::to_owned)];
        for (field, property) in ordered(schema) {
            let default = match property.get("default") {
                _ if required(schema, field) => "required".to_owned(),
                None => "optional".to_owned(),
                Some(Json::String(word)) if !word.contains('\n') => format!("`{word}`"),
                Some(other) => format!("`{other}`"),
            };
            rows.push([format!("`{field}`"), self.value(property), default, sentence(property).to_owned()]);
        }
        table(&rows)
    }

    /// Returns the table of words, with the figures of those that are methods.
    fn words(&self, schema: &Json) -> String {
        let map = alternatives(schema).find(|one| one.get("properties").is_some());
        let alone = |word: &str| alternatives(schema).any(|one| one["const"] == word);
        let words = alternatives(schema).filter_map(|one| Some((one.get("const")?.as_str()?, one)));
        let Some(map) = map else {
            let mut rows = vec![["value", "meaning"].map(str::to_owned)];
            rows.extend(words.map(|(word, one)| [format!("`{word}`"), sentence(one).to_owned()]));
            return table(&rows);
        };
        let mut rows = vec![["value", "figures", "meaning"].map(str::to_owned)];
        for (word, one) in words.chain(fields(map).filter(|(word, _)| !alone(word))) {
            let figures = match map["properties"].get(word) {
                Some(figures) if alone(word) => self.value(figures),
                Some(figures) => format!("{} (required)", self.value(figures)),
                None => "none".to_owned(),
            };
            rows.push([format!("`{word}`"), figures, sentence(one).to_owned()]);
        }
        format!("Write the word alone, or a map with the word and its figures: `{{ WORD: … }}`.\n\n{}", table(&rows))
    }

    /// Describes the values that `schema` accepts.
    fn value(&self, schema: &Json) -> String {
        let mut ways = Vec::new();
        self.ways(schema, &mut ways);
        listed(&ways, "or")
    }

    /// Collects descriptions of the ways to write a value.
    fn ways(&self, schema: &Json, ways: &mut Vec<String>) {
        let size = |key: &str| schema.get(key).filter(|bound| **bound != u32::MAX);
        if let Some(name) = reference(schema) {
            let body = &self.schema["$defs"][name];
            match () {
                () if has_section(body) => ways.push(self.link(name)),
                () if name == "PolicyOfExperiment" => {
                    ways.extend(["a path".to_owned(), "[a policy](policy.md)".to_owned()]);
                }
                () if body["type"] == "string" && body.get("examples").is_none() => {
                    ways.push(format!("a {}", plain(name).to_lowercase()));
                }
                () => self.ways(body, ways),
            }
        } else if let Some(examples) = schema.get("examples").and_then(Json::as_array) {
            let examples: Vec<String> = examples.iter().map(|example| format!("`{}`", yaml(example))).collect();
            ways.push(format!("a value like {}", listed(&examples, "or")));
        } else if let Some(word) = schema.get("const") {
            ways.push(format!("`{}`", yaml(word)));
        } else if let Some(words) = schema.get("enum").and_then(Json::as_array) {
            ways.extend(words.iter().map(|word| format!("`{}`", yaml(word))));
        } else if alternatives(schema).next().is_some() {
            let ways_before = ways.len();
            for one in alternatives(schema) {
                // A list of the first.
                match one.get("items").filter(|items| alternatives(schema).next() == Some(items)) {
                    Some(_) => {
                        let first = listed(&ways.split_off(ways_before), "or");
                        ways.push(format!("{first}, or a list of them"));
                    }
                    None => self.ways(one, ways),
                }
            }
        } else if schema["maxItems"] == 2 {
            ways.push("a pair".to_owned());
        } else if let Some(items) = schema.get("items") {
            ways.push(list_of(&self.value(items)));
        } else if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            ways.push(format!("a map of names, each with {}", self.value(values)));
        } else {
            let number = if schema["type"] == "integer" { "a whole number" } else { "a number" };
            ways.push(match (schema["type"].as_str(), size("minimum"), size("maximum"), size("exclusiveMinimum")) {
                (Some("boolean"), ..) => "`true` or `false`".to_owned(),
                (Some("integer" | "number"), Some(min), Some(max), _) => format!("{number} from {min} to {max}"),
                (Some("integer" | "number"), Some(min), None, _) => format!("{number} of at least {min}"),
                (Some("integer" | "number"), _, _, Some(min)) => format!("{number} above {min}"),
                _ => "a text".to_owned(),
            });
        }
    }

    /// Returns a link to the section of a definition. A few words are the link's text.
    fn link(&self, name: &str) -> String {
        match self.shared.filter(|page| page.sections.contains(&name)) {
            Some(page) => page.link(name).replace("](#", &format!("]({}.md#", page.name)),
            None => {
                let (title, schema) = (self.title(name), &self.schema["$defs"][name]);
                let anchor = title.to_lowercase().replace(' ', "-").replace('`', "");
                let words: Vec<String> =
                    alternatives(schema).filter_map(|one| Some(format!("`{}`", one.get("const")?.as_str()?))).collect();
                let listed = (schema.get("oneOf").is_some() && words.len() <= FEW).then(|| listed(&words, "or"));
                format!("[{}](#{anchor})", listed.unwrap_or(title))
            }
        }
    }

    /// Returns the title of a section: the word if it has the figures of one method, or else the definition's name.
    fn title(&self, name: &str) -> String {
        let method = |section: &str| !section.is_empty() && self.schema["$defs"][section].get("properties").is_none();
        match &self.uses[name][..] {
            [(section, word)] if method(section) => format!("`{word}`"),
            _ => {
                let title = plain(name);
                let taken = self.sections.iter().any(|other| *other != name && plain(other) == title);
                // Of a record and the words for one of its fields, the words have the longer title.
                match name.strip_suffix("Word").filter(|_| taken) {
                    Some(_) => format!("{title} word"),
                    None => title,
                }
            }
        }
    }
}

/// Whether a definition has a section: it is a record, or has words with meanings.
fn has_section(schema: &Json) -> bool {
    schema.get("properties").is_some()
        || alternatives(schema).any(|one| one.get("const").is_some() && one.get("description").is_some())
}

/// Returns the fields of a record. Those of methods are the words that have figures.
fn fields(schema: &Json) -> impl Iterator<Item = (&str, &Json)> {
    let map = alternatives(schema).find_map(|one| one.get("properties"));
    let all = schema.get("properties").or(map).and_then(Json::as_object);
    all.into_iter().flatten().map(|(field, property)| (field.as_str(), property))
}

/// Returns the fields of a record, those that are required before the others.
fn ordered(schema: &Json) -> impl Iterator<Item = (&str, &Json)> {
    let (first, rest): (Vec<_>, Vec<_>) = fields(schema).partition(|(field, _)| required(schema, field));
    first.into_iter().chain(rest)
}

/// Whether a record needs the field, at least in its first form.
fn required(schema: &Json, field: &str) -> bool {
    let forms = [schema.get("required"), schema.pointer("/anyOf/0/required")];
    forms.into_iter().flatten().filter_map(Json::as_array).flatten().any(|name| name == field)
}

/// Returns the schemas of which a value satisfies one.
fn alternatives(schema: &Json) -> impl Iterator<Item = &Json> {
    let several = schema.get("oneOf").or(schema.get("anyOf"));
    several.and_then(Json::as_array).into_iter().flatten()
}

/// Returns the name of the definition that `schema` refers to.
fn reference(schema: &Json) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix("#/$defs/")
}

/// Returns the description of `schema`.
fn sentence(schema: &Json) -> &str {
    schema.get("description").and_then(Json::as_str).unwrap_or_else(|| panic!("{schema} has no description"))
}

/// Turns the name of a definition into words: `AccessLogForm` becomes `Access log`.
fn plain(name: &str) -> String {
    let mut words = String::new();
    let stem = ["Form", "Word", "Text", "Figures"].iter().find_map(|end| name.strip_suffix(end));
    for letter in stem.filter(|stem| !stem.is_empty()).unwrap_or(name).chars() {
        match letter.is_uppercase() && !words.is_empty() {
            true => words.extend([' ', letter.to_ascii_lowercase()]),
            false => words.push(letter),
        }
    }
    words
}

/// Formats an example as it is written in a file.
fn yaml(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(key, value)| format!("{key}: {}", yaml(value))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// Describes a list of such values.
fn list_of(one: &str) -> String {
    match (one.strip_prefix("a value like "), one.strip_prefix("a ").filter(|noun| !noun.contains(' '))) {
        (Some(examples), _) => format!("a list of values like {examples}"),
        (_, Some(noun)) => format!("a list of {noun}s"),
        _ if one.contains(" or ") => format!("a list, each {one}"),
        _ => format!("a list of {one}"),
    }
}

/// Joins words: `a, b or c`.
fn listed(words: &[String], last: &str) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., end] => {
            let inner = format!(" {last} ");
            let long = words.iter().any(|word| word.contains(&inner) && !word.starts_with('['));
            let comma = if long { "," } else { "" };
            format!("{}{comma} {last} {end}", all.join(", "))
        }
    }
}

/// Formats rows as a table, the first of them as its head.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        let cells = row.each_ref().map(|cell| cell.replace('\n', " ").replace('|', "\\|"));
        assert!(cells.iter().all(|cell| !cell.trim().is_empty()), "an empty cell: {row:?}");
        writeln!(text, "| {} |", cells.join(" | ")).expect("a string grows");
        if at == 0 {
            writeln!(text, "|{}", "---|".repeat(N)).expect("a string grows");
        }
    }
    text
}
