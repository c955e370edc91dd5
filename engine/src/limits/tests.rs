use super::*;

#[test]
fn every_limit_says_what_it_is_and_how_much() {
    for row in names().iter().chain(&storage()) {
        assert!(!row.what.is_empty() && !row.default.is_empty(), "{row:?}");
    }
}
