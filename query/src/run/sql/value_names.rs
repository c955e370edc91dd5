//! The name of a metric as a column of its own table: `SELECT step, loss FROM loss` asks for the column `value`.
//!
//! Only where nothing else can be meant: every table of that SELECT is known, none has such a column, and the metric is
//! named once in FROM.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, TableFactor, VisitMut,
};

use super::walk::{Onlooker, walk};

const VALUE: &str = "value";

/// What the names mean that stand for a column of values.
#[derive(Clone, Default)]
struct Meanings {
    /// By the name alone.
    plain: BTreeMap<String, Expr>,
    /// The metric of each table, by what the statement calls that.
    qualified: BTreeMap<String, String>,
}

impl Meanings {
    fn of(&self, name: &Ident) -> Option<&Expr> {
        self.plain.get(&name.value)
    }

    /// Of `table.metric`.
    fn of_qualified(&self, names: &[Ident]) -> Option<Expr> {
        let [table, metric] = names else { return None };
        (self.qualified.get(&table.value) == Some(&metric.value)).then(|| column(table))
    }
}

/// The values of a table. Without the table it could be a column of the answer, `SELECT loss, 1 AS value`.
fn column(table: &Ident) -> Expr {
    Expr::CompoundIdentifier(vec![table.clone(), Ident::with_quote('"', VALUE)])
}

/// Puts columns in place of the names of `metrics`, whose tables have a column of values and none of their own name;
/// no table of the statement has one. Of functions those in `aggregates` see columns of tables alone.
pub(super) fn resolve(statement: &mut Statement, metrics: &BTreeSet<String>, aggregates: &dyn Fn(&str) -> bool) {
    if metrics.is_empty() {
        return;
    }
    match statement {
        Statement::Statement(sql) => {
            let mut common = CommonTables::default();
            walk(sql, &mut common);
            let metrics = metrics.difference(&common.names).cloned().collect();
            walk(sql, &mut Selects { metrics, common: common.names, aggregates });
        }
        Statement::Explain(explain) => resolve(&mut explain.statement, metrics, aggregates),
        _ => {}
    }
}

/// The names that WITH gives. What columns those tables have is not known here.
#[derive(Default)]
struct CommonTables {
    names: BTreeSet<String>,
}

impl Onlooker for CommonTables {
    fn enter_query(&mut self, query: &mut Query) {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        self.names.extend(tables.map(|table| table.alias.name.value.clone()));
    }
}

/// Goes through every SELECT of a statement.
struct Selects<'a> {
    metrics: BTreeSet<String>,
    common: BTreeSet<String>,
    aggregates: &'a dyn Fn(&str) -> bool,
}

impl Onlooker for Selects<'_> {
    fn enter_query(&mut self, query: &mut Query) {
        // ORDER BY stands beside its SELECT, which is visited after this.
        if let SetExpr::Select(select) = &*query.body
            && let Some(order) = &mut query.order_by
            && let OrderByKind::Expressions(order) = &mut order.kind
        {
            let meanings = self.meanings(select);
            let hidden = outputs(select, OutputNames::WithPlainColumns);
            self.rewrite(order, &meanings, &hidden);
        }
    }

    fn enter_select(&mut self, select: &mut Select) {
        let meanings = self.meanings(select);
        if meanings.qualified.is_empty() {
            return;
        }
        let aliases = outputs(select, OutputNames::Aliases);
        let none = BTreeSet::new();
        for item in &mut select.projection {
            let named = match item {
                SelectItem::UnnamedExpr(Expr::Identifier(name)) => meanings.of(name).cloned().zip(Some(name.clone())),
                SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) => {
                    meanings.of_qualified(names).zip(names.last().cloned())
                }
                _ => None,
            };
            match named {
                Some((expr, alias)) => *item = SelectItem::ExprWithAlias { expr, alias },
                None => self.rewrite(item, &meanings, &none),
            }
        }
        self.rewrite(&mut select.from, &meanings, &none);
        self.rewrite(&mut select.selection, &meanings, &none);
        self.rewrite(&mut select.group_by, &meanings, &aliases);
        self.rewrite(&mut select.having, &meanings, &aliases);
        self.rewrite(&mut select.qualify, &meanings, &aliases);
        self.rewrite(&mut select.named_window, &meanings, &none);
    }
}

impl Selects<'_> {
    /// What the metrics in FROM mean as columns.
    fn meanings(&self, select: &Select) -> Meanings {
        let mut tables = Vec::new();
        for from in &select.from {
            let joined = from.joins.iter().map(|join| &join.relation);
            for table in std::iter::once(&from.relation).chain(joined) {
                let TableFactor::Table { name, alias, args: None, .. } = table else { return Meanings::default() };
                let Some(Some(name)) = name.0.last().map(|part| part.as_ident()) else { return Meanings::default() };
                if self.common.contains(&name.value) {
                    return Meanings::default();
                }
                tables.push((&name.value, alias.as_ref().map_or(name, |alias| &alias.name)));
            }
        }
        let once = |metric: &String| tables.iter().filter(|(name, _)| *name == metric).count() == 1;
        let mut meanings = Meanings::default();
        for (metric, table) in tables.iter().filter(|(metric, _)| self.metrics.contains(*metric)) {
            meanings.qualified.insert(table.value.clone(), (*metric).clone());
            if once(metric) {
                meanings.plain.insert((*metric).clone(), column(table));
            }
        }
        meanings
    }

    /// Puts the meanings in place of their names, but not in subqueries: those have tables of their own. A name in
    /// `hidden` is a column of the answer, except within an aggregate function, which knows no such columns.
    fn rewrite(&self, part: &mut impl VisitMut, meanings: &Meanings, hidden: &BTreeSet<String>) {
        walk(part, &mut Names { meanings, hidden, is_aggregate: self.aggregates, subqueries: 0, aggregates: 0 });
    }
}

/// Which names of the answer's columns hide those of tables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputNames {
    Aliases,
    WithPlainColumns,
}

/// The names of the answer's columns.
fn outputs(select: &Select, names: OutputNames) -> BTreeSet<String> {
    let name = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) if names == OutputNames::WithPlainColumns => {
            Some(name.value.clone())
        }
        _ => None,
    };
    select.projection.iter().filter_map(name).collect()
}

struct Names<'a> {
    meanings: &'a Meanings,
    hidden: &'a BTreeSet<String>,
    is_aggregate: &'a dyn Fn(&str) -> bool,
    /// How many are around what is visited.
    subqueries: usize,
    aggregates: usize,
}

impl Names<'_> {
    fn aggregates(&self, expr: &Expr) -> bool {
        let Expr::Function(function) = expr else { return false };
        let name = function.name.0.last().and_then(|part| part.as_ident());
        name.is_some_and(|name| (self.is_aggregate)(&name.value.to_lowercase()))
    }
}

impl Onlooker for Names<'_> {
    fn enter_query(&mut self, _: &mut Query) {
        self.subqueries += 1;
    }

    fn leave_query(&mut self, _: &mut Query) {
        self.subqueries -= 1;
    }

    fn enter_expr(&mut self, expr: &mut Expr) {
        self.aggregates += usize::from(self.aggregates(expr));
    }

    fn leave_expr(&mut self, expr: &mut Expr) {
        self.aggregates -= usize::from(self.aggregates(expr));
        if self.subqueries > 0 {
            return;
        }
        let meaning = match expr {
            Expr::Identifier(name) if self.aggregates > 0 || !self.hidden.contains(&name.value) => {
                self.meanings.of(name).cloned()
            }
            Expr::CompoundIdentifier(names) => self.meanings.of_qualified(names),
            _ => None,
        };
        if let Some(value) = meaning {
            *expr = value;
        }
    }
}
