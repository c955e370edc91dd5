//! Whatever a stranger put under a name in a public place, the job gets a directory of its own.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// Puts something under a name that telem wants.
type TakeName = fn(&Path, &Path);

/// Everything that somebody may leave under a name.
const IN_THE_WAY: [(&str, TakeName, &str); 7] = [
    ("a dangling link", |name, _| symlink("/no/such/place", name).unwrap(), "is not a directory but a link"),
    ("a link to itself", |name, _| symlink(name, name).unwrap(), "is not a directory but a link"),
    ("a link to a directory", |name, other| symlink(other, name).unwrap(), "is not a directory but a link"),
    ("a file", |name, _| fs::write(name, "").unwrap(), "is not a directory"),
    (
        "a pipe",
        |name, _| assert!(std::process::Command::new("mkfifo").arg(name).status().unwrap().success()),
        "is not a directory",
    ),
    ("a socket", |name, _| drop(std::os::unix::net::UnixListener::bind(name).unwrap()), "is not a directory"),
    (
        "a directory that others may enter",
        |name, _| {
            fs::create_dir(name).unwrap();
            fs::set_permissions(name, Permissions::from_mode(0o777)).unwrap();
        },
        "has mode 0777",
    ),
];

#[test]
fn where_a_name_is_taken_the_next_one_is_used_and_what_was_there_is_left_alone() {
    for (what, put, why) in IN_THE_WAY {
        let base = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let name = base.path().join("telem-1");
        put(&name, other.path());
        let before = fs::symlink_metadata(&name).unwrap();
        let found = below(base.path(), "telem-1", uid(), Privacy::Closed).unwrap();
        assert_eq!(found.path, base.path().join("telem-1-2"), "{what}");
        assert!(check(&found.path, uid(), Privacy::Closed).is_ok(), "{what}");
        let said: Vec<String> = found.passed.iter().map(ToString::to_string).collect();
        assert!(said.len() == 1 && said[0].contains(why) && said[0].contains("telem-1 "), "{what}: {said:?}");
        // The next process of the job finds the same one, and nothing was written through a link.
        assert_eq!(below(base.path(), "telem-1", uid(), Privacy::Closed).unwrap().path, found.path, "{what}");
        assert_eq!(fs::symlink_metadata(&name).unwrap().ino(), before.ino(), "{what}");
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0, "{what}");
    }
}

#[test]
fn a_directory_of_another_user_is_passed_over() {
    let base = tempfile::tempdir().unwrap();
    let theirs = below(base.path(), "telem-1", uid(), Privacy::Closed).unwrap();
    let found = below(base.path(), "telem-1", uid() + 1, Privacy::Closed).unwrap_err().to_string();
    assert!(found.contains(&format!("belongs to uid {}", uid())), "{found}");
    assert!(theirs.path.ends_with("telem-1"));
}

#[test]
fn names_are_tried_up_to_the_limit_and_the_first_reason_is_told() {
    let base = tempfile::tempdir().unwrap();
    let name = |n: u32| base.path().join(if n == 1 { "t".to_owned() } else { format!("t-{n}") });
    for n in 1..NAMES_MAX {
        symlink("/no/such/place", name(n)).unwrap();
    }
    assert_eq!(below(base.path(), "t", uid(), Privacy::Closed).unwrap().path, name(NAMES_MAX));
    fs::remove_dir(name(NAMES_MAX)).unwrap();
    fs::write(name(NAMES_MAX), "").unwrap();
    let error = below(base.path(), "t", uid(), Privacy::Closed).unwrap_err().to_string();
    assert!(error.contains(&format!("{} is not a directory", name(1).display())), "{error}");
    let absent = base.path().join("absent");
    assert!(matches!(below(&absent, "t", uid(), Privacy::Closed), Err(PrivateDirError::Io { .. })));
}

#[test]
fn where_users_share_a_file_system_others_may_look_in_and_not_write() {
    let base = tempfile::tempdir().unwrap();
    let dir = base.path().join("t");
    fs::create_dir(&dir).unwrap();
    for (mode, is_fit) in [(0o755, true), (0o700, true), (0o775, false), (0o707, false)] {
        fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
        assert_eq!(check(&dir, uid(), Privacy::Unwritten).is_ok(), is_fit, "{mode:o}");
        assert_eq!(check(&dir, uid(), Privacy::Closed).is_ok(), mode == 0o700, "{mode:o}");
    }
}
