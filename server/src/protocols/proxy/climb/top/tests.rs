use super::super::super::testing::TestProxy;
use super::*;

#[tokio::test]
async fn which_roots_were_told_is_known_of_each_of_them() {
    let proxy = TestProxy::new();
    let stand = |root: &str, memory| {
        let root = TargetAddress::parse(root).unwrap();
        let top = TreeTop { root: root.clone(), is_ours: false, memory, has_place: false, before: None };
        top.keep(&proxy.live, &root, "own:1", memory);
    };
    let told = || PlaceRecord::find(&proxy.live).unwrap().told();
    stand("a:1", RootMemory::Empty);
    assert_eq!(told(), [""; 0], "it gave a place, and asked for nothing");
    note_told(&proxy.live);
    assert_eq!(told(), ["a:1"]);
    stand("b:1", RootMemory::Empty);
    assert_eq!(told(), ["a:1"], "what another one does not know");
    stand("a:1", RootMemory::Kept);
    assert_eq!(told(), ["a:1"]);
    stand("a:1", RootMemory::Empty);
    assert_eq!(told(), [""; 0], "it was started anew");
}

#[test]
fn a_record_of_an_older_server_says_that_its_root_was_told() {
    let old: PlaceRecord = serde_json::from_str(r#"{"root":"a:1","parent":"a:1","own":["b:1"]}"#).unwrap();
    assert_eq!(old.told(), ["a:1"]);
}
