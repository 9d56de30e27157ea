//! Where results are kept, so that a figure that was interrupted goes on where it was.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::point::Point;
use crate::{Error, Measured};

/// A folder with a file for each run.
#[derive(Clone, Debug)]
pub(crate) struct Store(PathBuf);

#[derive(Serialize)]
struct Entry<'a> {
    point: &'a Point,
    measured: &'a Measured,
}

impl Store {
    /// The store in `folder`, which is made if it is not there.
    pub(crate) fn open(folder: PathBuf) -> Result<Store, Error> {
        fs::create_dir_all(&folder).map_err(|source| file("make the folder", &folder, source))?;
        Ok(Store(folder))
    }

    /// What this run came to, if it is known. A file that can't be read, or that is about a run with
    /// other settings, is as good as none: it will be written anew.
    fn find(&self, point: &Point) -> Option<Measured> {
        let text = fs::read_to_string(self.0.join(point.file())).ok()?;
        let mut entry: Value = serde_json::from_str(&text).ok()?;
        let same = entry.get("point")? == &serde_json::to_value(point).ok()?;
        same.then(|| serde_json::from_value(entry.get_mut("measured")?.take()).ok())?
    }

    /// What this run came to, and whether it was known; if not, it is made and kept.
    pub(crate) fn or_make(&self, point: &Point) -> Result<(Measured, bool), Error> {
        if let Some(measured) = self.find(point) {
            return Ok((measured, true));
        }
        let measured = point.run()?;
        self.keep(point, &measured)?;
        Ok((measured, false))
    }

    /// Keeps what a run came to. The file is there whole or not at all.
    fn keep(&self, point: &Point, measured: &Measured) -> Result<(), Error> {
        let path = self.0.join(point.file());
        let text = pretty(&Entry { point, measured });
        let partial = path.with_extension("partial");
        fs::write(&partial, text).map_err(|source| file("write", &partial, source))?;
        fs::rename(&partial, &path).map_err(|source| file("write", &path, source))
    }
}

/// JSON that people can read.
pub(crate) fn pretty(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("there are no strange keys");
    text.push('\n');
    text
}

/// An error about a file.
pub(crate) fn file(what: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::File { what, path: path.to_path_buf(), source }
}
