#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| telem_ingest::fuzzing::exposition_text(data));
