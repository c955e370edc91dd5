//! Plans the repair of the metadata.

use super::Planner;
use crate::error::Result;
use crate::layout::{self, META};
use crate::manifest::FileEntry;
use crate::meta::Meta;
use crate::progress::Progress;
use crate::repair::{Act, Loss, LossKind, flip};

impl Planner<'_> {
    pub(super) fn choose_meta(&mut self, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Option<FileEntry>> {
        let named = self.manifest.as_ref().map(|manifest| manifest.meta.clone());
        if let Some(named) = named {
            let Some(entry) = named else { return Ok(None) };
            let bytes = self.read(&entry.file, progress)?;
            let good = bytes.as_ref().is_some_and(|bytes| {
                (bytes.len() as u64, crc32fast::hash(bytes)) == (entry.bytes, entry.crc32) && is_meta(bytes)
            });
            if good {
                return Ok(Some(entry));
            }
            let healed = bytes.as_ref().filter(|bytes| bytes.len() as u64 == entry.bytes);
            let healed = healed.and_then(|bytes| flip::turned_back(bytes, entry.crc32, flip::SHORT_BYTES_MAX));
            if let Some(good) = healed.filter(|good| is_meta(good)) {
                self.aside.insert(entry.file.clone());
                self.act(Act::Heal, &entry.file, "one bit is not what was written");
                self.new_meta = Some(good);
                return Ok(None);
            }
            let why =
                if bytes.is_some() { "its bytes are not what the manifest says" } else { "there is no such file" };
            self.lose_meta(&entry.file, why);
            if bytes.is_some() {
                self.set_aside(&entry.file, why);
            } else {
                self.act(Act::RebuildManifest, layout::MANIFEST, format!("{}: {why}", entry.file));
            }
            return Ok(None);
        }
        // The newest that can be read: there is more than one only where a flush was cut off.
        for file in self.list(META)?.into_iter().rev() {
            let Some(bytes) = self.read(&file, progress)? else { continue };
            if is_meta(&bytes) {
                self.unproven.push(format!("{file}: its checksum is lost with the manifest"));
                return Ok(Some(FileEntry { file, bytes: bytes.len() as u64, crc32: crc32fast::hash(&bytes) }));
            }
            self.lose_meta(&file, "it is not JSON that telem writes");
            self.set_aside(&file, "it is not JSON that telem writes");
        }
        Ok(None)
    }

    fn lose_meta(&mut self, file: &str, why: &str) {
        let (file, why) = (file.to_owned(), why.to_owned());
        let loss =
            Loss { kind: LossKind::Metadata, file, why, samples: None, first: None, last: None, series: Vec::new() };
        self.losses.push(loss);
    }
}

fn is_meta(bytes: &[u8]) -> bool {
    serde_json::from_slice::<Meta>(bytes).is_ok()
}
