#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| telem_engine::fuzzing::run_index(data));
