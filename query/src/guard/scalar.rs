//! A scalar function within bounds.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::concat;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{ExprSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ExpressionPlacement, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, StructFieldMapping,
};

use super::bounds::TooMuch;
use super::growth::{ArgumentBytes, Growth};
use super::{COUNTED_BYTES_MIN, OUTPUT_BYTES_MAX, PIECE_BYTES, bounds, counted, size};
use crate::error::Error;

/// Steps of a function that does not let go of its thread: some seconds.
pub(crate) const STEPS_MAX: u64 = 2_000_000_000;
/// Elements of a type whose values all have as many.
pub(crate) const FIXED_ELEMENTS_MAX: i32 = 4_096;
/// What plans look at by its type, and what makes nothing: it hands out a part of its argument.
const LEFT_ALONE: [&str; 1] = ["get_field"];

/// The same function within bounds, unless it is already.
pub(super) fn guarded(function: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    if is_guarded(&function) {
        return function;
    }
    let growth = Growth::of(function.name());
    Arc::new(ScalarUDF::new_from_impl(GuardedFunction { inner: function, growth }))
}

pub(super) fn is_guarded(function: &ScalarUDF) -> bool {
    function.inner().is::<GuardedFunction>() || LEFT_ALONE.contains(&function.name())
}

/// The same expression, of guarded functions only.
pub(super) fn guard_all(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| match expr {
        Expr::ScalarFunction(mut call) if !is_guarded(&call.func) => {
            call.func = guarded(call.func);
            Ok(Transformed::yes(Expr::ScalarFunction(call)))
        }
        expr => Ok(Transformed::no(expr)),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct GuardedFunction {
    inner: Arc<ScalarUDF>,
    growth: Growth,
}

impl GuardedFunction {
    /// What the function makes of all rows, piece by piece.
    fn evaluate(&self, call: &ScalarFunctionArgs) -> Result<ColumnarValue> {
        let given = ArgumentBytes::new(&call.args);
        let constant = call.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let all = if constant { 0..1 } else { 0..call.number_rows };
        let mut pieces = Vec::new();
        self.cut(&given, all.clone(), &mut pieces)?;
        match pieces.as_slice() {
            [] => self.inner.invoke_with_args(call.clone()),
            [one] => {
                let memory = self.reserve(&given, one.clone())?;
                let made = self.inner.invoke_with_args(call.clone())?;
                drop(memory);
                self.kept(made)
            }
            pieces => self.joined(call, &given, pieces),
        }
    }

    /// Rows that are worked on at once.
    fn cut(&self, given: &ArgumentBytes<'_>, rows: Range<usize>, pieces: &mut Vec<Range<usize>>) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let (taken, made) = (given.all(rows.clone()), self.growth.most(given, rows.clone()));
        let steps = self.growth.steps(given, rows.clone());
        if taken.saturating_add(made) <= PIECE_BYTES && steps <= PIECE_BYTES * 100 {
            pieces.push(rows);
            return Ok(());
        }
        if rows.len() == 1 {
            let max = bounds::value_bytes_max();
            if made > max {
                return Err(self.too_large("bytes of one value", made, max));
            }
            if steps > STEPS_MAX {
                return Err(self.too_large("steps of one value", steps, STEPS_MAX));
            }
            pieces.push(rows);
            return Ok(());
        }
        let middle = rows.start + rows.len() / 2;
        self.cut(given, rows.start..middle, pieces)?;
        self.cut(given, middle..rows.end, pieces)
    }

    fn joined(
        &self,
        call: &ScalarFunctionArgs,
        given: &ArgumentBytes<'_>,
        pieces: &[Range<usize>],
    ) -> Result<ColumnarValue> {
        let (mut made, mut bytes, mut held) = (Vec::with_capacity(pieces.len()), 0, Vec::new());
        for rows in pieces {
            bounds::check()?;
            let reserved = self.reserve(given, rows.clone())?;
            let part = self.inner.invoke_with_args(slice(call, rows))?.into_array(rows.len())?;
            drop(reserved);
            let taken = self.check(&part, bytes)?;
            bytes += taken;
            held.extend(bounds::reserve(taken_by(&part, taken))?);
            made.push(part);
        }
        let again = bounds::reserve(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let whole = concat(&made.iter().map(|part| &**part).collect::<Vec<&dyn Array>>())?;
        drop((made, held, again));
        self.kept(ColumnarValue::Array(whole))
    }

    /// Memory for what may come of these rows, where that is worth counting.
    fn reserve(&self, given: &ArgumentBytes<'_>, rows: Range<usize>) -> Result<Option<MemoryReservation>> {
        let most = self.growth.most(given, rows);
        if most < COUNTED_BYTES_MIN { Ok(None) } else { bounds::reserve(usize::try_from(most).unwrap_or(usize::MAX)) }
    }

    /// The bytes of `array`, if they fit to the `before` that were made of this batch already.
    fn check(&self, array: &ArrayRef, before: u64) -> Result<u64> {
        let bytes = size::bytes(array, 0..array.len());
        if before + bytes > OUTPUT_BYTES_MAX {
            return Err(self.too_large("bytes of one batch", before + bytes, OUTPUT_BYTES_MAX));
        }
        let max = bounds::value_bytes_max();
        if bytes > max {
            let largest = (0..array.len()).map(|row| size::bytes(array, row..row + 1)).max().unwrap_or(0);
            if largest > max {
                return Err(self.too_large("bytes of one value", largest, max));
            }
        }
        Ok(bytes)
    }

    /// What was made, counted for as long as it lives.
    fn kept(&self, made: ColumnarValue) -> Result<ColumnarValue> {
        let array = match made {
            ColumnarValue::Array(array) => array,
            ColumnarValue::Scalar(scalar) => {
                let (bytes, max) = (size::of_scalar(&scalar), bounds::value_bytes_max());
                return match bytes > max {
                    true => Err(self.too_large("bytes of one value", bytes, max)),
                    false => Ok(ColumnarValue::Scalar(scalar)),
                };
            }
        };
        let worth_counting = COUNTED_BYTES_MIN.min(bounds::value_bytes_max());
        if array.data_type().is_primitive() || (array.get_buffer_memory_size() as u64) < worth_counting {
            return Ok(ColumnarValue::Array(array));
        }
        let bytes = self.check(&array, 0)?;
        if bytes < COUNTED_BYTES_MIN {
            return Ok(ColumnarValue::Array(array));
        }
        match bounds::reserve(taken_by(&array, bytes))? {
            Some(memory) => Ok(ColumnarValue::Array(counted::counted(&array, memory)?)),
            None => Ok(ColumnarValue::Array(array)),
        }
    }

    fn too_large(&self, what: &'static str, found: u64, max: u64) -> DataFusionError {
        let function = self.inner.name().to_owned();
        bounds::refuse(TooMuch { function, what, found, max })
    }
}

/// Memory of an array whose values have this many bytes: views may share their buffers with what they were made of.
fn taken_by(array: &dyn Array, bytes: u64) -> usize {
    array.get_buffer_memory_size().min(usize::try_from(bytes).unwrap_or(usize::MAX))
}

fn slice(call: &ScalarFunctionArgs, rows: &Range<usize>) -> ScalarFunctionArgs {
    let slice = |value: &ColumnarValue| match value {
        ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(rows.start, rows.len())),
        constant => constant.clone(),
    };
    ScalarFunctionArgs {
        args: call.args.iter().map(slice).collect(),
        arg_fields: call.arg_fields.clone(),
        number_rows: rows.len(),
        return_field: Arc::clone(&call.return_field),
        config_options: Arc::clone(&call.config_options),
    }
}

/// Refuses types of which a single value has any number of elements, missing ones included.
pub(super) fn check_type(found: &DataType) -> Result<()> {
    let wide = match found {
        DataType::FixedSizeList(_, count) | DataType::FixedSizeBinary(count) => *count > FIXED_ELEMENTS_MAX,
        _ => false,
    };
    if wide {
        let text = format!("values of {found} have too many elements; at most {FIXED_ELEMENTS_MAX} are allowed");
        return Err(DataFusionError::External(Box::new(Error::Invalid(text))));
    }
    match found {
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => check_type(field.data_type()),
        DataType::Struct(fields) => fields.iter().try_for_each(|field| check_type(field.data_type())),
        DataType::Dictionary(_, values) => check_type(values),
        _ => Ok(()),
    }
}

#[warn(clippy::missing_trait_methods)] // It must hand on every one of them.
impl ScalarUDFImpl for GuardedFunction {
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        bounds::check()?;
        self.evaluate(&args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        bounds::check()?;
        Ok(match self.inner.simplify(args, info)? {
            ExprSimplifyResult::Simplified(expr) => ExprSimplifyResult::Simplified(guard_all(expr)?.data),
            original => original,
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let field = self.inner.return_field_from_args(args)?;
        check_type(field.data_type())?;
        Ok(field)
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let inner = Arc::new(self.inner.inner().with_updated_config(config)?);
        Some(ScalarUDF::new_from_impl(Self { inner, growth: self.growth }))
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        #[expect(deprecated)]
        self.inner.display_name(args)
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.inner.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn is_nullable(&self, args: &[Expr], schema: &dyn ExprSchema) -> bool {
        #[expect(deprecated)]
        self.inner.is_nullable(args, schema)
    }

    fn is_strict(&self) -> bool {
        self.inner.inner().is_strict()
    }

    fn preimage(&self, args: &[Expr], lit_expr: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        self.inner.preimage(args, lit_expr, info)
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn evaluate_bounds(&self, input: &[&Interval]) -> Result<Interval> {
        self.inner.evaluate_bounds(input)
    }

    fn propagate_constraints(&self, interval: &Interval, inputs: &[&Interval]) -> Result<Option<Vec<Interval>>> {
        self.inner.propagate_constraints(interval, inputs)
    }

    fn struct_field_mapping(&self, literal_args: &[Option<ScalarValue>]) -> Option<StructFieldMapping> {
        self.inner.struct_field_mapping(literal_args)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.preserves_lex_ordering(inputs)
    }

    fn strictly_order_preserving(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.inner().strictly_order_preserving(inputs)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn placement(&self, args: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.inner.placement(args)
    }
}
