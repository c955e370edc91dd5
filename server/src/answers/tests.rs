use super::*;
use crate::memory::BLOCK_BYTES;

#[test]
fn an_answer_holds_its_part_until_its_last_byte_is_dropped() {
    let budget = AnswerBudget::new(2 * BLOCK_BYTES);
    let mut first = budget.start();
    first.grow(1).unwrap();
    first.grow(BLOCK_BYTES + 1).unwrap();
    let bytes = first.around(vec![1; 3]);
    let rest = bytes.slice(1..);
    drop(bytes);
    let busy = budget.start().grow(1).unwrap_err();
    assert_eq!(busy.status.as_u16(), 503);
    drop(rest);
    budget.start().grow(2 * BLOCK_BYTES).unwrap();
}

#[test]
fn an_answer_larger_than_the_whole_budget_is_no_matter_of_waiting() {
    let refused = AnswerBudget::new(10).start().grow(11).unwrap_err();
    assert_eq!(refused.status.as_u16(), 400);
}
