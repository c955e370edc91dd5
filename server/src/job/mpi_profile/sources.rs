//! What the library is built of, as the binary carries it.

/// A file: its path below `clients`, and what is in it.
macro_rules! file {
    ($path:literal) => {
        ($path, include_str!(concat!("../../../../clients/", $path)))
    };
}
pub(crate) use file;

/// The wrapper of MPI, and the C client that it sends by.
pub const SOURCES: &[(&str, &str)] = &[
    file!("mpi/lookups.h"),
    file!("mpi/telem_mpi.c"),
    file!("mpi/telem_mpi.map"),
    file!("c/include/telem.h"),
    file!("c/src/batch.c"),
    file!("c/src/clock.c"),
    file!("c/src/collect.c"),
    file!("c/src/internal.h"),
    file!("c/src/life.c"),
    file!("c/src/link.c"),
    file!("c/src/process.c"),
    file!("c/src/question.c"),
    file!("c/src/queue.c"),
    file!("c/src/registry.c"),
    file!("c/src/sender.c"),
    file!("c/src/take.c"),
    file!("c/src/text.c"),
    file!("c/src/work.h"),
];

/// How they are compiled and linked. MPI's own library is not among what the result needs: it is also preloaded into
/// processes that have none.
pub const FLAGS: &[&str] = &[
    "-O1",
    "-fPIC",
    "-shared",
    "-pthread",
    "-w",
    "-Wl,--as-needed",
    "-Wl,-z,defs",
    "-Wl,--version-script=mpi/telem_mpi.map",
    "-ldl",
    "-lm",
];
