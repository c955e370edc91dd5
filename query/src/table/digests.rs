//! Aggregates over whole series are asked of digests: `last(value, ts)` by tags needs one row a series and no sample.
//!
//! The rule takes an aggregate over samples whose groups are made of names alone (metric, node, job, tags), so that all
//! samples of a series are in one group, and all of whose functions a digest can tell. It puts the same aggregate of
//! digests in its place. Both mean the same to the last bit: sums are exact until the end in either.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::default_table_source::{provider_as_source, source_as_provider};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column as NamedColumn, DFSchema};
use datafusion::error::Result;
use datafusion::execution::registry::FunctionRegistry;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::logical_plan::{Aggregate, TableScan};
use datafusion::logical_expr::{AggregateUDF, Expr, LogicalPlan, LogicalPlanBuilder, cast, lit, when};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::Table;
use super::shape::TableShape;
use crate::leaf::rows::{Column, RowKind};

/// The columns of a table of digests that are no names. No column of a table of samples is called so: where a tag is,
/// the rule leaves the plan alone.
const DIGEST_COLUMNS: [(&str, Column); 8] = [
    ("digest:samples", Column::SampleCount),
    ("digest:first_ts", Column::FirstTs),
    ("digest:first_value", Column::FirstValue),
    ("digest:last_ts", Column::LastTs),
    ("digest:last_value", Column::LastValue),
    ("digest:least", Column::Least),
    ("digest:greatest", Column::Greatest),
    ("digest:sum", Column::Sum),
];

#[derive(Debug)]
pub(crate) struct AskDigests;

impl OptimizerRule for AskDigests {
    fn name(&self) -> &str {
        "ask_digests"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let (LogicalPlan::Aggregate(aggregate), Some(functions)) = (&plan, config.function_registry()) else {
            return Ok(Transformed::no(plan));
        };
        Ok(match of_digests(aggregate, functions)? {
            Some(digested) => Transformed::yes(digested),
            None => Transformed::no(plan),
        })
    }
}

/// The same aggregate of digests, where they say enough.
fn of_digests(aggregate: &Aggregate, functions: &dyn FunctionRegistry) -> Result<Option<LogicalPlan>> {
    let Some((scan, meanings)) = scanned(&aggregate.input) else { return Ok(None) };
    let provider = source_as_provider(&scan.source)?;
    let samples = provider.downcast_ref::<Table>().filter(|_| scan.fetch.is_none());
    let Some((samples, digests)) = samples.and_then(|samples| Some((samples, samples.digests()?))) else {
        return Ok(None);
    };
    // Of some of the values of a series no digest is kept.
    if !scan.filters.iter().all(|filter| digests.push(filter).is_some()) {
        return Ok(None);
    }
    let input = AggregateInput { schema: aggregate.input.schema(), meanings: &meanings, shape: &samples.shape, scan };

    let mut groups = Vec::with_capacity(aggregate.group_expr.len());
    for group in &aggregate.group_expr {
        let Some(group) = input.by_name(group)? else { return Ok(None) };
        groups.push(group);
    }
    let mut answers = DigestAnswers { functions, table: scan, asked: Vec::new(), is_one_group: groups.is_empty() };
    let mut answered = Vec::with_capacity(aggregate.aggr_expr.len());
    for asked in &aggregate.aggr_expr {
        let Some(answer) = answers.answer(asked, &input)? else { return Ok(None) };
        answered.push(answer);
    }

    let schema = &digests.shape.schema;
    let names = groups.iter().flat_map(Expr::column_refs);
    let columns = names.chain(answers.asked.iter().flat_map(Expr::column_refs));
    let mut kept = columns.map(|column| schema.index_of(&column.name)).collect::<Result<Vec<_>, _>>()?;
    kept.sort_unstable();
    kept.dedup();
    let (source, count) = (provider_as_source(Arc::new(digests)), groups.len());
    let plan =
        LogicalPlanBuilder::scan_with_filters(scan.table_name.clone(), source, Some(kept), scan.filters.clone())?
            .aggregate(groups, answers.asked)?
            .build()?;
    // Under the names that the plan above knows.
    let made: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let answered = answered.into_iter().map(|answer| answer.of(&made[count..]));
    let named = made[..count].iter().cloned().map(Ok).chain(answered).zip(aggregate.schema.iter());
    let named = named.map(|(expr, (table, field))| Ok(expr?.alias_qualified(table.cloned(), field.name())));
    let named = named.collect::<Result<Vec<Expr>>>()?;
    LogicalPlanBuilder::from(plan).project(named)?.build().map(Some)
}

/// The scan below a plan that does no more than choose and compute columns of its rows, and what each column of the plan
/// is of those of the scan.
fn scanned(plan: &LogicalPlan) -> Option<(&TableScan, Vec<Expr>)> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let columns = scan.projected_schema.columns();
            Some((scan, columns.into_iter().map(Expr::Column).collect()))
        }
        LogicalPlan::SubqueryAlias(alias) => scanned(&alias.input),
        LogicalPlan::Projection(projection) => {
            let (scan, below) = scanned(&projection.input)?;
            let meaning = |expr: &Expr| in_terms_of(expr, projection.input.schema(), &below);
            let meanings = projection.expr.iter().map(meaning).collect::<Result<Vec<_>>>();
            Some((scan, meanings.ok()?))
        }
        _ => None,
    }
}

/// An expression over columns of `schema` as one over what these mean.
fn in_terms_of(expr: &Expr, schema: &DFSchema, meanings: &[Expr]) -> Result<Expr> {
    let expr = expr.clone().unalias_nested().data;
    let replaced = expr.transform_up(|part| match &part {
        Expr::Column(column) => Ok(Transformed::yes(meanings[schema.index_of_column(column)?].clone())),
        _ => Ok(Transformed::no(part)),
    })?;
    Ok(replaced.data)
}

/// What an aggregate is over.
struct AggregateInput<'a> {
    schema: &'a DFSchema,
    meanings: &'a [Expr],
    shape: &'a TableShape,
    scan: &'a TableScan,
}

impl AggregateInput<'_> {
    fn column(&self, expr: &Expr) -> Option<&Column> {
        let Expr::Column(column) = expr else { return None };
        let at = self.shape.schema.index_of(&column.name).ok()?;
        self.shape.columns.get(at).filter(|_| column.relation.as_ref() == Some(&self.scan.table_name))
    }

    /// An expression that has one value for all samples of a series.
    fn by_name(&self, expr: &Expr) -> Result<Option<Expr>> {
        let expr = in_terms_of(expr, self.schema, self.meanings)?;
        let is_name = |column: &NamedColumn| self.column(&Expr::Column(column.clone())).is_some_and(Column::is_name);
        let is_alike = expr.column_refs().into_iter().all(is_name)
            && !expr.is_volatile()
            && !expr.exists(|part| Ok(is_subquery(part) || matches!(part, Expr::GroupingSet(_))))?;
        Ok(is_alike.then_some(expr))
    }
}

fn is_subquery(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::ScalarSubquery(_)
            | Expr::InSubquery(_)
            | Expr::Exists(_)
            | Expr::SetComparison(_)
            | Expr::OuterReferenceColumn(..)
    )
}

/// Aggregates of digests that answer those of samples.
struct DigestAnswers<'a> {
    functions: &'a dyn FunctionRegistry,
    table: &'a TableScan,
    asked: Vec<Expr>,
    /// Which is there without any sample.
    is_one_group: bool,
}

/// Which of the aggregates of digests are an answer.
enum DigestAnswer {
    Same(usize),
    /// NULL means none.
    Count(usize),
    Average {
        sum: usize,
        count: usize,
    },
}

impl DigestAnswers<'_> {
    /// How digests answer `asked`, an aggregate over samples; `None` if they cannot.
    fn answer(&mut self, asked: &Expr, input: &AggregateInput<'_>) -> Result<Option<DigestAnswer>> {
        let asked = in_terms_of(asked, input.schema, input.meanings)?;
        let Expr::AggregateFunction(AggregateFunction { func, params }) = &asked else { return Ok(None) };
        let AggregateFunctionParams { args, distinct: false, filter: None, order_by, null_treatment: None } = params
        else {
            return Ok(None);
        };
        if !order_by.is_empty() {
            return Ok(None);
        }
        let columns: Vec<Option<&Column>> = args.iter().map(|arg| input.column(arg)).collect();
        Ok(match (func.name(), &columns[..], &args[..]) {
            ("count", [None], [Expr::Literal(value, _)]) if !value.is_null() => Some(self.count()?),
            ("count", [Some(Column::Value | Column::Ts)], _) => Some(self.count()?),
            ("min", [Some(Column::Value)], _) => Some(self.same(func, &[Column::Least])),
            ("max", [Some(Column::Value)], _) => Some(self.same(func, &[Column::Greatest])),
            ("min", [Some(Column::Ts)], _) => Some(self.same(func, &[Column::FirstTs])),
            ("max", [Some(Column::Ts)], _) => Some(self.same(func, &[Column::LastTs])),
            ("sum", [Some(Column::Value)], _) => Some(self.same(func, &[Column::Sum])),
            ("first", [Some(Column::Value), Some(Column::Ts)], _) => {
                Some(self.same(func, &[Column::FirstValue, Column::FirstTs]))
            }
            ("last", [Some(Column::Value), Some(Column::Ts)], _) => {
                Some(self.same(func, &[Column::LastValue, Column::LastTs]))
            }
            ("avg", [Some(Column::Value)], _) => {
                let total = self.functions.udaf("sum")?;
                let sum = self.ask(&total, &[Column::Sum]);
                Some(DigestAnswer::Average { sum, count: self.ask(&total, &[Column::SampleCount]) })
            }
            _ => None,
        })
    }

    fn same(&mut self, function: &Arc<AggregateUDF>, columns: &[Column]) -> DigestAnswer {
        DigestAnswer::Same(self.ask(function, columns))
    }

    fn count(&mut self) -> Result<DigestAnswer> {
        let count = self.ask(&self.functions.udaf("sum")?, &[Column::SampleCount]);
        Ok(if self.is_one_group { DigestAnswer::Count(count) } else { DigestAnswer::Same(count) })
    }

    /// The place of an aggregate of digests among those that are asked.
    fn ask(&mut self, function: &Arc<AggregateUDF>, columns: &[Column]) -> usize {
        let column = |wanted: &Column| {
            let name = DIGEST_COLUMNS.iter().find(|(_, column)| column == wanted).map_or("", |(name, _)| name);
            Expr::Column(NamedColumn::new(Some(self.table.table_name.clone()), name))
        };
        let args = columns.iter().map(column).collect();
        let asked = Expr::AggregateFunction(AggregateFunction::new_udf(
            Arc::clone(function),
            args,
            false,
            None,
            Vec::new(),
            None,
        ));
        self.asked.iter().position(|known| *known == asked).unwrap_or_else(|| {
            self.asked.push(asked);
            self.asked.len() - 1
        })
    }
}

impl DigestAnswer {
    /// The answer, of the columns in which the aggregates of digests are.
    fn of(&self, made: &[Expr]) -> Result<Expr> {
        match self {
            DigestAnswer::Same(at) => Ok(made[*at].clone()),
            DigestAnswer::Count(at) => when(made[*at].clone().is_null(), lit(0_i64)).otherwise(made[*at].clone()),
            DigestAnswer::Average { sum, count } => {
                Ok(made[*sum].clone() / cast(made[*count].clone(), DataType::Float64))
            }
        }
    }
}

impl Column {
    /// Whether it has one value for all samples of a series.
    fn is_name(&self) -> bool {
        matches!(self, Column::Metric | Column::Node | Column::Job | Column::Tag(_) | Column::Tags)
    }
}

impl Table {
    /// Of a table of samples that of their digests, which can be asked for the same stretches of time.
    fn digests(&self) -> Option<Table> {
        let TableShape { rows: RowKind::Sample, schema, columns } = &self.shape else { return None };
        if DIGEST_COLUMNS.iter().any(|(name, _)| schema.index_of(name).is_ok()) {
            return None;
        }
        let kept = schema.fields().iter().zip(columns).filter(|(_, column)| column.is_name() || **column == Column::Ts);
        let (mut fields, mut columns): (Vec<Field>, Vec<Column>) =
            kept.map(|(field, column)| (Field::clone(field), column.clone())).unzip();
        for (name, column) in DIGEST_COLUMNS {
            fields.push(column.field(name));
            columns.push(column);
        }
        let shape = TableShape { rows: RowKind::Digest, schema: Arc::new(Schema::new(fields)), columns };
        Some(Table { view: self.view.clone(), shape, tests: self.tests.clone() })
    }
}

#[cfg(test)]
mod tests;
