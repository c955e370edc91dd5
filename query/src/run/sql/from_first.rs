//! `FROM loss` alone asks for all columns, as in DuckDB and ClickHouse.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Select, SelectFlavor, SelectItem, VisitMut, VisitorMut, WildcardAdditionalOptions,
};

/// Writes the SELECT that was left out, which DataFusion would plan without any column.
pub(super) fn resolve(statement: &mut Statement) {
    match statement {
        Statement::Statement(sql) => {
            let _ = sql.visit(&mut FromFirst);
        }
        Statement::Explain(explain) => resolve(&mut explain.statement),
        _ => {}
    }
}

struct FromFirst;

impl VisitorMut for FromFirst {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if select.flavor == SelectFlavor::FromFirstNoSelect {
            select.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
            select.flavor = SelectFlavor::Standard;
        }
        ControlFlow::Continue(())
    }
}
