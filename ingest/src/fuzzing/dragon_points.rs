//! The fuzz target of what Dragon's class posts.

use serde_json::json;
use telem_engine::Value;

use crate::decode::dragon::DragonBody;

/// A point that was read is read the same again after it was written anew, and every other one has a reason.
pub fn dragon_points(body: &[u8]) {
    let Ok(body) = DragonBody::parse(body) else { return };
    let points: Vec<_> = body.points().collect();
    assert_eq!(points.len(), body.len());
    for point in points {
        let point = match point {
            Ok(point) => point,
            Err(error) => {
                assert!(!error.to_string().is_empty() && !error.kind().is_empty());
                continue;
            }
        };
        let mut written = json!({"metric": point.metric, "tags": {}});
        for (key, value) in &point.tags {
            written["tags"][key] = value.as_str().into();
        }
        written["value"] = match point.value {
            Value::Int(int) => int.into(),
            Value::Float(float) => {
                assert!(float.is_finite());
                // As a text: the numbers of the library that writes it are read with all their bits here.
                format!("{float:?}").into()
            }
        };
        let again = json!({"dps": [written]}).to_string();
        let again = DragonBody::parse(again.as_bytes()).expect("what was written is a body");
        let again = again.points().next().expect("it has a point").expect("which is a good one");
        assert_eq!((&again.metric, again.value), (&point.metric, point.value));
        let keys: std::collections::BTreeSet<&str> = point.tags.iter().map(|(key, _)| &**key).collect();
        assert!(again.tags.len() == keys.len() && again.tags.iter().all(|tag| point.tags.contains(tag)));
    }
}
