//! Disk images for the block layer's tests, and what other tools report of them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use flysch_api::block::{BlockError, Cause};
use flysch_geom::class::disk::MD;
use flysch_geom::{Graph, Medium, ProviderId, Shape};

/// An image file for reading and writing.
#[derive(Debug)]
pub struct Image(File);

fn failed<T>(result: std::io::Result<T>) -> Result<T, BlockError> {
    result.map_err(|_| BlockError::Medium(Cause::None))
}

impl Medium for Image {
    fn shape(&self) -> Shape {
        let media_size = self.0.metadata().map_or(0, |metadata| metadata.len());
        Shape { media_size, sector_size: 512, stripe_size: 0, stripe_offset: 0 }
    }

    fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), BlockError> {
        failed(self.0.read_exact_at(to, offset))
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), BlockError> {
        failed(self.0.write_all_at(from, offset))
    }

    fn flush(&mut self) -> Result<(), BlockError> {
        Ok(())
    }
}

/// A graph with the images as disks, called `d0`, `d1` and so on, with everything tasted.
///
/// # Panics
/// If one cannot be opened.
pub fn graph(images: &[&Path], seed: u64) -> (Graph, Vec<ProviderId>) {
    let mut graph = Graph::new(&flysch_geom::all(), seed);
    let mut disks = Vec::new();
    for (number, path) in images.iter().enumerate() {
        let file = File::options().read(true).write(true).open(path).expect("the image is there");
        let medium = Box::new(Image(file));
        let inserted = MD.insert(&mut graph, &format!("d{number}"), medium);
        disks.push(inserted.expect("the image is a disk"));
    }
    graph.settle();
    (graph, disks)
}

/// Runs a tool; returns its output.
///
/// # Errors
/// Its messages, if it failed.
pub fn tool(program: &str, arguments: &[&str], path: &Path) -> Result<String, String> {
    let output = Command::new(program).args(arguments).arg(path).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} {}: {complaint}{said}", arguments.join(" ")))
}
