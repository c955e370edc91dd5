//! The token in a path: what is taken for one, and on which connections it may be said.

use axum::body::Body;
use axum::extract::Request;

use super::super::access::{PathShow, PathTokens, Rules, WireSecrecy};
use super::super::may_be_said;
use super::SECRET;
use crate::http::asker::PathPrefix;
use crate::token::Token;

fn taken(tokens: PathTokens, uri: &str) -> (PathShow, String, Option<String>) {
    let rules = Rules::new(Token::chosen(SECRET).unwrap(), 1, []).with_path_tokens(tokens);
    let mut request = Request::builder().uri(uri).body(Body::empty()).unwrap();
    let show = rules.take_path_token(&mut request);
    let prefix = request.extensions().get::<PathPrefix>().map(|prefix| prefix.0.to_string());
    (show, request.uri().to_string(), prefix)
}

#[test]
fn a_path_that_begins_with_the_token_means_what_is_behind_it() {
    let (uri, prefix) = (format!("/t/{SECRET}/join?to=a:1&period=5"), format!("/t/{SECRET}"));
    let right = (PathShow::Right, "/join?to=a:1&period=5".to_owned(), Some(prefix.clone()));
    assert_eq!(taken(PathTokens::Secret, &uri), right);
    assert_eq!(taken(PathTokens::Secret, &prefix), (PathShow::Right, "/".to_owned(), Some(prefix)));
    let absolute = format!("http://n7:1337/t/{SECRET}/job");
    assert_eq!(taken(PathTokens::Secret, &absolute).1, "http://n7:1337/job");
    let wrong = format!("/t/{SECRET}0/job");
    assert_eq!(taken(PathTokens::Secret, &wrong), (PathShow::Wrong, wrong, None));
    assert_eq!(taken(PathTokens::Secret, "/job"), (PathShow::Nothing, "/job".to_owned(), None));
    assert_eq!(taken(PathTokens::Off, &uri), (PathShow::Nothing, uri, None));
    assert_eq!(format!("{:?}", PathPrefix(SECRET.into())), "PathPrefix(...)");
}

#[test]
fn a_token_in_a_path_is_said_where_nobody_else_reads_it_unless_that_is_allowed() {
    use PathShow::{Nothing, Right, Wrong};
    use PathTokens::{Off, Plain, Secret};
    use WireSecrecy::{Plain as PlainWire, PlainBesideTls, Secret as SecretWire};
    for (wire, show, tokens, is_said) in [
        (SecretWire, Right, Secret, true),
        (SecretWire, Nothing, Off, true),
        // As ever: whoever shows the token in a header over plain HTTP was told of it.
        (PlainWire, Nothing, Secret, true),
        (PlainWire, Right, Secret, false),
        (PlainWire, Wrong, Secret, false),
        (PlainWire, Right, Plain, true),
        // Where TLS is spoken, plain HTTP is for such paths alone.
        (PlainBesideTls, Right, Plain, true),
        (PlainBesideTls, Nothing, Plain, false),
    ] {
        assert_eq!(may_be_said(show, wire, tokens).is_ok(), is_said, "{wire:?} {show:?} {tokens:?}");
    }
}
