//! What raises an alarm and what ends it, step by step, and what a restart keeps of it.

use proptest::prelude::*;

use super::*;

fn definition(condition: AlarmCondition) -> AlarmDefinition {
    AlarmDefinition {
        name: "hot".to_owned(),
        target: "main".to_owned(),
        metric: "temp{core=\"0\"}".to_owned(),
        condition,
        hold_s: 0.0,
        clear: None,
    }
}

fn more(limit: f64) -> Alarm {
    Alarm::new(definition(AlarmCondition::More(limit)))
}

/// What happens at each second of a script: a value each, `_` for none. `^` is raised, `v` cleared, `.` nothing.
fn play(alarm: &mut Alarm, script: &str) -> String {
    let value = |word: &str| (word != "_").then(|| word.parse().unwrap());
    let events = script.split_whitespace().enumerate().map(|(at, word)| alarm.step(1_000 * at as i64, value(word)));
    events
        .map(|event| match event {
            None => '.',
            Some(AlarmEvent::Raised) => '^',
            Some(AlarmEvent::Cleared) => 'v',
        })
        .collect()
}

#[test]
fn a_limit_is_crossed_and_come_back_to() {
    assert_eq!(play(&mut more(5.0), "5 5.1 6 5 4 7"), ".^.v.^");
    let mut less = Alarm::new(definition(AlarmCondition::Less(5.0)));
    assert_eq!(play(&mut less, "5 4.9 4 5 6 3"), ".^.v.^");
    let mut equal = Alarm::new(definition(AlarmCondition::Equal(0.3)));
    assert_eq!(play(&mut equal, "0.3 0.3 0.30000000000000004 0.3"), "^.v^");
}

#[test]
fn what_is_no_number_raises_nothing_and_ends_nothing() {
    assert_eq!(play(&mut more(5.0), "NaN 6 NaN 6 NaN 1 NaN"), ".^...v.");
    assert_eq!(play(&mut Alarm::new(definition(AlarmCondition::Less(5.0))), "NaN 4 NaN 5"), ".^.v");
    assert_eq!(play(&mut Alarm::new(definition(AlarmCondition::Equal(5.0))), "NaN 5 NaN 4"), ".^.v");
    assert_eq!(play(&mut more(5.0), "inf -inf"), "^v");
}

#[test]
fn no_value_changes_nothing() {
    assert_eq!(play(&mut more(5.0), "_ 6 _ _ 5 _"), ".^..v.");
}

#[test]
fn a_condition_must_hold_where_that_is_asked_for() {
    let holding = || {
        let mut alarm = more(5.0);
        alarm.definition.hold_s = 2.0;
        alarm
    };
    assert_eq!(play(&mut holding(), "6 6 6 6 1"), "..^.v");
    assert_eq!(play(&mut holding(), "6 6 5 6 6 6"), ".....^", "it begins anew");
    assert_eq!(play(&mut holding(), "6 _ 6"), "..^");
    assert_eq!(play(&mut holding(), "6 6 NaN 6 6 6"), ".....^");
    let mut alarm = holding();
    assert_eq!(alarm.step(10_000, Some(6.0)), None);
    assert_eq!(alarm.step(5_000, Some(6.0)), None, "the clock went back");
    assert_eq!(alarm.state, AlarmState::Pending { since_ms: 5_000 });
    assert_eq!(alarm.step(6_999, Some(6.0)), None);
    assert_eq!(alarm.step(7_000, Some(6.0)), Some(AlarmEvent::Raised));
}

#[test]
fn a_raised_alarm_ends_at_its_own_limit_where_it_has_one() {
    let mut alarm = more(10.0);
    alarm.definition.clear = Some(8.0);
    assert_eq!(play(&mut alarm, "9 11 9 10 8.1 8 9 11"), ".^...v.^");
    let mut alarm = Alarm::new(definition(AlarmCondition::Less(10.0)));
    alarm.definition.clear = Some(12.0);
    assert_eq!(play(&mut alarm, "11 9 11 10 12 11 9"), ".^..v.^");
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    let refused = |change: fn(&mut AlarmDefinition)| {
        let mut definition = definition(AlarmCondition::More(10.0));
        change(&mut definition);
        definition.check().map_err(|error| error.to_string())
    };
    assert_eq!(refused(|_| {}), Ok(()));
    assert_eq!(refused(|alarm| alarm.clear = Some(10.0)), Ok(()));
    assert_eq!(refused(|alarm| alarm.name = "x".repeat(256)), Ok(()));
    assert_eq!(refused(|alarm| alarm.hold_s = ALARM_HOLD_S_MAX), Ok(()));
    let error = |text: &str| Err(text.to_owned());
    let name = "the name of the alarm has 257 bytes: expected 1 to 256";
    assert_eq!(refused(|alarm| alarm.name = "x".repeat(257)), error(name));
    assert!(refused(|alarm| alarm.name.clear()).is_err());
    let limit = "the limit of the alarm is NaN: expected a finite number";
    assert_eq!(refused(|alarm| alarm.condition = AlarmCondition::Less(f64::NAN)), error(limit));
    let hold = "\"for\" is -1: expected seconds from 0 to 31622400";
    assert_eq!(refused(|alarm| alarm.hold_s = -1.0), error(hold));
    assert!(refused(|alarm| alarm.hold_s = f64::NAN).is_err() && refused(|alarm| alarm.hold_s = 1e9).is_err());
    let clear = "\"clear\" is 11: expected a finite number that > 10 is not met by";
    assert_eq!(refused(|alarm| alarm.clear = Some(11.0)), error(clear));
    assert!(refused(|alarm| alarm.clear = Some(f64::NAN)).is_err());
    let equal = |alarm: &mut AlarmDefinition| (alarm.condition, alarm.clear) = (AlarmCondition::Equal(1.0), Some(2.0));
    assert_eq!(refused(equal), error("\"clear\" is 2: expected none, because = ends with any other value"));
    let sign = AlarmCondition::new(">=", 1.0).unwrap_err().to_string();
    assert_eq!(sign, "No operator for >= only has = < and >");
    let signs = [">", "<", "="].map(|sign| AlarmCondition::new(sign, 1.5).unwrap().to_string());
    assert_eq!(signs, ["> 1.5", "< 1.5", "= 1.5"]);
}

#[test]
fn what_is_written_down_is_what_the_api_shows_and_more() {
    let mut alarm = more(5.0);
    assert_eq!(alarm.step(7, Some(6.0)), Some(AlarmEvent::Raised));
    let text = serde_json::to_string(&alarm).unwrap();
    let expected = r#"{"name":"hot","target":"main","metric":"temp{core=\"0\"}","operator":{"More":5.0},"for":0.0,"state":{"Raised":{"since_ms":7}}}"#;
    assert_eq!(text, expected);
    let plain = r#"{"name":"a","target":"j","metric":"m","operator":{"Equal":5},"later":1}"#;
    let read: Alarm = serde_json::from_str(plain).unwrap();
    assert_eq!((read.state, read.definition.hold_s, read.definition.clear), (AlarmState::Quiet, 0.0, None));
}

fn conditions() -> impl Strategy<Value = AlarmCondition> {
    (0..3usize, -3..3i32).prop_map(|(which, limit)| {
        let limit = f64::from(limit);
        [AlarmCondition::More(limit), AlarmCondition::Less(limit), AlarmCondition::Equal(limit)][which]
    })
}

proptest! {
    #[test]
    fn a_restart_between_any_two_steps_changes_nothing(
        condition in conditions(),
        hold_s in 0..4u8,
        distance in proptest::option::of(0..3u8),
        steps in proptest::collection::vec((0..3_000i64, proptest::option::of(-4..4i32)), 0..30),
    ) {
        let mut definition = definition(condition);
        definition.hold_s = f64::from(hold_s);
        definition.clear = distance.map(f64::from).and_then(|distance| match condition {
            AlarmCondition::More(limit) => Some(limit - distance),
            AlarmCondition::Less(limit) => Some(limit + distance),
            AlarmCondition::Equal(_) => None,
        });
        prop_assert_eq!(definition.check(), Ok(()));
        let (mut one, mut other) = (Alarm::new(definition.clone()), Alarm::new(definition));
        let (mut now_ms, mut is_raised) = (0, false);
        for (wait, value) in steps {
            now_ms += wait;
            let value = value.map(f64::from);
            other = serde_json::from_str(&serde_json::to_string(&other).unwrap()).unwrap();
            let event = one.step(now_ms, value);
            prop_assert_eq!(event, other.step(now_ms, value));
            prop_assert_eq!(&one, &other);
            // Raised and cleared take turns, and what raises is met.
            match event {
                Some(AlarmEvent::Raised) => prop_assert!(!is_raised && condition.is_met(value.unwrap())),
                Some(AlarmEvent::Cleared) => prop_assert!(is_raised && !condition.is_met(value.unwrap())),
                None => {}
            }
            is_raised = one.is_raised();
        }
    }
}
