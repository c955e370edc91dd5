//! The stand-in for `libnvidia-ml.so.1`, built once, in a folder of its own for each test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// How new the driver is that is played.
#[derive(Clone, Copy, Debug)]
pub enum Driver {
    New,
    /// Without the calls that are younger than 2022.
    Old,
}

/// A library and its script.
#[derive(Debug)]
pub struct StandIn {
    dir: TempDir,
}

fn built(driver: Driver) -> &'static Path {
    static BUILT: [OnceLock<(TempDir, PathBuf)>; 2] = [OnceLock::new(), OnceLock::new()];
    let build = || {
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().join("libnvidia-ml.so.1");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/nvml/nvml.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-Wl,-soname,libnvidia-ml.so.1", "-o"]).arg(&library).arg(source);
        if matches!(driver, Driver::Old) {
            compiler.arg("-DOLD_DRIVER");
        }
        assert!(compiler.arg("-ldl").status().expect("a C compiler").success());
        (dir, library)
    };
    &BUILT[driver as usize].get_or_init(build).1
}

impl StandIn {
    pub fn new(driver: Driver, script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // A copy is another library to the loader, with a script of its own.
        fs::copy(built(driver), dir.path().join("libnvidia-ml.so.1")).unwrap();
        let stand_in = Self { dir };
        stand_in.plays(script);
        stand_in
    }

    /// From its next call on.
    pub fn plays(&self, script: &str) {
        let new = self.dir.path().join("new.txt");
        fs::write(&new, script).unwrap();
        fs::rename(new, self.dir.path().join("nvml.txt")).unwrap();
    }

    pub fn library(&self) -> String {
        self.dir.path().join("libnvidia-ml.so.1").to_str().unwrap().to_owned()
    }
}

/// What each GPU of a node with H100 says; to be changed by lines below it.
pub const H100: &str = "\
* nvmlSystemGetDriverVersion text 550.54.15
* nvmlDeviceGetCount_v2 value 2
* nvmlDeviceGetName text NVIDIA H100 80GB HBM3
0 nvmlDeviceGetUUID text GPU-11111111-2222-3333-4444-555555555555
1 nvmlDeviceGetUUID text GPU-66666666-7777-8888-9999-aaaaaaaaaaaa
0 nvmlDeviceGetPciInfo_v3 text 00000000:1B:00.0
1 nvmlDeviceGetPciInfo_v3 text 00000000:43:00.0
* nvmlDeviceGetSerial text 1650123456789
* nvmlDeviceGetVbiosVersion text 96.00.89.00.01
* nvmlDeviceGetUtilizationRates value 87 33
* nvmlDeviceGetMemoryInfo_v2 value 85520809984 620756992 64424509440 20475543552
* nvmlDeviceGetPowerUsage value 412345
* nvmlDeviceGetTotalEnergyConsumption value 110000250
* nvmlDeviceGetTemperature.0 value 61
* nvmlDeviceGetClockInfo.1 value 1980
* nvmlDeviceGetClockInfo.2 value 2619
* nvmlDeviceGetEnforcedPowerLimit value 700000
* nvmlDeviceGetFieldValues.74 value 1500000000
* nvmlDeviceGetFieldValues.251 value 200000000
* nvmlDeviceGetFieldValues.252 value 50000000
* nvmlDeviceGetFieldValues.253 value 0
* nvmlDeviceGetFieldValues.82 value 54
* nvmlDeviceGetTotalEccErrors.0 value 12
* nvmlDeviceGetTotalEccErrors.1 value 1
* nvmlDeviceGetPcieReplayCounter value 3
* nvmlDeviceGetMigMode value 0
* nvmlGpmQueryDeviceSupport value 1
* nvmlGpmMetricsGet.2 value 71.5
* nvmlGpmMetricsGet.3 value 40.25
* nvmlGpmMetricsGet.5 value 55.125
* nvmlGpmMetricsGet.10 value 62.75
* nvmlGpmMetricsGet.60 value 1000
* nvmlGpmMetricsGet.61 value 2000
";
