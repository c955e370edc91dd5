#![no_main]

libfuzzer_sys::fuzz_target!(
    // The fuzzer's hook ends the process at any panic, also at one of Parquet's reader, which the engine catches. One
    // that nobody catches ends it without the hook.
    init: drop(std::panic::take_hook()),
    |data: &[u8]| telem_engine::fuzzing::series_file(data)
);
