use super::*;

#[test]
fn items_are_found_where_they_were_put_whatever_the_length() {
    for len in [0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 7] {
        let mut items = PagedTable::default();
        (0..len).for_each(|item| items.push(item));
        assert_eq!((items.len(), items.is_empty()), (len, len == 0));
        assert!((0..len).all(|at| items.get(at) == Some(&at) && items[at] == at));
        assert_eq!(items.get(len), None);
        assert!(items.iter().copied().eq(0..len));
        assert!([0, 1, PAGE, len, len + 1].iter().all(|at| items.iter_from(*at).copied().eq(*at..len.max(*at))));
        assert!(items.clone().into_iter().eq(0..len));
        items.shrink();
        items.iter_mut().for_each(|item| *item += 1);
        items.grow_to(len.saturating_sub(1));
        items.grow_to(len + 2);
        assert!(items.iter().copied().eq((1..=len).chain([0, 0])));
    }
}

#[test]
fn less_than_a_page_is_spare_and_nothing_is_moved() {
    let mut items = PagedTable::default();
    (0..PAGE as u64).for_each(|item| items.push(item));
    let first: *const u64 = &items[0];
    (0..10 * PAGE as u64).for_each(|item| items.push(item));
    let room: usize = items.pages.iter().map(Vec::capacity).sum();
    assert!(room < items.len() + PAGE, "{room}");
    assert!(std::ptr::eq(first, &items[0]));
}
