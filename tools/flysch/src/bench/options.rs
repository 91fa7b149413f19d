//! Job options on the command line: every option fio has, by fio's name.

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, parser::ValueSource};
use flysch_bench::jobfile::known;

/// Options that may stand without a value.
const FLAGS: [&str; 24] = [
    "time_based",
    "norandommap",
    "group_reporting",
    "stonewall",
    "new_group",
    "verify_only",
    "do_verify",
    "verify_fatal",
    "randrepeat",
    "zero_buffers",
    "refill_buffers",
    "end_fsync",
    "fsync_on_close",
    "thread",
    "exitall",
    "exitall_on_error",
    "bs_unaligned",
    "direct",
    "buffered",
    "gtod_reduce",
    "latency_run",
    "replay_no_stall",
    "verify_dump",
    "experimental_verify",
];

/// What the options listed by `--help` do: (name, value, help).
const LISTED: [(&str, &str, &str); 64] = [
    ("name", "NAME", "Name of the job"),
    ("description", "TEXT", "Description of the job"),
    ("rw", "PATTERN", "read, write, trim, randread, randwrite, randtrim, rw, randrw, trimwrite"),
    ("bs", "SIZE", "Bytes per request, or read,write,trim (4k)"),
    ("bsrange", "MIN-MAX", "Request sizes between two limits"),
    ("bssplit", "SIZE/%:...", "Request sizes with their shares"),
    ("ba", "SIZE", "Alignment of random offsets (bs)"),
    ("iodepth", "N", "Requests kept in flight per worker (1)"),
    ("segments", "N", "Segments per request, with odd lengths and addresses (1)"),
    ("numjobs", "N", "Workers (1)"),
    ("size", "SIZE|%", "Bytes of the device used (all)"),
    ("offset", "SIZE|%", "First byte used (0)"),
    ("offset_increment", "SIZE|%", "Distance between the offsets of workers"),
    ("io_size", "SIZE|%", "Bytes to transfer (size)"),
    ("number_ios", "N", "Maximum number of requests"),
    ("loops", "N", "Passes over the region (1)"),
    ("runtime", "TIME", "End after this time; with time_based not before it"),
    ("time_based", "0|1", "Start over until the time is up"),
    ("ramp_time", "TIME", "Time at the start that is not measured"),
    ("startdelay", "TIME", "Wait before the first request, or between MIN-MAX"),
    ("rwmixread", "%", "Share of reads in rw and randrw (50)"),
    ("rwmixwrite", "%", "Share of writes in rw and randrw"),
    ("norandommap", "0|1", "Random blocks may repeat before all have been visited"),
    ("random_distribution", "KIND", "random, zipf, pareto, normal, zoned, zoned_abs or sequence"),
    ("randseed", "N", "Seed of the job's random numbers"),
    ("randrepeat", "0|1", "The same random numbers in every run (1)"),
    ("fsync", "N", "Flush after every N writes"),
    ("fdatasync", "N", "The same as fsync"),
    ("end_fsync", "0|1", "Flush after the last write"),
    ("sync", "KIND", "none, or sync/dsync: writes carry force-unit-access"),
    ("rate", "SIZE", "Maximum bytes per second, or read,write,trim"),
    ("rate_iops", "N", "Maximum requests per second, or read,write,trim"),
    ("thinktime", "TIME", "Pause between requests"),
    ("thinktime_blocks", "N", "Requests between pauses (1)"),
    ("verify", "METHOD", "Verify everything written: crc32c, xxhash, sha256, meta, pattern, ..."),
    ("do_verify", "0|1", "Read back after writing (1)"),
    ("verify_fatal", "0|1", "Stop at the first mismatch"),
    ("verify_interval", "SIZE", "Bytes per verify header (bs)"),
    ("verify_only", "0|1", "Verify what an earlier run wrote"),
    ("verify_backlog", "N", "Read back after every N writes, not only at the end"),
    ("verify_backlog_batch", "N", "How many are read back then (verify_backlog)"),
    ("verify_offset", "SIZE", "Offset of the verify header in its block (0)"),
    ("verify_pattern", "PATTERN", "Data to verify: 0xff, \"text\", number, %o for the offset"),
    ("verify_dump", "0|1", "Save wrong data in files in the current directory"),
    ("latency_target", "TIME", "Search for the queue depth at which requests take no longer"),
    ("latency_window", "TIME", "How long each depth is tried"),
    ("latency_percentile", "%", "Percentage of requests that must be fast enough (100)"),
    ("latency_run", "0|1", "Continue the search until the job ends by itself"),
    ("max_latency", "TIME", "End the job at a request that takes longer"),
    ("steadystate", "KIND:LIMIT", "End when iops, bw or lat (or its _slope) varies less: iops:5%"),
    ("steadystate_duration", "TIME", "The window that is judged, in seconds"),
    ("steadystate_ramp_time", "TIME", "Time before the first measurement"),
    ("steadystate_check_interval", "TIME", "Interval between measurements (1)"),
    ("write_iolog", "FILE", "Write the requests to a log that fio can replay, too"),
    ("read_iolog", "FILE", "Replay a log of fio or ours, or a blktrace file"),
    ("replay_no_stall", "0|1", "Replay as fast as the queue accepts requests"),
    ("replay_time_scale", "%", "Rate of the replay (100)"),
    ("replay_scale", "N", "Divide the log's offsets"),
    ("replay_align", "SIZE", "Round the log's offsets down"),
    ("replay_skip", "KINDS", "Omit read, write, trim or sync"),
    ("refill_buffers", "0|1", "Fresh data for every write"),
    ("buffer_pattern", "PATTERN", "Data of writes: 0xdeadbeef, \"text\", number"),
    ("continue_on_error", "KIND", "none, read, write, io, verify or all"),
    ("percentile_list", "P:P...", "Percentiles to compute"),
];

/// Job options as given, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobOptions {
    /// (name, value); a flag has no value.
    pub(crate) list: Vec<(String, Option<String>)>,
}

impl Args for JobOptions {
    fn augment_args(command: Command) -> Command {
        let mut command = command;
        for name in known::names() {
            command = command.arg(argument(name));
        }
        // Options of the program fio are taken to say what there is in their place.
        for name in known::of_fio_itself() {
            let arg = Arg::new(name).long(name).num_args(0..=1).require_equals(true).hide(true);
            command = command.arg(arg.default_missing_value(""));
        }
        command.mut_arg("rw", |arg| arg.help_heading("Job options, as in fio"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn argument(name: &'static str) -> Arg {
    let listed = LISTED.iter().find(|(listed, ..)| *listed == name);
    let arg = Arg::new(name).long(name).action(ArgAction::Append).allow_hyphen_values(true);
    let arg = arg.help_heading("Job options, as in fio");
    let arg = match listed {
        Some((_, value, help)) => arg.value_name(*value).help(*help),
        None => arg.value_name("VALUE").hide(true),
    };
    if FLAGS.contains(&name) {
        arg.num_args(0..=1).require_equals(true).default_missing_value("1")
    } else {
        arg.num_args(1)
    }
}

impl FromArgMatches for JobOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut of_fio = known::of_fio_itself();
        if let Some(name) =
            of_fio.find(|name| matches.value_source(name) == Some(ValueSource::CommandLine))
        {
            let place = known::in_place_of(name).unwrap_or("there is none");
            let message = format!("--{name} is an option of the program fio: {place}\n");
            return Err(Error::raw(ErrorKind::UnknownArgument, message));
        }
        let mut found: Vec<(usize, String, Option<String>)> = Vec::new();
        for name in known::names() {
            if matches.value_source(name) != Some(ValueSource::CommandLine) {
                continue;
            }
            let indices = matches.indices_of(name).into_iter().flatten();
            let values = matches.get_many::<String>(name).into_iter().flatten();
            for (index, value) in indices.zip(values) {
                found.push((index, name.to_string(), Some(value.clone())));
            }
        }
        found.sort_by_key(|(index, ..)| *index);
        let list = found.into_iter().map(|(_, name, value)| (name, value)).collect();
        Ok(Self { list })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
