//! A dashboard as Grafana opens it: its variables are filled, its panels repeated, its queries sent.

use regex::Regex;
use serde_json::Value as Json;

use super::plugin::{self, Asker, Generation, Interval, Range};
use super::template::{Chosen, Format, Variables, replace};
use crate::process::Server;

/// Pixels of a whole row: as many points are asked for.
const SCREEN: i64 = 1_800;

pub struct Board {
    pub json: Json,
}

/// What is chosen where there is a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    All,
    First,
}

/// One panel, or one of its repetitions, with what it shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// With its variables replaced.
    pub title: String,
    pub targets: Vec<Json>,
    /// Series of each target.
    pub series: Vec<Vec<Json>>,
    pub labels: Vec<String>,
}

impl Board {
    pub fn load(uid: &str) -> Self {
        let path = format!("{}/../grafana/dashboards/{uid}.json", env!("CARGO_MANIFEST_DIR"));
        Self { json: serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap() }
    }

    /// With `value` chosen where a list stands to choose from.
    pub fn choosing(mut self, name: &str, value: &str) -> Self {
        let variables = self.json["templating"]["list"].as_array_mut().unwrap();
        let variable = variables.iter_mut().find(|variable| variable["name"] == name).unwrap();
        assert!(variable["query"].as_str().unwrap().split(',').any(|choice| choice == value), "no choice: {value}");
        variable["query"] = value.into();
        self
    }

    /// All panels but rows, those of folded rows too.
    pub fn panels(&self) -> Vec<&Json> {
        let panels = self.json["panels"].as_array().unwrap().iter();
        panels
            .flat_map(|panel| std::iter::once(panel).chain(panel["panels"].as_array().into_iter().flatten()))
            .filter(|panel| panel["type"] != "row")
            .collect()
    }

    pub fn variables(&self, asker: &Asker, generation: Generation, pick: Pick) -> Variables {
        let mut variables = Variables::new();
        for variable in self.json["templating"]["list"].as_array().unwrap() {
            let name = variable["name"].as_str().unwrap().to_owned();
            let query = variable["query"].as_str().unwrap();
            let found = match variable["type"].as_str().unwrap() {
                "datasource" => vec!["telem".to_owned()],
                "custom" => query.split(',').map(str::to_owned).collect(),
                "query" => sorted(variable, kept(variable, plugin::find(asker, generation, query, &variables))),
                other => panic!("this test knows no variable of type '{other}'"),
            };
            variables.insert(name, chosen(variable, found, pick));
        }
        variables
    }

    /// Everything that is seen.
    pub fn open(&self, server: &Server, generation: Generation, pick: Pick, range: Range) -> Vec<Shown> {
        let asker = &Asker::new(server);
        let variables = self.variables(asker, generation, pick);
        let mut shown = Vec::new();
        for panel in self.panels() {
            for variables in repetitions(panel, &variables) {
                shown.extend(show(asker, generation, panel, &variables, range));
            }
        }
        shown
    }
}

fn show(asker: &Asker, generation: Generation, panel: &Json, variables: &Variables, range: Range) -> Option<Shown> {
    let targets = panel["targets"].as_array()?.clone();
    let points_max = panel["gridPos"]["w"].as_i64().unwrap() * SCREEN / 24;
    let mut interval = Interval::of(range, points_max);
    if let Some(least) = panel["interval"].as_str() {
        interval = interval.at_least(&replace(least, variables, Format::Glob));
    }
    let series = plugin::panel(asker, generation, &targets, variables, range, interval);
    let labels = targets.iter().zip(&series).flat_map(|(target, series)| {
        series.iter().filter_map(|series| plugin::label(target, series, variables)).collect::<Vec<_>>()
    });
    let labels = labels.collect();
    let title = replace(panel["title"].as_str().unwrap(), variables, Format::Glob);
    Some(Shown { title, targets, series, labels })
}

/// The variables of each repetition of a panel.
fn repetitions(panel: &Json, variables: &Variables) -> Vec<Variables> {
    let Some(name) = panel["repeat"].as_str() else { return vec![variables.clone()] };
    let values = match &variables[name] {
        Chosen::One(value) => vec![value.clone()],
        Chosen::Several(values) => values.clone(),
        Chosen::All(all) => panic!("'{name}' repeats panels, so All must be the list of its values, not '{all}'"),
    };
    let one = |value: String| variables.clone().into_iter().chain([(name.to_owned(), Chosen::One(value))]).collect();
    values.into_iter().map(one).collect()
}

/// What the regular expression of a variable lets through. Grafana's can look ahead, ours cannot: of those that
/// do, the one form that is in use is understood.
fn kept(variable: &Json, found: Vec<String>) -> Vec<String> {
    let regex = variable["regex"].as_str().unwrap();
    if regex.is_empty() {
        return found;
    }
    let without = regex.strip_prefix("/^(?!").and_then(|rest| rest.strip_suffix(")/")).unwrap();
    let without = Regex::new(&format!("^(?:{without})")).unwrap();
    found.into_iter().filter(|name| !without.is_match(name)).collect()
}

/// As the variable says: 2 is from z to a.
fn sorted(variable: &Json, mut found: Vec<String>) -> Vec<String> {
    found.sort();
    if variable["sort"] == 2 {
        found.reverse();
    }
    found
}

fn chosen(variable: &Json, found: Vec<String>, pick: Pick) -> Chosen {
    let several = variable["multi"].as_bool().unwrap();
    let first = || found.first().cloned().unwrap_or_default();
    match (several, pick) {
        (false, _) => Chosen::One(first()),
        (true, Pick::First) => Chosen::Several(vec![first()]),
        (true, Pick::All) => match variable["allValue"].as_str() {
            Some(all) => Chosen::All(all.to_owned()),
            None => Chosen::Several(found),
        },
    }
}
