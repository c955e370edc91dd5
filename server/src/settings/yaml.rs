//! YAML 1.2 as JSON: what files of settings need of it. Merge keys (`<<`) are those of YAML 1.1, which such files use.
//!
//! The document is built here, from the parser's events, because an alias is a copy: a few lines of them may stand for
//! more than any memory holds. So everything that is built counts.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value as Json};
use yaml_rust2::Yaml;
use yaml_rust2::parser::{Event, Parser};
use yaml_rust2::scanner::{Marker, TScalarStyle};

/// Most scalars, lists and maps of a document, copies included.
const NODES_MAX: usize = 100_000;
/// Longest texts of a document together, bytes, copies included.
const BYTES_MAX: usize = 16 << 20;
/// Most lists and maps in each other.
const DEPTH_MAX: usize = 64;

/// A list or a map that is not closed yet.
struct OpenNode {
    anchor: usize,
    items: OpenItems,
}

enum OpenItems {
    List(Vec<Json>),
    /// With the key whose value comes next, and what `<<` brought: what stands there itself counts more.
    Map(Map<String, Json>, Option<String>, Map<String, Json>),
}

/// How much was built.
#[derive(Clone, Copy, Debug, Default)]
struct YamlWeight {
    /// Scalars, lists and maps.
    nodes: usize,
    /// Of texts and names.
    bytes: usize,
}

impl YamlWeight {
    fn of(value: &Json) -> Self {
        let mut weight = Self { nodes: 1, bytes: 0 };
        match value {
            Json::String(text) => weight.bytes = text.len(),
            Json::Array(items) => items.iter().for_each(|item| weight.add(Self::of(item))),
            Json::Object(fields) => {
                for (name, value) in fields {
                    weight.bytes = weight.bytes.saturating_add(name.len());
                    weight.add(Self::of(value));
                }
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => {}
        }
        weight
    }

    fn add(&mut self, more: Self) {
        self.nodes = self.nodes.saturating_add(more.nodes);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

#[derive(Default)]
struct YamlDocument {
    open: Vec<OpenNode>,
    anchors: BTreeMap<usize, (Json, YamlWeight)>,
    built: YamlWeight,
    whole: Option<Json>,
}

/// The one document of `text`; null where there is none.
///
/// # Errors
/// A sentence with the line.
pub fn parse(text: &str) -> Result<Json, String> {
    let mut parser = Parser::new_from_str(text);
    let mut document = YamlDocument::default();
    loop {
        let (event, mark) = parser.next_token().map_err(|error| error.to_string())?;
        if event == Event::StreamEnd {
            return Ok(document.whole.unwrap_or(Json::Null));
        }
        document.take(event).map_err(|why| at(&why, &mark))?;
    }
}

fn at(why: &str, mark: &Marker) -> String {
    format!("line {}: {why}", mark.line())
}

impl YamlDocument {
    fn take(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::DocumentStart if self.whole.is_some() => return Err("a second document begins".to_owned()),
            Event::Scalar(text, style, anchor, _) => {
                let value = if style == TScalarStyle::Plain { scalar(&text) } else { Json::String(text) };
                let weight = YamlWeight::of(&value);
                self.count(weight)?;
                self.put(value, anchor, weight)?;
            }
            Event::SequenceStart(anchor, _) => self.open(anchor, OpenItems::List(Vec::new()))?,
            Event::MappingStart(anchor, _) => self.open(anchor, OpenItems::Map(Map::new(), None, Map::new()))?,
            Event::SequenceEnd | Event::MappingEnd => self.close()?,
            Event::Alias(anchor) => {
                // Counted before it is copied.
                let (_, weight) = self.anchors.get(&anchor).ok_or("an alias of what is not there yet")?;
                self.count(*weight)?;
                let (value, weight) = self.anchors.get(&anchor).cloned().unwrap_or_default();
                self.put(value, 0, weight)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, more: YamlWeight) -> Result<(), String> {
        self.built.add(more);
        if self.built.nodes > NODES_MAX {
            return Err(format!("more than {NODES_MAX} values, copies by aliases included"));
        }
        if self.built.bytes > BYTES_MAX {
            return Err(format!("more than {} MiB of texts, copies by aliases included", BYTES_MAX >> 20));
        }
        Ok(())
    }

    fn open(&mut self, anchor: usize, items: OpenItems) -> Result<(), String> {
        self.count(YamlWeight { nodes: 1, bytes: 0 })?;
        if self.open.len() >= DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} lists and maps in each other"));
        }
        self.open.push(OpenNode { anchor, items });
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        let Some(OpenNode { anchor, items }) = self.open.pop() else { return Ok(()) };
        let value = match items {
            OpenItems::List(list) => Json::Array(list),
            OpenItems::Map(own, _, mut merged) => {
                merged.extend(own);
                Json::Object(merged)
            }
        };
        let weight = if anchor == 0 { YamlWeight::default() } else { YamlWeight::of(&value) };
        self.put(value, anchor, weight)
    }

    fn put(&mut self, value: Json, anchor: usize, weight: YamlWeight) -> Result<(), String> {
        if anchor > 0 {
            self.anchors.insert(anchor, (value.clone(), weight));
        }
        let Some(node) = self.open.last_mut() else {
            self.whole = Some(value);
            return Ok(());
        };
        match &mut node.items {
            OpenItems::List(list) => list.push(value),
            OpenItems::Map(own, key, merged) => match key.take() {
                None => *key = Some(name(value)?),
                Some(key) if key == "<<" => merge(merged, value)?,
                Some(key) => {
                    if own.insert(key.clone(), value).is_some() {
                        return Err(format!("'{key}' is there twice"));
                    }
                }
            },
        }
        Ok(())
    }
}

/// A plain scalar.
fn scalar(text: &str) -> Json {
    match Yaml::from_str(text) {
        Yaml::Null => Json::Null,
        Yaml::Boolean(value) => Json::Bool(value),
        Yaml::Integer(value) => value.into(),
        // JSON has no infinite numbers: they stay the text that they are.
        Yaml::Real(number) => {
            let number = number.parse::<f64>().ok().and_then(Number::from_f64);
            number.map_or_else(|| Json::String(text.to_owned()), Json::Number)
        }
        _ => Json::String(text.to_owned()),
    }
}

fn name(key: Json) -> Result<String, String> {
    match key {
        Json::String(text) => Ok(text),
        Json::Array(_) | Json::Object(_) => Err("a key is a list or a map".to_owned()),
        scalar => Ok(scalar.to_string()),
    }
}

/// Adds what a merge key brings: a map, or a list of maps of which the first counts most.
fn merge(merged: &mut Map<String, Json>, value: Json) -> Result<(), String> {
    match value {
        Json::Object(fields) => {
            for (key, value) in fields {
                merged.entry(key).or_insert(value);
            }
            Ok(())
        }
        Json::Array(maps) => maps.into_iter().try_for_each(|map| merge(merged, map)),
        _ => Err("'<<' merges maps alone".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_of_settings_is_what_it_says() {
        let text = "\
# of a trainer
lr: 3e-4
model: &base
  depth: 12
  name: \"12\"
  dropout: .1
list: [1, two, null, true, ~]
big:
  <<: *base
  depth: 24
text: |
  two
  lines
7: seven
inf: .inf
hex: 0x1f
";
        let expected = json!({
            "lr": 3e-4, "model": {"depth": 12, "name": "12", "dropout": 0.1},
            "list": [1, "two", null, true, null],
            "big": {"depth": 24, "name": "12", "dropout": 0.1},
            "text": "two\nlines\n", "7": "seven", "inf": ".inf", "hex": 31,
        });
        assert_eq!(parse(text).unwrap(), expected);
        assert_eq!(parse("").unwrap(), Json::Null);
        assert_eq!(parse("- <<: [{a: 1}, {a: 2, b: 3}]\n  b: 4").unwrap(), json!([{"a": 1, "b": 4}]));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, why) in [
            ("a: 1\na: 2\n", "'a' is there twice"),
            ("a: 1\n---\nb: 2\n", "a second document"),
            ("{[1]: 2}", "a key is a list"),
            ("<<: 3", "merges maps alone"),
            ("a: *b", "line 1"),
            ("a: [", "line"),
            ("a: 'x", "line"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why) && error.contains("line"), "{text}: {error}");
        }
    }

    #[test]
    fn a_few_lines_cannot_stand_for_more_than_any_memory_holds() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for at in 1..12 {
            let copies = vec![format!("*a{}", at - 1); 10].join(", ");
            bomb.push_str(&format!("a{at}: &a{at} [{copies}]\n"));
        }
        assert!(parse(&bomb).unwrap_err().contains("more than 100000 values"));
        let long = format!("a: &x {}\nb: [{}]\n", "y".repeat(1 << 20), vec!["*x"; 90_000].join(", "));
        assert!(parse(&long).unwrap_err().contains("more than 16 MiB of texts"));
        let deep = "[".repeat(10_000);
        assert!(parse(&deep).is_err(), "the parser has a limit of its own");
        let block: String = (0..100).map(|at| format!("{}a:\n", " ".repeat(at))).collect();
        assert!(parse(&block).unwrap_err().contains("more than 64"));
    }
}
