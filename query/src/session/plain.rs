//! Plain plans (filters, aggregates, sorts and limits over one table) are optimized by fewer rules.
//!
//! DataFusion's lists are for all plans, and each rule walks through the whole plan, some of them several times. The
//! rules that are left out here change only nodes that a plain plan does not have, or, of those for physical plans,
//! spread work among threads, which a plan of one thread does not need.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProviderList, Session};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::config::TableOptions;
use datafusion::execution::TaskContext;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::registry::ExtensionTypeRegistryRef;
use datafusion::logical_expr::{AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, ScalarUDF, WindowUDF};
use datafusion::optimizer::Optimizer;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use datafusion::prelude::SessionConfig;

/// Of logical plans: what is about joins, unions, subqueries and DISTINCT.
const LOGICAL_LEFT_OUT: [&str; 13] = [
    "rewrite_set_comparison",
    "optimize_unions",
    "unions_to_filter",
    "replace_distinct_aggregate",
    "eliminate_join",
    "decorrelate_predicate_subquery",
    "scalar_subquery_to_join",
    "decorrelate_lateral_join",
    "extract_equijoin_predicate",
    "eliminate_cross_join",
    "filter_null_join_keys",
    "eliminate_outer_join",
    "single_distinct_aggregation_to_group_by",
];
/// Of physical plans: what is about joins, windows, filters that leaves do not take, and work that is spread.
const PHYSICAL_LEFT_OUT: [&str; 10] = [
    "join_selection",
    "LimitedDistinctAggregation",
    "FilterPushdown",
    "FilterPushdown(Post)",
    "WindowTopN",
    "LimitAggregation",
    "LimitPushPastWindows",
    "HashJoinBuffering",
    "TopKRepartition",
    "PushdownSort",
];

type PhysicalRule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// The rules that plain plans need.
#[derive(Clone, Debug)]
pub struct PlainRules {
    pub logical: Optimizer,
    /// Of plans of one thread.
    physical: Vec<PhysicalRule>,
}

impl PlainRules {
    /// Those of `template`, as far as they are needed.
    pub fn of(template: &SessionState) -> Self {
        let logical = template.optimizers().iter().filter(|rule| !LOGICAL_LEFT_OUT.contains(&rule.name()));
        let physical = template.physical_optimizers().iter();
        let physical = physical.filter(|rule| !PHYSICAL_LEFT_OUT.contains(&rule.name()));
        Self { logical: Optimizer::with_rules(logical.cloned().collect()), physical: physical.cloned().collect() }
    }

    /// All rules, as if none could be left out.
    #[cfg(test)]
    pub fn all(template: &SessionState) -> Self {
        let logical = Optimizer::with_rules(template.optimizers().to_vec());
        Self { logical, physical: template.physical_optimizers().to_vec() }
    }

    /// Of the names of rules that are left out those that no rule of `template` has.
    #[cfg(test)]
    pub fn unknown(template: &SessionState) -> Vec<&'static str> {
        let logical = |name: &&str| !template.optimizers().iter().any(|rule| rule.name() == *name);
        let physical = |name: &&str| !template.physical_optimizers().iter().any(|rule| rule.name() == *name);
        LOGICAL_LEFT_OUT.into_iter().filter(logical).chain(PHYSICAL_LEFT_OUT.into_iter().filter(physical)).collect()
    }
}

/// Whether there is nothing in `plan` that the rules left out are about.
pub fn is_plain(plan: &LogicalPlan) -> bool {
    let mut plain = true;
    let walked = plan.apply(|node| {
        plain &= matches!(
            node,
            LogicalPlan::Projection(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::Sort(_)
                | LogicalPlan::Limit(_)
                | LogicalPlan::Aggregate(_)
                | LogicalPlan::SubqueryAlias(_)
                | LogicalPlan::TableScan(_)
                | LogicalPlan::EmptyRelation(_)
                | LogicalPlan::Values(_)
        );
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                plain &= match expr {
                    Expr::Exists(_)
                    | Expr::InSubquery(_)
                    | Expr::SetComparison(_)
                    | Expr::ScalarSubquery(_)
                    | Expr::OuterReferenceColumn(..)
                    | Expr::WindowFunction(_)
                    | Expr::Unnest(_) => false,
                    Expr::AggregateFunction(aggregate) => !aggregate.params.distinct,
                    _ => true,
                };
                Ok(if plain { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
            })
        })?;
        Ok(if plain { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    plain && walked.is_ok()
}

/// A session whose physical plans are plain and of one thread.
pub struct PlainSession<'a> {
    pub state: &'a mut SessionState,
    pub rules: &'a PlainRules,
}

#[async_trait]
impl Session for PlainSession<'_> {
    fn session_id(&self) -> &str {
        self.state.session_id()
    }

    fn config(&self) -> &SessionConfig {
        self.state.config()
    }

    fn catalog_list(&self) -> Arc<dyn CatalogProviderList> {
        Arc::clone(self.state.catalog_list())
    }

    fn query_planner(&self) -> Arc<dyn QueryPlanner + Send + Sync> {
        Arc::clone(self.state.query_planner())
    }

    fn physical_optimizers(&self) -> &[PhysicalRule] {
        &self.rules.physical
    }

    async fn create_physical_plan(&self, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
        self.state.query_planner().create_physical_plan(plan, self).await
    }

    fn create_physical_expr(&self, expr: Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
        self.state.create_physical_expr(expr, schema)
    }

    fn scalar_functions(&self) -> &HashMap<String, Arc<ScalarUDF>> {
        self.state.scalar_functions()
    }

    fn higher_order_functions(&self) -> &HashMap<String, Arc<HigherOrderUDF>> {
        self.state.higher_order_functions()
    }

    fn aggregate_functions(&self) -> &HashMap<String, Arc<AggregateUDF>> {
        self.state.aggregate_functions()
    }

    fn window_functions(&self) -> &HashMap<String, Arc<WindowUDF>> {
        self.state.window_functions()
    }

    fn extension_type_registry(&self) -> &ExtensionTypeRegistryRef {
        Session::extension_type_registry(&*self.state)
    }

    fn runtime_env(&self) -> &Arc<RuntimeEnv> {
        self.state.runtime_env()
    }

    fn execution_props(&self) -> &ExecutionProps {
        self.state.execution_props()
    }

    fn as_any(&self) -> &dyn Any {
        // Whoever looks for a state behind this does not ask for rules.
        &*self.state
    }

    fn table_options(&self) -> &TableOptions {
        self.state.table_options()
    }

    fn table_options_mut(&mut self) -> &mut TableOptions {
        self.state.table_options_mut()
    }

    fn task_ctx(&self) -> Arc<TaskContext> {
        self.state.task_ctx()
    }
}
