//! One walk through the syntax of a statement for all who look for something in it.
//!
//! A walk is compiled for each type that looks on, through everything that SQL may have: more than a
//! thousand functions each time. So there is one, which knows them by their trait alone.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, ObjectName, Query, Select, VisitMut, VisitorMut};

/// Is shown parts of a statement on the way in and on the way out, and may change them.
pub(super) trait Onlooker {
    fn enter_query(&mut self, _query: &mut Query) {}
    fn leave_query(&mut self, _query: &mut Query) {}
    fn enter_select(&mut self, _select: &mut Select) {}
    fn enter_expr(&mut self, _expr: &mut Expr) {}
    fn leave_expr(&mut self, _expr: &mut Expr) {}
    /// The name of a table.
    fn enter_relation(&mut self, _name: &mut ObjectName) {}
}

/// Shows `part` to `onlooker`, from its outside to its inside.
pub(super) fn walk(part: &mut impl VisitMut, onlooker: &mut dyn Onlooker) {
    let _ = part.visit(&mut SyntaxWalk(onlooker));
}

struct SyntaxWalk<'a>(&'a mut dyn Onlooker);

impl VisitorMut for SyntaxWalk<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.0.enter_query(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.0.leave_query(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        self.0.enter_select(select);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.0.enter_expr(expr);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.0.leave_expr(expr);
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &mut ObjectName) -> ControlFlow<()> {
        self.0.enter_relation(name);
        ControlFlow::Continue(())
    }
}
