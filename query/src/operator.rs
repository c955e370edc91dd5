//! What every operator of ours says of itself in the same words.

/// The methods of `ExecutionPlan` for an operator that evaluates no expressions, with what it is over other children:
/// `rebuilt!(|operator, children| ...)`.
macro_rules! rebuilt {
    (|$operator:ident, $children:ident| $rebuilt:expr) => {
        fn apply_expressions(
            &self,
            _visit: &mut dyn FnMut(
                &::std::sync::Arc<dyn ::datafusion::physical_expr::PhysicalExpr>,
            )
                -> ::datafusion::common::Result<::datafusion::common::tree_node::TreeNodeRecursion>,
        ) -> ::datafusion::common::Result<::datafusion::common::tree_node::TreeNodeRecursion> {
            Ok(::datafusion::common::tree_node::TreeNodeRecursion::Continue)
        }

        fn replace_children(
            self: ::std::sync::Arc<Self>,
            $children: Vec<::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>>,
            _options: ::datafusion::physical_plan::execution_plan::ReplaceChildrenOptions,
        ) -> ::datafusion::common::Result<::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>> {
            let $operator = self;
            $rebuilt
        }

        fn with_new_children(
            self: ::std::sync::Arc<Self>,
            $children: Vec<::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>>,
        ) -> ::datafusion::common::Result<::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>> {
            let $operator = self;
            $rebuilt
        }
    };
}

pub(crate) use rebuilt;
