//! The filters that a leaf can apply itself: tests on names, and ranges of time and of values.
//!
//! The functions are pure. They take an expression and return a filter for the leaf, or `None` if the filter must stay
//! above the leaf. The returned filter means exactly what the expression means.

use std::ops::Bound;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{Between, InList, Like, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use telem_engine::{TimeRange, Timestamp, ValueRange};

use crate::leaf::names::{NameSubject, NameTest, Order};
use crate::leaf::rows::{Column, RowKind};
use crate::question::expression::Case;

#[derive(Clone, Debug, PartialEq)]
pub enum Pushed {
    Test(NameSubject, NameTest),
    Range(TimeRange),
    Values(ValueRange),
}

/// What `filter` asks of rows of this kind; `column` says what a name means.
pub fn push<'a>(filter: &Expr, rows: RowKind, column: &dyn Fn(&str) -> Option<&'a Column>) -> Option<Pushed> {
    let names = ColumnNames { rows, column };
    match filter {
        // DataFusion writes a short IN list so.
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            either(push(left, rows, column)?, push(right, rows, column)?)
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (names.literal(left), names.literal(right)) {
            (None, Some(literal)) => names.compare(left, *op, literal),
            (Some(literal), None) => names.compare(right, op.swap()?, literal),
            _ => None,
        },
        Expr::Between(Between { expr, negated: false, low, high }) if names.is_ts(expr) => {
            let low = time_range(Operator::GtEq, literal(low)?)?;
            let high = time_range(Operator::LtEq, literal(high)?)?;
            Some(Pushed::Range(low.intersect(high)))
        }
        Expr::InList(InList { expr, list, negated }) => {
            let subject = names.subject(expr)?;
            let names = list.iter().map(|item| text(literal(item)?)).collect::<Option<Vec<_>>>()?;
            Some(Pushed::Test(subject, NameTest::In { names, negated: *negated }))
        }
        Expr::Like(Like { negated, expr, pattern, escape_char: None | Some('\\'), case_insensitive }) => {
            let case = if *case_insensitive { Case::Ignored } else { Case::Matters };
            let pattern = text(literal(pattern)?)?;
            names.test(expr, NameTest::Like { pattern, case, negated: *negated })
        }
        Expr::IsNull(expr) => names.test(expr, NameTest::Absent).filter(is_of_tag),
        Expr::IsNotNull(expr) => names.test(expr, NameTest::Present).filter(is_of_tag),
        _ => None,
    }
}

/// The values that `filter` asks for, where it compares them with a number; `is_value` says whether that is what a name
/// means.
///
/// DataFusion compares floats by their total order, with both zeros equal, and so does a [`ValueRange`].
pub fn push_values(filter: &Expr, is_value: &dyn Fn(&str) -> bool) -> Option<ValueRange> {
    let is_value = |expr: &Expr| matches!(expr, Expr::Column(column) if is_value(&column.name));
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_value(left) => value_range(*op, number(right)?),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_value(right) => value_range(op.swap()?, number(left)?),
        Expr::Between(Between { expr, negated: false, low, high }) if is_value(expr) => {
            Some(ValueRange::new(Bound::Included(number(low)?), Bound::Included(number(high)?)))
        }
        _ => None,
    }
}

/// The values for which `value op number` holds.
fn value_range(op: Operator, number: f64) -> Option<ValueRange> {
    let all = Bound::Unbounded;
    match op {
        Operator::Eq => Some(ValueRange::new(Bound::Included(number), Bound::Included(number))),
        Operator::Gt => Some(ValueRange::new(Bound::Excluded(number), all)),
        Operator::GtEq => Some(ValueRange::new(Bound::Included(number), all)),
        Operator::Lt => Some(ValueRange::new(all, Bound::Excluded(number))),
        Operator::LtEq => Some(ValueRange::new(all, Bound::Included(number))),
        _ => None,
    }
}

fn number(expr: &Expr) -> Option<f64> {
    match literal(expr)? {
        ScalarValue::Float64(number) => *number,
        _ => None,
    }
}

struct ColumnNames<'a, 'b> {
    rows: RowKind,
    column: &'b dyn Fn(&str) -> Option<&'a Column>,
}

impl ColumnNames<'_, '_> {
    fn compare(&self, expr: &Expr, op: Operator, literal: &ScalarValue) -> Option<Pushed> {
        if self.is_ts(expr) {
            return Some(Pushed::Range(time_range(op, literal)?));
        }
        let name = text(literal)?;
        let regex = |case, negated| NameTest::Regex { pattern: name.clone(), case, negated };
        let like = |case, negated| NameTest::Like { pattern: name.clone(), case, negated };
        let compare = |order| NameTest::Compare { order, name: name.clone() };
        let test = match op {
            Operator::Eq => NameTest::In { names: vec![name], negated: false },
            Operator::NotEq => NameTest::In { names: vec![name], negated: true },
            Operator::Lt => compare(Order::Less),
            Operator::LtEq => compare(Order::LessOrEqual),
            Operator::Gt => compare(Order::Greater),
            Operator::GtEq => compare(Order::GreaterOrEqual),
            Operator::RegexMatch => regex(Case::Matters, false),
            Operator::RegexIMatch => regex(Case::Ignored, false),
            Operator::RegexNotMatch => regex(Case::Matters, true),
            Operator::RegexNotIMatch => regex(Case::Ignored, true),
            Operator::LikeMatch => like(Case::Matters, false),
            Operator::ILikeMatch => like(Case::Ignored, false),
            Operator::NotLikeMatch => like(Case::Matters, true),
            Operator::NotILikeMatch => like(Case::Ignored, true),
            _ => return None,
        };
        self.test(expr, test)
    }

    fn test(&self, expr: &Expr, test: NameTest) -> Option<Pushed> {
        // A pattern that cannot be read stays above the leaf, where DataFusion says so.
        if test.accepts().is_err() {
            return None;
        }
        Some(Pushed::Test(self.subject(expr)?, test))
    }

    /// The name that `expr` is, where the leaf can decide by it.
    fn subject(&self, expr: &Expr) -> Option<NameSubject> {
        match expr {
            Expr::Column(named) => match ((self.column)(&named.name)?, self.rows) {
                (Column::Metric, RowKind::Sample | RowKind::Digest | RowKind::Series | RowKind::Metric) => {
                    Some(NameSubject::Metric)
                }
                (Column::Node, _) => Some(NameSubject::Node),
                (Column::Job, _) => Some(NameSubject::Job),
                (Column::Tag(key), RowKind::Sample | RowKind::Digest | RowKind::Series | RowKind::Stretch { .. }) => {
                    Some(NameSubject::Tag(key.clone()))
                }
                _ => None,
            },
            // tags['key']
            Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == "get_field" => {
                let [Expr::Column(named), key] = &args[..] else { return None };
                let is_tags = (self.column)(&named.name)? == &Column::Tags;
                is_tags.then(|| text(literal(key)?)).flatten().map(NameSubject::Tag)
            }
            Expr::Cast(cast) if is_text(cast.field.data_type()) => self.subject(&cast.expr),
            _ => None,
        }
    }

    fn is_ts(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Column(named) => {
                matches!(self.rows, RowKind::Sample | RowKind::Digest)
                    && (self.column)(&named.name) == Some(&Column::Ts)
            }
            // To microseconds or finer, with any zone: the same moment. A time without a zone
            // means UTC, so that cast changes nothing either.
            Expr::Cast(cast) => {
                let to = cast.field.data_type();
                matches!(to, DataType::Timestamp(TimeUnit::Microsecond | TimeUnit::Nanosecond, _))
                    && self.is_ts(&cast.expr)
            }
            _ => false,
        }
    }

    fn literal<'e>(&self, expr: &'e Expr) -> Option<&'e ScalarValue> {
        literal(expr)
    }
}

/// Both alternatives as one test, where they only list names of one subject.
fn either(left: Pushed, right: Pushed) -> Option<Pushed> {
    let (Pushed::Test(subject, left), Pushed::Test(other, right)) = (left, right) else { return None };
    let (NameTest::In { mut names, negated: false }, NameTest::In { names: more, negated: false }) = (left, right)
    else {
        return None;
    };
    names.extend(more);
    (subject == other).then_some(Pushed::Test(subject, NameTest::In { names, negated: false }))
}

fn is_of_tag(pushed: &Pushed) -> bool {
    matches!(pushed, Pushed::Test(NameSubject::Tag(_), _))
}

fn literal(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// A literal text; `None` for NULL, which nothing equals.
fn text(value: &ScalarValue) -> Option<String> {
    value.try_as_str().flatten().map(str::to_owned)
}

/// The times for which `ts op literal` holds.
fn time_range(op: Operator, literal: &ScalarValue) -> Option<TimeRange> {
    // In nanoseconds, so that a literal between two microseconds is rounded the right way.
    let nanos = match literal {
        ScalarValue::TimestampSecond(Some(seconds), _) => i128::from(*seconds) * 1_000_000_000,
        ScalarValue::TimestampMillisecond(Some(millis), _) => i128::from(*millis) * 1_000_000,
        ScalarValue::TimestampMicrosecond(Some(micros), _) => i128::from(*micros) * 1_000,
        ScalarValue::TimestampNanosecond(Some(nanos), _) => i128::from(*nanos),
        _ => return None,
    };
    let whole = nanos.rem_euclid(1_000) == 0;
    let at = |micros: i128| {
        let clamped = micros.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
        Timestamp::from_micros(i64::try_from(clamped).unwrap_or(i64::MAX))
    };
    // The first microsecond at or after the literal, and the first after it.
    let from = at(nanos.div_euclid(1_000) + i128::from(!whole));
    let after = at(nanos.div_euclid(1_000) + 1);
    let TimeRange { start, end } = TimeRange::ALL;
    match op {
        Operator::Eq if whole => Some(TimeRange::new(from, after)),
        Operator::Gt => Some(TimeRange::new(after, end)),
        Operator::GtEq => Some(TimeRange::new(from, end)),
        Operator::Lt => Some(TimeRange::new(start, from)),
        Operator::LtEq => Some(TimeRange::new(start, after)),
        _ => None,
    }
}
