//! Names in public places that a stranger took before telem.

use super::*;

/// Runs in a place of its own, where `/tmp` and `/dev/shm` are empty and only root is a user; `PUT` takes names there.
const ALONE: &str = r#"
set -eu
mount -t tmpfs none /tmp
mount -t tmpfs none /dev/shm
chmod 1777 /tmp /dev/shm
cd /tmp
name="telem-$(id -u)"
eval "$PUT"
code=0
"$TELEM" run --node n1 --listen 127.0.0.1:0 --job j1 -- sh -c 'echo "$TELEM_SOCKET"; test -S "$TELEM_SOCKET"; exit 3' || code=$?
echo "code $code"
for dir in /tmp/telem-j1*; do test -d "$dir/n1" && "$TELEM" info --json "$dir/n1" > /tmp/info && echo "saved $dir"; done
"#;

#[test]
fn a_name_that_a_stranger_took_in_tmp_keeps_no_job_from_being_recorded() {
    let mut may = Command::new("unshare");
    may.args(["-rm", "mount", "-t", "tmpfs", "none", "/tmp"]).stderr(Stdio::null());
    if !may.status().is_ok_and(|status| status.success()) {
        println!("skipped: no mount namespaces here");
        return;
    }
    let telem = env!("CARGO_BIN_EXE_telem");
    if std::path::Path::new(telem).starts_with("/tmp") {
        println!("skipped: the binary is in /tmp");
        return;
    }
    let cases = [
        ("", "/tmp/telem-0/", "/tmp/telem-j1"),
        ("ln -s /no/such/place $name", "/tmp/telem-0-2/", "/tmp/telem-j1"),
        ("ln -s $name $name", "/tmp/telem-0-2/", "/tmp/telem-j1"),
        ("mkdir /tmp/theirs; ln -s /tmp/theirs $name", "/tmp/telem-0-2/", "/tmp/telem-j1"),
        (": > $name; mkfifo $name-2; mkdir -m 777 $name-3", "/tmp/telem-0-4/", "/tmp/telem-j1"),
        ("for n in '' -2 -3 -4 -5 -6 -7 -8 -9; do ln -s /no $name$n; done", "/dev/shm/telem-0/", "/tmp/telem-j1"),
        // The name that the samples are saved under.
        ("ln -s /no/such/place telem-j1", "/tmp/telem-0/", "/tmp/telem-j1-2"),
        ("mkfifo telem-j1; : > telem-j1-2", "/tmp/telem-0/", "/tmp/telem-j1-3"),
    ];
    for (put, socket, saved) in cases {
        let mut run = Command::new("unshare");
        run.args(["-rm", "sh", "-c", ALONE]).env("PUT", put).env("TELEM", telem).env_remove("TMPDIR");
        crate::process::quiet(&mut run);
        let done = output(run);
        let (printed, said) = (String::from_utf8_lossy(&done.stdout).into_owned(), said(&done));
        assert!(printed.starts_with(socket) && printed.contains("\ncode 3\n"), "{put}: {printed} {said}");
        assert!(printed.contains(&format!("saved {saved}\n")), "{put}: {printed} {said}");
        assert!(!said.contains("does not record"), "{put}: {said}");
        assert_eq!(said.contains("because /tmp/telem-"), !put.is_empty(), "{put}: {said}");
    }
}
