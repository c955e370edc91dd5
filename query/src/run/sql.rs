//! From the text of a question to its plan. Only questions: whatever writes is refused by its
//! kind, before anything is planned.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::context::SQLOptions;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::Statement as Sql;
use datafusion::sql::sqlparser::dialect::GenericDialect;

use crate::catalog;
use crate::error::{Error, Result};

/// Longest text of a query.
const SQL_BYTES_MAX: usize = 1 << 20;
/// How deep expressions and subqueries may be nested in it.
const NESTING_MAX: usize = 50;
const ONLY_READS: &str = "SQL here only reads";

pub(super) async fn plan(text: &str, state: &SessionState) -> Result<Arc<dyn ExecutionPlan>> {
    if text.len() > SQL_BYTES_MAX {
        let found = text.len();
        return Err(Error::Invalid(format!("the SQL has {found} bytes; at most {SQL_BYTES_MAX} are allowed")));
    }
    let statement = parse(text)?;
    only_reads(&statement)?;
    only_known_tables(&statement, state).await?;
    let logical = state.statement_to_plan(statement).await?;
    // The second gate: what the statement's kind does not show, like SELECT ... INTO.
    SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false).verify_plan(&logical)?;
    yielding(state.create_physical_plan(&logical).await?)
}

/// The plan, with joins that let go of their thread from time to time. DataFusion asks that of leaves
/// only, and a join can make hours of work of one batch of a leaf: neither a deadline nor a client that
/// goes away would end it.
fn yielding(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let wrapped = plan.transform_up(|plan| {
        if plan.children().len() < 2 {
            return Ok(Transformed::no(plan));
        }
        Ok(Transformed::yes(Arc::new(CooperativeExec::new(plan)) as Arc<dyn ExecutionPlan>))
    })?;
    Ok(wrapped.data)
}

fn parse(text: &str) -> Result<Statement> {
    let parser = DFParserBuilder::new(text).with_dialect(&GenericDialect).with_recursion_limit(NESTING_MAX).build()?;
    let mut statements = { parser }.parse_statements()?;
    match (statements.pop_front(), statements.len()) {
        (Some(statement), 0) => Ok(statement),
        (None, _) => Err(Error::Invalid("the SQL is empty; expected one statement".to_owned())),
        (Some(_), more) => Err(Error::Invalid(format!("{} statements; expected one at a time", more + 1))),
    }
}

fn only_reads(statement: &Statement) -> Result<()> {
    let reads = match statement {
        Statement::Statement(sql) => matches!(
            **sql,
            Sql::Query(_)
                | Sql::Explain { .. }
                | Sql::ExplainTable { .. }
                | Sql::ShowTables { .. }
                | Sql::ShowColumns { .. }
                | Sql::ShowFunctions { .. }
                | Sql::ShowVariable { .. }
        ),
        Statement::Explain(explain) => return only_reads(&explain.statement),
        Statement::CreateExternalTable(_) | Statement::CopyTo(_) | Statement::Reset(_) => false,
    };
    if reads {
        return Ok(());
    }
    let text = statement.to_string();
    let found = text.split_whitespace().next().unwrap_or_default();
    Err(Error::Invalid(format!(
        "{ONLY_READS}: found {found}, expected SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE"
    )))
}

/// Says which table is unknown, and which known one may be meant.
async fn only_known_tables(statement: &Statement, state: &SessionState) -> Result<()> {
    for table in state.resolve_table_references(statement)? {
        if state.table_functions().contains_key(table.table()) {
            continue;
        }
        let known = match state.schema_for_ref(table.clone()) {
            Ok(schema) => schema.table(table.table()).await?.is_some(),
            Err(_) => false,
        };
        if !known {
            return Err(catalog::unknown_table(&table, state));
        }
    }
    Ok(())
}
