//! The tables of SQL: the fixed ones, and one for every metric of the snapshot.
//!
//! Tables are looked up by name while a query is planned. So a metric that appears later is found, and a database with
//! many metrics costs nothing extra. `telem.public` holds all tables; `telem.metric` holds only those of metrics, so
//! that a metric called `samples` can be queried as well.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::common::TableReference;
use datafusion::common::utils::quote_identifier;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;

use crate::error::Error;
use crate::options::{CATALOG, SCHEMA};
use crate::table::Table;
use crate::view::View;

/// The schema of metrics alone.
pub const METRIC_SCHEMA: &str = "metric";
/// The tables that are there whatever the data, in the order in which they are listed.
pub const FIXED_TABLES: [&str; 9] =
    ["samples", "series", "metrics", "nodes", "jobs", "notes", "inventory", "job_energy", "alarms"];

/// All names a query may use for tables, as one snapshot has them.
#[derive(Clone, Debug)]
pub struct Catalog {
    view: View,
}

impl Catalog {
    pub fn new(view: View) -> Self {
        Self { view }
    }
}

impl CatalogProviderList for Catalog {
    fn register_catalog(&self, _: String, _: Arc<dyn CatalogProvider>) -> Option<Arc<dyn CatalogProvider>> {
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        vec![CATALOG.to_owned()]
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        (name == CATALOG).then(|| Arc::new(self.clone()) as _)
    }
}

impl CatalogProvider for Catalog {
    fn schema_names(&self) -> Vec<String> {
        // Not the metrics' own: SHOW TABLES would name every metric twice.
        vec![SCHEMA.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let fixed_tables = match name {
            SCHEMA => FixedTables::Shown,
            METRIC_SCHEMA => FixedTables::Hidden,
            _ => return None,
        };
        Some(Arc::new(Tables { view: self.view.clone(), fixed_tables }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FixedTables {
    Shown,
    Hidden,
}

#[derive(Debug)]
struct Tables {
    view: View,
    fixed_tables: FixedTables,
}

impl Tables {
    fn find(&self, name: &str) -> Option<Table> {
        let view = &self.view;
        match name {
            _ if self.fixed_tables == FixedTables::Hidden => Table::metric(view, name),
            "samples" => Some(Table::samples(view)),
            "series" => Some(Table::series(view)),
            "metrics" => Some(Table::metrics(view)),
            "nodes" => Some(Table::nodes(view)),
            "jobs" => Some(Table::jobs(view)),
            "notes" => Some(Table::notes(view)),
            "inventory" => Some(Table::inventory(view)),
            "job_energy" => Some(Table::job_energy(view)),
            "alarms" => Some(Table::alarms(view)),
            metric => Table::metric(view, metric),
        }
    }
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        let metrics = self.view.index().metrics();
        let metrics = metrics.iter().map(|metric| metric.to_string());
        match self.fixed_tables {
            FixedTables::Hidden => metrics.collect(),
            FixedTables::Shown => {
                let metrics = metrics.filter(|metric| !FIXED_TABLES.contains(&&**metric));
                FIXED_TABLES.iter().map(|name| (*name).to_owned()).chain(metrics).collect()
            }
        }
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(self.find(name).map(|table| Arc::new(table) as _))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.find(name).is_some()
    }
}

/// The error for a table that is not there, with the known name that may be meant.
pub fn unknown_table(table: &TableReference, state: &SessionState) -> Error {
    let known = state
        .catalog_list()
        .catalog(CATALOG)
        .and_then(|catalog| catalog.schema(SCHEMA))
        .map_or_else(Vec::new, |schema| schema.table_names());
    let name = match table {
        TableReference::Bare { table } => table.to_string(),
        TableReference::Partial { schema, table } => format!("{schema}.{table}"),
        TableReference::Full { catalog, schema, table } => format!("{catalog}.{schema}.{table}"),
    };
    let hint = if table.schema().is_some() && known.contains(&name) {
        format!("; a name with dots needs quotes: \"{name}\"")
    } else {
        match nearest(&name, &known) {
            Some(near) => format!("; is {} meant? Names are case-sensitive", quote_identifier(near)),
            None => format!("; tables are {} and one for every metric (SHOW TABLES)", FIXED_TABLES.join(", ")),
        }
    };
    Error::UnknownTable { name, hint }
}

/// The known name that takes the fewest edits, if those are few for its length.
fn nearest<'a>(name: &str, known: &'a [String]) -> Option<&'a String> {
    // Comparing with every metric of a big database is for errors only, but even an error is bounded.
    const COMPARED_MAX: usize = 10_000;
    let lower = name.to_lowercase();
    let scored = known.iter().take(COMPARED_MAX).map(|known| (edits(&lower, &known.to_lowercase()), known));
    scored.filter(|(edits, known)| *edits * 3 <= known.chars().count()).min_by_key(|(edits, _)| *edits).map(|(_, k)| k)
}

/// Levenshtein distance, in characters.
pub fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (at_a, char_a) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at_a + 1;
        for (at_b, char_b) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(char_a != *char_b);
            diagonal = row[at_b + 1];
            row[at_b + 1] = replaced.min(row[at_b] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
