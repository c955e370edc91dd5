use std::os::unix::fs::{PermissionsExt, chown, symlink};

use super::*;

fn claimed(place: &Path, naming: Naming) -> io::Result<PathBuf> {
    let mut destination = Destination::new(place.join("telem-7"), naming, "n1");
    destination.claim_within(Duration::from_secs(60)).map(|()| destination.path().to_path_buf())
}

#[test]
fn where_a_stranger_took_the_name_of_the_job_another_is_used_and_never_where_somebody_asked_for_it() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    symlink("/no/such/place", at("telem-7")).unwrap();
    fs::write(at("telem-7-2"), "").unwrap();
    assert_eq!(claimed(place.path(), Naming::OfJob).unwrap(), at("telem-7-3/n1"));
    assert_eq!(claimed(place.path(), Naming::OfJob).unwrap(), at("telem-7-3/n1-2"), "it is the job's own now");
    assert!(claimed(place.path(), Naming::Asked).is_err());
}

#[test]
fn a_directory_of_another_user_is_passed_over_where_anybody_may_make_one() {
    let place = tempfile::tempdir().unwrap();
    let theirs = place.path().join("telem-7");
    fs::create_dir(&theirs).unwrap();
    if chown(&theirs, Some(4_242), None).is_err() {
        println!("skipped: only root gives a directory away");
        return;
    }
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(claimed(place.path(), Naming::OfJob).unwrap(), theirs.join("n1"), "a project shares its directory");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    assert_eq!(claimed(place.path(), Naming::OfJob).unwrap(), place.path().join("telem-7-2/n1"));
    assert_eq!(claimed(place.path(), Naming::Asked).unwrap(), theirs.join("n1-2"));
}

#[test]
fn a_link_that_leads_to_a_directory_of_ours_is_used() {
    let (place, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    symlink(other.path(), place.path().join("telem-7")).unwrap();
    assert_eq!(claimed(place.path(), Naming::OfJob).unwrap(), place.path().join("telem-7/n1"));
    assert!(other.path().join("n1").is_dir());
}
