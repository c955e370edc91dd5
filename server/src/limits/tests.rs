//! The rows are whole.

use super::*;

#[test]
fn every_limit_says_what_it_is_and_how_much() {
    let rows = [http(), jobs::job(), jobs::launching(), jobs::nodes(), protocols::influx(), protocols::opentsdb()];
    for row in rows.iter().chain(&[storage(), tables(), telnet(), clients()]).flatten() {
        assert!(!row.what.is_empty() && !row.default.is_empty(), "{row:?}");
    }
}
