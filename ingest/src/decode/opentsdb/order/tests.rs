use super::*;

#[test]
fn a_text_hashes_as_in_java() {
    for (text, expected) in [
        ("", 0),
        ("a", 97),
        ("t0", 3644),
        ("host", 3_208_616),
        ("hello world", 1_794_106_052),
        ("polygenelubricants", 0x8000_0000),
    ] {
        assert_eq!(hash(text), expected, "{text}");
    }
}

#[test]
fn entries_are_listed_as_a_real_opentsdb_listed_them() {
    let mut tags: Vec<String> = (0..9).map(|n| format!("t{n}")).collect();
    of_hash_map(&mut tags, |tag| tag);
    assert_eq!(tags.join(" "), "t4 t5 t6 t7 t8 t0 t1 t2 t3");
}

#[test]
fn a_map_grows_when_three_quarters_are_taken() {
    // With 16 slots `p` (112) comes before `a` (97), with 32 it comes after.
    let keys = |count: usize| {
        let mut keys: Vec<String> = ["a", "p"].map(str::to_owned).to_vec();
        keys.extend((2..count).map(|n| char::from(b'b' + n as u8).to_string()));
        of_hash_map(&mut keys, |key| key);
        let at = |wanted: &str| keys.iter().position(|key| key == wanted);
        at("p") < at("a")
    };
    assert_eq!((keys(12), keys(13)), (true, false));
}
