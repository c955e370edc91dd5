//! Named arguments for table functions: `downsample('load', '1m', aggregate => 'sum')`.
//!
//! DataFusion plans functions in FROM with positional arguments only. So the names are turned into positions before it
//! plans: each argument moves to its parameter's place, and the places that were left out become NULL.

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::planner::{RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::sql::sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, TableFactor, Value};

use super::NAME;
use super::arguments::PARAMETERS;

#[derive(Debug)]
pub struct NamedArguments;

impl RelationPlanner for NamedArguments {
    fn plan_relation(
        &self,
        mut relation: TableFactor,
        _context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        if let TableFactor::Table { name, args: Some(given), .. } = &mut relation
            && name.to_string() == NAME
        {
            given.args = placed(std::mem::take(&mut given.args))?;
        }
        Ok(RelationPlanning::Original(Box::new(relation)))
    }
}

fn placed(given: Vec<FunctionArg>) -> Result<Vec<FunctionArg>> {
    let mut places: Vec<Option<Expr>> = vec![None; PARAMETERS.len()];
    let mut positions = 0..PARAMETERS.len();
    for argument in given {
        let (at, value) = match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => (positions.next(), value),
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
                let at = PARAMETERS.iter().position(|parameter| *parameter == name.value);
                // After a name, positions have no meaning any more.
                positions = 0..0;
                if at.is_none() {
                    return plan_err!("{NAME} has no argument '{}'; it has {}", name.value, PARAMETERS.join(", "));
                }
                (at, value)
            }
            other => return plan_err!("{NAME}: the argument {other} is not a value"),
        };
        let Some(at) = at else {
            return plan_err!(
                "{NAME}: an argument too many, or one without a name behind one with a name; arguments are {}",
                PARAMETERS.join(", ")
            );
        };
        if places[at].replace(value).is_some() {
            return plan_err!("{NAME}: the argument '{}' is given twice", PARAMETERS[at]);
        }
    }
    let null = || Expr::Value(Value::Null.into());
    let placed =
        places.into_iter().map(|value| FunctionArg::Unnamed(FunctionArgExpr::Expr(value.unwrap_or_else(null))));
    Ok(placed.collect())
}
