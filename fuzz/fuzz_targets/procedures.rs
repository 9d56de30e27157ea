#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    serried_hostile::procedures(bytes);
});
