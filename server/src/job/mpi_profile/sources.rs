//! What the library is built of, as the binary carries it.

/// A file: its name among the others, and what is in it.
macro_rules! file {
    ($dir:literal, $name:literal) => {
        ($name, include_str!(concat!("../../../../clients/", $dir, "/", $name)))
    };
}

/// The wrapper of MPI, and the C client that it sends by.
pub const SOURCES: &[(&str, &str)] =
    &[file!("mpi", "telem_mpi.c"), file!("mpi", "telem_mpi.map"), file!("c/include", "telem.h")];

/// How they are compiled and linked. MPI's own library is not among what the result needs: it is also preloaded into
/// processes that have none.
pub const FLAGS: &[&str] = &[
    "-O1",
    "-fPIC",
    "-shared",
    "-pthread",
    "-w",
    "-I.",
    "-Wl,--as-needed",
    "-Wl,-z,defs",
    "-Wl,--version-script=telem_mpi.map",
    "-ldl",
];
