//! Replaces variables in the text of a dashboard, as Grafana does.
//!
//! `$name`, `[[name]]`, `${name}` and `${name:format}`; an unknown variable stays as it is.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

/// What a variable stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum Chosen {
    One(String),
    /// Several may be chosen, and these are.
    Several(Vec<String>),
    /// Everything, and the dashboard says how that is written.
    All(String),
}

/// How several values become one text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Format {
    Glob,
    Pipe,
    Regex,
    /// `a,name=b,name=c`: what the data source asks for in the queries of variables.
    Distributed,
}

/// Made once: in a debug build that takes longer than a query.
static VARIABLE: LazyLock<Regex> = LazyLock::new(|| {
    let bare = r"\$(?<bare>\w+)";
    let square = r"\[\[(?<square>\w+?)(?::(?<square_format>\w+))?\]\]";
    let curly = r"\$\{(?<curly>\w+)(?::(?<curly_format>[^\}]+))?\}";
    Regex::new(&format!("{bare}|{square}|{curly}")).unwrap()
});

pub type Variables = BTreeMap<String, Chosen>;

/// `text` with every variable replaced, in `format` where the text does not ask for another one.
pub fn replace(text: &str, variables: &Variables, format: Format) -> String {
    VARIABLE
        .replace_all(text, |found: &regex::Captures<'_>| {
            let of = |names: &[&str]| names.iter().find_map(|name| found.name(name)).map(|found| found.as_str());
            let name = of(&["bare", "square", "curly"]).unwrap();
            let Some(chosen) = variables.get(name) else { return found[0].to_owned() };
            let format = match of(&["square_format", "curly_format"]) {
                None => format,
                Some("regex") => Format::Regex,
                Some("pipe") => Format::Pipe,
                Some(other) => panic!("'{text}' asks for the format '{other}', which this test does not know"),
            };
            write(name, chosen, format)
        })
        .into_owned()
}

fn write(name: &str, chosen: &Chosen, format: Format) -> String {
    let values = match chosen {
        Chosen::All(all) => return all.clone(),
        Chosen::One(value) if format == Format::Regex => return escaped(value),
        Chosen::One(value) => return value.clone(),
        Chosen::Several(values) => values,
    };
    match (format, values.as_slice()) {
        (Format::Regex, [value]) => escaped(value),
        (Format::Regex, _) => format!("({})", values.iter().map(|value| escaped(value)).collect::<Vec<_>>().join("|")),
        (Format::Pipe, _) => values.join("|"),
        (Format::Glob, [value]) => value.clone(),
        (Format::Glob, _) => format!("{{{}}}", values.join(",")),
        (Format::Distributed, _) => values.join(&format!(",{name}=")),
    }
}

fn escaped(value: &str) -> String {
    let special = |c: char| r"\^$*+?.()|[]{}/".contains(c);
    value.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

#[test]
fn variables_are_written_as_grafana_writes_them() {
    let variables = Variables::from([
        ("host".to_owned(), Chosen::Several(vec!["n.1".to_owned(), "n2".to_owned()])),
        ("one".to_owned(), Chosen::Several(vec!["n.1".to_owned()])),
        ("all".to_owned(), Chosen::All(".*".to_owned())),
        ("tag".to_owned(), Chosen::One("rank".to_owned())),
    ]);
    for (text, format, expected) in [
        ("^${host:regex}$", Format::Pipe, r"^(n\.1|n2)$"),
        ("^${one:regex}$", Format::Pipe, r"^n\.1$"),
        ("^${all:regex}$", Format::Pipe, "^.*$"),
        ("$host", Format::Pipe, "n.1|n2"),
        ("$host and [[tag]]", Format::Glob, "{n.1,n2} and rank"),
        ("tag_values(m,k,host=$host)", Format::Distributed, "tag_values(m,k,host=n.1,host=n2)"),
        ("$tag ${unknown} $unknown [[unknown]]", Format::Pipe, "rank ${unknown} $unknown [[unknown]]"),
    ] {
        assert_eq!(replace(text, &variables, format), expected, "{text}");
    }
}
