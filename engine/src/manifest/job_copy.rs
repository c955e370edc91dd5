//! What a manifest repeats of the metadata file, for those who look at many databases: the description of the job.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value as Json;
use serde_json::value::to_raw_value;

use crate::meta::{Meta, exact};

/// Longest description that is repeated, in bytes of JSON: a manifest is written at each flush, and has some 300 bytes
/// for each segment.
pub const JOB_COPY_BYTES_MAX: usize = 16 << 10;

/// The description of the job, as the metadata file has it. That file counts: this is made from it whenever it is
/// written or read, and says which one it was made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobCopy {
    /// The metadata file, by folder and name.
    meta: String,
    #[serde(serialize_with = "in_one_line", deserialize_with = "exact::deserialize")]
    description: Json,
}

impl JobCopy {
    /// That of the metadata file `file`, which holds `meta`. `None` where it describes no job, or several jobs that
    /// shared the database, or one at too great a length.
    pub fn of(file: &str, meta: &Meta) -> Option<Self> {
        let description = meta.job().filter(|_| meta.job_intervals().is_empty())?;
        (description.to_string().len() <= JOB_COPY_BYTES_MAX)
            .then(|| Self { meta: file.to_owned(), description: description.clone() })
    }

    /// Whether it was made from the metadata file `file`.
    pub fn is_of(&self, file: &str) -> bool {
        self.meta == file
    }

    pub fn into_description(self) -> Json {
        self.description
    }
}

/// So that it takes no more room in a manifest than it was measured to take.
fn in_one_line<S: Serializer>(description: &Json, to: S) -> Result<S::Ok, S::Error> {
    to_raw_value(description).map_err(serde::ser::Error::custom)?.serialize(to)
}
