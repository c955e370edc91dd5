//! Plain plans (filters, aggregates, sorts and limits over one table) are optimized by fewer rules.
//!
//! DataFusion's lists are for all plans, and each rule walks through the whole plan, some of them several times. The
//! rules that are left out here change only nodes that a plan does not have, or, of those for physical plans, spread
//! work among threads, which a plan of one thread does not need. And most plain plans are gone through once, not until
//! nothing changes any more.

use std::any::Any;
use std::collections::HashMap;
use std::mem::discriminant;
use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::catalog::{CatalogProviderList, Session};
use datafusion::common::alias::AliasGenerator;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::config::{ConfigOptions, TableOptions};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::TaskContext;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::registry::ExtensionTypeRegistryRef;
use datafusion::logical_expr::{AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, Operator, ScalarUDF, WindowUDF};
use datafusion::optimizer::{Optimizer, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use datafusion::prelude::SessionConfig;

use crate::table::Table;

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

/// Rules that are about something that not every plain plan has.
const LOGICAL_ABOUT: [(&str, &[PlanPart]); 10] = [
    ("eliminate_duplicated_expr", &[PlanPart::Aggregate, PlanPart::Sort]),
    ("eliminate_filter", &[PlanPart::Filter]),
    ("eliminate_limit", &[PlanPart::Limit]),
    ("propagate_empty_relation", &[PlanPart::Filter, PlanPart::Limit]),
    ("push_down_limit", &[PlanPart::Limit]),
    ("push_down_filter", &[PlanPart::Filter]),
    ("eliminate_group_by_constant", &[PlanPart::Aggregate]),
    ("common_sub_expression_eliminate", &[PlanPart::Computed]),
    ("extract_leaf_expressions", &[PlanPart::Computed]),
    ("push_down_leaf_projections", &[PlanPart::Computed]),
];
/// The same of physical plans: order and distribution are asked for by aggregates and sorts.
const PHYSICAL_ABOUT: [(&str, &[PlanPart]); 7] = [
    ("OutputRequirements", &[PlanPart::Aggregate, PlanPart::Sort]),
    ("aggregate_statistics", &[PlanPart::Aggregate]),
    ("EnsureRequirements", &[PlanPart::Aggregate, PlanPart::Sort]),
    ("CombinePartialFinalAggregate", &[PlanPart::Aggregate]),
    ("OptimizeAggregateOrder", &[PlanPart::Aggregate]),
    ("LimitPushdown", &[PlanPart::Limit, PlanPart::Sort]),
    ("SanityCheckPlan", &[PlanPart::Aggregate, PlanPart::Sort]),
];

type PhysicalRule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// What a plain plan may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlanPart {
    Filter,
    Aggregate,
    Sort,
    Limit,
    /// An expression that is more than columns and constants, comparisons of those, and aggregates over them.
    Computed,
}

/// What is in a plain plan.
#[derive(Clone, Debug, Default)]
pub struct PlainPlan {
    parts: Vec<PlanPart>,
    /// Whether there are two nodes of a kind.
    is_nested: bool,
}

impl PlainPlan {
    /// `None` of a plan with anything that the rules left out are about.
    pub fn of(plan: &LogicalPlan) -> Option<Self> {
        let mut found = Self::default();
        let (mut plain, mut kinds) = (true, Vec::new());
        let walked = plan.apply(|node| {
            let part = match node {
                LogicalPlan::Filter(_) => Some(PlanPart::Filter),
                LogicalPlan::Sort(_) => Some(PlanPart::Sort),
                LogicalPlan::Limit(_) => Some(PlanPart::Limit),
                LogicalPlan::Aggregate(_) => Some(PlanPart::Aggregate),
                LogicalPlan::Projection(_)
                | LogicalPlan::SubqueryAlias(_)
                | LogicalPlan::TableScan(_)
                | LogicalPlan::EmptyRelation(_)
                | LogicalPlan::Values(_) => None,
                _ => {
                    plain = false;
                    None
                }
            };
            found.parts.extend(part);
            found.is_nested |= kinds.contains(&discriminant(node));
            kinds.push(discriminant(node));
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
                    if !is_comparison(expr) && !found.has(PlanPart::Computed) {
                        found.parts.push(PlanPart::Computed);
                    }
                    Ok(if plain { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
                })
            })?;
            Ok(if plain { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
        });
        (plain && walked.is_ok()).then_some(found)
    }

    fn has(&self, part: PlanPart) -> bool {
        self.parts.contains(&part)
    }

    /// Whether a rule that is about these parts, if any are named, is needed.
    fn needs(&self, rule: &str, about: &[(&str, &[PlanPart])]) -> bool {
        let parts = about.iter().find(|(name, _)| *name == rule);
        parts.is_none_or(|(_, parts)| parts.iter().any(|part| self.has(*part)))
    }
}

/// Whether an expression by itself, whatever is in it, is a column, a constant, a comparison or an aggregate.
fn is_comparison(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) | Expr::Literal(..) | Expr::Alias(_) | Expr::Cast(_) | Expr::AggregateFunction(_) => true,
        Expr::Between(_) | Expr::InList(_) | Expr::IsNull(_) | Expr::IsNotNull(_) | Expr::Not(_) => true,
        Expr::BinaryExpr(binary) => matches!(
            binary.op,
            Operator::Eq
                | Operator::NotEq
                | Operator::Lt
                | Operator::LtEq
                | Operator::Gt
                | Operator::GtEq
                | Operator::And
                | Operator::Or
        ),
        _ => false,
    }
}

fn has_filter(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Filter(_))))
}

/// Whether any table in the plan is of digests.
fn asks_digests(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| {
        let LogicalPlan::TableScan(scan) = node else { return Ok(false) };
        Ok(source_as_provider(&scan.source)?.downcast_ref::<Table>().is_some_and(Table::is_of_digests))
    })
}

/// The rules that plain plans need.
#[derive(Clone, Debug)]
pub struct PlainRules {
    logical: Vec<Arc<dyn OptimizerRule + Send + Sync>>,
    /// Of plans of one thread.
    physical: Vec<PhysicalRule>,
    /// Those of the session, but for the number of times that rules go through a plan. No question changes any that a
    /// rule for logical plans looks at.
    once: Arc<ConfigOptions>,
}

impl PlainRules {
    /// Those of `template`, as far as they are needed.
    pub fn of(template: &SessionState) -> Self {
        let logical = template.optimizers().iter().filter(|rule| !LOGICAL_LEFT_OUT.contains(&rule.name()));
        let physical = template.physical_optimizers().iter();
        let physical = physical.filter(|rule| !PHYSICAL_LEFT_OUT.contains(&rule.name()));
        let mut once = ConfigOptions::clone(template.config_options());
        once.optimizer.max_passes = 1;
        Self { logical: logical.cloned().collect(), physical: physical.cloned().collect(), once: Arc::new(once) }
    }

    /// The plan, which is analyzed, as [`SessionState::optimize`] leaves it.
    ///
    /// # Errors
    /// What a rule refuses.
    pub fn optimize(&self, analyzed: LogicalPlan, plain: &PlainPlan, state: &SessionState) -> Result<LogicalPlan> {
        let needed = self.logical.iter().filter(|rule| plain.needs(rule.name(), &LOGICAL_ABOUT));
        let optimizer = Optimizer::with_rules(needed.cloned().collect());
        if plain.is_nested {
            return optimizer.optimize(analyzed, state, |_, _| {});
        }
        let pass = |plan| optimizer.optimize(plan, &OnePass { state, options: &self.once }, |_, _| {});
        let mut optimized = pass(analyzed)?;
        // A limit is passed on when no filter is in its way any more. And of filters that are put together only a second
        // look tells that nothing passes them.
        if plain.has(PlanPart::Filter) && (plain.has(PlanPart::Limit) || has_filter(&optimized)?) {
            optimized = pass(optimized)?;
        }
        // Digests came in place of samples when most rules were done.
        if plain.has(PlanPart::Aggregate) && asks_digests(&optimized)? {
            optimized = pass(optimized)?;
        }
        Ok(optimized)
    }

    /// Those that a plan of one thread needs.
    pub fn physical(&self, plain: &PlainPlan) -> Vec<PhysicalRule> {
        let mut needed: Vec<PhysicalRule> = Vec::with_capacity(self.physical.len());
        // The second time some rules look at what others made of a plan for aggregates, sorts and limits.
        let is_simple = !plain.parts.iter().any(|part| !matches!(part, PlanPart::Filter | PlanPart::Computed));
        for rule in self.physical.iter().filter(|rule| plain.needs(rule.name(), &PHYSICAL_ABOUT)) {
            if !is_simple || needed.iter().all(|known| known.name() != rule.name()) {
                needed.push(Arc::clone(rule));
            }
        }
        needed
    }

    /// Of the names of rules that are left out, or about something, those that no rule of `template` has.
    #[cfg(test)]
    pub fn unknown(template: &SessionState) -> Vec<&'static str> {
        let logical = |name: &&str| !template.optimizers().iter().any(|rule| rule.name() == *name);
        let physical = |name: &&str| !template.physical_optimizers().iter().any(|rule| rule.name() == *name);
        let logical_names = LOGICAL_LEFT_OUT.into_iter().chain(LOGICAL_ABOUT.map(|(name, _)| name)).filter(logical);
        let physical_names = PHYSICAL_LEFT_OUT.into_iter().chain(PHYSICAL_ABOUT.map(|(name, _)| name)).filter(physical);
        logical_names.chain(physical_names).collect()
    }
}

/// What rules see of a session that go through a plan once.
struct OnePass<'a> {
    state: &'a SessionState,
    options: &'a Arc<ConfigOptions>,
}

impl OptimizerConfig for OnePass<'_> {
    fn query_execution_start_time(&self) -> Option<DateTime<Utc>> {
        self.state.query_execution_start_time()
    }

    fn alias_generator(&self) -> &Arc<AliasGenerator> {
        self.state.alias_generator()
    }

    fn options(&self) -> Arc<ConfigOptions> {
        Arc::clone(self.options)
    }

    fn function_registry(&self) -> Option<&dyn FunctionRegistry> {
        self.state.function_registry()
    }
}

/// A session whose physical plans are plain and of one thread.
pub struct PlainSession<'a> {
    pub state: &'a mut SessionState,
    pub rules: Vec<PhysicalRule>,
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
        &self.rules
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
