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

const ALLOCATION: [&str; 3] = ["SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[1-3]", "SLURMD_NODENAME=n1"];

#[track_caller]
fn check(hosts: Hosts, launcher: Launcher, around: &[&'static str], expected: &str) {
    let role = match plan(&Wanted { hosts, launcher }, &told(around), "n1.site") {
        Ok(Role::Alone) => "alone".to_owned(),
        Ok(Role::Task { rank }) => format!("task {rank}"),
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
