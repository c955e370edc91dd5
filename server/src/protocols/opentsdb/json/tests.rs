use super::int;

#[test]
fn integers_are_written_as_they_are_spelled() {
    for one in [0, 7, -7, 10, 1_799_996_400, -1_000, i64::MAX, i64::MIN] {
        let mut out = Vec::new();
        int(&mut out, one);
        assert_eq!(out, one.to_string().into_bytes());
    }
}
