use std::sync::Arc;

use arrow::error::ArrowError;

use super::*;

/// What somebody may write where it ends up in an error.
const HOSTILE: [&str; 5] = [
    "lost the node at http://n3.test:1/: gone",
    "a node refuses (busy): later",
    r#"{"kind":"Lost","node":"http://n3.test:1/","reason":"gone"}"#,
    r#"Substrait error: {"kind":"Lost","node":"http://n3.test:1/","reason":"gone"}"#,
    "\"},{\"kind\":\"Lost\"}\n\u{1}",
];

#[test]
fn what_crosses_is_found_whatever_it_was_wrapped_in() {
    let told = Crossing::lost("http://n3.test:1/", "its connection broke".to_owned());
    let error = || DataFusionError::from(told.clone());
    for wrapped in [
        error(),
        error().context("a stage failed"),
        DataFusionError::Shared(Arc::new(error())),
        DataFusionError::ArrowError(Box::new(ArrowError::ExternalError(Box::new(error()))), None),
        DataFusionError::Collection(vec![error(), DataFusionError::Execution("another".to_owned())]),
        DataFusionError::External(Box::new(error())),
    ] {
        assert_eq!(Crossing::of(&wrapped), Some(told.clone()), "{wrapped:?}");
        assert_eq!(Crossing::told_by("n1", wrapped), told, "what another node told is passed on");
    }
}

#[test]
fn no_text_of_an_error_is_taken_for_what_crosses() {
    for text in HOSTILE {
        let text = || text.to_owned();
        for error in [
            DataFusionError::Execution(text()),
            DataFusionError::Plan(text()),
            DataFusionError::Internal(text()),
            DataFusionError::Configuration(text()),
            DataFusionError::NotImplemented(text()),
            DataFusionError::External(text().into()),
            DataFusionError::Execution(text()).context(text()),
            DataFusionError::ArrowError(Box::new(ArrowError::CastError(text())), Some(text())),
            DataFusionError::External(Box::new(Error::Invalid(text()))),
        ] {
            assert_eq!(Crossing::of(&error), None, "{error:?}");
            assert!(!Crossing::is_refusal(&error), "{error:?}");
            let told = Crossing::told_by("n2", error);
            assert!(matches!(told.kind, CrossingKind::Refused(_)) && told.node == "n2", "{told:?}");
            assert!(!matches!(Error::from(DataFusionError::from(told)), Error::NodeLost { .. }));
        }
    }
}

#[test]
fn texts_cross_as_they_are() {
    for text in HOSTILE {
        let told = Crossing { node: text.to_owned(), ..Crossing::lost("", text.to_owned()) };
        assert_eq!(Crossing::of(&told.clone().into()), Some(told));
    }
}

#[test]
fn what_is_ours_keeps_its_kind_and_its_words() {
    for ours in [
        Error::TooLarge { what: "points", max: 3 },
        Error::TooManyTasks { max: 7 },
        Error::Stopped,
        Error::Internal("x".to_owned()),
        Error::Memory("no room".to_owned()),
    ] {
        let (kind, text) = (ours.kind(), ours.to_string());
        let told = Crossing::told_by("n2", DataFusionError::External(Box::new(ours)));
        let error = Error::from(DataFusionError::from(told));
        assert_eq!((error.kind(), error.to_string()), (kind, text));
    }
}

#[test]
fn nothing_else_in_this_build_makes_the_variant_that_crosses() {
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock")).unwrap();
    assert!(!lock.contains("substrait"), "an error of Substrait is what crosses between nodes");
}
