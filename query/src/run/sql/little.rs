//! Which plans read so little that one thread answers them sooner than several: to hand rows over to other threads, and
//! to wake these up, takes longer than to read some thousand samples.

use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;

use crate::plan::ONE_PART_SERIES_MAX;
use crate::table::Table;
use crate::view::View;

/// Whether all that `plan` reads is of our own database, and no more than so many rows. Of tables that are joined it is
/// the rows that a join may make of theirs.
///
/// # Errors
/// Io and Corrupt, from the indexes of segments.
pub(super) fn reads_little(plan: &LogicalPlan, view: &View, rows_max: u64) -> Result<bool> {
    if rows_max == 0 || !view.is_alone() {
        return Ok(false);
    }
    let (mut tables, mut joins, mut is_known) = (Vec::new(), false, true);
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(scan) => {
                let provider = source_as_provider(&scan.source)?;
                let rows = match provider.downcast_ref::<Table>() {
                    Some(table) => table.rows_max(scan.projection.as_ref(), &scan.filters, ONE_PART_SERIES_MAX)?,
                    None => None,
                };
                is_known &= rows.is_some_and(|rows| rows <= rows_max);
                tables.extend(rows);
            }
            LogicalPlan::Join(_) => joins = true,
            // What follows itself may go on for any time, and a list have any length.
            LogicalPlan::RecursiveQuery(_) | LogicalPlan::Unnest(_) => is_known = false,
            _ => {}
        }
        Ok(if is_known { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    let rows = match joins {
        true => tables.iter().fold(1_u64, |rows, table| rows.saturating_mul((*table).max(1))),
        false => tables.iter().fold(0_u64, |rows, table| rows.saturating_add(*table)),
    };
    Ok(is_known && rows <= rows_max)
}
