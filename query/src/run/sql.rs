//! Turns the text of a query into its plan. Only queries are accepted: statements that write are refused by their kind,
//! before anything is planned.

mod expressions;
mod from_first;
mod little;
mod value_names;
mod walk;

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{LogicalPlan, PlanType, StringifiedPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::explain::ExplainExec;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{
    ObjectName, ShowStatementFilter, ShowStatementFilterPosition, ShowStatementOptions, Statement as Sql,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use datafusion_distributed::display_plan_ascii;

use crate::catalog;
use crate::cluster::head::ExecutablePlan;
use crate::error::{Error, Result};
use crate::guard;
use crate::leaf::{LeafContext, LeafThread};
use crate::options::QueryOptions;
use crate::question::ago;
use crate::relative::{self, Anchor};
use crate::session::plain::{PlainPlan, PlainRules, PlainSession};
use crate::view::View;
use walk::{Onlooker, walk};

/// Longest text of a query.
pub(crate) const SQL_BYTES_MAX: usize = 1 << 20;
/// Most operators in it, such as AND, +, :: and UNION, and most tables. Chains of them become deep
/// trees, and what walks those uses stack for each: thousands would end the process.
pub(crate) const OPERATORS_MAX: usize = 1_000;
pub(crate) const TABLES_MAX: usize = 100;
/// How deep expressions and subqueries may be nested in it.
pub(crate) const NESTING_MAX: usize = 50;
const ONLY_READS: &str = "SQL here only reads";

pub(super) async fn plan(
    text: &str,
    state: &mut SessionState,
    view: &View,
    plain: &PlainRules,
) -> Result<ExecutablePlan> {
    if text.len() > SQL_BYTES_MAX {
        let found = text.len();
        return Err(Error::Invalid(format!("the SQL has {found} bytes; at most {SQL_BYTES_MAX} are allowed")));
    }
    let mut statement = parse(text)?;
    only_reads(&statement)?;
    from_first::resolve(&mut statement);
    let schemas = known_tables(&statement, state).await?;
    let is_aggregate = |name: &str| state.aggregate_functions().contains_key(name);
    value_names::resolve(&mut statement, &metrics_as_columns(&schemas), &is_aggregate);
    let mut logical = state.statement_to_plan(statement).await?;
    if ago::may_hold(text)
        && let Some(anchor) = state.config().get_extension::<Anchor>()
    {
        logical = relative::resolve(logical, &anchor)?;
    }
    // The second gate: what the statement's kind does not show, like SELECT ... INTO.
    SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false).verify_plan(&logical)?;
    expressions::check(&logical)?;
    let plan = physical(&logical, state, view, plain).await?;
    if let Some(explain) = plan.downcast_ref::<ExplainExec>() {
        let LogicalPlan::Explain(of) = &logical else { return Ok(ExecutablePlan::here(plan)) };
        let of = view.distribute(physical(&of.plan, state, view, plain).await?).await?;
        return Ok(ExecutablePlan::here(if of.is_distributed() { Arc::new(explained(explain, &of)) } else { plan }));
    }
    Ok(view.distribute(plan).await?)
}

/// How a plan is executed.
async fn physical(
    logical: &LogicalPlan,
    state: &mut SessionState,
    view: &View,
    plain: &PlainRules,
) -> Result<Arc<dyn ExecutionPlan>> {
    let optimized = optimized(logical, state, plain)?;
    guard::few_constants(&optimized)?;
    let bounds = match guard::makes_values(&optimized)? {
        true => guard::RowCopies::of(&optimized)?.bounds(),
        false => None,
    };
    if let Some((_, batch_rows)) = bounds {
        *state.config_mut() = state.config().clone().with_batch_size(batch_rows);
    }
    let options = state.config().get_extension::<QueryOptions>();
    let is_little = little::reads_little(&optimized, view, options.map_or(0, |options| options.one_thread_rows_max))?;
    if is_little && let Some(context) = state.config().get_extension::<LeafContext>() {
        let context = LeafContext { thread: LeafThread::OfTheQuery, ..LeafContext::clone(&context) };
        state.config_mut().set_extension(Arc::new(context));
        state.config_mut().options_mut().execution.target_partitions = 1;
    }
    let planner = Arc::clone(state.query_planner());
    let plan = match PlainPlan::of(&optimized).filter(|_| is_little) {
        Some(found) => {
            let rules = plain.physical(&found);
            planner.create_physical_plan(&optimized, &PlainSession { state, rules }).await?
        }
        None => planner.create_physical_plan(&optimized, state).await?,
    };
    guard::planned(bounds.map(|(value_bytes_max, _)| value_bytes_max));
    yielding(plan)
}

/// As [`SessionState::optimize`], by the rules that the plan needs.
fn optimized(logical: &LogicalPlan, state: &SessionState, plain: &PlainRules) -> Result<LogicalPlan> {
    let Some(found) = PlainPlan::of(logical) else { return Ok(state.optimize(logical)?) };
    let analyzed = state.analyzer().execute_and_check(logical.clone(), state.config_options(), |_, _| {})?;
    Ok(plain.optimize(analyzed, &found, state)?)
}

/// The same explanation, with the stages that the plan is cut into.
fn explained(explain: &ExplainExec, of: &ExecutablePlan) -> ExplainExec {
    let is_last = |kind: &PlanType| matches!(kind, PlanType::FinalPhysicalPlan);
    let told = explain.stringified_plans().iter().filter(|told| !is_last(&told.plan_type)).cloned();
    let stages = StringifiedPlan::new(PlanType::FinalPhysicalPlan, display_plan_ascii(&*of.plan, false));
    ExplainExec::new(explain.schema(), told.chain([stages]).collect(), explain.verbose())
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
    let tokens = Tokenizer::new(&GenericDialect, text).tokenize_with_location();
    let tokens = tokens.map_err(|error| DataFusionError::from(ParserError::from(error)))?;
    let operators = tokens.iter().filter(|token| is_operator(&token.token)).count();
    if operators > OPERATORS_MAX {
        return Err(Error::Invalid(format!(
            "the SQL has {operators} operators; at most {OPERATORS_MAX} are allowed. A list, as in x IN (1, 2, 3), may be longer"
        )));
    }
    let parser =
        DFParserBuilder::new(tokens).with_dialect(&GenericDialect).with_recursion_limit(NESTING_MAX).build()?;
    let mut statements = { parser }.parse_statements()?;
    match (statements.pop_front(), statements.len()) {
        (Some(statement), 0) => match filtered_tables(&statement) {
            Some(question) => parse(&question),
            None => few_tables(statement),
        },
        (None, _) => Err(Error::Invalid("the SQL is empty; expected one statement".to_owned())),
        (Some(_), more) => Err(Error::Invalid(format!("{} statements; expected one at a time", more + 1))),
    }
}

/// `SHOW TABLES LIKE '...'`, which DataFusion refuses, as the question that it stands for. Of more words than these it
/// refuses all.
fn filtered_tables(statement: &Statement) -> Option<String> {
    let Statement::Statement(sql) = statement else { return None };
    let Sql::ShowTables {
        terse: false,
        history: false,
        extended: false,
        full: false,
        external: false,
        show_options:
            ShowStatementOptions {
                filter_position:
                    Some(ShowStatementFilterPosition::Infix(filter) | ShowStatementFilterPosition::Suffix(filter)),
                show_in: None,
                starts_with: None,
                limit: None,
                limit_from: None,
            },
    } = &**sql
    else {
        return None;
    };
    let (like, pattern) = match filter {
        ShowStatementFilter::Like(pattern) => ("LIKE", pattern),
        ShowStatementFilter::ILike(pattern) => ("ILIKE", pattern),
        ShowStatementFilter::Where(_) | ShowStatementFilter::NoKeyword(_) => return None,
    };
    let pattern = pattern.replace('\'', "''");
    Some(format!("SELECT * FROM information_schema.tables WHERE table_name {like} '{pattern}'"))
}

fn is_operator(token: &Token) -> bool {
    match token {
        Token::Word(word) => matches!(
            word.keyword,
            Keyword::AND
                | Keyword::OR
                | Keyword::XOR
                | Keyword::NOT
                | Keyword::IS
                | Keyword::LIKE
                | Keyword::ILIKE
                | Keyword::BETWEEN
                | Keyword::UNION
                | Keyword::INTERSECT
                | Keyword::EXCEPT
                | Keyword::WHEN
                | Keyword::AT
        ),
        Token::Whitespace(_) | Token::Number(..) | Token::Comma | Token::LParen | Token::RParen | Token::Period => {
            false
        }
        Token::SemiColon | Token::LBracket | Token::RBracket | Token::LBrace | Token::RBrace | Token::EOF => false,
        Token::SingleQuotedString(_) | Token::DoubleQuotedString(_) | Token::RArrow => false,
        _ => true,
    }
}

fn few_tables(mut statement: Statement) -> Result<Statement> {
    let sql = match &mut statement {
        Statement::Statement(sql) => sql,
        Statement::Explain(explain) => match &mut *explain.statement {
            Statement::Statement(sql) => sql,
            _ => return Ok(statement),
        },
        _ => return Ok(statement),
    };
    let mut tables = TableCount(0);
    walk(sql, &mut tables);
    let TableCount(tables) = tables;
    if tables > TABLES_MAX {
        return Err(Error::Invalid(format!("the SQL names tables {tables} times; at most {TABLES_MAX} are allowed")));
    }
    Ok(statement)
}

struct TableCount(usize);

impl Onlooker for TableCount {
    fn enter_relation(&mut self, _: &mut ObjectName) {
        self.0 += 1;
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

/// The tables of the statement and their columns.
///
/// # Errors
/// UnknownTable: which table is unknown, and which known one may be meant.
async fn known_tables(statement: &Statement, state: &SessionState) -> Result<Vec<(String, SchemaRef)>> {
    let mut schemas = Vec::new();
    for table in state.resolve_table_references(statement)? {
        if state.table_functions().contains_key(table.table()) {
            continue;
        }
        let known = match state.schema_for_ref(table.clone()) {
            Ok(schema) => schema.table(table.table()).await?,
            Err(_) => None,
        };
        let Some(known) = known else { return Err(catalog::unknown_table(&table, state)) };
        schemas.push((table.table().to_owned(), known.schema()));
    }
    Ok(schemas)
}

/// The metrics whose names can stand for their values: no table has a column of that name.
fn metrics_as_columns(schemas: &[(String, SchemaRef)]) -> BTreeSet<String> {
    let has = |schema: &SchemaRef, column: &str| schema.column_with_name(column).is_some();
    // The fixed tables say which metric a row is of.
    let of_one = |schema: &SchemaRef| has(schema, "value") && !has(schema, "metric");
    let metrics = schemas.iter().filter(|(_, schema)| of_one(schema)).map(|(name, _)| name);
    metrics.filter(|name| !schemas.iter().any(|(_, schema)| has(schema, name))).cloned().collect()
}

#[cfg(test)]
mod tests;
