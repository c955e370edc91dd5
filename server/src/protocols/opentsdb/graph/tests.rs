use telem_engine::Value;

use crate::testing::Served;

fn served() -> Served {
    let served = Served::new();
    for (host, values) in [("a", [Value::Int(1), Value::Int(5)]), ("b", [Value::Int(2), Value::Float(0.5)])] {
        let [first, second] = values;
        served.store("m", &[("host", host), ("rack", "r")], &[(1_356_998_400, first), (1_356_998_410, second)]);
    }
    served
}

#[tokio::test]
async fn the_numbers_of_a_graph_are_lines_with_the_tags_that_all_series_share() {
    let served = served();
    for (question, expected) in [
        ("m=sum:m", "m 1356998400 3.0 rack=r\nm 1356998410 5.5 rack=r\n"),
        ("m=sum:m%7Bhost=a%7D", "m 1356998400 1 host=a rack=r\nm 1356998410 5 host=a rack=r\n"),
        (
            "m=max:m%7Bhost=b%7D&m=min:m%7Bhost=a%7D&nocache",
            "m 1356998400 2.0 host=b rack=r\nm 1356998410 0.5 host=b rack=r\nm 1356998400 1 host=a rack=r\nm 1356998410 5 host=a rack=r\n",
        ),
    ] {
        let answer = served.get(&format!("/q?start=1356998400&end=1356998460&{question}&ascii")).await;
        assert_eq!((answer.status, answer.text()), (200, expected), "{question}");
        assert_eq!(answer.header("content-type"), "text/plain; charset=UTF-8");
    }
}

#[tokio::test]
async fn a_browser_is_led_on_and_a_picture_is_refused() {
    let served = served();
    let answer = served.get("/q?start=1356998400").await;
    let page = "<html></head><meta http-equiv=\"refresh\" content=\"0; url=/#start=1356998400\"></head></html>";
    assert_eq!((answer.status, answer.text()), (200, page));
    assert_eq!(answer.header("content-type"), "text/html; charset=UTF-8");
    let answer = served.get("/q?x='%22").await;
    assert!(answer.text().contains("url=/#x=%27%22\""), "{}", answer.text());
    for (kind, text) in [("png", "telem draws no graphs\n"), ("json", "{\"err\":\"telem draws no graphs\"}")] {
        let answer = served.get(&format!("/q?start=1356998400&m=sum:m&{kind}")).await;
        assert!(answer.status == 501 && answer.text().starts_with(text), "{} {}", answer.status, answer.text());
    }
}

#[tokio::test]
async fn a_question_that_makes_no_sense_is_refused_with_the_reason() {
    let served = served();
    for (question, status, text) in [
        ("m=sum:m", 400, "Missing parameter <code>start</code>"),
        ("start=1356998400", 400, "Missing sub queries"),
        ("start=1356998400&m=sum:nope", 400, "No such name for 'metrics': 'nope'"),
        ("start=1356998400&m=nope:m", 400, "No such aggregation function: nope"),
        ("start=5&end=4&m=sum:m", 400, "must be greater than the start time"),
    ] {
        let answer = served.get(&format!("/q?{question}&ascii")).await;
        assert_eq!(answer.status, status, "{question}");
        assert!(answer.text().contains(text), "{question}: {}", answer.text());
    }
}
