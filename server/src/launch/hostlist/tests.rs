use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(text: &str, expected: &str) {
    let found = expand(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(found.join(" "), expected, "{text}");
}

#[track_caller]
fn check_error(text: &str, expected: &str) {
    assert_eq!(expand(text).unwrap_err().to_string(), format!("host list: {expected}{ADVICE}"));
}

#[test]
fn lists_of_schedulers_are_expanded() {
    check("", "");
    check("n1", "n1");
    check("a,b[001,003],c", "a b001 b003 c");
    check("n[01-05]-ib", "n01-ib n02-ib n03-ib n04-ib n05-ib");
    check("rack[0-1]_blade[0-1]", "rack0_blade0 rack0_blade1 rack1_blade0 rack1_blade1");
    check("x[1000-1001]c[0,2-3]s0", "x1000c0s0 x1000c2s0 x1000c3s0 x1001c0s0 x1001c2s0 x1001c3s0");
    check("[1-2]", "1 2");
    check("n[8-11]", "n8 n9 n10 n11");
    check("n[098-101]", "n098 n099 n100 n101");
    check("n[09-10].site.org", "n09.site.org n10.site.org");
    check(" a,,b \n c\t", "a b c");
    check("fe80::1,10.0.0.[1-2]", "fe80::1 10.0.0.1 10.0.0.2");
    check("n2,n1,n2", "n2 n1 n2");
}

#[test]
fn an_error_says_what_is_wrong_and_where() {
    check_error("a,n[1-", "this '[' is never closed, at character 4 of 'a,n[1-'");
    check_error("n1]", "']' is not part of a name, at character 3 of 'n1]'");
    check_error("n[]", "a number is missing at character 3 of 'n[]'");
    check_error("n[1,]", "a number is missing at character 5 of 'n[1,]'");
    check_error("n[1-]", "a number is missing at character 5 of 'n[1-]'");
    check_error("n[1-2-3]", "'-' is not a digit, at character 6 of 'n[1-2-3]'");
    check_error("n[1-x]", "'x' is not a digit, at character 5 of 'n[1-x]'");
    check_error("n[[1]]", "'[' is not a digit, at character 3 of 'n[[1]]'");
    check_error("n[5-2]", "the range 5-2 runs backwards, at character 3 of 'n[5-2]'");
    check_error("n[1-010]", "1 and 010 are not of one width, at character 3 of 'n[1-010]'");
    check_error("a,-oProxyCommand=x", "'=' is not part of a name, at character 17 of 'a,-oProxyCommand=x'");
    check_error("a,-o", "a name does not start with '-', at character 3 of 'a,-o'");
    check_error("ü", "'ü' is not part of a name, at character 1 of 'ü'");
    check_error("n$(x)", "'$' is not part of a name, at character 2 of 'n$(x)'");
    let long = "1".repeat(DIGITS_MAX + 1);
    check_error(&format!("n[{long}]"), &format!("a number of 19 digits is too long, at character 3 of 'n[{long}]'"));
    let far = format!("{}n1!,{}", "n1,".repeat(20), "n2,".repeat(20));
    let excerpt = format!("{}n1!,{}n...", "n1,".repeat(20), "n2,".repeat(9));
    check_error(&far, &format!("'!' is not part of a name, at character 63 of '...{}'", &excerpt[32..]));
}

#[test]
fn a_list_has_as_many_hosts_as_it_may_have_and_no_more() {
    assert_eq!(expand(&format!("n[1-{HOSTS_MAX}]")).unwrap().len(), HOSTS_MAX);
    assert_eq!(expand("r[0-255]n[0-255]").unwrap().len(), HOSTS_MAX);
    let many = [
        format!("n[1-{}]", HOSTS_MAX + 1),
        format!("n[1-{HOSTS_MAX}],a"),
        "n[0-999999999999999999]".to_owned(),
        "[0-99999999][0-99999999][0-99999999][0-99999999]".to_owned(),
        "[0-999999999999999999,0-999999999999999999][0-999999999999999999]".to_owned(),
    ];
    for text in many {
        let error = expand(&text).unwrap_err();
        assert!(error.to_string().contains("more than 65536 hosts"), "{text}: {error}");
    }
    assert!(expand(&"a".repeat(NAME_BYTES_MAX)).is_ok());
    assert!(expand(&"a".repeat(NAME_BYTES_MAX + 1)).is_err());
    assert!(expand(&" ".repeat(TEXT_BYTES_MAX)).is_ok());
    assert!(expand(&" ".repeat(TEXT_BYTES_MAX + 1)).is_err());
}

#[test]
fn names_are_folded_as_a_scheduler_writes_them() {
    let fold = |text: &str| fold(&expand(text).unwrap());
    assert_eq!(fold("n1"), "n1");
    assert_eq!(fold("n1,n2,n3,n5"), "n[1-3,5]");
    assert_eq!(fold("n01-ib,n02-ib,a,n03-ib"), "n[01-02]-ib,a,n03-ib");
    assert_eq!(fold("n8,n9,n10,n010"), "n[8-10,010]");
    assert_eq!(fold("n09,n10"), "n[09-10]");
    assert_eq!(fold("login,login"), "login,login");
    assert_eq!(fold(""), "");
}

/// Names as they are, and some that are made to be hard: other widths, several numbers, no digits, many digits.
fn names() -> impl Strategy<Value = Vec<String>> {
    let name = prop_oneof![
        "[a-c]{0,2}[0-9]{1,3}",
        "[a-b]{1,2}[0-1]{0,3}[-_.:][0-9]{0,2}[a-b]?",
        "[0-9]{17,20}",
        "n0{0,3}(9|10|11|99|100)",
    ];
    prop::collection::vec(name, 0..40)
}

proptest! {
    #[test]
    fn what_is_folded_expands_to_the_same_names(names in names()) {
        let folded = fold(&names);
        prop_assert_eq!(expand(&folded).unwrap(), names, "{}", folded);
    }

    #[test]
    fn no_text_makes_it_panic(text in "[a-c0-9,\\-\\[\\] .ü]{0,40}") {
        super::super::fuzzing::hostlist(text.as_bytes());
    }
}
