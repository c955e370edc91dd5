//! The name of the job whose samples a database has, where nothing else is known of that job.

use telem_engine::{Db, Durability, MetaChange};

use crate::settings;

/// What becomes of the description of another job that a database has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Former {
    /// What that job left is of this one from now on.
    Replaced,
    /// It stays if it says more than a name: a run was recorded there.
    Kept,
}

/// Notes, in the background, that the samples of `db` are of `job`.
pub fn name_job(db: Db, job: String, former: Former) {
    tokio::task::spawn_blocking(move || {
        let _turn = settings::turn();
        let is_named = db.snapshot().meta().job().is_some_and(|known| {
            let says_more = known.as_object().is_some_and(|known| known.keys().any(|key| key != "id"));
            known["id"] == *job || (former == Former::Kept && says_more)
        });
        if is_named {
            return;
        }
        let named = db.put_meta(MetaChange::Job(serde_json::json!({ "id": job })), Durability::Buffered);
        if let Err(error) = named {
            tracing::warn!(%error, "the database does not say whose samples it has");
        }
    });
}
