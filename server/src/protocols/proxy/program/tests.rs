//! Programs that answer, hang, say too much, leave others behind, and are not there.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use telem_engine::SystemClock;

use super::*;

fn programs(search_path: &str) -> Programs {
    Programs::new(Arc::new(SystemClock::new()), Some(search_path.into()))
}

fn script(text: &str) -> Program {
    Program {
        path: "/bin/sh".into(),
        arguments: vec!["-c".into(), text.into()],
        environment: vec![("TELEM_TEST", "given".into())],
        input: Vec::new(),
        deadline: Duration::from_secs(20),
        output_bytes_max: 1 << 20,
    }
}

async fn said(program: Program) -> Result<String, String> {
    let said = programs("/bin").ask(program).await.map_err(|error| error.to_string())?;
    Ok(String::from_utf8(said).unwrap())
}

#[tokio::test]
async fn a_program_is_given_its_input_and_environment_and_is_heard() {
    assert_eq!(said(script("echo $TELEM_TEST")).await.unwrap(), "given\n");
    let input = vec![b'x'; 1 << 20];
    let program = Program { input: input.clone(), ..script("cat") };
    assert_eq!(said(program).await.unwrap().len(), input.len(), "more than fits into a pipe");
    let program = Program { input, ..script("echo done") };
    assert_eq!(said(program).await.unwrap(), "done\n", "it need not be read");
}

#[tokio::test]
async fn a_program_that_fails_is_told_with_its_last_words() {
    let why = said(script("echo nothing; echo 'no such   thing' >&2; exit 3")).await.unwrap_err();
    assert_eq!(why, "sh ended with exit status: 3: no such thing");
    let why = said(script("i=0; while [ $i -lt 20000 ]; do echo 'a long complaint' >&2; i=$((i+1)); done; exit 1"));
    assert!(why.await.unwrap_err().len() < 400);
    let absent = Program { path: "/nowhere/tool".into(), ..script("") };
    assert!(said(absent).await.unwrap_err().starts_with("tool cannot be run: "));
}

#[tokio::test]
async fn a_program_that_says_too_much_is_ended() {
    let program = Program { output_bytes_max: 4, ..script("printf 1234") };
    assert_eq!(said(program).await.unwrap(), "1234");
    let program = Program { output_bytes_max: 4, ..script("printf 12345; exec cat /dev/zero") };
    assert_eq!(said(program).await.unwrap_err(), "sh said more than 4 bytes");
}

#[tokio::test]
async fn a_program_that_is_late_is_killed_with_all_that_it_started() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pids");
    let text = format!("sh -c 'echo $$ >> {0}; exec cat /dev/zero >/dev/null' & echo $$ >> {0}; wait", file.display());
    let mut millis = 350;
    // On a busy machine two shells may take longer than that until they run.
    let pids = loop {
        millis *= 2;
        assert!(millis < 60_000, "the shells never ran");
        let _ = fs::remove_file(&file);
        let program = Program { deadline: Duration::from_millis(millis), ..script(&text) };
        let why = said(program).await.unwrap_err();
        assert_eq!(why, format!("sh took longer than {} s", millis as f64 / 1e3));
        let pids = fs::read_to_string(&file).unwrap_or_default();
        if pids.lines().count() == 2 {
            break pids;
        }
    };
    let clock = SystemClock::new();
    let until = clock.monotonic() + Duration::from_secs(20);
    let is_alive = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
    };
    while pids.lines().any(is_alive) {
        assert!(clock.monotonic() < until, "{pids} are alive");
        thread::yield_now();
    }
}

#[tokio::test]
async fn a_program_whose_answer_nobody_waits_for_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // It holds the pipe open as long as it lives.
    let text = format!("exec 3>{}; echo begun >&3; exec cat /dev/zero >/dev/null", pipe.display());
    let programs = programs("/bin");
    let (begin, begun) = oneshot::channel();
    let reader = thread::spawn(move || {
        let mut pipe = fs::File::open(pipe).unwrap();
        let mut word = [0; 6];
        pipe.read_exact(&mut word).unwrap();
        begin.send(()).unwrap();
        // Until the last writer is gone.
        pipe.read_to_end(&mut Vec::new()).unwrap()
    });
    tokio::select! {
        said = programs.ask(script(&text)) => panic!("{said:?}"),
        begun = begun => begun.unwrap(),
    }
    assert_eq!(reader.join().unwrap(), 0);
}

#[test]
fn programs_are_found_where_a_shell_finds_them() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    for place in [&first, &second] {
        fs::create_dir(place).unwrap();
        fs::write(place.join("tool"), "#!/bin/sh\n").unwrap();
    }
    fs::set_permissions(second.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    let programs = programs(&format!("relative:{}:{}", first.display(), second.display()));
    assert_eq!(programs.find("tool").unwrap(), second.join("tool"), "the first one cannot be run");
    assert_eq!(programs.find("other").unwrap_err().to_string(), "other is not on the PATH");
}
