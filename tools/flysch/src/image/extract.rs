//! `flysch image extract`.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use flysch_api::count::counted;
use flysch_image::{Contents, ExtractOptions, Extraction, Failure as Lost, Image, ImageVolume};
use serde_json::json;

use super::{Source, shown};
use crate::failure::Failure;
use crate::output::Output;
use crate::progress::Progress;

/// Interval at which the progress bar is updated.
const TICK: Duration = Duration::from_millis(100);

/// Options of `flysch image extract`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    source: Source,
    /// The directory to extract into; it is created, or must be empty.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Keep the readable parts of damaged files, with zeros in place of the rest.
    #[arg(long)]
    keep_damaged: bool,
    /// Threads; default: one per processor.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    threads: usize,
}

/// Extracts.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let image = arguments.source.open()?;
    let volumes = arguments.source.volumes(&image)?;
    let mut total = Extraction::default();
    // Its tree is what the directory holds, if there is one volume with a tree.
    let is_tree = |volume: &ImageVolume| !matches!(volume.contents, Contents::Raw(_));
    let in_folder = !matches!(&volumes[..], [(_, volume)] if is_tree(volume));
    if in_folder {
        make_empty(&arguments.output)?;
    }
    // As with tar: what is out stays. It is not told from a whole tree by looking at it, and to go
    // on where it stopped the last files could not be trusted.
    crate::cleanup::say_when_interrupted(format!(
        "{} is not complete: remove it, or extract into another directory",
        arguments.output.display()
    ));
    for (name, volume) in &volumes {
        let name = if is_tree(volume) { name.clone() } else { format!("{name}.bin") };
        let place = if in_folder { arguments.output.join(&name) } else { arguments.output.clone() };
        let prefix = if in_folder { name } else { String::new() };
        let one = extract_volume(arguments, (&image, volume), &place)?;
        add(&mut total, one, &prefix);
    }
    // What is there may not be all, or belong to another volume.
    let faults = flysch_image::faults(&image, &|volume| arguments.source.wants(&image, volume));
    report(&total, &faults, &arguments.source.path, output)
}

fn make_empty(directory: &Path) -> Result<(), Failure> {
    let fail = |error| Failure::of(directory.display(), error);
    match std::fs::create_dir(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(fail(error)),
        _ => {}
    }
    match std::fs::read_dir(directory).map_err(fail)?.next() {
        None => Ok(()),
        Some(_) => Err(Failure::of(directory.display(), "the directory is not empty")),
    }
}

fn extract_volume(
    arguments: &Arguments,
    (image, volume): (&Image, &ImageVolume),
    place: &Path,
) -> Result<Extraction, Failure> {
    let fail = |error: std::io::Error| Failure::of(place.display(), error);
    let progress = flysch_image::Progress::default();
    let options =
        ExtractOptions { threads: arguments.threads, keep_damaged: arguments.keep_damaged };
    let mut bar = Progress::bytes("extracting", None);
    let fs = arguments.source.shown_file_system(volume);
    watch(&progress, &mut bar, || match (&volume.contents, fs) {
        (_, Some(fs)) => flysch_image::extract(&*fs, place, &options, &progress).map_err(fail),
        (Contents::Raw(flash), _) => {
            let damage = flysch_image::raw_damage(image, volume);
            let is_partial = arguments.keep_damaged;
            let damage = damage.map(|cause| Lost { path: vec![], cause, is_partial });
            if damage.is_some() && !arguments.keep_damaged {
                let failures = damage.into_iter().collect();
                return Ok(Extraction { failures, ..Extraction::default() });
            }
            let mut one =
                flysch_image::extract_raw(flash, place, &options, &progress).map_err(fail)?;
            one.failures.extend(damage.filter(|_| one.failures.is_empty()));
            Ok(one)
        }
        (_, None) => {
            let cause = volume.failure().unwrap_or("cannot be opened").to_string();
            let failures = vec![Lost { path: vec![], cause, is_partial: false }];
            Ok(Extraction { failures, ..Extraction::default() })
        }
    })
}

/// Runs `work` while the bar shows its progress.
fn watch<R: Send>(
    progress: &flysch_image::Progress,
    bar: &mut Progress,
    work: impl FnOnce() -> R + Send,
) -> R {
    std::thread::scope(|scope| {
        let (done, is_done) = channel::<()>();
        let worker = scope.spawn(move || {
            let result = work();
            drop(done);
            result
        });
        while is_done.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            bar.set(progress.bytes());
        }
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn add(total: &mut Extraction, one: Extraction, prefix: &str) {
    total.files += one.files;
    total.bytes += one.bytes;
    total.without_owner += one.without_owner;
    total.without_set_id += one.without_set_id;
    total.without_device += one.without_device;
    total.without_xattr += one.without_xattr;
    total.failures.extend(
        one.failures
            .into_iter()
            .map(|failure| Lost { path: join(prefix.as_bytes(), &failure.path), ..failure }),
    );
}

fn join(folder: &[u8], path: &[u8]) -> Vec<u8> {
    match (folder, path) {
        ([], path) => path.to_vec(),
        (folder, []) => folder.to_vec(),
        (folder, path) => [folder, b"/", path].concat(),
    }
}

fn report(
    total: &Extraction,
    faults: &[String],
    image: &Path,
    output: &mut Output,
) -> Result<(), Failure> {
    if output.json() {
        let failures: Vec<_> = total
            .failures
            .iter()
            .map(|Lost { path, cause, is_partial }| {
                json!({ "path": shown(path), "cause": cause, "partial": is_partial })
            })
            .collect();
        output.value(&json!({
            "files": total.files,
            "bytes": total.bytes,
            "failures": failures,
            "faults": faults,
            "without_owner": total.without_owner,
            "without_set_id": total.without_set_id,
            "without_device": total.without_device,
            "without_xattr": total.without_xattr,
        }))?;
    } else {
        for failure in &total.failures {
            eprintln!("flysch: /{}: {}", shown(&failure.path), failure.cause);
        }
        let files = counted(total.files, "file", "files");
        // With their holes, which formats store or do not.
        let bytes = counted(total.bytes, "byte of content", "bytes of content");
        output.line(format_args!("{files}, {bytes}"))?;
    }
    let missing: Vec<String> = [
        (total.without_owner, "owner", "owners"),
        (total.without_set_id, "set-id mode", "set-id modes"),
        (total.without_device, "device node", "device nodes"),
        (total.without_xattr, "extended attribute", "extended attributes"),
    ]
    .into_iter()
    .filter(|(count, ..)| *count > 0)
    .map(|(count, one, many)| counted(count, one, many).to_string())
    .collect();
    if !missing.is_empty() {
        eprintln!(
            "flysch: not restored: {}; that takes root and a file system that has them",
            missing.join(", ")
        );
    }
    match (total.failures.is_empty(), faults.first()) {
        (true, None) => Ok(()),
        (true, Some(fault)) => Err(Failure::of(image.display(), shown(fault.as_bytes()))),
        (false, fault) => {
            // What lies behind it.
            if let Some(fault) = fault {
                output.note(Failure::of(image.display(), shown(fault.as_bytes())));
            }
            Err(Failure::failed(missed(&total.failures)))
        }
    }
}

/// How many files are not there, and how many not completely.
fn missed(failures: &[Lost]) -> String {
    let partial = failures.iter().filter(|failure| failure.is_partial).count();
    let absent = failures.len() - partial;
    let absent = (absent > 0)
        .then(|| format!("{} could not be extracted", counted(absent, "file", "files")));
    let partial = (partial > 0)
        .then(|| format!("{} extracted only in part", counted(partial, "file was", "files were")));
    absent.into_iter().chain(partial).collect::<Vec<_>>().join("; ")
}
