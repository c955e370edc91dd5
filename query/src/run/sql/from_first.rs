//! `FROM loss` alone asks for all columns, as in DuckDB and ClickHouse.

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Select, SelectFlavor, SelectItem, WildcardAdditionalOptions};

use super::walk::{Onlooker, walk};

/// Writes the SELECT that was left out, which DataFusion would plan without any column.
pub(super) fn resolve(statement: &mut Statement) {
    match statement {
        Statement::Statement(sql) => walk(sql, &mut FromFirst),
        Statement::Explain(explain) => resolve(&mut explain.statement),
        _ => {}
    }
}

struct FromFirst;

impl Onlooker for FromFirst {
    fn enter_select(&mut self, select: &mut Select) {
        if select.flavor == SelectFlavor::FromFirstNoSelect {
            select.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
            select.flavor = SelectFlavor::Standard;
        }
    }
}
