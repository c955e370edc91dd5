use super::*;

fn text(missing: &[MissingNode]) -> Option<String> {
    header(missing).map(|value| value.to_str().expect("visible ASCII only").to_owned())
}

#[test]
fn missing_nodes_are_named_in_visible_ascii() {
    let node = |node: &str, reason: &str| MissingNode { node: node.to_owned(), reason: reason.to_owned() };
    assert_eq!(text(&[]), None);
    let two = [node("n1", "no answer within 2 s"), node("n2", "refused, really=\r\nX: é")];
    assert_eq!(text(&two).unwrap(), "n1=no answer within 2 s, n2=refused? really???X: ?");
    let many: Vec<_> = (0..10_000).map(|n| node(&format!("node{n}"), "gone")).collect();
    let text = text(&many).unwrap();
    assert!(text.len() < 5_000 && text.ends_with(" more"), "{text}");
}
