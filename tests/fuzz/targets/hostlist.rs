#![no_main]

// The parser needs nothing of telem but itself; the server would bring DataFusion along.
#[path = "../../../server/src/launch/fuzzing.rs"]
mod fuzzing;
#[path = "../../../server/src/launch/hostlist.rs"]
mod hostlist;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::hostlist(data));
