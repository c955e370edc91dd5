use serde_json::{Value as Json, json};
use telem_engine::{Durability, MetaChange};

use crate::testing::Served;

async fn post(served: &Served, body: &str) -> (u16, Json) {
    let answer = served.post("/api/job", body.to_owned()).await;
    (answer.status, serde_json::from_str(answer.text()).unwrap())
}

#[tokio::test]
async fn a_job_adds_to_its_own_description() {
    let served = Served::new();
    let answer = served.get("/api/job").await;
    assert_eq!(answer.status, 404);
    let described = json!({"id": "7", "settings": {"lr": 1, "depth": 3}});
    served.state.db.put_meta(MetaChange::Job(described), Durability::Buffered).unwrap();

    let (status, job) =
        post(&served, r#"{"name": "trial", "settings": {"lr": 0.1, "model": {"heads": 8}}, "tags": {"sweep": "7"}}"#)
            .await;
    assert_eq!(status, 200, "{job}");
    let expected = json!({"id": "7", "name": "trial", "tags": {"sweep": "7"},
        "settings": {"lr": 0.1, "depth": 3, "model.heads": 8}});
    assert_eq!(job, expected);
    let answer = served.get("/api/job").await;
    assert_eq!(serde_json::from_str::<Json>(answer.text()).unwrap(), expected);
    assert_eq!(served.state.db.snapshot().meta().job(), Some(&expected));
}

#[tokio::test]
async fn what_is_no_description_is_refused_and_changes_nothing() {
    let served = Served::new();
    for (body, why) in [
        ("", "EOF"),
        ("[]", "expected a map"),
        (r#"{"setings": {}}"#, "unknown field `setings`"),
        (r#"{"settings": 3}"#, "expected a map"),
        (r#"{"settings": {"": 3}}"#, "without a name"),
    ] {
        let (status, answer) = post(&served, body).await;
        let message = answer["error"]["message"].as_str().unwrap().to_owned();
        assert!(status == 400 && message.contains(why), "{body}: {status} {message}");
    }
    let long = format!(r#"{{"name": "{}"}}"#, "x".repeat(5_000));
    assert_eq!(post(&served, &long).await.0, 400);
    assert_eq!(served.state.db.snapshot().meta().job(), None);
}
