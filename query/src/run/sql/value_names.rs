//! The name of a metric as a column of its own table: `SELECT step, loss FROM loss` asks for the column `value`.
//!
//! Only where nothing else can be meant: every table of that SELECT is known, none has such a column, and the metric is
//! named once in FROM.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, TableFactor, VisitMut, VisitorMut,
};

const VALUE: &str = "value";

/// What each name means that stands for the column of values.
type Meanings = BTreeMap<String, Expr>;

/// Puts columns in place of the names of `metrics`, whose tables have a column of values and none of their own name;
/// no table of the statement has one.
pub(super) fn resolve(statement: &mut Statement, metrics: &BTreeSet<String>) {
    if metrics.is_empty() {
        return;
    }
    match statement {
        Statement::Statement(sql) => {
            let mut common = CommonTables::default();
            let _ = sql.visit(&mut common);
            let metrics = metrics.difference(&common.names).cloned().collect();
            let _ = sql.visit(&mut Selects { metrics, common: common.names });
        }
        Statement::Explain(explain) => resolve(&mut explain.statement, metrics),
        _ => {}
    }
}

/// The names that WITH gives. What columns those tables have is not known here.
#[derive(Default)]
struct CommonTables {
    names: BTreeSet<String>,
}

impl VisitorMut for CommonTables {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        self.names.extend(tables.map(|table| table.alias.name.value.clone()));
        ControlFlow::Continue(())
    }
}

/// Goes through every SELECT of a statement.
struct Selects {
    metrics: BTreeSet<String>,
    common: BTreeSet<String>,
}

impl VisitorMut for Selects {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        // ORDER BY stands beside its SELECT, which is visited after this.
        if let SetExpr::Select(select) = &*query.body
            && let Some(order) = &mut query.order_by
            && let OrderByKind::Expressions(order) = &mut order.kind
        {
            let meanings = hidden_by_outputs(self.meanings(select), select, OutputNames::WithPlainColumns);
            rewrite(order, &meanings);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let meanings = self.meanings(select);
        if meanings.is_empty() {
            return ControlFlow::Continue(());
        }
        let behind = hidden_by_outputs(meanings.clone(), select, OutputNames::Aliases);
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(Expr::Identifier(name)) = item
                && let Some(value) = meanings.get(&name.value)
            {
                *item = SelectItem::ExprWithAlias { expr: value.clone(), alias: name.clone() };
            } else {
                rewrite(item, &meanings);
            }
        }
        rewrite(&mut select.from, &meanings);
        rewrite(&mut select.selection, &meanings);
        rewrite(&mut select.group_by, &behind);
        rewrite(&mut select.having, &behind);
        rewrite(&mut select.qualify, &behind);
        rewrite(&mut select.named_window, &meanings);
        ControlFlow::Continue(())
    }
}

impl Selects {
    /// What the metrics in FROM mean as columns.
    fn meanings(&self, select: &Select) -> Meanings {
        let mut tables = Vec::new();
        for from in &select.from {
            let joined = from.joins.iter().map(|join| &join.relation);
            for table in std::iter::once(&from.relation).chain(joined) {
                let TableFactor::Table { name, alias, args: None, .. } = table else { return Meanings::new() };
                let Some(Some(name)) = name.0.last().map(|part| part.as_ident()) else { return Meanings::new() };
                if self.common.contains(&name.value) {
                    return Meanings::new();
                }
                tables.push((&name.value, alias.as_ref().map_or(name, |alias| &alias.name)));
            }
        }
        let value = |qualifier: &Ident| match tables.len() {
            1 => Expr::Identifier(Ident::with_quote('"', VALUE)),
            _ => Expr::CompoundIdentifier(vec![qualifier.clone(), Ident::with_quote('"', VALUE)]),
        };
        let once = |metric: &String| tables.iter().filter(|(name, _)| *name == metric).count() == 1;
        let found = tables.iter().filter(|(metric, _)| self.metrics.contains(*metric) && once(metric));
        found.map(|(metric, qualifier)| ((*metric).clone(), value(qualifier))).collect()
    }
}

/// Which names of the answer's columns hide those of tables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputNames {
    Aliases,
    WithPlainColumns,
}

/// The meanings that hold where the columns of the answer are known as well.
fn hidden_by_outputs(mut meanings: Meanings, select: &Select, names: OutputNames) -> Meanings {
    for item in &select.projection {
        match item {
            SelectItem::ExprWithAlias { alias, .. } => _ = meanings.remove(&alias.value),
            SelectItem::UnnamedExpr(Expr::Identifier(name)) if names == OutputNames::WithPlainColumns => {
                _ = meanings.remove(&name.value);
            }
            _ => {}
        }
    }
    meanings
}

/// Puts the meanings in place of their names, but not in subqueries: those have tables of their own.
fn rewrite(part: &mut impl VisitMut, meanings: &Meanings) {
    let _ = part.visit(&mut Names { meanings, depth: 0 });
}

struct Names<'a> {
    meanings: &'a Meanings,
    /// Of subqueries.
    depth: usize,
}

impl VisitorMut for Names<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expr
            && self.depth == 0
            && let Some(value) = self.meanings.get(&name.value)
        {
            *expr = value.clone();
        }
        ControlFlow::Continue(())
    }
}
