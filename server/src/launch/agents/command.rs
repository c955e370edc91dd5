//! The command lines that start agents, as pure functions. None of them holds a secret.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use super::AgentsOptions;
use crate::launch::hostlist;
use crate::launch::plan::Fleet;

/// Longest that `ssh` tries to reach a host.
pub(crate) const SSH_CONNECT_SECONDS: u32 = 10;

/// Variables by which a batch script says how `srun` is to start its programs: agents are to be started otherwise.
/// From INPUT ENVIRONMENT VARIABLES of srun(1), those that `sbatch` sets too.
const OF_STEPS: [&str; 32] = [
    "SLURM_CPU_BIND",
    "SLURM_CPU_BIND_LIST",
    "SLURM_CPU_BIND_TYPE",
    "SLURM_CPU_BIND_VERBOSE",
    "SLURM_CPUS_PER_GPU",
    "SLURM_CPUS_PER_TASK",
    "SLURM_DISTRIBUTION",
    "SLURM_EXACT",
    "SLURM_EXCLUSIVE",
    "SLURM_GPU_BIND",
    "SLURM_GPUS",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_SOCKET",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GRES",
    "SLURM_HINT",
    "SLURM_KILL_BAD_EXIT",
    "SLURM_LABELIO",
    "SLURM_MEM_BIND",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_CORE",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_NTASKS_PER_SOCKET",
    "SLURM_STEP_GRES",
    "SLURM_THREADS_PER_CORE",
    "SLURM_WAIT",
    "SRUN_CPUS_PER_TASK",
];

/// What is to be started for which hosts.
pub fn of_fleet(options: &AgentsOptions) -> Vec<(Vec<String>, Command)> {
    match &options.fleet {
        Fleet::Local(count) => (1..=count.get()).map(|nth| local(options, nth)).collect(),
        Fleet::Ssh(hosts) => hosts.iter().map(|host| (vec![host.clone()], ssh(&options.binary, host))).collect(),
        Fleet::Srun(hosts) => vec![(hosts.clone(), srun(&options.binary, hosts))],
    }
}

fn local(options: &AgentsOptions, nth: u32) -> (Vec<String>, Command) {
    let name = format!("{}-{nth}", options.host);
    // This very program, also where its file was replaced or removed meanwhile.
    let mut telem = Command::new("/proc/self/exe");
    std::os::unix::process::CommandExt::arg0(&mut telem, "telem");
    telem.args(["node", "--join", "-", "--node", &name]);
    if let Some(data) = &options.data {
        telem.arg("--data").arg(data.join(&name));
    }
    (vec![name], telem)
}

/// Asks nothing, forwards nothing. The other host has the same file system, or has `telem` where it looks for programs.
fn ssh(binary: &Path, host: &str) -> Command {
    let mut ssh = Command::new("ssh");
    ssh.args(["-o", "BatchMode=yes", "-o", "ForwardAgent=no", "-o", "ForwardX11=no", "-T"]);
    ssh.args(["-o", &format!("ConnectTimeout={SSH_CONNECT_SECONDS}")]);
    ssh.arg("--").arg(host).arg(remote(binary));
    ssh
}

/// Words for the shell of a user on another host, whichever that is.
fn remote(binary: &Path) -> OsString {
    let path = binary.to_string_lossy();
    // What no shell takes for anything else; another path is left to the search for programs.
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | '=' | ',' | '@' | '~');
    if binary.is_absolute() && path.chars().all(plain) {
        let script = format!("test -x {path} && exec {path} node --join -; exec telem node --join -");
        return format!("exec /bin/sh -c '{script}'").into();
    }
    "exec telem node --join -".into()
}

/// One step over all hosts, beside whatever runs there: it takes no processors, memory or devices from the job's own.
fn srun(binary: &Path, hosts: &[String]) -> Command {
    let count = hosts.len();
    let mut srun = Command::new("srun");
    srun.args(["--overlap", "--mpi=none", "--cpu-bind=none", "--mem=0", "--gres=none"]);
    srun.args([format!("--nodes={count}"), format!("--ntasks={count}"), "--ntasks-per-node=1".to_owned()]);
    srun.arg(format!("--nodelist={}", hostlist::fold(hosts)));
    // One that ends does not end the others; the environment is the script's, whatever that keeps from its programs.
    srun.args(["--kill-on-bad-exit=0", "--wait=0", "--no-kill", "--export=ALL", "--job-name=telem", "--label"]);
    srun.arg("--").arg(binary).args(["node", "--join", "-"]);
    for name in OF_STEPS {
        srun.env_remove(name);
    }
    srun
}
