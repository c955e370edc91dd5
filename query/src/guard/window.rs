//! Window functions that return a value of another row; one large value may appear again in every row.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::{
    ExpressionArgs, PartitionEvaluatorArgs, WindowFunctionSimplification, WindowUDFFieldArgs,
};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{
    Documentation, LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_plan::PhysicalExpr;

use super::bounds::TooMuch;
use super::{OUTPUT_BYTES_MAX, bounds, size};

/// Those that hand out values.
const HANDING_OUT: [&str; 5] = ["first_value", "lag", "last_value", "lead", "nth_value"];

/// The same function within bounds, unless it is already or needs none.
pub(super) fn guarded(function: Arc<WindowUDF>) -> Arc<WindowUDF> {
    match HANDING_OUT.contains(&function.name()) && !function.inner().is::<GuardedWindow>() {
        true => Arc::new(WindowUDF::new_from_impl(GuardedWindow { inner: function })),
        false => function,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct GuardedWindow {
    inner: Arc<WindowUDF>,
}

#[derive(Debug)]
struct GuardedEvaluator {
    inner: Box<dyn PartitionEvaluator>,
    function: String,
    /// Bytes of texts and lists that it handed out.
    given: u64,
}

impl GuardedEvaluator {
    fn give(&mut self, bytes: u64) -> Result<()> {
        self.given += bytes;
        if self.given <= OUTPUT_BYTES_MAX {
            return Ok(());
        }
        let (function, found, max) = (self.function.clone(), self.given, OUTPUT_BYTES_MAX);
        let what = "bytes over one window";
        Err(bounds::refuse(TooMuch { function, what, found, max }))
    }
}

impl PartitionEvaluator for GuardedEvaluator {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.inner.memoize(state)
    }

    fn get_range(&self, idx: usize, n_rows: usize) -> Result<Range<usize>> {
        self.inner.get_range(idx, n_rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], num_rows: usize) -> Result<ArrayRef> {
        bounds::check()?;
        let given = self.inner.evaluate_all(values, num_rows)?;
        if !given.data_type().is_primitive() {
            // Each value comes once here, a default for those that are missing aside.
            self.give(size::bytes(&given, 0..given.len()))?;
        }
        Ok(given)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        let given = self.inner.evaluate(values, range)?;
        if !given.data_type().is_primitive() {
            bounds::check()?;
            self.give(size::of_scalar(&given))?;
        }
        Ok(given)
    }

    fn evaluate_all_with_rank(&self, num_rows: usize, ranks_in_partition: &[Range<usize>]) -> Result<ArrayRef> {
        self.inner.evaluate_all_with_rank(num_rows, ranks_in_partition)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.inner.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.inner.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.inner.include_rank()
    }
}

#[warn(clippy::missing_trait_methods)] // It must hand on every one of them.
impl WindowUDFImpl for GuardedWindow {
    fn partition_evaluator(&self, args: PartitionEvaluatorArgs<'_>) -> Result<Box<dyn PartitionEvaluator>> {
        let inner = self.inner.partition_evaluator_factory(args)?;
        Ok(Box::new(GuardedEvaluator { inner, function: self.inner.name().to_owned(), given: 0 }))
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        match self.inner.reverse_expr() {
            ReversedUDWF::Reversed(reversed) => ReversedUDWF::Reversed(guarded(reversed)),
            other => other,
        }
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn expressions(&self, args: ExpressionArgs<'_>) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.expressions(args)
    }

    fn simplify(&self) -> Option<WindowFunctionSimplification> {
        self.inner.simplify()
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.field(args)
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.sort_options()
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(args)
    }
}
