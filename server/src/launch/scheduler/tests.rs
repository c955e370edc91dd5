use std::collections::HashMap;

use super::*;

/// An environment and files, each as `name=text`; a name with a `/` is a file's.
struct Told(HashMap<&'static str, &'static str>);

impl Surroundings for Told {
    fn variable(&self, name: &str) -> Option<String> {
        self.0.get(name).filter(|value| !value.is_empty()).map(|value| (*value).to_owned())
    }

    fn file(&self, path: &Path) -> io::Result<String> {
        let text = path.to_str().and_then(|path| self.0.get(path));
        text.map(|text| (*text).to_owned()).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

fn told(pairs: &[&'static str]) -> Told {
    Told(pairs.iter().map(|pair| pair.split_once('=').unwrap()).collect())
}

#[track_caller]
fn check(around: &[&'static str], scheduler: Scheduler, hosts: &str) {
    let found = nodes(&told(around)).unwrap().unwrap();
    assert_eq!((found.scheduler, found.hosts.join(" ").as_str()), (scheduler, hosts));
}

#[track_caller]
fn check_error(around: &[&'static str], said: &str) {
    let error = nodes(&told(around)).unwrap_err().to_string();
    assert!(error.contains(said), "{error}");
}

#[test]
fn the_hosts_of_a_job_are_those_of_its_scheduler_each_once() {
    use Scheduler::{Lsf, Pals, Pbs, Slurm};
    assert_eq!(nodes(&told(&[])).unwrap(), None);
    assert_eq!(nodes(&told(&["SLURM_JOB_NODELIST=", "PBS_NODEFILE="])).unwrap(), None);
    check(&["SLURM_JOB_NODELIST=n[1-2],gpu7"], Slurm, "n1 n2 gpu7");
    check(&["SLURM_NODELIST=n[1-2]"], Slurm, "n1 n2");
    check(&["PBS_NODEFILE=/f", "/f=n1.site\nn1.site\nn2.site\n"], Pbs, "n1.site n2.site");
    check(&["LSB_DJOB_HOSTFILE=/f", "/f=b\na\na\n", "LSB_HOSTS=z"], Lsf, "b a");
    check(&["LSB_MCPU_HOSTS=batch1 1 a 42 b 42 ", "LSB_HOSTS=z"], Lsf, "batch1 a b");
    check(&["LSB_HOSTS=a a b b"], Lsf, "a b");
    check(&["PALS_HOSTLIST=x1000c0s0b0n0,x1000c0s0b0n1", "PBS_NODEFILE=/f"], Pals, "x1000c0s0b0n0 x1000c0s0b0n1");
    check(&["PALS_HOSTFILE=/p", "/p=x1\nx2\n", "PBS_NODEFILE=/f"], Pals, "x1 x2");
}

#[test]
fn a_task_of_srun_has_the_hosts_of_its_step_and_a_script_those_of_its_job() {
    let job = ["SLURM_JOB_NODELIST=n[1-4]", "SLURM_PROCID=0", "SLURM_NNODES=4", "SLURM_STEP_NODELIST=n[1-2]"];
    let with = |step: &'static str| {
        let mut around = job.to_vec();
        around.push(step);
        nodes(&told(&around)).unwrap().unwrap().hosts.join(" ")
    };
    assert_eq!(with("SLURM_STEP_ID=0"), "n1 n2");
    assert_eq!(with("SLURM_STEP_ID="), "n1 n2 n3 n4");
    assert_eq!(with("SLURM_STEP_ID=4294967290"), "n1 n2 n3 n4", "the shell of salloc");
    assert_eq!(with("SLURM_STEP_ID=4294967291"), "n1 n2 n3 n4", "a batch script");
}

#[test]
fn what_a_scheduler_says_wrongly_is_told_with_its_source() {
    check_error(
        &["SLURM_JOB_NODELIST=n[1-"],
        "SLURM_JOB_NODELIST: host list: this '[' is never closed, at character 2",
    );
    check_error(&["PBS_NODEFILE=/gone"], "cannot read /gone, which PBS_NODEFILE names: ");
    check_error(&["PBS_NODEFILE=/f", "/f=n1\n\nn2!\n"], "/f, line 3: host list: '!' is not part of a name");
    check_error(&["LSB_MCPU_HOSTS=a 4 b"], "LSB_MCPU_HOSTS: 'b' in 'a 4 b' is not of a pair HOST SLOTS");
    check_error(&["LSB_MCPU_HOSTS=a b 4 4"], "LSB_MCPU_HOSTS: 'b' in 'a b 4 4' is not of a pair HOST SLOTS");
}

#[test]
fn files_of_hosts_are_read_as_mpi_libraries_and_flux_write_them() {
    let read = |text: &str| hosts_of_file("f", text).map(|hosts| hosts.join(" ")).map_err(|error| error.to_string());
    assert_eq!(read("# two\nn1 slots=4\n\n  n2:8 # and more\nN1\nn[3-4]\nfe80::1\n").unwrap(), "n1 n2 n3 n4 fe80::1");
    assert_eq!(read(""), Ok(String::new()));
    let r_lite = r#"{"version":1,"execution":{"R_lite":[{"rank":"0-2","children":{"core":"0-3"}}],
        "starttime":0,"expiration":0,"nodelist":["fluke[0-1]","gpu7"]}}"#;
    assert_eq!(read(r_lite).unwrap(), "fluke0 fluke1 gpu7");
    let error = read("{\"version\":1}").unwrap_err();
    assert!(error.starts_with("f: no list of hosts, and no resource set of Flux either: missing field"), "{error}");
    assert!(read("n1\n-oProxyCommand\n").unwrap_err().starts_with("f, line 2: host list: a name does not start"));
    let slots = "n1\n".repeat(FILE_HOSTS_MAX);
    assert_eq!(read(&slots).unwrap(), "n1");
    assert!(read(&(slots + "n1\n")).unwrap_err().contains("more than 1048576 hosts"));
}

#[track_caller]
fn check_task(around: &[&'static str], expected: Option<(u32, bool)>) {
    let found = task(&told(around)).map(|task| (task.rank, task.spread));
    assert_eq!(found, expected, "{around:?}");
}

#[test]
fn a_process_knows_which_of_many_it_is() {
    check_task(&[], None);
    check_task(&["SLURM_STEP_ID=0", "SLURM_PROCID=3", "SLURM_STEP_NUM_NODES=2"], Some((3, true)));
    check_task(&["SLURM_STEP_ID=0", "SLURM_PROCID=3", "SLURM_STEP_NUM_NODES=1", "SLURM_NNODES=2"], Some((3, false)));
    check_task(&["OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=8", "OMPI_COMM_WORLD_LOCAL_SIZE=4"], Some((5, true)));
    check_task(&["OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=8", "OMPI_COMM_WORLD_LOCAL_SIZE=8"], Some((5, false)));
    check_task(&["PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALNRANKS=2"], Some((1, true)));
    check_task(&["PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALNRANKS=4"], Some((1, false)));
    check_task(&["PMI_RANK=1", "PMI_SIZE=4"], Some((1, false)));
    check_task(&["PALS_RANKID=7", "PMI_RANK=7", "PMI_SIZE=8", "PMI_LOCAL_SIZE=4"], Some((7, true)));
    check_task(&["FLUX_TASK_RANK=2", "FLUX_JOB_NNODES=2", "FLUX_JOB_SIZE=4"], Some((2, true)));
    check_task(&["FLUX_TASK_RANK=2", "FLUX_JOB_NNODES=1"], Some((2, false)));
    check_task(&["PMIX_RANK=2", "PBS_NODEFILE=/f", "/f=a\nb\n"], Some((2, true)));
    check_task(&["PMIX_RANK=2"], Some((2, false)));
    check_task(&["OMPI_COMM_WORLD_RANK=x"], None);
}

#[test]
fn launches_have_the_names_that_their_launchers_give_them() {
    let check = |around: &[&'static str], count: Option<u32>, launch: Option<&str>| {
        let found = task(&told(around)).unwrap();
        assert_eq!((found.count, found.launch.as_deref()), (count, launch), "{around:?}");
    };
    check(&["OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=8", "PMIX_NAMESPACE=77"], Some(8), Some("77"));
    check(&["OMPI_COMM_WORLD_RANK=0", "OMPI_MCA_ess_base_jobid=78"], None, Some("78"));
    check(&["PMIX_RANK=0", "PMIX_NAMESPACE=79"], None, Some("79"));
    check(&["SLURM_JOB_ID=7", "SLURM_STEP_ID=1", "SLURM_PROCID=0", "SLURM_NTASKS=4"], Some(4), Some("7.1"));
    // With the PMI of Slurm it is the step that counts, with Hydra in a step it is not.
    let step = ["SLURM_JOB_ID=7", "SLURM_STEP_ID=1", "SLURM_PROCID=0", "PMI_RANK=0", "PMI_SIZE=4"];
    check(&step, Some(4), Some("7.1"));
    check(&[&step[..], &["MPI_LOCALRANKID=0", "PMIX_NAMESPACE=outer"]].concat(), Some(4), None);
}

#[test]
fn the_innermost_launcher_counts() {
    // mpirun in a batch script of Slurm, on the first node: its processes have the script's variables.
    let script = ["SLURM_PROCID=0", "SLURM_NNODES=2", "SLURM_JOB_NODELIST=n[1-2]"];
    check_task(&script, None);
    let mut ranks = script.to_vec();
    ranks.extend(["OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_SIZE=2"]);
    check_task(&ranks, Some((1, true)));
    // The same on the second: mpirun started its own daemon there by srun, as the only task of one node.
    ranks.extend(["SLURM_STEP_ID=0", "SLURM_STEP_NUM_NODES=1"]);
    ranks.extend(["OMPI_COMM_WORLD_RANK=3"]);
    check_task(&ranks, Some((3, true)));
    // srun with a PMI of its own says how many nodes there are itself.
    let pmi2 = ["SLURM_STEP_ID=0", "SLURM_PROCID=3", "SLURM_STEP_NUM_NODES=2", "PMI_RANK=3", "PMI_SIZE=4"];
    check_task(&pmi2, Some((3, true)));
    // A shell of salloc is no task.
    check_task(&["SLURM_STEP_ID=4294967290", "SLURM_PROCID=0", "SLURM_STEP_NUM_NODES=1", "SLURM_NNODES=2"], None);
}

#[test]
fn two_names_of_one_host_are_known_to_be_that() {
    for (one, other) in [("n1", "N1"), ("n1.site.org", "n1"), ("N1", "n1.site.org"), ("10.0.0.1", "10.0.0.1")] {
        assert!(is_same_host(one, other), "{one} {other}");
    }
    for (one, other) in [("n1", "n2"), ("n1.a.org", "n1.b.org"), ("10.0.0.1", "10"), ("n1", "n11")] {
        assert!(!is_same_host(one, other), "{one} {other}");
    }
}
