use super::*;

fn note(tsuid: Option<&str>, start: i64, end: Option<i64>) -> Annotation {
    let description = format!("at {start}");
    Annotation {
        tsuid: tsuid.map(str::to_owned),
        start: Timestamp::from_seconds(start),
        end: end.map(Timestamp::from_seconds),
        description,
        ..Annotation::default()
    }
}

/// What a query from 100 to 200 s that reads from 0 to 3600 s delivers for the series `A`.
fn delivered(held: &[Annotation]) -> String {
    let seconds = Timestamp::from_seconds;
    let read = TimeRange::new(seconds(0), seconds(3_600));
    let notes = DeliveredNotes::new(held, read, seconds(100), seconds(200), NoteScope::WithGlobal);
    let mut out = Vec::new();
    notes.of_series(&mut out, &["A".to_owned()]);
    notes.global(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_series_that_was_noted_in_an_hour_that_is_read_says_so_even_where_none_is_shown() {
    assert_eq!(delivered(&[note(Some("A"), 300, None)]), r#","annotations":[]"#);
    assert_eq!(delivered(&[note(Some("A"), 3_600, None), note(Some("B"), 150, None)]), "");
    let shown = r#","annotations":[{"tsuid":"A","description":"at 200","notes":"","startTime":200,"endTime":0}]"#;
    assert_eq!(delivered(&[note(Some("A"), 99, None), note(Some("A"), 200, None)]), shown);
}

#[test]
fn global_notes_are_delivered_when_they_lie_within_what_is_asked() {
    assert_eq!(delivered(&[note(None, 99, None), note(None, 150, Some(201)), note(None, 201, None)]), "");
    let shown =
        r#","globalAnnotations":[{"tsuid":"","description":"at 100","notes":"","startTime":100,"endTime":200}]"#;
    assert_eq!(delivered(&[note(None, 100, Some(200))]), shown);
}

#[test]
fn times_are_seconds_unless_they_have_a_fraction() {
    let of = |number| moment(Some(Long(number))).unwrap().map(shown);
    assert_eq!(of(1_356_998_460), Some(1_356_998_460));
    assert_eq!(of(1_356_998_460_000), Some(1_356_998_460));
    assert_eq!(of(1_356_998_460_500), Some(1_356_998_460_500));
    assert_eq!(of(0), None);
    assert_eq!(of(-5), None);
    assert!(moment(Some(Long(i64::MAX))).unwrap_err().details.unwrap().contains("too far in the future"));
}
