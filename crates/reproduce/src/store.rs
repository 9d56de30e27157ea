//! Keeps results, so that an interrupted figure continues where it was.

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
    /// The store in `folder`, which is created if it does not exist.
    pub(crate) fn open(folder: PathBuf) -> Result<Store, Error> {
        fs::create_dir_all(&folder).map_err(|source| file("make the folder", &folder, source))?;
        Ok(Store(folder))
    }

    /// The result of this run, if it is stored. A file that can't be read, or has a run with other settings, is ignored
    /// and will be replaced.
    fn find(&self, point: &Point) -> Option<Measured> {
        let text = fs::read_to_string(self.0.join(point.file())).ok()?;
        let mut entry: Value = serde_json::from_str(&text).ok()?;
        let same = entry.get("point")? == &serde_json::to_value(point).ok()?;
        same.then(|| serde_json::from_value(entry.get_mut("measured")?.take()).ok())?
    }

    /// The result of this run, and whether it was stored. If not, the run is made and its result stored.
    pub(crate) fn or_make(&self, point: &Point) -> Result<(Measured, bool), Error> {
        if let Some(measured) = self.find(point) {
            return Ok((measured, true));
        }
        let measured = point.run()?;
        self.keep(point, &measured)?;
        Ok((measured, false))
    }

    /// Stores the result of a run. The file is replaced atomically.
    fn keep(&self, point: &Point, measured: &Measured) -> Result<(), Error> {
        let path = self.0.join(point.file());
        let text = pretty(&Entry { point, measured });
        let partial = path.with_extension("partial");
        fs::write(&partial, text).map_err(|source| file("write", &partial, source))?;
        fs::rename(&partial, &path).map_err(|source| file("write", &path, source))
    }
}

/// JSON with line breaks and indentation.
pub(crate) fn pretty(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("there are no strange keys");
    text.push('\n');
    text
}

/// An error about a file.
pub(crate) fn file(what: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::File { what, path: path.to_path_buf(), source }
}
