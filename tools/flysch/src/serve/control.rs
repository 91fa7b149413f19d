//! The control socket: a line of JSON in each direction, one order per connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use flysch_rig::{FaultKind, Plan, Served};
use flysch_vfio_user::{Counts, Turn};
use serde_json::{Value, json};

use super::{Remote, control_path, status, tell};
use crate::failure::Failure;
use crate::output::Output;

/// Longest line of a control connection, bytes.
const LINE_MAX: u64 = 4096;
/// Time limit of a control connection per line.
const PATIENCE: Duration = Duration::from_secs(5);

/// Options of `flysch serve-ctl`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The socket of `flysch serve`.
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,
    #[command(subcommand)]
    order: Order,
}

/// What to do to a served device.
#[derive(Clone, Debug, clap::Subcommand, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Inject faults from now on: `KIND:WHEN[+KIND:WHEN...]`, or `none`.
    Inject {
        /// The faults.
        plan: String,
    },
    /// Cut the device's power: unflushed data may be lost.
    PowerCut,
    /// Restore it.
    PowerOn,
    /// Assert the device's reset line.
    Reset,
    /// Pull the device out of its machine: the client loses its connection.
    Remove,
    /// Show what has happened so far.
    Status,
    /// End the server.
    Stop,
}

impl Order {
    pub(super) fn execute(
        self,
        function: &mut dyn Served,
        client: Option<Counts>,
    ) -> (Value, Turn) {
        let mut done = json!({ "done": true });
        let mut turn = Turn::Continue;
        match self {
            Self::Inject { plan } => match parse_plan(&plan, function.fault_kinds()) {
                Ok(plan) => function.arm(plan),
                Err(why) => done = json!({ "error": why }),
            },
            Self::PowerCut => {
                done = match function.cut_power() {
                    Ok(loss) => json!({
                        "survived": loss.survived, "lost": loss.vanished, "torn": loss.torn,
                    }),
                    Err(why) => json!({ "error": why.to_string() }),
                };
            }
            Self::PowerOn => function.restore_power(),
            Self::Reset if function.reset_device() => {}
            Self::Reset => done = json!({ "error": "this device has no reset line" }),
            Self::Remove => turn = Turn::Disconnect,
            Self::Status => done = status(function, "status", client),
            // The server ends when this was told: nobody would tell it afterwards.
            Self::Stop => {}
        }
        (done, turn)
    }
}

fn parse_plan(text: &str, kinds: &'static [FaultKind]) -> Result<Plan, String> {
    match text {
        "none" => Ok(Plan::none()),
        // Targets part faults by '+', as ',' parts keys.
        text => Plan::parse(&text.replace('+', ","), kinds).map_err(|why| why.to_string()),
    }
}

/// Passes orders to the server, one connection after another.
pub(super) fn answer(listener: &UnixListener, server: &Remote) {
    for connection in listener.incoming().flatten() {
        if let Ok(Order::Stop) = serve_one(&connection, server) {
            server.end();
        }
    }
}

fn serve_one(connection: &UnixStream, server: &Remote) -> std::io::Result<Order> {
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(connection.take(LINE_MAX)).read_line(&mut line)?;
    let order = match serde_json::from_str::<Order>(&line) {
        Ok(order) => order,
        Err(why) => {
            writeln!(&mut &*connection, "{}", json!({ "error": format!("not an order: {why}") }))?;
            return Err(why.into());
        }
    };
    let answer = server.order(order.clone());
    // Whoever asked may have gone: the order stands.
    let _ = writeln!(&mut &*connection, "{answer}");
    Ok(order)
}

/// `flysch serve-ctl`.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    if let Order::Inject { plan } = &arguments.order {
        parse_plan(plan, &FaultKind::ALL).map_err(Failure::usage)?;
    }
    let path = control_path(&arguments.socket);
    let failed = |error: std::io::Error| Failure::of(path.display(), error);
    let mut connection = UnixStream::connect(&path).map_err(|error| {
        Failure::of(path.display(), format!("{error}: is `flysch serve` running there?"))
    })?;
    let order = serde_json::to_string(&arguments.order).map_err(Failure::failed)?;
    writeln!(connection, "{order}").map_err(failed)?;
    connection.shutdown(Shutdown::Write).map_err(failed)?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).map_err(failed)?;
    let answer: Value = serde_json::from_str(&answer).map_err(|cause| {
        Failure::of(path.display(), format!("the server's answer is not JSON: {cause}"))
    })?;
    match answer.get("error").and_then(Value::as_str) {
        Some(why) => Err(Failure::failed(why)),
        None => tell(output, &answer),
    }
}
