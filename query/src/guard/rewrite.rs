//! Rewrites plans so that everything in them that makes values is guarded.

use std::hash::Hash;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::binary::BinaryTypeCoercer;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_expr::expressions::{BinaryExpr as PhysicalBinaryExpr, Column};
use datafusion::physical_plan::PhysicalExpr;

use super::scalar::{check_type, guard_all, guarded};
use super::size;
use crate::error::Error;

/// Most bytes of constants that a query puts into each of its rows.
pub(crate) const CONSTANT_BYTES_MAX: u64 = 8 << 10;

/// Guards what planners made without asking the registry, and `||`.
#[derive(Debug)]
pub(super) struct GuardFunctions;

impl AnalyzerRule for GuardFunctions {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(guard_plan)?.data)
    }

    fn name(&self) -> &str {
        "guard_functions"
    }
}

impl OptimizerRule for GuardFunctions {
    fn name(&self) -> &str {
        "guard_functions"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        guard_plan(plan)
    }
}

fn guard_plan(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    super::bounds::check()?;
    let names = NamePreserver::new(&plan);
    let plan = plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let called = expr.transform_up(call_operator)?;
        let guarded = called.transform_data(guard_all)?;
        Ok(guarded.update_data(|expr| name.restore(expr)))
    })?;
    match plan.transformed {
        true => plan.map_data(LogicalPlan::recompute_schema),
        false => Ok(plan),
    }
}

/// `||` as a function.
fn call_operator(expr: Expr) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
            let call = ScalarFunction::new_udf(concat_operator(), vec![*left, *right]);
            Ok(Transformed::yes(Expr::ScalarFunction(call)))
        }
        Expr::Cast(cast) => {
            check_type(cast.field.data_type())?;
            Ok(Transformed::no(Expr::Cast(cast)))
        }
        Expr::TryCast(cast) => {
            check_type(cast.field.data_type())?;
            Ok(Transformed::no(Expr::TryCast(cast)))
        }
        expr => Ok(Transformed::no(expr)),
    }
}

/// What `||` becomes in plans.
pub(super) fn concat_operator() -> Arc<ScalarUDF> {
    static OPERATOR: std::sync::LazyLock<Arc<ScalarUDF>> = std::sync::LazyLock::new(|| {
        let signature = Signature::any(2, Volatility::Immutable);
        guarded(Arc::new(ScalarUDF::new_from_impl(ConcatOperator { signature })))
    });
    Arc::clone(&OPERATOR)
}

/// The operator's own code, called as a function.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ConcatOperator {
    signature: Signature,
}

impl ScalarUDFImpl for ConcatOperator {
    fn name(&self) -> &str {
        "concat_operator"
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        match args {
            [left, right] => Ok(format!("{} || {}", left.schema_name(), right.schema_name())),
            _ => internal_err!("|| has two sides, not {}", args.len()),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, sides: &[DataType]) -> Result<DataType> {
        match sides {
            [left, right] => BinaryTypeCoercer::new(left, &Operator::StringConcat, right).get_result_type(),
            _ => internal_err!("|| has two sides, not {}", sides.len()),
        }
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = call.args.iter().all(|side| matches!(side, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { call.number_rows };
        let (mut columns, mut fields, mut sides) = (Vec::new(), Vec::new(), Vec::new());
        for (at, side) in call.args.into_iter().enumerate() {
            match side {
                // The operator knows of constants what they are.
                ColumnarValue::Scalar(scalar) => {
                    sides.push(Arc::new(datafusion::physical_expr::expressions::Literal::new(scalar)) as _);
                }
                ColumnarValue::Array(array) => {
                    sides.push(Arc::new(Column::new(&at.to_string(), columns.len())) as Arc<dyn PhysicalExpr>);
                    fields.push(Field::new(at.to_string(), array.data_type().clone(), true));
                    columns.push(array);
                }
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?;
        let Ok([left, right]) = <[Arc<dyn PhysicalExpr>; 2]>::try_from(sides) else {
            return internal_err!("|| has two sides");
        };
        let value = PhysicalBinaryExpr::new(left, Operator::StringConcat, right).evaluate(&batch)?;
        match value {
            ColumnarValue::Array(array) if constant => {
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?))
            }
            value => Ok(value),
        }
    }
}

/// What a plan makes of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowCopies {
    /// One at the most.
    Once,
    /// Any number, which a batch has room for in part only.
    Joined,
    /// As many as a list has elements, at once.
    Unnested,
}

impl RowCopies {
    /// What `plan` does at the most.
    pub(crate) fn of(plan: &LogicalPlan) -> Result<Self> {
        let mut most = RowCopies::Once;
        plan.apply_with_subqueries(|plan| {
            most = most.max(match plan {
                LogicalPlan::Unnest(_) => RowCopies::Unnested,
                LogicalPlan::Join(_) => RowCopies::Joined,
                _ => RowCopies::Once,
            });
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(most)
    }

    /// Most bytes of a value that is in such rows, and most rows of a batch: together no more than 64 MiB.
    pub(crate) fn bounds(self) -> Option<(u64, usize)> {
        match self {
            RowCopies::Once => None,
            RowCopies::Joined => Some((64 << 10, 1_024)),
            RowCopies::Unnested => Some((16 << 10, 1_024)),
        }
    }
}

/// Whether the plan makes texts or lists, which may be large.
pub(crate) fn makes_values(plan: &LogicalPlan) -> Result<bool> {
    let mut makes = false;
    plan.apply_with_subqueries(|plan| {
        let schema = Arc::clone(plan.schema());
        plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                let made = match expr {
                    Expr::ScalarFunction(call) => call.func.name() != "get_field",
                    Expr::AggregateFunction(_) | Expr::WindowFunction(_) => true,
                    _ => false,
                };
                // Values that the schema above does not describe may be large as well.
                makes |= made && expr.get_type(&schema).map_or(true, |made| is_large(&made));
                Ok(if makes { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })
    })?;
    Ok(makes)
}

fn is_large(made: &DataType) -> bool {
    !(made.is_primitive() || matches!(made, DataType::Boolean | DataType::Null))
}

/// Refuses a plan that puts more constant text into each row than [`CONSTANT_BYTES_MAX`]: a batch has thousands of rows,
/// and each would have a copy. What is compared with, and what a function takes, is not copied.
pub(crate) fn few_constants(plan: &LogicalPlan) -> Result<()> {
    let (mut most, rows) = (0, RowCopies::of(plan)?);
    plan.apply_with_subqueries(|plan| {
        let in_many_rows = match plan {
            LogicalPlan::Values(_) | LogicalPlan::TableScan(_) => false,
            _ if rows > RowCopies::Once => true,
            LogicalPlan::EmptyRelation(_) => false,
            plan => !plan.inputs().iter().all(|input| matches!(input, LogicalPlan::EmptyRelation(_))),
        };
        if in_many_rows {
            let mut bytes = 0;
            plan.apply_expressions(|expr| {
                expr.apply(|expr| {
                    if let Expr::Literal(value, _) = expr {
                        bytes += size::of_scalar(value);
                    }
                    Ok(if is_passed_on(expr) { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Jump })
                })
            })?;
            most = most.max(bytes);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    match most <= CONSTANT_BYTES_MAX {
        true => Ok(()),
        false => {
            let text = format!(
                "the query puts {most} bytes of constants into each row; at most {CONSTANT_BYTES_MAX} are allowed"
            );
            Err(DataFusionError::External(Box::new(Error::Invalid(text))))
        }
    }
}

/// Whether what is below may come out above as it is.
fn is_passed_on(expr: &Expr) -> bool {
    match expr {
        Expr::InList(_) | Expr::Like(_) | Expr::SimilarTo(_) | Expr::Between(_) | Expr::ScalarFunction(_) => false,
        Expr::BinaryExpr(binary) => !binary.op.returns_null_on_null() || binary.op == Operator::StringConcat,
        _ => true,
    }
}
