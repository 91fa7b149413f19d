//! Commands to a mounted graph, over its socket: one line of JSON in each direction.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use flysch_geom::class::gate;
use serde::{Deserialize, Serialize};

use super::mount::{LINK, Order};
use super::session::Session;
use super::stats::{Snapshot, snapshot};
use super::{Action, Arguments};
use crate::failure::Failure;
use crate::output::Output;
use crate::right_form::right_form;

/// Longest question, bytes.
const QUESTION_MAX: u64 = 1 << 20;
/// Maximum number of clients at once.
const CLIENTS_MAX: usize = 16;
/// Time limit for a client to send its request, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A request.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    /// The words behind `flysch geom`.
    #[serde(default)]
    words: Vec<String>,
    /// Whether JSON is wanted.
    #[serde(default)]
    json: bool,
    /// The folder that relative paths refer to.
    #[serde(default)]
    directory: PathBuf,
    /// Counters are requested instead.
    #[serde(default)]
    statistics: bool,
}

/// The result.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Answer {
    /// As an exit status of the command.
    status: u8,
    /// What it printed.
    #[serde(default)]
    output: String,
    /// Its error message.
    #[serde(default)]
    error: Option<String>,
    /// Counters.
    #[serde(default)]
    statistics: Option<Snapshot>,
}

impl Answer {
    /// In the form used on the socket.
    pub(super) fn line(&self) -> String {
        serde_json::to_string(self).expect("an answer is JSON")
    }

    /// With the messages printed before it.
    pub(super) fn behind(self, said: &str) -> Self {
        Self { output: said.to_string() + &self.output, ..self }
    }

    /// A failure.
    pub(super) fn of(failure: Failure) -> Self {
        let (status, error) = match failure {
            Failure::Usage(line) => (2, Some(line)),
            Failure::Failed(line) => (1, Some(line)),
            Failure::Status { status, line } => (status, line),
            Failure::NobodyReads => (0, None),
        };
        Self { status, error, ..Self::default() }
    }
}

/// The words of a command, without its name.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true, disable_version_flag = true)]
struct Words {
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    arguments: Arguments,
}

/// The clients being served.
#[derive(Clone, Debug, Default)]
pub(super) struct Clients(Arc<AtomicUsize>);

impl Clients {
    /// Waits until all have their answers, for a limited time.
    pub(super) fn leave(&self) {
        const STEP: Duration = Duration::from_millis(5);
        let mut left = 200;
        while self.0.load(Ordering::Relaxed) > 0 && left > 0 {
            std::thread::sleep(STEP);
            left -= 1;
        }
    }
}

/// Accepts clients and passes their requests to the owner of the graph.
pub(super) fn serve(listener: UnixListener, orders: mpsc::Sender<Order>) -> io::Result<Clients> {
    let served = Clients::default();
    let clients = Arc::clone(&served.0);
    let take = move || {
        for stream in listener.incoming().flatten() {
            if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
                clients.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (orders, left) = (orders.clone(), Arc::clone(&clients));
            let attend = move || {
                // A client that goes away harms nobody.
                let _ = attend(&stream, &orders);
                left.fetch_sub(1, Ordering::Relaxed);
            };
            if std::thread::Builder::new().name("client".into()).spawn(attend).is_err() {
                clients.fetch_sub(1, Ordering::Relaxed);
            }
        }
    };
    std::thread::Builder::new().name("socket".into()).spawn(take)?;
    Ok(served)
}

fn attend(stream: &UnixStream, orders: &mpsc::Sender<Order>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut question = String::new();
    BufReader::new(stream.take(QUESTION_MAX)).read_line(&mut question)?;
    let (sender, answer) = mpsc::channel();
    let sent = orders.send(Order::Command(question, sender));
    // No cause: the owner of the graph has gone.
    sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
    // No cause: the same.
    let mut answer = answer.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
    answer.push('\n');
    let mut stream = stream;
    stream.write_all(answer.as_bytes())
}

/// Executes a client's request.
pub(super) fn answer(session: &mut Session, line: &str) -> Answer {
    // Whose server died shows that before anything is said of it.
    gate::look(&mut session.graph);
    match serde_json::from_str::<Question>(line) {
        Ok(question) if question.statistics => {
            Answer { statistics: Some(snapshot(&session.graph)), ..Answer::default() }
        }
        Ok(question) => obey(session, &question),
        Err(error) => refused(format!("the question is not understood: {error}")),
    }
}

/// Answers a client of a workload, which offers only counters.
pub(super) fn tell(line: &str, ask: impl FnOnce() -> Result<Snapshot, String>) -> String {
    let answer = match serde_json::from_str::<Question>(line) {
        Ok(question) if question.statistics => match ask() {
            Ok(counters) => Answer { statistics: Some(counters), ..Answer::default() },
            Err(error) => Answer { status: 1, error: Some(error), ..Answer::default() },
        },
        Ok(_) => refused("a workload runs here; it only answers `flysch gstat`".into()),
        Err(error) => refused(format!("the question is not understood: {error}")),
    };
    answer.line()
}

fn refused(error: String) -> Answer {
    Answer { status: 2, error: Some(error), ..Answer::default() }
}

fn obey(session: &mut Session, question: &Question) -> Answer {
    let words = match Words::try_parse_from(&question.words) {
        Ok(words) => words,
        Err(error) => {
            let words: Vec<OsString> = question.words.iter().map(OsString::from).collect();
            return refused(right_form(Words::command(), &words, &error));
        }
    };
    let Arguments { file, on, rig, force, verbose, script, action, .. } = &words.arguments;
    if !file.is_empty() || !on.is_empty() || !rig.is_empty() || script.is_some() {
        let text = "-f, --on, --rig and --script cannot be used on a graph that is mounted";
        return refused(text.into());
    }
    if let Err(Failure::Usage(line)) = words.arguments.check() {
        return refused(line);
    }
    if matches!(action, Some(Action::Copy(_) | Action::Mount(_))) {
        let text = "this cannot be done over the socket: the providers are files, copy those";
        return refused(text.into());
    }
    let (mut output, kept) = Output::kept(question.json || words.json);
    let before = std::mem::replace(&mut session.force, *force);
    session.verbose = *verbose;
    session.base.clone_from(&question.directory);
    let done = super::obey(session, &words.arguments, &mut output).and_then(|()| output.finish());
    (session.force, session.verbose) = (before, false);
    session.base.clear();
    let output = String::from_utf8_lossy(&kept.take()).into_owned();
    Answer { output, ..done.err().map_or_else(Answer::default, Answer::of) }
}

/// Queries the owner of the graph behind a socket, or behind the mount on a folder.
fn ask(path: &Path, question: &Question) -> Result<Answer, Failure> {
    let socket = match path.is_dir() {
        false => path.to_path_buf(),
        true => path.join(LINK).read_link().map_err(|cause| {
            let text = "is not a mount of `flysch geom mount`, so nothing answers there";
            Failure::of(path.display(), format!("{text} ({cause})"))
        })?,
    };
    let failed = |error: io::Error| Failure::of(path.display(), error);
    let mut stream = UnixStream::connect(&socket).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            let text = format!("{error}: nobody listens; is the mount or workload still there?");
            Failure::of(path.display(), text)
        }
        _ => failed(error),
    })?;
    let mut line = serde_json::to_string(question).expect("a question is JSON");
    line.push('\n');
    stream.write_all(line.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    serde_json::from_str(&answer).map_err(|cause| {
        let text = "did not answer as expected; did the mount or workload end?";
        Failure::of(path.display(), format!("{text} ({cause})"))
    })
}

/// Has a command executed by the process that listens at `path`.
pub(super) fn run(path: &Path, words: Vec<String>, output: &mut Output) -> Result<(), Failure> {
    let directory = std::env::current_dir().unwrap_or_default();
    let question = Question { words, json: output.json(), directory, statistics: false };
    let answer = ask(path, &question)?;
    output.bytes(answer.output.as_bytes())?;
    match (answer.status, answer.error) {
        (0, _) => Ok(()),
        (2, Some(line)) => Err(Failure::Usage(line)),
        (1, Some(line)) => Err(Failure::Failed(line)),
        (status, line) => Err(Failure::Status { status, line }),
    }
}

/// The counters of the graph behind `path`.
pub(crate) fn statistics(path: &Path) -> Result<Snapshot, Failure> {
    let answer = ask(path, &Question { statistics: true, ..Question::default() })?;
    let why = answer.error.unwrap_or_else(|| "did not report counters".into());
    answer.statistics.ok_or_else(|| Failure::of(path.display(), why))
}
