//! What the exporters are built of, as the binary carries it.

use crate::job::mpi_profile::sources::file;
use crate::job::mpi_profile::{MPI_PROBE, OLDEST_VERSION, Recipe};

/// The C library of a machine: what is built on one with a newer one does not run on an older.
const LIBC_PROBE: &str = "#include <features.h>\n__GLIBC__ __GLIBC_MINOR__\n";
const NO_COMPILER: &str = "install a C compiler, or build the exporters elsewhere (clients/proxy)";

macro_rules! with_client {
    ($($more:expr),* $(,)?) => {
        &[
            $($more,)*
            file!("proxy/include/metric_proxy_client.h"),
            file!("proxy/src/client.c"),
            file!("proxy/src/functions.c"),
            file!("proxy/src/internal.h"),
            file!("proxy/src/job.c"),
            file!("proxy/src/link.c"),
            file!("proxy/src/values.c"),
            file!("proxy/src/wire.c"),
        ]
    };
}

/// Calls of MPI: the wrapper of `--mpi-profile` with another sink. It has some 1,200 functions, which take half as long
/// to compile this way, and each rank may have to wait for that.
pub const MPI: Recipe = Recipe {
    file: "libmetricproxy-exporter-mpi.so",
    sources: with_client![
        file!("mpi/lookups.h"),
        file!("mpi/telem_mpi.c"),
        file!("mpi/telem_mpi.map"),
        file!("proxy/exporters/mpi.h"),
    ],
    flags: &[
        "-Og",
        "-fPIC",
        "-shared",
        "-pthread",
        "-w",
        "-DTELEM_MPI_SINK=\"../proxy/exporters/mpi.h\"",
        "-Iproxy/include",
        "-Wl,--as-needed",
        "-Wl,-z,defs",
        "-Wl,--version-script=mpi/telem_mpi.map",
        "-ldl",
    ],
    probe: MPI_PROBE,
    fallback: Some(OLDEST_VERSION),
    advice: "load the module of your MPI, or name its compiler wrapper with -e mpi=FILE",
};

/// System calls.
pub const STRACE: Recipe = Recipe {
    file: "proxy_exporter_strace",
    sources: with_client![file!("proxy/exporters/strace/calls.h"), file!("proxy/exporters/strace/strace.c")],
    flags: &["-O2", "-pthread", "-w", "-Iproxy/include"],
    probe: LIBC_PROBE,
    fallback: None,
    advice: NO_COMPILER,
};

/// The client library, which has the hook of functions.
pub const CLIENT: Recipe = Recipe {
    file: "libproxyclient.so",
    sources: with_client![file!("proxy/libproxyclient.map")],
    flags: &[
        "-O2",
        "-fPIC",
        "-shared",
        "-pthread",
        "-w",
        "-fvisibility=hidden",
        "-Iproxy/include",
        "-Wl,-soname,libproxyclient.so",
        "-Wl,--version-script=proxy/libproxyclient.map",
        "-Wl,-z,nodelete",
        "-Wl,-z,defs",
    ],
    probe: LIBC_PROBE,
    fallback: None,
    advice: NO_COMPILER,
};
