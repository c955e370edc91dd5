use super::*;

/// A page of a single value; `size` bytes more are in its memory.
fn page(size: usize) -> Arc<DeltaPage> {
    let mut bytes = vec![0x80, 0x02, 4, 1, 0];
    bytes.resize(bytes.len() + 16 + size, 0);
    bytes.shrink_to_fit();
    Arc::new(DeltaPage::new(bytes, 0, 1).unwrap())
}

fn cache(pages: u64) -> Arc<PageCache> {
    Arc::new(PageCache::new(pages * memory_of(&page(1_000))))
}

fn held(file: &FilePages) -> Vec<u64> {
    let cache = file.cache.lock();
    (0..100).filter(|at| cache.pages.contains_key(&(file.file, *at))).collect()
}

#[test]
fn the_oldest_pages_make_room_for_new_ones() {
    let cache = cache(3);
    let file = cache.file();
    for at in 0..5 {
        file.add(at, &page(1_000));
        assert!(cache.lock().bytes <= cache.bytes_max);
    }
    assert_eq!(held(&file), [2, 3, 4]);
    assert!(file.get(1).is_none() && file.get(2).is_some());
    assert!(cache.file().get(2).is_none(), "that of another file");
}

#[test]
fn pages_that_were_used_again_are_spared_once() {
    let file = cache(3).file();
    (0..3).for_each(|at| file.add(at, &page(1_000)));
    file.get(0);
    file.add(3, &page(1_000));
    assert_eq!(held(&file), [0, 2, 3]);
    (4..6).for_each(|at| file.add(at, &page(1_000)));
    assert_eq!(held(&file), [0, 4, 5]);
    file.add(6, &page(1_000));
    assert_eq!(held(&file), [4, 5, 6]);
}

#[test]
fn what_is_larger_than_all_room_is_not_kept_and_what_is_kept_is_counted_once() {
    let cache = cache(3);
    let file = cache.file();
    file.add(0, &page(10_000));
    assert_eq!((held(&file), cache.lock().bytes), (vec![], 0));
    (0..2).for_each(|_| file.add(1, &page(1_000)));
    assert_eq!((held(&file), cache.lock().bytes), (vec![1], memory_of(&page(1_000))));
    (2..4).for_each(|at| file.add(at, &page(1_000)));
    (1..4).for_each(|at| assert!(file.get(at).is_some()));
    file.add(4, &page(1_000));
    assert_eq!(held(&file), [1, 2, 3], "where all others were used again the new one goes");
    file.add(5, &page(1_000));
    assert_eq!(held(&file), [2, 3, 5], "and then the oldest");
}

#[test]
fn the_pages_of_a_file_that_is_forgotten_leave_those_of_others() {
    let cache = cache(4);
    let (one, other) = (cache.file(), cache.file());
    (0..2).for_each(|at| one.add(at, &page(1_000)));
    (0..2).for_each(|at| other.add(at, &page(1_000)));
    one.forget();
    assert_eq!((held(&one), held(&other)), (vec![], vec![0, 1]));
    assert_eq!((cache.bytes(), cache.lock().order.len()), (2 * memory_of(&page(1_000)), 2));
    (2..5).for_each(|at| other.add(at, &page(1_000)));
    assert_eq!(held(&other), [1, 2, 3, 4], "what is left goes in its turn");
}
