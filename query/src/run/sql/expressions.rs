//! Regular expressions in the text of a query are compiled before anything is planned. The optimizer and the operators,
//! which compile them again, have other limits and messages for invalid ones.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator};

use crate::error::{Error, Result};
use crate::question::expression::{Case, Expression};

/// Characters of an expression that its error shows.
const SHOWN_CHARS_MAX: usize = 60;

/// # Errors
/// Invalid, when a literal expression is malformed or too large.
pub(super) fn check(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expression| {
            expression.apply(|expression| match pattern(expression).map(check_one) {
                Some(Err(error)) => Err(DataFusionError::External(Box::new(error))),
                _ => Ok(TreeNodeRecursion::Continue),
            })
        })
    })?;
    Ok(())
}

/// The regular expression that `expression` asks for, where it is written out.
fn pattern(expression: &Expr) -> Option<&str> {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    let pattern = match expression {
        Expr::BinaryExpr(binary) if matches!(binary.op, RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch) => {
            &*binary.right
        }
        Expr::SimilarTo(similar) => &*similar.pattern,
        Expr::ScalarFunction(call) if call.name().starts_with("regexp_") => call.args.get(1)?,
        _ => return None,
    };
    match pattern {
        Expr::Literal(text, _) => text.try_as_str().flatten(),
        _ => None,
    }
}

fn check_one(pattern: &str) -> Result<()> {
    let Err(why) = Expression::new(pattern, Case::Matters) else { return Ok(()) };
    let mut shown: String = pattern.chars().take(SHOWN_CHARS_MAX).collect();
    if shown.len() < pattern.len() {
        shown.push_str("...");
    }
    Err(Error::Invalid(format!("the regular expression '{shown}': {why}")))
}
