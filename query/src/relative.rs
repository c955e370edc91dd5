//! Times relative to now in SQL: where a time is expected, the texts `'5m-ago'` and `'now'` are times.
//!
//! They become constants when a query is planned, before any part of it is sent to a node, so that all nodes use the
//! same moment.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::{Between, Cast, InList, TryCast};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use telem_engine::{Db, Timestamp};

use crate::error::Error;
use crate::question::ago;

/// The moment to which relative times of one question are relative.
#[derive(Clone, Debug)]
pub struct Anchor {
    db: Db,
    now: Timestamp,
}

impl Anchor {
    /// Of a question that is asked `now` about `db`.
    pub fn new(db: Db, now: Timestamp) -> Self {
        Self { db, now }
    }

    /// Of a live database now. Of one that is only read the time of its last sample: it ends when its job did.
    fn time(&self) -> Result<Timestamp> {
        if !self.db.is_read_only() {
            return Ok(self.now);
        }
        let info = self.db.info().map_err(|error| DataFusionError::External(Box::new(Error::from(error))))?;
        Ok(info.time_bounds.map_or(self.now, |(_, last)| last))
    }

    /// The time that a text means, if it is one that is relative to now.
    ///
    /// # Errors
    /// Invalid, for a distance that cannot be read.
    pub fn resolve(&self, text: &str) -> Result<Option<Timestamp>> {
        match ago::micros_before_now(text) {
            None => Ok(None),
            Some(Ok(micros)) => Ok(Some(self.time()?.saturating_add_micros(-micros))),
            Some(Err(why)) => Err(DataFusionError::External(Box::new(Error::Invalid(why)))),
        }
    }
}

/// The plan with times in place of their texts: wherever a text is compared with a time or cast to one.
pub fn resolve(plan: LogicalPlan, anchor: &Anchor) -> Result<LogicalPlan> {
    let resolved = plan.transform_up_with_subqueries(|plan| {
        let schema = merge_schema(&plan.inputs());
        let names = NamePreserver::new(&plan);
        let plan = plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let expr = expr.transform_up(|expr| in_expression(expr, &schema, anchor))?;
            Ok(expr.update_data(|expr| name.restore(expr)))
        })?;
        plan.map_data(|plan| plan.recompute_schema())
    })?;
    Ok(resolved.data)
}

fn in_expression(expr: Expr, schema: &DFSchema, anchor: &Anchor) -> Result<Transformed<Expr>> {
    let is_time = |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Timestamp(..)));
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) => {
            let (time_left, time_right) = (is_time(&left), is_time(&right));
            let (left, right) = match (time_left, time_right) {
                (true, false) => (Transformed::no(left), in_box(*right, anchor)?),
                (false, true) => (in_box(*left, anchor)?, Transformed::no(right)),
                _ => (Transformed::no(left), Transformed::no(right)),
            };
            let changed = left.transformed || right.transformed;
            let expr = Expr::BinaryExpr(BinaryExpr { left: left.data, op, right: right.data });
            Ok(if changed { Transformed::yes(expr) } else { Transformed::no(expr) })
        }
        Expr::Between(Between { expr, negated, low, high }) if is_time(&expr) => {
            let (low, high) = (in_box(*low, anchor)?, in_box(*high, anchor)?);
            let changed = low.transformed || high.transformed;
            let expr = Expr::Between(Between { expr, negated, low: low.data, high: high.data });
            Ok(if changed { Transformed::yes(expr) } else { Transformed::no(expr) })
        }
        Expr::InList(InList { expr, list, negated }) if is_time(&expr) => {
            let mut changed = false;
            let list = list.into_iter().map(|item| {
                let item = in_place(item, anchor)?;
                changed |= item.transformed;
                Ok(item.data)
            });
            let list = list.collect::<Result<_>>()?;
            let expr = Expr::InList(InList { expr, list, negated });
            Ok(if changed { Transformed::yes(expr) } else { Transformed::no(expr) })
        }
        Expr::Cast(Cast { expr, field }) if matches!(field.data_type(), DataType::Timestamp(..)) => {
            let expr = in_box(*expr, anchor)?;
            Ok(expr.update_data(|expr| Expr::Cast(Cast { expr, field })))
        }
        Expr::TryCast(TryCast { expr, field }) if matches!(field.data_type(), DataType::Timestamp(..)) => {
            let expr = in_box(*expr, anchor)?;
            Ok(expr.update_data(|expr| Expr::TryCast(TryCast { expr, field })))
        }
        other => Ok(Transformed::no(other)),
    }
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// The time that a literal means, in its place.
fn in_place(expr: Expr, anchor: &Anchor) -> Result<Transformed<Expr>> {
    let Expr::Literal(value, _) = &expr else { return Ok(Transformed::no(expr)) };
    let Some(text) = value.try_as_str().flatten() else { return Ok(Transformed::no(expr)) };
    let Some(time) = anchor.resolve(text)? else { return Ok(Transformed::no(expr)) };
    let time = ScalarValue::TimestampMicrosecond(Some(time.micros()), Some(Arc::from("UTC")));
    Ok(Transformed::yes(Expr::Literal(time, None)))
}

fn in_box(expr: Expr, anchor: &Anchor) -> Result<Transformed<Box<Expr>>> {
    Ok(in_place(expr, anchor)?.update_data(Box::new))
}
