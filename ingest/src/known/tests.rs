use super::*;

fn filled(keys: &[&str]) -> Keys<usize> {
    let mut known = Keys::new(1 << 20);
    for (meaning, key) in keys.iter().enumerate() {
        let at = known.insert(key.as_bytes(), meaning).unwrap();
        known.follow(at);
    }
    known
}

fn find(keys: &Keys<usize>, key: &str) -> Option<usize> {
    keys.find(key.as_bytes()).and_then(|at| keys.meaning(at)).copied()
}

#[test]
fn a_key_is_found_by_its_bytes() {
    let keys = filled(&["a", "b", "c"]);
    assert_eq!((find(&keys, "a"), find(&keys, "c"), find(&keys, "d")), (Some(0), Some(2), None));
}

#[test]
fn the_key_that_came_next_the_last_time_is_foreseen() {
    let mut keys = filled(&["a", "b", "c"]);
    assert_eq!(keys.foreseen(), None, "nothing followed c yet");
    let a = keys.find(b"a").unwrap();
    keys.follow(a);
    let (b, key) = keys.foreseen().unwrap();
    assert_eq!(key, b"b");
    keys.follow(b);
    assert_eq!(keys.foreseen().unwrap().1, b"c");
    let a = keys.find(b"a").unwrap();
    keys.follow(a);
    keys.follow(b);
    assert_eq!(keys.foreseen().unwrap().1, b"a", "b was followed by a, the last time");
}

#[test]
fn what_is_remembered_is_bounded_and_stays_while_it_is_of_use() {
    let mut keys = Keys::new(10_000);
    let insert = |keys: &mut Keys<usize>, n: usize| keys.insert(n.to_string().as_bytes(), n).is_some();
    let fit = (0..).take_while(|n| insert(&mut keys, *n)).count();
    assert!((50..150).contains(&fit), "{fit}");
    // One was turned away already.
    assert!((1..TURNED_AWAY_MAX * fit).all(|n| !insert(&mut keys, n + 1_000)));
    assert_eq!((keys.len(), find(&keys, "0")), (fit, Some(0)));
    assert!(!insert(&mut keys, 5_000), "that was once too often");
    assert!(keys.is_empty());
    assert!(insert(&mut keys, 5_000));
    assert_eq!((find(&keys, "0"), find(&keys, "5000")), (None, Some(5_000)));
}

#[test]
fn a_key_is_remembered_up_to_its_limit() {
    let mut keys = Keys::new(1 << 20);
    let long = vec![b'x'; KEY_BYTES_MAX];
    assert!(keys.insert(&long, 0).is_some());
    assert!(keys.insert(&[long.as_slice(), b"x"].concat(), 0).is_none());
}

#[test]
fn what_a_meaning_takes_more_is_counted_too() {
    let mut keys = filled(&["a", "b"]);
    let at = keys.find(b"a").unwrap();
    assert!(keys.make_room(1 << 19));
    assert!((0..8).all(|_| !keys.make_room(1 << 19)));
    assert_eq!((keys.len(), keys.meaning(at)), (2, Some(&0)));
    assert!(!keys.make_room(1 << 19));
    assert_eq!((keys.len(), keys.meaning(at), find(&keys, "b")), (0, None, None));
}

#[test]
fn nobody_else_has_a_memory_while_it_is_out_and_it_comes_back_with_what_was_learnt() {
    let memories = Memories::new(1 << 20, Keys::<u32>::new);
    {
        let mut first = memories.take();
        first.insert(b"m", 1);
        assert!(memories.take().is_empty());
    }
    let found: Vec<Taken<'_, Keys<u32>>> = (0..MEMORIES_MAX).map(|_| memories.take()).collect();
    assert_eq!(found.iter().filter(|memory| !memory.is_empty()).count(), 1);
    let mut beyond = memories.take();
    assert!(beyond.insert(b"m", 1).is_none(), "there is no room");
}

#[test]
fn the_same_bytes_of_another_sender_are_another_key() {
    let of_rank = |rank| DefaultTags::of_process("n1".into(), Some(rank));
    let mut keys = filled(&["a", "b"]);
    keys.serve(&of_rank(3));
    assert_eq!(find(&keys, "a"), None);
    let at = keys.insert(b"a", 7).unwrap();
    keys.follow(at);
    assert_eq!(find(&keys, "a"), Some(7));
    keys.serve(&of_rank(4));
    assert_eq!(find(&keys, "a"), None);
    keys.serve(&DefaultTags::default());
    assert_eq!((find(&keys, "a"), find(&keys, "b")), (Some(0), Some(1)));
    let b = keys.find(b"b").unwrap();
    keys.follow(b);
    assert_eq!(keys.foreseen(), None, "what followed was another sender's");
    keys.serve(&of_rank(3));
    assert_eq!(find(&keys, "a"), Some(7));
}

#[test]
fn of_too_many_senders_all_is_forgotten_and_learned_anew() {
    let mut keys = filled(&["a"]);
    for rank in 0..=u32::try_from(SENDERS_MAX).unwrap() {
        keys.serve(&DefaultTags::of_process("n1".into(), Some(rank)));
        keys.insert(b"a", rank as usize).unwrap();
        assert_eq!(find(&keys, "a"), Some(rank as usize));
    }
    assert!(keys.len() < SENDERS_MAX);
}
