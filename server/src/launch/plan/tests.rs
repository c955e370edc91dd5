use std::collections::HashMap;
use std::io;
use std::path::Path;

use super::*;

struct Told(HashMap<&'static str, &'static str>);

impl Surroundings for Told {
    fn variable(&self, name: &str) -> Option<String> {
        self.0.get(name).map(|value| (*value).to_owned())
    }

    fn file(&self, path: &Path) -> io::Result<String> {
        let text = path.to_str().and_then(|path| self.0.get(path));
        text.map(|text| (*text).to_owned()).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

fn told(pairs: &[&'static str]) -> Told {
    Told(pairs.iter().map(|pair| pair.split_once('=').unwrap()).collect())
}

/// What Open MPI 4.1.4 of Debian 12 tells a process, as far as it is about this: `mpirun -np 2`, the second.
const OPEN_MPI_4: [&str; 12] = [
    "OMPI_COMM_WORLD_LOCAL_RANK=1",
    "OMPI_COMM_WORLD_LOCAL_SIZE=2",
    "OMPI_COMM_WORLD_NODE_RANK=1",
    "OMPI_COMM_WORLD_RANK=1",
    "OMPI_COMM_WORLD_SIZE=2",
    "OMPI_MCA_ess_base_jobid=1453850625",
    "OMPI_MCA_ess_base_vpid=1",
    "OMPI_MCA_orte_num_nodes=1",
    "PMIX_HOSTNAME=n1",
    "PMIX_ID=1453850625.1",
    "PMIX_NAMESPACE=1453850625",
    "PMIX_RANK=1",
];
/// The same of MPICH 4.0.2 of Debian 12, all that it tells.
const MPICH_4: [&str; 8] = [
    "GFORTRAN_UNBUFFERED_PRECONNECTED=y",
    "HYDI_CONTROL_FD=7",
    "MPIR_CVAR_CH3_INTERFACE_HOSTNAME=n1",
    "MPI_LOCALNRANKS=2",
    "MPI_LOCALRANKID=1",
    "PMI_FD=8",
    "PMI_RANK=1",
    "PMI_SIZE=2",
];

const ALLOCATION: [&str; 3] = ["SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[1-3]", "SLURMD_NODENAME=n1"];

#[track_caller]
fn check(hosts: Hosts, launcher: Launcher, around: &[&'static str], expected: &str) {
    check_of(JobName::Common, hosts, launcher, around, expected);
}

#[track_caller]
fn check_of(job: JobName, hosts: Hosts, launcher: Launcher, around: &[&'static str], expected: &str) {
    let role = match plan(&LaunchOptions { hosts, launcher, job }, &told(around), "n1.site") {
        Ok(Role::Alone) => "alone".to_owned(),
        Ok(Role::Task { rank }) => format!("task {rank}"),
        Ok(Role::TaskOfNode(Launch { name, spread })) => {
            format!("task of node, {}, {}", name.unwrap_or("?".to_owned()), if spread { "spread" } else { "all here" })
        }
        Ok(Role::Launch(Fleet::Local(count))) => format!("local {count}"),
        Ok(Role::Launch(Fleet::Ssh(hosts))) => format!("ssh {}", hosts.join(" ")),
        Ok(Role::Launch(Fleet::Srun(hosts))) => format!("srun {}", hosts.join(" ")),
        Err(error) => format!("error {error}"),
    };
    assert_eq!(role, expected);
}

fn list(text: &str) -> Hosts {
    Hosts::List(text.to_owned())
}

#[test]
fn without_a_job_of_several_nodes_nothing_is_started() {
    check(Hosts::OfJob, Launcher::Auto, &[], "alone");
    check(Hosts::OfJob, Launcher::Auto, &["SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n1"], "alone");
    check(Hosts::OfJob, Launcher::Auto, &["PBS_NODEFILE=/f", "/f=n1\nn1\n"], "alone");
    check(Hosts::OfJob, Launcher::None, &ALLOCATION, "alone");
    check(list("n1,localhost"), Launcher::Auto, &[], "alone");
}

#[test]
fn in_a_job_of_several_nodes_the_others_get_agents() {
    check(Hosts::OfJob, Launcher::Auto, &ALLOCATION, "srun n2 n3");
    check(Hosts::OfJob, Launcher::Ssh, &ALLOCATION, "ssh n2 n3");
    check(Hosts::OfJob, Launcher::Auto, &["PBS_NODEFILE=/f", "/f=n1\nn2\nn2\n"], "ssh n2");
    check(Hosts::OfJob, Launcher::Auto, &["LSB_HOSTS=n2 n1 n3"], "ssh n2 n3");
    // This node is called otherwise by Slurm.
    let renamed = ["SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=virtual[1-2]", "SLURMD_NODENAME=virtual2"];
    check(Hosts::OfJob, Launcher::Auto, &renamed, "srun virtual1");
}

#[test]
fn hosts_that_are_named_count_more_than_those_of_the_job() {
    check(list("n2,n3"), Launcher::Auto, &ALLOCATION, "srun n2 n3");
    check(list("n2,login"), Launcher::Auto, &ALLOCATION, "ssh n2 login");
    check(list("n[1-2]"), Launcher::Auto, &[], "ssh n2");
    check(Hosts::File("/h".into()), Launcher::Auto, &["/h=n1\nn4 slots=2\n"], "ssh n4");
    check(Hosts::Local(NonZeroU32::new(4).unwrap()), Launcher::Auto, &ALLOCATION, "local 4");
    check(list("n2"), Launcher::None, &[], "alone");
}

#[test]
fn a_process_that_srun_started_on_many_nodes_starts_nothing() {
    let mut task = ALLOCATION.to_vec();
    task.extend(["SLURM_STEP_ID=0", "SLURM_PROCID=2", "SLURM_STEP_NUM_NODES=3"]);
    check(Hosts::OfJob, Launcher::Auto, &task, "task 2");
    check(Hosts::OfJob, Launcher::None, &task, "alone");
    task.push("SLURM_STEP_NUM_NODES=1");
    check(Hosts::OfJob, Launcher::Auto, &task, "alone");
}

#[test]
fn processes_of_one_launcher_on_one_node_find_each_other() {
    let at = |job, launcher, around: &[&'static str], expected: &str| {
        check_of(job, Hosts::OfJob, launcher, around, expected);
    };
    let here = |around: &[&'static str], expected: &str| {
        for job in [JobName::Common, JobName::MadeUp] {
            at(job, Launcher::Auto, around, expected);
            at(job, Launcher::None, around, "alone");
        }
    };
    here(&OPEN_MPI_4, "task of node, 1453850625, all here");
    here(&MPICH_4, "task of node, ?, all here");
    here(&["PMIX_RANK=0", "PMIX_NAMESPACE=prterun-n1-77@1"], "task of node, prterun-n1-77@1, all here");
    let step = ["SLURM_JOB_ID=7", "SLURM_STEP_ID=2", "SLURM_PROCID=1", "SLURM_STEP_NUM_NODES=1"];
    here(&[&step[..], &["SLURM_STEP_NUM_TASKS=4"]].concat(), "task of node, 7.2, all here");
    here(&["FLUX_TASK_RANK=1", "FLUX_JOB_SIZE=4", "FLUX_JOB_NNODES=1", "FLUX_JOB_ID=f9"], "task of node, f9, all here");
    here(&["PALS_RANKID=1", "PALS_APID=a1", "PMI_SIZE=4", "PMI_LOCAL_SIZE=4"], "task of node, a1, all here");
    // A launch of one process is none.
    here(&["PMI_RANK=0", "PMI_SIZE=1", "MPI_LOCALNRANKS=1"], "alone");
    here(&["OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1", "OMPI_COMM_WORLD_LOCAL_SIZE=1"], "alone");
    here(&step, "alone");
}

#[test]
fn on_several_nodes_without_a_name_of_the_job_those_of_each_node_find_each_other() {
    let spread = ["PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALNRANKS=2", "MPI_LOCALRANKID=1"];
    check_of(JobName::MadeUp, Hosts::OfJob, Launcher::Auto, &spread, "task of node, ?, spread");
    check_of(JobName::Common, Hosts::OfJob, Launcher::Auto, &spread, "task 1");
    let alone_there = ["PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALNRANKS=1"];
    check_of(JobName::MadeUp, Hosts::OfJob, Launcher::Auto, &alone_there, "task of node, ?, spread");
}

#[test]
fn what_cannot_be_done_is_told() {
    let list_error = "error --nodes: host list: this '[' is never closed, at character 2 of 'n[1'; write it like a,b[001,003],n[01-05]-ib";
    check(list("n[1"), Launcher::Auto, &[], list_error);
    check(list(" , "), Launcher::Auto, &[], "error --nodes ' , ' names no host");
    check(Hosts::File("/h".into()), Launcher::Auto, &["/h=# none\n"], "error --hostfile /h names no host");
    check(Hosts::File("/g".into()), Launcher::Auto, &[], "error --hostfile: cannot read /g: entity not found");
    check(list("n2"), Launcher::Srun, &[], &format!("error {}", PlanError::NoSlurm));
    let gone = "error the hosts of this job are not known: cannot read /f, which PBS_NODEFILE names: entity not found; \
                name them with --nodes or --hostfile, or use --launcher none";
    check(Hosts::OfJob, Launcher::Auto, &["PBS_NODEFILE=/f"], gone);
}
