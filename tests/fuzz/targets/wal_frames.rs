#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| telem_engine::fuzzing::wal_frames(data));
