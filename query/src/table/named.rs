//! Named arguments for table functions: `downsample('load', '1m', aggregate => 'sum')`.
//!
//! DataFusion plans functions in FROM with positional arguments only. So the names are turned into positions before it
//! plans: each argument moves to its parameter's place, and the places that were left out become NULL.

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::planner::{RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::sql::sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, TableFactor, Value};

use super::{asof, downsample, gaps};

/// The table functions, each with its parameters in the order in which they may be given without names.
const FUNCTIONS: [(&str, &[&str]); 3] =
    [(asof::NAME, &asof::PARAMETERS), (downsample::NAME, &downsample::PARAMETERS), (gaps::NAME, &gaps::PARAMETERS)];

#[derive(Debug)]
pub struct NamedArguments;

impl RelationPlanner for NamedArguments {
    fn plan_relation(
        &self,
        mut relation: TableFactor,
        _context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        if let TableFactor::Table { name, args: Some(given), .. } = &mut relation
            && let name = name.to_string()
            && let Some((function, parameters)) = FUNCTIONS.iter().find(|(function, _)| *function == name)
        {
            given.args = placed(function, parameters, std::mem::take(&mut given.args))?;
        }
        Ok(RelationPlanning::Original(Box::new(relation)))
    }
}

fn placed(function: &str, parameters: &[&str], given: Vec<FunctionArg>) -> Result<Vec<FunctionArg>> {
    let mut places: Vec<Option<Expr>> = vec![None; parameters.len()];
    let mut positions = 0..parameters.len();
    for argument in given {
        let (at, value) = match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => (positions.next(), value),
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
                let at = parameters.iter().position(|parameter| *parameter == name.value);
                // After a name, positions have no meaning any more.
                positions = 0..0;
                if at.is_none() {
                    return plan_err!("{function} has no argument '{}'; it has {}", name.value, parameters.join(", "));
                }
                (at, value)
            }
            other => return plan_err!("{function}: the argument {other} is not a value"),
        };
        let Some(at) = at else {
            return plan_err!(
                "{function}: an argument too many, or one without a name behind one with a name; arguments are {}",
                parameters.join(", ")
            );
        };
        if places[at].replace(value).is_some() {
            return plan_err!("{function}: the argument '{}' is given twice", parameters[at]);
        }
    }
    let null = || Expr::Value(Value::Null.into());
    let placed =
        places.into_iter().map(|value| FunctionArg::Unnamed(FunctionArgExpr::Expr(value.unwrap_or_else(null))));
    Ok(placed.collect())
}
